/** What a network URL and its resources ask for. Source: docs/wire/transport.md, sections 4 and 5. */
import { Result } from "effect"
import type { Resources } from "../../Drivers.ts"
import type { TransportError } from "../../TransportError.ts"
import { parseUrl, splitUrl } from "../connectorUrl.ts"
import { schemeOf } from "../driverTable.ts"
import { badConfig } from "../errors.ts"

/** How a connection is protected: by nothing, by the listener's certificate, or by both sides' certificates. */
type Security = "clear" | "tls" | "mtls"

/** Parameters of a connector: the URL's query, overlaid by the caller's resources. */
export type Params = ReadonlyMap<string, string | number | boolean>

export interface Connector {
  /** The scheme as it acts: `stcp` for a `tcp` URL whose `secure` is true. */
  readonly scheme: string
  /** Empty for all interfaces. */
  readonly host: string
  readonly port: number
  readonly security: Security
  readonly params: Params
}

const secured = new Map([
  ["tcp", "stcp"],
  ["atcp", "satcp"],
  ["http", "https"],
  ["grpc", "grpcs"],
  ["agrpc", "agrpcs"]
])

const secureSchemes: ReadonlySet<string> = new Set(secured.values())

// A listener that is told to be secure takes these; only URLs say satcp and agrpcs.
const generated = new Map([...secured, ["atcp", "stcp"], ["agrpc", "grpcs"]])

const isSecure = (scheme: string): boolean => secureSchemes.has(scheme)

const truthy = new Set(["true", "yes", "y", "t", "1"])

const isTrue = (value: string | number | boolean | undefined): boolean =>
  value === true || (value !== undefined && truthy.has(String(value).toLowerCase()))

/** What the URL itself says must not be said again by its query: that could take the protection away. */
const ofUrl = new Set(["url", "scheme", "host", "port", "path", "params", "query", "frag"])

const paramsOf = (url: string, resources: Resources | undefined): Params => {
  const params = new Map<string, string | number | boolean>()
  if (url.includes(":")) {
    for (const [name, value] of parseUrl(url)) {
      if (!ofUrl.has(name)) {
        params.set(name, value)
      }
    }
  }
  for (const [name, value] of Object.entries(resources ?? {})) {
    params.set(name, value)
  }
  return params
}

export const textOf = (params: Params, name: string): string | undefined => {
  const value = params.get(name)
  return value === undefined || value === "" ? undefined : String(value)
}

/** A number of a setting: finite and not below `least`. */
export const numberOf = (
  params: Params,
  name: string,
  fallback: number,
  least: number
): Result.Result<number, TransportError> => {
  const text = textOf(params, name)
  const value = text === undefined ? fallback : Number(text)
  return Number.isFinite(value) && value >= least
    ? Result.succeed(value)
    : Result.fail(badConfig(name, `${name} is ${JSON.stringify(text)}: a number of at least ${least} is needed`))
}

/** On a secure scheme anything but `tls` means both certificates, as with the reference. */
const securityOf = (scheme: string, params: Params): Security =>
  !isSecure(scheme) ? "clear" : textOf(params, "connection_security") === "tls" ? "tls" : "mtls"

const isPort = (text: string): boolean => /^\d{1,5}$/.test(text) && Number(text) <= 65535

const hostAndPort = (
  url: string
): Result.Result<{ readonly host: string; readonly port: number | undefined }, TransportError> => {
  const { authority } = splitUrl(url)
  const [host = "", port, ...more] = authority.split(":")
  if (more.length > 0 || authority.includes("[") || authority.includes("@")) {
    const problem = "write scheme://host:port; addresses of IP version 6 and user names are not possible"
    return Result.fail(badConfig("url", `${url} has the address "${authority}": ${problem}`))
  }
  if (port !== undefined && !isPort(port)) {
    return Result.fail(badConfig("url", `${url} has the port "${port}": a port is a number from 0 to 65535`))
  }
  return Result.succeed({ host: host === "0" ? "" : host, port: port === undefined ? undefined : Number(port) })
}

/**
 * What to dial. A clear scheme with a security that needs certificates is refused: the reference would connect in
 * clear.
 */
export const forDial = (url: string, resources: Resources | undefined): Result.Result<Connector, TransportError> =>
  Result.flatMap(hostAndPort(url), ({ host, port }) => {
    const params = paramsOf(url, resources)
    const written = schemeOf(url)
    const scheme = isTrue(params.get("secure")) ? (secured.get(written) ?? written) : written
    const wanted = textOf(params, "connection_security")
    if (!isSecure(scheme) && wanted !== undefined && wanted !== "clear") {
      const better = `${secured.get(scheme) ?? scheme}${url.slice(url.indexOf(":"))}`
      const message = `${url} would be dialed in clear, but connection_security is ${wanted}: write ${better}, or set connection_security to clear`
      return Result.fail(badConfig("connection_security", message))
    }
    if (port === undefined || port === 0) {
      return Result.fail(badConfig("url", `${url} has no port: write ${scheme}://host:port`))
    }
    return Result.succeed({
      scheme,
      host: host === "" ? "127.0.0.1" : host,
      port,
      security: securityOf(scheme, params),
      params
    })
  })

