/**
 * Connections by gRPC, for the schemes `grpc`, `grpcs`, `agrpc` and `agrpcs`: one message of a bidirectional stream is
 * one frame.
 *
 * Source: docs/wire/transport.md, sections 4, 5 and 8.
 *
 * @since 0.1.0
 */
import * as NodeOs from "node:os"
import { Effect, Layer, type Scope } from "effect"
import { type Driver, Drivers, type FrameLink } from "./Drivers.ts"
import * as DriverTable from "./internal/driverTable.ts"
import { ioFailed } from "./internal/errors.ts"
import { bindPort } from "./internal/net/bind.ts"
import { forDial, forListener } from "./internal/net/connector.ts"
import { dial } from "./internal/net/grpcDial.ts"
import { makeSeq } from "./internal/net/grpcFrame.ts"
import * as Listener from "./internal/net/grpcListener.ts"
import { limitsOf, type NetworkOptions } from "./internal/net/options.ts"
import * as Renewal from "./internal/net/renewal.ts"
import { openServer } from "./internal/net/sockets.ts"
import * as Tls from "./internal/net/tls.ts"
import type { TransportError } from "./TransportError.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface Options extends NetworkOptions {
  /**
   * The largest message that is sent and taken, in bytes. Default {@link maxMessageBytes}; gRPC's own would be 4 MiB, and
   * a peer may have that.
   */
  readonly maxMessageBytes?: number
}

/**
 * @category constants
 * @since 0.1.0
 */
export const maxMessageBytes = 2_145_386_496

// Only who uses gRPC loads it.
const loadGrpc = Effect.tryPromise({
  try: () => import("@grpc/grpc-js"),
  catch: (cause) => ioFailed("loading", "@grpc/grpc-js", cause, "install the package again")
})

/**
 * A driver for `grpc://host:port` and `grpcs://host:port` URLs. Listeners are as with `TcpDriver`. With TLS a listener
 * needs `server.crt` and `server.key`, a dialer `client.crt` and `client.key`: no pair stands in for the other; and the
 * listener's certificate must hold the dialed host, which no other driver asks for.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options: Options = {}): Driver => {
  const contexts = Tls.makeContexts(options.credentials, false)
  const nextSeq = makeSeq()
  const largest = options.maxMessageBytes ?? maxMessageBytes

  const connect: Driver["connect"] = Effect.fn("GrpcDriver.connect")(function* (url, resources): Effect.fn.Return<
    FrameLink,
    TransportError,
    Scope.Scope
  > {
    const connector = yield* Effect.fromResult(forDial(url, resources))
    const limits = yield* Effect.fromResult(limitsOf(options, connector.params))
    const context = connector.security === "clear" ? undefined : yield* contexts.forDialer(connector)
    const grpc = yield* loadGrpc
    return yield* dial({ grpc, connector, context, limits, largest, nextSeq })
  })

  const listen: Driver["listen"] = Effect.fn("GrpcDriver.listen")(function* (schemeOrUrl, resources) {
    const binding = yield* Effect.fromResult(forListener(schemeOrUrl, resources, NodeOs.hostname()))
    const limits = yield* Effect.fromResult(limitsOf(options, binding.params))
    const read = contexts.forListener(binding)
    const shown = binding.security === "clear" ? undefined : yield* read
    const grpc = yield* loadGrpc
    const { arrivals, renew, server } = yield* Listener.make({
      grpc,
      binding,
      context: shown,
      limits,
      largest,
      nextSeq
    })
    const urlAt = (port: number) => `${binding.scheme}://${binding.host}:${port}`
    const port = yield* bindPort(binding, (port) => openServer(server, urlAt(port), binding.bindHost, port))
    const connectUrl = urlAt(port)
    yield* Renewal.follow({ url: connectUrl, shown, read, renew, interval: options.renewInterval })
    yield* Effect.addFinalizer(() => arrivals.close(connectUrl))
    return { connectUrl, accept: arrivals.accept }
  })

  return { schemes: ["grpc", "grpcs", "agrpc", "agrpcs"], check: Tls.makeCheck(contexts), connect, listen }
}

/**
 * The driver as the program's only one.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options = {}): Layer.Layer<Drivers> =>
  Layer.succeed(Drivers, DriverTable.make([make(options)]))
