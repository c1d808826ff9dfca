import { Clock, Deferred, Effect, Result } from "effect"
import * as Msgpack from "../../fobs/Msgpack.ts"
import { Float } from "../../fobs/Values.ts"
import * as Fqcn from "../../identity/Fqcn.ts"
import type { CellError } from "../CellError.ts"
import * as CellMessage from "../CellMessage.ts"
import type { Address, Headers } from "../CellTypes.ts"
import type { Sealed } from "../MessageCipher.ts"
import type { Protection } from "../Protection.ts"
import { encodeFailed, misconfigured, sendFailed, unreachable } from "./errors.ts"
import type { Peer, Peers } from "./Peers.ts"
import type { Encoded as EncodedPayload } from "./payloads.ts"
import type { Room } from "./room.ts"
import { forwardHop, nextHop } from "./routing.ts"

const { Encoded } = Msgpack
const { header } = CellMessage

/** Where a message came from, and its answer goes: a peer's connection, or `undefined` for this cell itself. */
export type Via = Peer | undefined

/** A request's own part. */
export interface Post {
  readonly encoded: EncodedPayload
  /** The application's headers; those of the cell win. */
  readonly headers?: Headers
  /** Present where a reply is expected. */
  readonly requestId?: string
  readonly optional?: boolean
  readonly secure?: boolean
}

export interface CourierOptions {
  readonly fqcn: string
  readonly peers: Peers
  readonly maxMessageSize: number
  readonly protection: () => Protection | undefined
  /**
   * Runs on its own, so that the reader of a connection never waits for a writer; `false` when too much runs already,
   * and this does not.
   */
  readonly background: (effect: Effect.Effect<unknown, CellError>) => Effect.Effect<boolean>
  readonly room: Room
  /** Runs a forward on its own; the room bounds how many there are. */
  readonly forwarding: (effect: Effect.Effect<void>) => Effect.Effect<void>
  /** Takes a message that this cell sent to itself. */
  readonly loopBack: (message: CellMessage.IncomingMessage) => Effect.Effect<void>
}

/** Puts messages on connections; docs/wire/cellnet.md, sections 2, 3 and 6. */
export interface Courier {
  /** Sends a request, or a one-way message, by the routes there are. */
  readonly post: (target: string, address: Address, post: Post) => Effect.Effect<void, CellError>
  /**
   * Fails when the connection by which `target` is reached now is over: whoever waits for an answer from there waits in
   * vain, or may ask again. Without a connection it never ends.
   */
  readonly lost: (target: string) => Effect.Effect<never, CellError>
  /** Sends one to a peer by its own connection. */
  readonly postTo: (peer: Peer, address: Address, post: Post) => Effect.Effect<void, CellError>
  /** Answers on the connection that a message came by; `own` are the headers of a reply or return beside the usual. */
  readonly answer: (
    message: CellMessage.IncomingMessage,
    via: Via,
    own: Headers,
    encoded: EncodedPayload
  ) => Effect.Effect<void, CellError>
  /**
   * Hands a message of other cells on, once there is room for it; `false` when there is nowhere to. `onLost` runs when
   * its connection does not take it after all.
   */
  readonly forward: (
    message: CellMessage.IncomingMessage,
    onLost: (error: CellError) => Effect.Effect<void>
  ) => Effect.Effect<boolean>
}

/** The headers of a message as they came, but for their order; what is not understood stays as it is. */
const passedOn = ({ block, headers }: CellMessage.IncomingMessage): Map<string, unknown> => {
  const entries = block === undefined ? undefined : Result.getOrUndefined(Msgpack.entries(block))
  // Keys that are bytes are passed on, too; they are no business of the cell's.
  return new Map<string, unknown>((entries ?? headers) as ReadonlyMap<string, unknown>)
}

const seconds = Effect.map(Clock.currentTimeMillis, (millis) => millis / 1000)