/** Where a listener binds, and how it is reached. */
export interface Binding {
  readonly scheme: string
  readonly security: Security
  readonly params: Params
  /** The host to bind; empty for all interfaces. */
  readonly bindHost: string
  /** The host that peers dial. */
  readonly host: string
  /** Ports to try in order, as ranges; empty: any free port. */
  readonly ports: ReadonlyArray<readonly [number, number]>
}

const isLoopback = (host: string): boolean => /^127(?:\.\d{1,3}){3}$/.test(host)

const bindHostOf = (host: string, listenHost: string | undefined): string => {
  if (listenHost !== undefined) {
    return listenHost === "0" ? "" : listenHost
  }
  if (host.toLowerCase().replace(/\.{1,8}$/, "") === "localhost") {
    return "127.0.0.1"
  }
  return isLoopback(host) ? host : ""
}

const lowestPort = 1025
const highestPort = 65535

const portRange = (text: string): readonly [number, number] | undefined => {
  const [low = "", high, ...more] = text.trim().split("-")
  if (more.length > 0 || text.trim() === "" || text.trim() === "-") {
    return undefined
  }
  const first = low.trim() === "" ? String(lowestPort) : low.trim()
  const last = high === undefined ? first : high.trim() === "" ? String(highestPort) : high.trim()
  return isPort(first) && isPort(last) && Number(first) <= Number(last) ? [Number(first), Number(last)] : undefined
}

/** `8000`, `8000-8010`, `-9000`, `9000-`, or several of them with commas. */
export const portRanges = (text: string): Result.Result<ReadonlyArray<readonly [number, number]>, TransportError> => {
  const ranges: Array<readonly [number, number]> = []
  for (const part of text.split(",")) {
    const range = portRange(part)
    if (range === undefined) {
      const message = `ports is ${JSON.stringify(text)}: write a port or a range such as 8000-8010, or several with commas`
      return Result.fail(badConfig("ports", message))
    }
    ranges.push(range)
  }
  return Result.succeed(ranges)
}

const secureScheme = (written: string, params: Params): string => {
  const wanted = textOf(params, "connection_security")
  const isWanted = wanted === undefined ? isTrue(params.get("secure")) : wanted !== "clear"
  return isWanted ? (generated.get(written) ?? written) : written
}

/** A listener from resources alone. Source: docs/wire/transport.md, section 4.1. */
const forResources = (scheme: string, params: Params): Result.Result<Binding, TransportError> => {
  const effective = secureScheme(scheme, params)
  const host = textOf(params, "host") ?? "localhost"
  const port = textOf(params, "port")
  if (port !== undefined && !isPort(port)) {
    return Result.fail(badConfig("port", `port is ${JSON.stringify(port)}: a port is a number from 0 to 65535`))
  }
  const text = port ?? textOf(params, "ports")
  const ranges = text === undefined || text === "0" ? Result.succeed([]) : portRanges(text)
  return Result.map(ranges, (ports) => ({
    scheme: effective,
    security: securityOf(effective, params),
    params,
    bindHost: bindHostOf(host, textOf(params, "listen_host")),
    host,
    ports
  }))
}

const defaultPorts = new Map([
  ["http", 8080],
  ["https", 8443]
])

const forUrl = (url: string, params: Params, machine: string): Result.Result<Binding, TransportError> =>
  Result.flatMap(hostAndPort(url), ({ host, port: written }) => {
    const scheme = secureScheme(schemeOf(url), params)
    const port = written ?? defaultPorts.get(scheme)
    if (port === undefined) {
      const message = `${url} has no port: write ${scheme}://host:port (port 0 for any free one)`
      return Result.fail(badConfig("url", message))
    }
    return Result.succeed({
      scheme,
      security: securityOf(scheme, params),
      params,
      bindHost: host,
      host: textOf(params, "host") ?? (host === "" ? machine : host),
      ports: port === 0 ? [] : [[port, port]]
    })
  })

/** Where to listen; `machine` is this machine's name, for peers of a listener on all interfaces. */
export const forListener = (
  schemeOrUrl: string,
  resources: Resources | undefined,
  machine: string
): Result.Result<Binding, TransportError> => {
  const params = paramsOf(schemeOrUrl, resources)
  return schemeOrUrl.includes(":") ? forUrl(schemeOrUrl, params, machine) : forResources(schemeOf(schemeOrUrl), params)
}
