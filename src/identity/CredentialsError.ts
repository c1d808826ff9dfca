/**
 * Why certificate files can't be used.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * A file of credentials is missing or would not serve; nothing was opened with it. `setting` is the connector's name
 * of the file (`ca_cert`, `server_cert`, ...), `path` where it was looked for, empty where nothing names it.
 *
 * - `missing`: not there, or not named
 * - `unreadable`: the system does not let this user read it
 * - `invalid`: no PEM of the right kind, or a key that TLS does not take (too short)
 * - `encrypted`: a key with a passphrase
 * - `mismatch`: key and certificate do not belong together
 * - `expired`: outside its validity
 * - `purpose`: its extended key usage excludes this side of a connection
 * - `foreign`: not issued by the CA in `ca_cert`
 * - `identity`: its common name is not the one that the cell, or the listener so far, has
 *
 * @category errors
 * @since 0.1.0
 */
export class CredentialsError extends Schema.TaggedError<CredentialsError>()("CredentialsError", {
  setting: Schema.String,
  path: Schema.String,
  problem: Schema.Literals([
    "missing",
    "unreadable",
    "invalid",
    "encrypted",
    "mismatch",
    "expired",
    "purpose",
    "foreign",
    "identity"
  ]),
  message: Schema.String
}) {}

const nextStep = (path: string, code: string): string => {
  switch (code) {
    case "ENOENT":
    case "ENOTDIR":
      return `${path} is not there: give the path of the file, or put it there`
    case "EISDIR":
      return `${path} is a folder: give the path of the file`
    default:
      return `${path} can't be read (${code}): let this user read it`
  }
}

/**
 * What the system says of a file that could not be read, given what it threw.
 *
 * @category constructors
 * @since 0.1.0
 */
export const notRead = (setting: string, path: string, cause: unknown): CredentialsError => {
  const code = typeof cause === "object" && cause !== null && "code" in cause ? String(cause.code) : "EUNKNOWN"
  const problem = code === "ENOENT" || code === "ENOTDIR" ? "missing" : "unreadable"
  return new CredentialsError({ setting, path, problem, message: `${setting}: ${nextStep(path, code)}` })
}
