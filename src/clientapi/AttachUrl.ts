/**
 * The URL at which a trainer finds its CJ or CP, and whether that way is secure.
 *
 * URLs are taken apart in Python's way, as the reference does: no percent-decoding, no resolving of dots. The WHATWG URL
 * class would name another directory. Sources: docs/wire/attach.md, section 11; docs/wire/transport.md, section 9.2.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import { type FieldError, refuse } from "./FieldError.ts"

/**
 * The scheme of the shared-file transport.
 *
 * @category constants
 * @since 0.1.0
 */
export const sharedFileScheme = "shared-file"

/**
 * How a connection is protected: not at all, or by certificates on both sides.
 *
 * @category models
 * @since 0.1.0
 */
export type ConnectionSecurity = "clear" | "mtls"

const secureSchemes: ReadonlySet<string> = new Set(["https", "grpcs", "agrpcs", "ngrpcs", "stcp", "satcp"])

interface Split {
  readonly scheme: string
  readonly authority: string
  readonly path: string
}

const tidy = (url: string): string => {
  let start = 0
  while (start < url.length && url.charCodeAt(start) <= 0x20) start += 1
  return url.slice(start).replaceAll(/[\t\r\n]/g, "")
}

const split = (url: string): Split => {
  const text = tidy(url)
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):/.exec(text)?.[1] ?? ""
  const rest = scheme === "" ? text : text.slice(scheme.length + 1)
  const [authority = "", after] = rest.startsWith("//") ? splitAt(rest.slice(2), /[/?#]/) : ["", rest]
  return { scheme: scheme.toLowerCase(), authority, path: splitAt(after ?? "", /[?#]/)[0] ?? "" }
}

const splitAt = (text: string, where: RegExp): readonly [string, string] => {
  const index = text.search(where)
  return index < 0 ? [text, ""] : [text.slice(0, index), text.slice(index)]
}

const trimSlashes = (path: string): string => {
  let end = path.length
  while (end > 0 && path[end - 1] === "/") end -= 1
  return path.slice(0, end)
}

const sharedFileRule = "write shared-file://0/absolute/directory"

/**
 * The directory that a `shared-file` URL names, without its tuning parameters and with nothing decoded or resolved.
 *
 * @category combinators
 * @since 0.1.0
 */
export const sharedFilePath = (url: string, field = "connect_url"): Result.Result<string, FieldError> => {
  const { scheme, authority, path } = split(url)
  const directory = trimSlashes(path)
  return scheme === sharedFileScheme && authority === "0" && directory.startsWith("/")
    ? Result.succeed(directory)
    : refuse(field, url, sharedFileRule)
}

const bracketRule = "its host has a square bracket too few or too many"

/**
 * Checks a connection URL together with the `connection_security` declared for it (`undefined` and `null`: not
 * declared), and answers the security that then holds.
 *
 * @category combinators
 * @since 0.1.0
 */
export const securityOf = (url: unknown, declared: unknown): Result.Result<ConnectionSecurity, FieldError> => {
  const field = "connect_url"
  if (typeof url !== "string" || url.trim() === "") {
    return refuse(field, url, 'write the URL to connect to, for instance "grpcs://cp.example:8002"')
  }
  const { scheme, authority } = split(url)
  if (authority.includes("[") !== authority.includes("]")) return refuse(field, url, bracketRule)
  if (scheme === "") return refuse(field, url, 'put a scheme before it, for instance "grpcs://"')
  if (scheme === "file") return refuse(field, url, sharedFileRule)
  const isDeclared = declared !== undefined && declared !== null
  if (scheme === sharedFileScheme) {
    return isDeclared && declared !== "clear"
      ? refuse("connection_security", declared, 'a shared-file connection is "clear": leave it out or write "clear"')
      : Result.map(sharedFilePath(url), () => "clear")
  }
  return isDeclared ? declaredSecurity(declared) : schemeSecurity(scheme, url)
}

const declaredSecurity = (declared: unknown): Result.Result<ConnectionSecurity, FieldError> => {
  const field = "connection_security"
  if (declared === "clear" || declared === "mtls") return Result.succeed(declared)
  return declared === "tls"
    ? refuse(field, declared, 'TLS without a client certificate can\'t attach: write "mtls", or use shared-file')
    : refuse(field, declared, 'write "clear" or "mtls"')
}

const schemeSecurity = (scheme: string, url: string): Result.Result<ConnectionSecurity, FieldError> =>
  secureSchemes.has(scheme)
    ? Result.succeed("mtls")
    : refuse(
        "connection_security",
        undefined,
        `the scheme of ${JSON.stringify(url)} is not secure: write "mtls", or "clear" if the network is trusted and isolated`
      )
