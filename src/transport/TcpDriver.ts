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
import { Effect, Layer, type Scope } from "effect"
import { type Driver, Drivers, type FrameLink } from "./Drivers.ts"
import * as DriverTable from "./internal/driverTable.ts"
import * as Arrivals from "./internal/net/arrivals.ts"
import { bindPort } from "./internal/net/bind.ts"
import { type Binding, forDial, forListener } from "./internal/net/connector.ts"
import { type Limits, limitsOf, type NetworkOptions } from "./internal/net/options.ts"
import * as SocketLink from "./internal/net/socketLink.ts"
import { addressesOf, dialTcp, keepAliveDelay, noDelayOf, openServer } from "./internal/net/sockets.ts"
import type { TransportError } from "./TransportError.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface Options extends NetworkOptions {}

const schemes = ["tcp", "stcp", "atcp", "satcp"]

const clearLink = (socket: NodeNet.Socket, scheme: string, role: "active" | "passive", limits: Limits) => {
  const { local, peer } = addressesOf(socket)
  return SocketLink.make(socket, { scheme, localAddress: local, peerAddress: peer }, role, false, limits)
}

const listenClear = Effect.fnUntraced(function* (binding: Binding, limits: Limits) {
  const arrivals = yield* Arrivals.make
  const server = NodeNet.createServer({
    noDelay: noDelayOf(binding.params),
    keepAlive: true,
    keepAliveInitialDelay: keepAliveDelay,
    pauseOnConnect: true
  })
  server.on("connection", (socket) => {
    socket.on("error", () => {})
    arrivals.add({ take: clearLink(socket, binding.scheme, "passive", limits), drop: () => socket.destroy() })
  })
  return { server, arrivals }
})

/**
 * A driver for `tcp://host:port` and `stcp://host:port` URLs.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options = {}): Driver => {
  const connect: Driver["connect"] = Effect.fn("TcpDriver.connect")(function* (url, resources): Effect.fn.Return<
    FrameLink,
    TransportError,
    Scope.Scope
  > {
    const connector = yield* Effect.fromResult(forDial(url, resources))
    const limits = yield* Effect.fromResult(limitsOf(options, connector.params))
    const socket = yield* dialTcp(connector, limits.connectTimeout)
    return yield* clearLink(socket, connector.scheme, "active", limits)
  })

  const listen: Driver["listen"] = Effect.fn("TcpDriver.listen")(function* (schemeOrUrl, resources) {
    const binding = yield* Effect.fromResult(forListener(schemeOrUrl, resources, NodeOs.hostname()))
    const limits = yield* Effect.fromResult(limitsOf(options, binding.params))
    const { arrivals, server } = yield* listenClear(binding, limits)
    const urlAt = (port: number) => `${binding.scheme}://${binding.host}:${port}`
    const port = yield* bindPort(binding, (port) => openServer(server, urlAt(port), binding.bindHost, port))
    const connectUrl = urlAt(port)
    yield* Effect.addFinalizer(() => arrivals.close(connectUrl))
    return { connectUrl, accept: arrivals.accept }
  })

  return { schemes, connect, listen }
}

/**
 * The driver as the program's only one.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options = {}): Layer.Layer<Drivers> =>
  Layer.succeed(Drivers, DriverTable.make([make(options)]))
