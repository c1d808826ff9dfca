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
