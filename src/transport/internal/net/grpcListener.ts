/** The listener's side of gRPC streams. Source: docs/wire/transport.md, section 8. */
import * as NodeNet from "node:net"
import type * as Grpc from "@grpc/grpc-js"
import { Clock, Duration, Effect, FiberSet, type Scope } from "effect"
import { commonNameOf, type TlsContext } from "../../../identity/TlsContext.ts"
import type { FrameLink, LinkInfo } from "../../Drivers.ts"
import { closed } from "../errors.ts"
import * as Arrivals from "./arrivals.ts"
import type { Binding } from "./connector.ts"
import { greetingLimit } from "./firstWords.ts"
import * as GrpcLink from "./grpcLink.ts"
import type { Limits } from "./options.ts"
import type { Renew } from "./renewal.ts"
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
  hasCalled: boolean
  /** Whether a frame came by it. */
  hasGreeted: boolean
}

const watchPause = "100 millis"

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
  client: Client | undefined
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
        client?.socket.destroy()
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
  call.on("data", (message: GrpcLink.Message) => {
    if (client !== undefined) {
      client.hasGreeted = true
    }
    started.take(message)
  })
  if (call.cancelled || call.destroyed) {
    over()
  }
  return started.frames
})

/** Sends away who has a connection and makes no call, or sends too much before its first frame. */
const watch = Effect.fnUntraced(function* (client: Client, patience: Duration.Duration) {
  const clock = yield* Clock.Clock
  const limit = clock.monotonicTimeNanosUnsafe() + BigInt(Math.round(Duration.toMillis(patience) * 1e6))
  while (!client.hasGreeted && !client.socket.destroyed) {
    yield* Effect.sleep(watchPause)
    const isLate = !client.hasCalled && clock.monotonicTimeNanosUnsafe() > limit
    if (isLate || (!client.hasGreeted && client.socket.bytesRead > 2 * greetingLimit)) {
      client.socket.destroy()
    }
  }
})

/** A server that is not open yet, and those who come to it. */
export const make = Effect.fnUntraced(function* (options: ListenOptions) {
  const { binding, context, grpc, largest, limits, nextSeq } = options
  const runWatch = yield* FiberSet.makeRuntime()
  const arrivals = yield* Arrivals.make(`${binding.scheme} listener of ${binding.host}`)
  const clients = new Map<string, Client>()
  const rpc = new grpc.Server(GrpcLink.channelOptions(largest))

  const arrive = (call: ServerCall): void => {
    const client = clients.get(call.getPeer())
    if (client !== undefined) {
      client.hasCalled = true
    }
    call.on("error", () => {})
    arrivals.add({ take: linkOf(call, options, client), drop: () => abort(call, serviceClosed) })
  }
  const { deserialize, serialize } = GrpcLink.codec(nextSeq)
  rpc.register(GrpcLink.path, arrive, serialize, deserialize, "bidi")
  // The certificates belong to an injector. Connections that went through a former one stay, so it does, too.
  const injectors = [rpc.createConnectionInjector(credentialsOf(grpc, context))]
  const renew: Renew = (renewed) => {
    injectors.unshift(rpc.createConnectionInjector(credentialsOf(grpc, renewed)))
  }

  const server = NodeNet.createServer({
    noDelay: noDelayOf(binding.params),
    keepAlive: true,
    keepAliveInitialDelay: keepAliveDelay
  })
  server.on("connection", (socket) => {
    const { peer } = addressesOf(socket)
    const client: Client = { socket, hasCalled: false, hasGreeted: false }
    clients.set(peer, client)
    runWatch(watch(client, limits.handshakeTimeout))
    socket.on("error", () => {})
    socket.on("close", () => {
      if (!client.hasCalled) {
        const why =
          context === undefined
            ? "it speaks no gRPC, or TLS"
            : "it may refuse the certificate shown to it, or have only looked who is there"
        arrivals.complain(`${peer} left before it made a call: ${why}`)
      }
      clients.delete(peer)
    })
    injectors[0]?.injectConnection(socket)
  })
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      rpc.forceShutdown()
      for (const injector of injectors) {
        injector.destroy()
      }
      for (const { socket } of clients.values()) {
        socket.destroy()
      }
    })
  )
  return { arrivals, renew, server }
})
