/** Dialing and listening with Node's sockets. */
import * as NodeNet from "node:net"
import { type Duration, Effect, type Scope } from "effect"
import { formatDuration } from "../../../platform/DurationText.ts"
import type { TransportError } from "../../TransportError.ts"
import { notReady } from "../errors.ts"
import type { Connector } from "./connector.ts"
import type { Inlet } from "./inlet.ts"
import { dialError, listenError } from "./socketErrors.ts"

/** A peer that vanished without a word is noticed by the system after so long, in milliseconds. */
export const keepAliveDelay = 30_000

export const noDelayOf = (params: Connector["params"]): boolean => String(params.get("tcp_no_delay")) !== "false"

/** `host:port` of a socket's own end, and of the other. */
export const addressesOf = (socket: NodeNet.Socket): { readonly local: string; readonly peer: string } => ({
  local: `${socket.localAddress ?? "?"}:${socket.localPort ?? 0}`,
  peer: socket.remoteAddress === undefined ? "a client that left" : `${socket.remoteAddress}:${socket.remotePort}`
})

const noDialing = (target: string, timeout: Duration.Duration): TransportError =>
  notReady(
    target,
    `no connection to ${target} within ${formatDuration(timeout)} (connectTimeout): check host and port, and that no firewall drops the packets`
  )

/**
 * A paused TCP connection, which closes with the Scope, and reads into the inlet if there is one. Addresses of IP
 * version 4 alone, as the reference.
 */
export const dialTcp = Effect.fnUntraced(function* (
  connector: Connector,
  timeout: Duration.Duration,
  inlet?: Inlet
): Effect.fn.Return<NodeNet.Socket, TransportError, Scope.Scope> {
  const { host, params, port } = connector
  const target = `${connector.scheme}://${host}:${port}`
  const socket = yield* Effect.acquireRelease(
    Effect.sync(() =>
      NodeNet.connect({
        host,
        port,
        family: 4,
        noDelay: noDelayOf(params),
        keepAlive: true,
        keepAliveInitialDelay: keepAliveDelay,
        ...(inlet === undefined ? {} : { onread: inlet.onread })
      })
    ),
    (socket) => Effect.sync(() => socket.destroy())
  )
  return yield* Effect.callback<NodeNet.Socket, TransportError>((resume) => {
    // It stays: an error that nobody listens to would end the process. What comes later is told by the link, too.
    socket.on("error", (error) => resume(Effect.fail(dialError(target, error))))
    socket.once("connect", () => {
      socket.pause()
      resume(Effect.succeed(socket))
    })
  }).pipe(Effect.timeoutOrElse({ duration: timeout, orElse: () => Effect.fail(noDialing(target, timeout)) }))
})

/** Opens a server at a host (empty: all) and port, and answers the port it got. It stops with the Scope. */
export const openServer = Effect.fnUntraced(function* (
  server: NodeNet.Server,
  url: string,
  host: string,
  port: number
): Effect.fn.Return<number, TransportError, Scope.Scope> {
  yield* Effect.addFinalizer(() => Effect.sync(() => server.close()))
  yield* Effect.callback<void, TransportError>((resume) => {
    const onError = (error: Error) => resume(Effect.fail(listenError(url, error)))
    server.once("error", onError)
    server.listen({ host: host === "" ? "0.0.0.0" : host, port, backlog: 511 }, () => {
      server.removeListener("error", onError)
      // A client that could not be accepted (too many open files) is no reason to stop.
      server.on("error", () => {})
      resume(Effect.void)
    })
  })
  const address = server.address()
  return typeof address === "object" && address !== null ? address.port : port
})
