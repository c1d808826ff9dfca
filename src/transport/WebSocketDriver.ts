/**
 * Connections by WebSocket, for the schemes `http` and `https`: one binary message is one frame, at the path `/f3`.
 *
 * Source: docs/wire/transport.md, sections 4, 5 and 7.
 *
 * @since 0.1.0
 */
import * as NodeOs from "node:os"
import { Effect, Layer, type Scope } from "effect"
import { type Driver, Drivers, type FrameLink } from "./Drivers.ts"
import * as DriverTable from "./internal/driverTable.ts"
import { bindPort } from "./internal/net/bind.ts"
import { forDial, forListener } from "./internal/net/connector.ts"
import { limitsOf, type NetworkOptions } from "./internal/net/options.ts"
import * as Renewal from "./internal/net/renewal.ts"
import { dialTcp, openServer } from "./internal/net/sockets.ts"
import * as Tls from "./internal/net/tls.ts"
import * as Listener from "./internal/net/webSocketListener.ts"
import * as Upgrade from "./internal/net/webSocketUpgrade.ts"
import type { TransportError } from "./TransportError.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface Options extends NetworkOptions {
  /** The largest frame that is taken, in bytes. Default {@link maxFrameBytes}. */
  readonly maxFrameBytes?: number
  /**
   * The largest frame, in bytes, that a listener sends to a dialer of the reference, which would close the connection on
   * a larger one: the send fails with `BadData` instead. Default {@link maxReferenceDialerBytes}.
   */
  readonly maxReferenceDialerBytes?: number
}

/**
 * @category constants
 * @since 0.1.0
 */
export const maxFrameBytes = 2_145_386_496

/**
 * What the reference's dialer takes, in bytes: 4 MiB - 1. Its own streams stay far below, with chunks of 1 MiB.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxReferenceDialerBytes = 4_194_303

/**
 * A driver for `http://host:port` and `https://host:port` URLs; the URL's own path does not count. Listeners and TLS are
 * as with `TcpDriver`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options = {}): Driver => {
  const contexts = Tls.makeContexts(options.credentials, true)
  const largest = options.maxFrameBytes ?? maxFrameBytes
  const toReference = options.maxReferenceDialerBytes ?? maxReferenceDialerBytes

  const connect: Driver["connect"] = Effect.fn("WebSocketDriver.connect")(function* (url, resources): Effect.fn.Return<
    FrameLink,
    TransportError,
    Scope.Scope
  > {
    const connector = yield* Effect.fromResult(forDial(url, resources))
    const limits = yield* Effect.fromResult(limitsOf(options, connector.params))
    const context = connector.security === "clear" ? undefined : yield* contexts.forDialer(connector)
    const tcp = yield* dialTcp(connector, limits.connectTimeout)
    const socket = context === undefined ? tcp : yield* Tls.upgrade(tcp, connector, context, limits.handshakeTimeout)
    return yield* Upgrade.dial(connector, socket, limits, largest)
  })

  const listen: Driver["listen"] = Effect.fn("WebSocketDriver.listen")(function* (schemeOrUrl, resources) {
    const binding = yield* Effect.fromResult(forListener(schemeOrUrl, resources, NodeOs.hostname()))
    const limits = yield* Effect.fromResult(limitsOf(options, binding.params))
    const read = contexts.forListener(binding)
    const shown = binding.security === "clear" ? undefined : yield* read
    const { arrivals, renew, server } = yield* Listener.make(binding, shown, limits, { largest, toReference })
    const urlAt = (port: number) => `${binding.scheme}://${binding.host}:${port}`
    const port = yield* bindPort(binding, (port) => openServer(server, urlAt(port), binding.bindHost, port))
    const connectUrl = urlAt(port)
    yield* Renewal.follow({ url: connectUrl, shown, read, renew, interval: options.renewInterval })
    yield* Effect.addFinalizer(() => arrivals.close(connectUrl))
    return { connectUrl, accept: arrivals.accept }
  })

  return { schemes: ["http", "https"], check: Tls.makeCheck(contexts), connect, listen }
}

/**
 * The driver as the program's only one.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options = {}): Layer.Layer<Drivers> =>
  Layer.succeed(Drivers, DriverTable.make([make(options)]))
