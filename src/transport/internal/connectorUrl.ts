/**
 * Connector URLs as the reference reads them: split in Python's way, nothing decoded or normalized in the path.
 * The URL class won't do: it re-encodes blanks and resolves dots. Source: docs/wire/transport.md, sections 4 and 9.2.
 */

export interface UrlParts {
  /** Lower case; empty where there is none. */
  readonly scheme: string
  readonly authority: string
  readonly path: string
  readonly query: string
  readonly fragment: string
}

const schemePattern = /^([A-Za-z][A-Za-z0-9+.-]*):/
const lineBreaks = /[\t\r\n]/g

const cutAt = (text: string, mark: string): readonly [string, string] => {
  const at = text.indexOf(mark)
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)]
}

/** Leading blanks and control characters go, and every tab, CR and LF. */
const cleaned = (url: string): string => {
  let start = 0
  while (start < url.length && url.charCodeAt(start) <= 0x20) {
    start += 1
  }
  return url.slice(start).replace(lineBreaks, "")
}

export const splitUrl = (url: string): UrlParts => {
  const text = cleaned(url)
  const scheme = schemePattern.exec(text)?.[1] ?? ""
  const rest = scheme === "" ? text : text.slice(scheme.length + 1)
  const hasAuthority = rest.startsWith("//")
  const end = hasAuthority ? rest.slice(2).search(/[/?#]/) : 0
  const authority = hasAuthority ? rest.slice(2, end < 0 ? undefined : end + 2) : ""
  const [withoutFragment, fragment] = cutAt(hasAuthority ? rest.slice(2 + authority.length) : rest, "#")
  const [path, query] = cutAt(withoutFragment, "?")
  return { scheme: scheme.toLowerCase(), authority, path, query, fragment }
}

const escapes = /(?:%[0-9A-Fa-f]{2})+/g

const unquote = (text: string): string =>
  text
    .replaceAll("+", " ")
    .replace(escapes, (run) => new TextDecoder().decode(Buffer.from(run.replaceAll("%", ""), "hex")))

/** The pairs of a query, decoded; the last of a name wins, blank values don't count. */
export const parseQuery = (query: string): ReadonlyMap<string, string> => {
  const pairs = new Map<string, string>()
  for (const pair of query.split("&")) {
    const [name, value] = cutAt(pair, "=")
    if (value !== "") {
      pairs.set(unquote(name), unquote(value))
    }
  }
  return pairs
}

const takesParams = new Set(["", "http", "https"])

/** The connector parameters that a URL stands for; a query pair may overwrite even `scheme` or `host`. */
export const parseUrl = (url: string): ReadonlyMap<string, string> => {
  const { authority, fragment, path, query, scheme } = splitUrl(url)
  const semicolon = takesParams.has(scheme) ? path.indexOf(";", path.lastIndexOf("/") + 1) : -1
  const [host, port] = authority.split(":")
  const params = new Map([
    ["url", url],
    ["scheme", scheme],
    ["host", host === undefined || host === "0" ? "" : host],
    ["path", semicolon < 0 ? path : path.slice(0, semicolon)],
    ["params", semicolon < 0 ? "" : path.slice(semicolon + 1)],
    ["query", query],
    ["frag", fragment]
  ])
  if (port !== undefined) {
    params.set("port", port)
  }
  for (const [name, value] of parseQuery(query)) {
    params.set(name, value)
  }
  return params
}