export const makeCourier = (options: CourierOptions): Courier => {
  const { background, fqcn, peers } = options

  const seal = (
    target: string,
    headers: Map<string, unknown>,
    pieces: ReadonlyArray<Uint8Array>
  ): Effect.Effect<Sealed, CellError> => {
    headers.delete(header.encrypted)
    const clear: Sealed = { pieces, release: () => {} }
    if (!CellMessage.flag(headers, header.secure)) {
      return Effect.succeed(clear)
    }
    const protection = options.protection()
    if (protection === undefined) {
      return Effect.fail(misconfigured("secure", `${fqcn} has no credentials for a secure message to ${target}`))
    }
    // What a cell sends to itself does not leave it.
    return target === fqcn ? Effect.succeed(clear) : protection.seal(target, headers, pieces)
  }

  const send = (
    hop: Via,
    headers: Map<string, unknown>,
    pieces: ReadonlyArray<Uint8Array>
  ): Effect.Effect<void, CellError> => {
    if (hop === undefined) {
      return Effect.asVoid(
        background(
          Effect.suspend(() =>
            options.loopBack({
              headers,
              payload: CellMessage.concat(pieces),
              isProtected: CellMessage.flag(headers, header.secure)
            })
          )
        )
      )
    }
    return Effect.mapError(hop.connection.send(headers, pieces), (error) =>
      sendFailed(CellMessage.text(headers, header.destination), CellMessage.text(headers, header.topic), error)
    )
  }

  /** Completes the headers of a message that starts here, and sends it. */
  const ship = Effect.fnUntraced(function* (
    hop: Via,
    target: string,
    headers: Map<string, unknown>,
    encoded: EncodedPayload
  ) {
    const now = yield* seconds
    headers.set(header.from, fqcn)
    headers.set(header.to, hop?.name ?? fqcn)
    headers.set(header.origin, fqcn)
    headers.set(header.destination, target)
    headers.set(header.route, [[fqcn, new Float(now)]])
    headers.set(header.payloadEncoding, encoded.encoding)
    const size = CellMessage.byteLength(encoded.pieces)
    headers.set(header.payloadLength, size)
    const { pieces, release } = yield* seal(target, headers, encoded.pieces)
    headers.set(header.sendTime, new Float(yield* seconds))
    if (size > options.maxMessageSize) {
      const topic = CellMessage.text(headers, header.topic)
      return yield* Effect.fail(
        encodeFailed(
          topic,
          `the message for ${topic} has ${size} bytes, ${options.maxMessageSize} fit (maxMessageSize)`
        )
      )
    }
    yield* send(hop, headers, pieces)
    // Only when it has left: what was cut short may be on its way still.
    if (hop !== undefined) {
      release()
    }
  })

  const requestHeaders = (address: Address, post: Post): Map<string, unknown> => {
    const headers = new Map(post.headers)
    headers.set(header.topic, address.topic)
    headers.set(header.channel, address.channel)
    if (post.requestId !== undefined) {
      headers.set(header.requestId, post.requestId)
    }
    headers.set(header.replyExpected, post.requestId !== undefined)
    headers.set(header.secure, post.secure ?? false)
    headers.set(header.optional, post.optional ?? false)
    headers.set(header.messageType, "req")
    return headers
  }

  const post: Courier["post"] = (target, address, post) =>
    Effect.suspend(() => {
      const name = Fqcn.validate(target)
      if (Result.isFailure(name)) {
        return Effect.fail(misconfigured("target", name.failure.message))
      }
      const hop = nextHop(fqcn, target, peers.has)
      const peer = hop === undefined ? undefined : peers.get(hop)
      return peer === undefined && hop !== fqcn
        ? Effect.fail(unreachable(target, `${fqcn} has no route to ${target}: it is not connected (yet)`))
        : ship(peer, target, requestHeaders(address, post), post.encoded)
    })

  const lost: Courier["lost"] = (target) =>
    Effect.suspend(() => {
      const hop = nextHop(fqcn, target, peers.has)
      const peer = hop === undefined ? undefined : peers.get(hop)
      return peer === undefined
        ? Effect.never
        : Effect.andThen(
            Deferred.await(peer.gone),
            Effect.suspend(() =>
              Effect.fail(unreachable(target, `the connection to ${peer.name} ended before ${target} had answered`))
            )
          )
    })

  const postTo: Courier["postTo"] = (peer, address, post) =>
    ship(peer, peer.name, requestHeaders(address, post), post.encoded)

  const answer: Courier["answer"] = (message, via, own, encoded) => {
    // The peer may have connected anew while its request was worked on.
    const hop = via === undefined ? undefined : (peers.get(via.name) ?? via)
    return ship(hop, CellMessage.text(message.headers, header.origin), new Map(own), encoded)
  }

  const hopTo = (message: CellMessage.IncomingMessage): Peer | undefined => {
    const target = CellMessage.text(message.headers, header.destination)
    const hop =
      Result.isFailure(Fqcn.validate(target)) || CellMessage.flag(message.headers, header.serverTransit)
        ? undefined
        : forwardHop(fqcn, target, CellMessage.route(message.headers), peers.has)
    return hop === undefined ? undefined : peers.get(hop)
  }

  const forward: Courier["forward"] = Effect.fnUntraced(function* (message, onLost) {
    const peer = hopTo(message)
    if (peer === undefined) {
      return false
    }
    const headers = passedOn(message)
    const size = message.payload.byteLength + (message.block?.byteLength ?? 0)
    const now = yield* seconds
    const known = headers.get(header.route)
    const hops =
      known instanceof Encoded ? Result.getOrUndefined(Msgpack.decode(known.bytes, { lossless: true })) : known
    headers.set(header.from, fqcn)
    headers.set(header.to, peer.name)
    headers.set(header.route, CellMessage.extendRoute(hops, fqcn, now))
    headers.set(header.payloadLength, message.payload.byteLength)
    headers.set(header.sendTime, new Float(now))
    const sent = send(peer, headers, [message.payload]).pipe(
      // Only when it has left: what was cut short may be on its way still.
      Effect.tap(() => Effect.sync(() => message.release?.())),
      Effect.catch(onLost),
      Effect.ensuring(Effect.sync(() => options.room.leave(peer.queued, size)))
    )
    return yield* Effect.uninterruptibleMask((restore) =>
      restore(options.room.enter(peer.queued, size)).pipe(Effect.andThen(options.forwarding(sent)), Effect.as(true))
    )
  })

  return { post, lost, postTo, answer, forward }
}
