/**
 * Connections over TCP, in clear or with TLS, for the schemes `tcp`, `stcp`, `atcp` and `satcp`: frames back to back,
 * nothing else on the wire.
 *
 * Source: docs/wire/transport.md, sections 4 to 6.
 *
 * @since 0.1.0
 */
import * as NodeNet from "node:net"
import * as NodeOs from "node:os"
import * as NodeTls from "node:tls"
import { Effect, Layer, Result, type Scope } from "effect"
import type { TlsContext } from "../identity/TlsContext.ts"
import { type Driver, Drivers, type FrameLink } from "./Drivers.ts"
import * as DriverTable from "./internal/driverTable.ts"
import * as FramePool from "./internal/framePool.ts"
import * as Arrivals from "./internal/net/arrivals.ts"
import { bindPort } from "./internal/net/bind.ts"
import { type Binding, forDial, forListener } from "./internal/net/connector.ts"
import * as Inlet from "./internal/net/inlet.ts"
import { type Limits, limitsOf, type NetworkOptions } from "./internal/net/options.ts"
import * as Renewal from "./internal/net/renewal.ts"
import * as SocketLink from "./internal/net/socketLink.ts"
import { addressesOf, dialTcp, keepAliveDelay, noDelayOf, openServer } from "./internal/net/sockets.ts"
import * as Tls from "./internal/net/tls.ts"
import type { TransportError } from "./TransportError.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface Options extends NetworkOptions {}

const schemes = ["tcp", "stcp", "atcp", "satcp"]

type Role = "active" | "passive"

const clearLink = (
  socket: NodeNet.Socket,
  scheme: string,
  role: Role,
  settings: SocketLink.Settings,
  inlet?: Inlet.Inlet
) => {
  const { local, peer } = addressesOf(socket)
  return SocketLink.make(socket, { scheme, localAddress: local, peerAddress: peer }, role, settings, inlet)
}

const tlsLink = (
  socket: NodeTls.TLSSocket,
  { scheme, security }: Secured,
  role: Role,
  settings: SocketLink.Settings
) => {
  const { local, peer } = addressesOf(socket)
  const info = { scheme, localAddress: local, peerAddress: peer, ...Tls.peerNameOf(socket), security }
  return SocketLink.make(socket, info, role, settings)
}

type LinkLimits = Limits & SocketLink.Settings

/** Memory of frames that waits to be used again, of all links of a driver together: a child that is slow fills some windows. */
const maxIdle = 64 * 1024 * 1024

interface Secured {
  readonly scheme: string
  readonly security: "tls" | "mtls"
}

const socketOptions = (binding: Binding) => ({
  noDelay: noDelayOf(binding.params),
  keepAlive: true,
  keepAliveInitialDelay: keepAliveDelay
})

/** A server that is not open yet. */
interface Served {
  readonly server: NodeNet.Server
  readonly renew: Renewal.Renew
}

const clearServer = (binding: Binding, arrivals: Arrivals.Arrivals, limits: LinkLimits): Served => {
  const server = NodeNet.createServer({ ...socketOptions(binding), pauseOnConnect: true })
  server.on("connection", (socket) => {
    socket.on("error", () => {})
    arrivals.add({ take: clearLink(socket, binding.scheme, "passive", limits), drop: () => socket.destroy() })
  })
  return { server, renew: Renewal.nothingToRenew }
}

/** Each handshake goes on by itself: a client that is silent holds up nobody, and is sent away after a while. */
const tlsServer = (binding: Binding, context: TlsContext, arrivals: Arrivals.Arrivals, limits: LinkLimits): Served => {
  const server = NodeTls.createServer({
    ...socketOptions(binding),
    ...Tls.listenerOptions(context, limits.handshakeTimeout)
  })
  const secured = { scheme: binding.scheme, security: context.security }
  server.on("tlsClientError", (error, socket) => {
    arrivals.complain(Tls.clientError(addressesOf(socket).peer, error, socket).message)
    socket.destroy()
  })
  server.on("secureConnection", (socket) => {
    socket.on("error", () => {})
    arrivals.add({ take: tlsLink(socket, secured, "passive", limits), drop: () => socket.destroy() })
  })
  return { server, renew: (context) => server.setSecureContext(Tls.secureContext(context)) }
}

/**
 * A driver for `tcp://host:port` and `stcp://host:port` URLs.
 *
 * A listener may be given by the bare scheme and resources: `host` (how peers reach it; default `localhost`),
 * `listen_host`, `port` or `ports` (`8000-8010`; default any free one), `connection_security`. `stcp` and `satcp` speak
 * TLS, with certificates on both sides unless `connection_security` is `tls`; a listener whose `connection_security` is
 * not `clear` does so too, whatever its scheme. Certificates follow their files: a dialer reads them each time, a
 * listener looks for new ones every `renewInterval`. A dialer never connects in clear where certificates are asked for.
 * `tcp_no_delay` set to false allows the system to hold small frames back.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options = {}): Driver => {
  const contexts = Tls.makeContexts(options.credentials, true)
  const pool = FramePool.make(maxIdle)
  const limitsFor = (params: Parameters<typeof limitsOf>[1]) =>
    Result.map(limitsOf(options, params), (limits): LinkLimits => ({ ...limits, pool }))
  const connect: Driver["connect"] = Effect.fn("TcpDriver.connect")(function* (url, resources): Effect.fn.Return<
    FrameLink,
    TransportError,
    Scope.Scope
  > {
    const connector = yield* Effect.fromResult(forDial(url, resources))
    const limits = yield* Effect.fromResult(limitsFor(connector.params))
    if (connector.security === "clear") {
      const inlet = Inlet.make()
      const socket = yield* dialTcp(connector, limits.connectTimeout, inlet)
      return yield* clearLink(socket, connector.scheme, "active", limits, inlet)
    }
    const context = yield* contexts.forDialer(connector)
    const socket = yield* dialTcp(connector, limits.connectTimeout)
    const secured = yield* Tls.upgrade(socket, connector, context, limits.handshakeTimeout)
    return yield* tlsLink(secured, { scheme: connector.scheme, security: context.security }, "active", limits)
  })

  const listen: Driver["listen"] = Effect.fn("TcpDriver.listen")(function* (schemeOrUrl, resources) {
    const binding = yield* Effect.fromResult(forListener(schemeOrUrl, resources, NodeOs.hostname()))
    const limits = yield* Effect.fromResult(limitsFor(binding.params))
    const arrivals = yield* Arrivals.make(`${binding.scheme} listener of ${binding.host}`)
    const read = contexts.forListener(binding)
    const shown = binding.security === "clear" ? undefined : yield* read
    const { renew, server } =
      shown === undefined ? clearServer(binding, arrivals, limits) : tlsServer(binding, shown, arrivals, limits)
    const urlAt = (port: number) => `${binding.scheme}://${binding.host}:${port}`
    const port = yield* bindPort(binding, (port) => openServer(server, urlAt(port), binding.bindHost, port))
    const connectUrl = urlAt(port)
    yield* Renewal.follow({ url: connectUrl, shown, read, renew, interval: options.renewInterval })
    yield* Effect.addFinalizer(() => arrivals.close(connectUrl))
    return { connectUrl, accept: arrivals.accept }
  })

  return { schemes, check: Tls.makeCheck(contexts), connect, listen }
}

/**
 * The driver as the program's only one.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options = {}): Layer.Layer<Drivers> =>
  Layer.succeed(Drivers, DriverTable.make([make(options)]))
