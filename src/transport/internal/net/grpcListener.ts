/** The listener's side of gRPC streams. Source: docs/wire/transport.md, section 8. */
import * as NodeNet from "node:net"
import type * as Grpc from "@grpc/grpc-js"
import { Clock, Duration, Effect, type Scope } from "effect"
import { commonNameOf, type TlsContext } from "../../../identity/TlsContext.ts"
import type { FrameLink, LinkInfo } from "../../Drivers.ts"
import { closed } from "../errors.ts"
import * as Arrivals from "./arrivals.ts"
import type { Binding } from "./connector.ts"
import * as GrpcLink from "./grpcLink.ts"
import type { Limits } from "./options.ts"
import { addressesOf, keepAliveDelay, noDelayOf } from "./sockets.ts"

export interface ListenOptions {
  readonly grpc: typeof Grpc
  readonly binding: Binding
  readonly context: TlsContext | undefined
  readonly limits: Limits
  readonly largest: number
  readonly nextSeq: () => number
}

type ServerCall = Grpc.ServerDuplexStream<GrpcLink.Message, ReadonlyArray<Uint8Array>>

/** A client's connection, by its address. */
interface Client {
  readonly socket: NodeNet.Socket
  /** Monotonic nanoseconds. */
  readonly since: bigint
  hasCalled: boolean
}

const serviceClosed = { code: GrpcLink.status.cancelled, details: "service closed" }
const notAFrame = { code: GrpcLink.status.internal, details: "Exception deserializing request!" }

const credentialsOf = (grpc: typeof Grpc, context: TlsContext | undefined): Grpc.ServerCredentials =>
  context === undefined
    ? grpc.ServerCredentials.createInsecure()
    : grpc.ServerCredentials.createSsl(
        Buffer.from(context.ca),
        [{ cert_chain: Buffer.from(context.cert ?? ""), private_key: Buffer.from(context.key ?? "") }],
        context.security === "mtls"
      )

const infoOf = (call: ServerCall, { binding, context }: ListenOptions): LinkInfo => {
  const certificate = context?.security === "mtls" ? call.getAuthContext().sslPeerCertificate : undefined
  const name = certificate === undefined ? undefined : commonNameOf(certificate.subject ?? {})
  return {
    scheme: binding.scheme,
    localAddress: `${binding.bindHost === "" ? "0.0.0.0" : binding.bindHost} (gRPC)`,
    peerAddress: call.getPeer(),
    ...(name === undefined ? {} : { peerCommonName: name }),
    ...(context === undefined ? {} : { security: context.security })
  }
}

/** Ends a call with a status, behind all that was written. */
const abort = (call: ServerCall, ending: { readonly code: number; readonly details: string }): void => {
  call.emit("error", ending)
}

const linkOf = Effect.fnUntraced(function* (
  call: ServerCall,
  options: ListenOptions,
  kill: () => void
): Effect.fn.Return<FrameLink, never, Scope.Scope> {
  const info = infoOf(call, options)
  const peer = info.peerAddress
  let isOver = false
  let isAborted = false
  // The first reason stands.
  const abortOnce = (ending: typeof serviceClosed) => {
    if (!isAborted) {
      isAborted = true
      abort(call, ending)
    }
  }
  const started = yield* GrpcLink.make(call, info, options.limits, {
    close: () => {
      call.resume()
      abortOnce(serviceClosed)
    },
    destroy: () => {
      if (!isOver) {
        kill()
      }
    },
    reject: () => abortOnce(notAFrame)
  })
  const over = () => {
    isOver = true
    started.link.end(closed(peer, "peer", `${peer} closed the connection`))
    started.link.gone()
  }
  call.on("close", over)
  call.on("cancelled", over)
  // A half-close: the reference ends the call then, too.
  call.on("end", () => {
    started.link.end(closed(peer, "peer", `${peer} closed the connection`))
    abortOnce(serviceClosed)
  })
  call.on("data", started.take)
  if (call.cancelled || call.destroyed) {
    over()
  }
  return started.frames
})

/** Sends away who has a connection and makes no call. */
const sweep = Effect.fnUntraced(function* (clients: ReadonlyMap<string, Client>, patience: Duration.Duration) {
  const clock = yield* Clock.Clock
  const limit = BigInt(Math.round(Duration.toMillis(patience) * 1e6))
  while (true) {
    yield* Effect.sleep(Duration.divideUnsafe(patience, 4))
    const now = clock.monotonicTimeNanosUnsafe()
    for (const { hasCalled, since, socket } of clients.values()) {
      if (!hasCalled && now - since > limit) {
        socket.destroy()
      }
    }
  }
})

/** A server that is not open yet, and those who come to it. */
export const make = Effect.fnUntraced(function* (options: ListenOptions) {
  const { binding, context, grpc, largest, limits, nextSeq } = options
  const clock = yield* Clock.Clock
  const arrivals = yield* Arrivals.make(`${binding.scheme} listener of ${binding.host}`)
  const clients = new Map<string, Client>()
  const rpc = new grpc.Server(GrpcLink.channelOptions(largest))

  const arrive = (call: ServerCall): void => {
    const client = clients.get(call.getPeer())
    if (client !== undefined) {
      client.hasCalled = true
    }
    call.on("error", () => {})
    const kill = () => client?.socket.destroy()
    arrivals.add({ take: linkOf(call, options, kill), drop: () => abort(call, serviceClosed) })
  }
  const { deserialize, serialize } = GrpcLink.codec(nextSeq)
  rpc.register(GrpcLink.path, arrive, serialize, deserialize, "bidi")
  const injector = rpc.createConnectionInjector(credentialsOf(grpc, context))

  const server = NodeNet.createServer({
    noDelay: noDelayOf(binding.params),
    keepAlive: true,
    keepAliveInitialDelay: keepAliveDelay
  })
  server.on("connection", (socket) => {
    const { peer } = addressesOf(socket)
    clients.set(peer, { socket, since: clock.monotonicTimeNanosUnsafe(), hasCalled: false })
    socket.on("error", () => {})
    socket.on("close", () => {
      if (clients.get(peer)?.hasCalled === false) {
        const why = context === undefined ? "it speaks no gRPC, or TLS" : "its certificate may be refused"
        arrivals.complain(`${peer} left before it made a call: ${why}`)
      }
      clients.delete(peer)
    })
    injector.injectConnection(socket)
  })
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      rpc.forceShutdown()
      injector.destroy()
      for (const { socket } of clients.values()) {
        socket.destroy()
      }
    })
  )
  yield* Effect.forkScoped(sweep(clients, limits.handshakeTimeout))
  return { arrivals, server }
})
