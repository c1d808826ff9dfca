/** A call of the method `Stream`, of either side, as a frame link. Source: docs/wire/transport.md, section 8. */
import type * as Grpc from "@grpc/grpc-js"
import { Effect, type Scope } from "effect"
import type { FrameLink, LinkInfo } from "../../Drivers.ts"
import { NotReady, TransportError } from "../../TransportError.ts"
import { badData, closed } from "../errors.ts"
import * as GrpcFrame from "./grpcFrame.ts"
import * as Link from "./link.ts"

/** What both sides of a call have in common. */
export interface Call {
  write(pieces: ReadonlyArray<Uint8Array>, done: (error?: Error | null) => void): boolean
  pause(): unknown
  resume(): unknown
}

export const path = "/streamer.Streamer/Stream"

/** A message that came: its frame, or that it is none. */
export interface Message {
  readonly frame: Uint8Array | undefined
}

/** The serializers of a call; the pieces of a frame go in, and are put together once. */
export const codec = (nextSeq: () => number) => ({
  serialize: (pieces: ReadonlyArray<Uint8Array>): Buffer => GrpcFrame.encode(nextSeq(), pieces),
  deserialize: (bytes: Buffer): Message => ({ frame: GrpcFrame.decode(bytes) })
})

/** The numbers of gRPC's statuses that are told apart. */
export const status = { ok: 0, cancelled: 1, resourceExhausted: 8, unimplemented: 12, internal: 13, unavailable: 14 }

/** For servers and clients: the largest message that goes and comes, in bytes, and how much may be under way. */
export const channelOptions = (largest: number): Grpc.ChannelOptions => ({
  "grpc.max_send_message_length": largest,
  "grpc.max_receive_message_length": largest,
  "grpc-node.flow_control_window": 4 * 1024 * 1024
})

/** Why a call of ours is over. */
export const statusError = (peer: string, code: number, details: string, isSpoken: boolean): TransportError => {
  switch (code) {
    case status.ok:
    case status.cancelled:
      return closed(peer, "peer", `${peer} closed the connection`)
    case status.unimplemented:
      return new TransportError({
        reason: new NotReady({
          target: peer,
          message: `${peer} speaks gRPC, but is no cell (${details}): check host and port`
        })
      })
    case status.resourceExhausted:
      return badData(`a frame is larger than gRPC's limits here or at ${peer} (${details}): send smaller chunks`)
    default: {
      const hint = isSpoken ? "" : ": it may want TLS (grpcs), or be another service; check port and scheme"
      return closed(peer, "peer", `${peer} ended the connection (gRPC status ${code}, ${details})${hint}`)
    }
  }
}

export interface Ends {
  readonly close: () => void
  readonly destroy: () => void
  /** Ends a call on which a message came that is none. */
  readonly reject: () => void
}

export interface Started {
  readonly frames: FrameLink
  readonly link: Link.Link
  /** Tells of a message that came. */
  readonly take: (message: Message) => void
}

/** A link over a call; the side that made it tells of what comes, and of its end. */
export const make = Effect.fnUntraced(function* (
  call: Call,
  info: LinkInfo,
  settings: Omit<Link.Settings, "batchBytes">,
  ends: Ends
): Effect.fn.Return<Started, never, Scope.Scope> {
  const carrier: Link.Carrier = {
    info,
    write: (pieces, done) => {
      call.write(pieces, (error) => {
        done(error ? closed(info.peerAddress, "io", `a frame could not be sent: ${error.message}`) : undefined)
      })
    },
    pause: () => call.pause(),
    resume: () => call.resume(),
    close: ends.close,
    destroy: ends.destroy
  }
  const link = yield* Link.make(carrier, { ...settings, batchBytes: undefined })
  const take = ({ frame }: Message): void => {
    if (frame !== undefined) {
      link.deliver([frame])
      return
    }
    // First, for the end of the link ends the call, too.
    ends.reject()
    link.end(badData(`${info.peerAddress} sent a gRPC message that is no Frame: it speaks another protocol`))
  }
  return { frames: link.frames, link, take }
})
