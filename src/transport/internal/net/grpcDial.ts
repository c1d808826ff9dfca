/** The dialer's side of a gRPC stream. Source: docs/wire/transport.md, section 8. */
import * as NodeNet from "node:net"
import * as NodeTls from "node:tls"
import type * as Grpc from "@grpc/grpc-js"
import { Duration, Effect, type Scope } from "effect"
import { commonNameOf, type TlsContext } from "../../../identity/TlsContext.ts"
import type { FrameLink, LinkInfo } from "../../Drivers.ts"
import type { TransportError } from "../../TransportError.ts"
import { notReady } from "../errors.ts"
import type { Connector } from "./connector.ts"
import * as GrpcLink from "./grpcLink.ts"
import type { Limits } from "./options.ts"
import { dialTcp } from "./sockets.ts"
import * as Tls from "./tls.ts"

export interface DialOptions {
  readonly grpc: typeof Grpc
  readonly connector: Connector
  readonly context: TlsContext | undefined
  readonly limits: Limits
  readonly largest: number
  readonly nextSeq: () => number
}

/** Looks at the host as gRPC does, and tells of the certificate. */
const watchIdentity =
  (onCertificate: (certificate: NodeTls.PeerCertificate) => void) =>
  (host: string, certificate: NodeTls.PeerCertificate): Error | undefined => {
    onCertificate(certificate)
    return NodeTls.checkServerIdentity(host, certificate)
  }

const credentialsOf = (
  grpc: typeof Grpc,
  context: TlsContext | undefined,
  onCertificate: (certificate: NodeTls.PeerCertificate) => void
): Grpc.ChannelCredentials =>
  context === undefined
    ? grpc.credentials.createInsecure()
    : grpc.credentials.createSsl(
        Buffer.from(context.ca),
        context.key === undefined ? null : Buffer.from(context.key),
        context.cert === undefined ? null : Buffer.from(context.cert),
        { checkServerIdentity: watchIdentity(onCertificate) }
      )

/** What gRPC says of a failure, without the time of day, which makes each of them another. */
const withoutTime = (details: string): string =>
  details.replace(/ \(\d{4}-\d\d-\d\dT[^)]*\)/g, "").replace(/\.? Resolution note: *$/, "")

/** Dials again without gRPC, which tells what is wrong only in words of its own. */
const diagnose = ({ connector, context, limits }: DialOptions, details: string) =>
  Effect.gen(function* () {
    const socket = yield* dialTcp(connector, limits.connectTimeout)
    if (context !== undefined) {
      // Without a server name in the handshake Node would look for that of the socket.
      const checkServerIdentity = (_name: string, certificate: NodeTls.PeerCertificate) =>
        NodeTls.checkServerIdentity(connector.host, certificate)
      const more = { ALPNProtocols: ["h2"], checkServerIdentity }
      yield* Tls.upgrade(socket, connector, context, limits.handshakeTimeout, more)
    }
    const target = `${connector.scheme}://${connector.host}:${connector.port}`
    const hint = context === undefined ? "it may want TLS (grpcs), or be another service" : "it may be another service"
    return yield* Effect.fail(notReady(target, `${target} does not speak gRPC (${details}): ${hint}; check the port`))
  }).pipe(Effect.scoped)

type ClientCall = Grpc.ClientDuplexStream<ReadonlyArray<Uint8Array>, GrpcLink.Message>

/** Waits until the channel is ready, or the call has failed. */
const untilReady = (client: Grpc.Client, call: ClientCall, options: DialOptions) =>
  Effect.callback<void, string>((resume) => {
    call.once("error", (error: Grpc.ServiceError) => resume(Effect.fail(error.details)))
    client.waitForReady(Number.POSITIVE_INFINITY, (error) => {
      resume(error === undefined ? Effect.void : Effect.fail(error.message))
    })
  }).pipe(
    Effect.timeoutOrElse({
      duration: Duration.sum(options.limits.connectTimeout, options.limits.handshakeTimeout),
      orElse: () => Effect.fail("no answer in time")
    }),
    Effect.catch((details) => diagnose(options, withoutTime(details)))
  )

const infoOf = ({ connector, context }: DialOptions, name: string | undefined): LinkInfo => {
  return {
    scheme: connector.scheme,
    localAddress: "gRPC client",
    peerAddress: `${connector.host}:${connector.port}`,
    ...(name === undefined ? {} : { peerCommonName: name }),
    ...(context === undefined ? {} : { security: context.security })
  }
}

/** Opens the stream. The link, and the channel that is its own, close with the Scope. */
export const dial = Effect.fnUntraced(function* (
  options: DialOptions
): Effect.fn.Return<FrameLink, TransportError, Scope.Scope> {
  const { connector, context, grpc, largest, limits, nextSeq } = options
  let peerName: string | undefined
  const onCertificate = (certificate: NodeTls.PeerCertificate) => {
    peerName = commonNameOf(certificate.subject ?? {})
  }
  const host = NodeNet.isIPv4(connector.host) ? `ipv4:${connector.host}` : `dns:${connector.host}`
  const client = yield* Effect.acquireRelease(
    Effect.sync(
      () =>
        new grpc.Client(`${host}:${connector.port}`, credentialsOf(grpc, context, onCertificate), {
          ...GrpcLink.channelOptions(largest),
          // A connection of its own, which ends with the link; the cell dials again by itself.
          "grpc.use_local_subchannel_pool": 1,
          "grpc.enable_retries": 0
        })
    ),
    (client) => Effect.sync(() => client.close())
  )
  const { deserialize, serialize } = GrpcLink.codec(nextSeq)
  const call: ClientCall = yield* Effect.acquireRelease(
    Effect.sync(() => client.makeBidiStreamRequest(GrpcLink.path, serialize, deserialize, new grpc.Metadata(), {})),
    (call) => Effect.sync(() => call.cancel())
  )
  call.on("error", () => {})
  yield* untilReady(client, call, options)

  const info = infoOf(options, peerName)
  let isSpoken = false
  const started = yield* GrpcLink.make(call, info, limits, {
    close: () => {
      call.resume()
      call.end()
    },
    destroy: () => call.cancel(),
    reject: () => call.cancel()
  })
  call.on("status", ({ code, details }: Grpc.StatusObject) => {
    started.link.end(GrpcLink.statusError(info.peerAddress, code, details, isSpoken))
    started.link.gone()
  })
  call.on("data", (message: GrpcLink.Message) => {
    isSpoken = true
    started.take(message)
  })
  return started.frames
})
