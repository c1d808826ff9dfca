/**
 * A cell without streams: who is connected, where messages go, one message a request and one a reply.
 *
 * Source: docs/wire/cellnet.md, sections 4 to 6 and 8.
 *
 * @since 0.1.0
 */
import { Deferred, type Duration, Effect, FiberSet, type Scope, type Stream } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import { Encoded } from "../fobs/Msgpack.ts"
import * as Fqcn from "../identity/Fqcn.ts"
import type { Options as ConnectionOptions } from "../transport/Connection.ts"
import type { Drivers } from "../transport/Drivers.ts"
import type { CellError } from "./CellError.ts"
import * as CellMessage from "./CellMessage.ts"
import type { Address, CellReply, GuardRule, Handler, LinkFailure, PeerChange, PeerStatus } from "./CellTypes.ts"
import { type Courier, makeCourier, type Post, type Via } from "./internal/Courier.ts"
import { requestTimeout } from "./internal/errors.ts"
import { makeGuard } from "./internal/Guard.ts"
import { type Links, makeLinks } from "./internal/Links.ts"
import type { Owed } from "./internal/Owed.ts"
import { makeOpening } from "./internal/opening.ts"
import { makePeers, type Peer } from "./internal/Peers.ts"
import { none, type Payloads } from "./internal/payloads.ts"
import { makeRegistry } from "./internal/Registry.ts"
import { makeRefusals } from "./internal/refusals.ts"
import { makeRoom, type RoomLimits } from "./internal/room.ts"
import { makeWaiters } from "./internal/Waiters.ts"
import { within } from "./internal/waits.ts"
import type { Protection } from "./Protection.ts"

export type { Protection } from "./Protection.ts"

const { header } = CellMessage

/**
 * What takes the frames of streams. These effects run in the reader of the connection: they must not wait. `data` has
 * the payload, lent or not, from then on; the others look at the headers alone.
 *
 * @category models
 * @since 0.1.0
 */
export interface StreamFrames {
  readonly data: (message: CellMessage.IncomingMessage) => Effect.Effect<void>
  readonly ack: (message: CellMessage.IncomingMessage) => Effect.Effect<void>
  readonly error: (message: CellMessage.IncomingMessage) => Effect.Effect<void>
  /** Told of a DATA frame that can't be forwarded. */
  readonly undeliverable: (message: CellMessage.IncomingMessage) => Effect.Effect<void>
}

/**
 * What a core cell is made of. `frames` and `protection` are asked at each message, so that they can be set later.
 *
 * @category models
 * @since 0.1.0
 */
export interface CoreCellOptions {
  readonly fqcn: string
  readonly drivers: Drivers["Service"]
  readonly random: SecureRandom["Service"]
  readonly payloads: Payloads
  readonly owed: Owed
  readonly frames: () => StreamFrames
  readonly protection: () => Protection | undefined
  readonly connection: Pick<ConnectionOptions, "verify" | "handshakeTimeout" | "heartbeatInterval">
  /** How long a closing cell waits for answers to its bye. */
  readonly byeTimeout: Duration.Duration
  /** The largest payload of one message, in bytes. */
  readonly maxMessageSize: number
  /** Whether who dialed this cell speaks only for itself and the cells below it. */
  readonly bindOrigins: boolean
  /** What may wait to be forwarded before the senders' connections are no longer read. */
  readonly forwarding: RoomLimits
}

/**
 * A plain request's own part.
 *
 * @category models
 * @since 0.1.0
 */
export interface PlainRequest extends Omit<Post, "requestId"> {
  readonly timeout: Duration.Duration
  readonly extend?: Effect.Effect<boolean> | undefined
}

/**
 * @category models
 * @since 0.1.0
 */
export interface CoreCell {
  readonly fqcn: string
  readonly links: Links
  readonly connected: (peer: string) => Stream.Stream<boolean>
  readonly peers: Effect.Effect<ReadonlyArray<PeerStatus>>
  readonly peerChanges: Stream.Stream<PeerChange>
  readonly linkFailure: (peer: string) => Effect.Effect<LinkFailure | undefined>
  /** Sends a one-way message; ends when its connection has taken it. */
  readonly post: Courier["post"]
  /** Fails when the connection by which `target` is reached now is over; without one it never ends. */
  readonly lost: Courier["lost"]
  /** Asks and waits for the reply, or the return, not decoded yet. */
  readonly request: (
    target: string,
    address: Address,
    request: PlainRequest
  ) => Effect.Effect<CellMessage.IncomingMessage, CellError>
  readonly handle: (address: Address, handler: Handler, origin?: string) => Effect.Effect<void, never, Scope.Scope>
  readonly guard: (rule: GuardRule) => Effect.Effect<void, never, Scope.Scope>
  /** Sends in the cell's Scope, on a fiber of its own; its failure goes to the debug log. */
  readonly background: (effect: Effect.Effect<unknown, CellError>) => Effect.Effect<void>
  /** Works in the cell's Scope, on a fiber of its own; `false` when too much is at work already. */
  readonly serving: (effect: Effect.Effect<unknown, CellError>) => Effect.Effect<boolean>
}

// More of a peer's messages than this at work at once are dropped: it asks faster than it is served.
const maxAtWork = 10_000

/** Who was dialed stands above, and passes on what others say; who dialed speaks for itself and what is below it. */
const maySpeakFor = ({ dialed, name }: Peer, origin: string): boolean =>
  dialed || origin === name || Fqcn.isAncestor(name, origin)

const isAt = (address: Address, other: Address): boolean =>
  address.channel === other.channel && address.topic === other.topic

const replyCode = (headers: ReadonlyMap<string, unknown>, returnCode: string, error?: string) => {
  const own = new Map(headers)
  own.set(header.returnCode, returnCode)
  if (error !== undefined && error !== "") {
    own.set(header.error, error)
  }
  return own
}

/** Fibers that end with the cell; beyond the bound work is refused. */
const makeWorkers = Effect.fnUntraced(function* (fqcn: string, what: string, startImmediately: boolean) {
  const fibers = yield* FiberSet.make<unknown, never>()
  let isFull = false
  return (effect: Effect.Effect<unknown, CellError>): Effect.Effect<boolean> =>
    Effect.flatMap(FiberSet.size(fibers), (size) => {
      const wasFull = isFull
      isFull = size >= maxAtWork
      if (isFull) {
        const line = `${fqcn}: messages are dropped, ${size} ${what} are at work`
        return Effect.as(wasFull ? Effect.void : Effect.logWarning(line), false)
      }
      const logged = Effect.catchCause(effect, (cause) => Effect.logDebug(`${fqcn}: one of the ${what} failed`, cause))
      return Effect.as(FiberSet.run(fibers, logged, { startImmediately }), true)
    })
})

/**
 * Makes a cell's core; closing the Scope says bye to all peers, closes the connections, then interrupts what runs.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fnUntraced(function* (
  options: CoreCellOptions
): Effect.fn.Return<CoreCell, never, Scope.Scope> {
  const { fqcn, payloads, random } = options
  const handlers = makeRegistry<Handler>()
  const waiters = makeWaiters()
  const refusals = makeRefusals(fqcn)
  const guard = makeGuard(fqcn, refusals)
  const peers = yield* makePeers
  // Handlers start after the frame at hand is dealt with; senders at once, so that messages leave in order.
  const serving = yield* makeWorkers(fqcn, "handlers", false)
  const sending = yield* makeWorkers(fqcn, "senders", true)
  const background = (effect: Effect.Effect<unknown, CellError>) => Effect.asVoid(sending(effect))
  const open = makeOpening({ protection: options.protection, refusals, serving })
  const forwards = yield* FiberSet.make<unknown, never>()
  const courier = makeCourier({
    ...options,
    peers,
    background: sending,
    room: makeRoom(options.forwarding),
    forwarding: (effect) => Effect.asVoid(FiberSet.run(forwards, effect, { startImmediately: true })),
    loopBack: (message) => receive(message, undefined)
  })

  const dropped = (message: CellMessage.IncomingMessage, why: string): Effect.Effect<void> => {
    message.release?.()
    const { channel, topic } = CellMessage.address(message.headers)
    const origin = CellMessage.text(message.headers, header.origin)
    return Effect.logDebug(`${fqcn}: dropped a message of ${origin} for ${channel}/${topic}: ${why}`)
  }

  /** Sends a request back to the hop it came from. */
  const returnTo = (
    message: CellMessage.IncomingMessage,
    via: Via,
    verdict: { readonly code: string; readonly error: string; readonly reason: string }
  ) => {
    const own = replyCode(new Map(), verdict.code, verdict.error)
    own.set(header.originalHeaders, message.block === undefined ? message.headers : new Encoded(message.block))
    own.set(header.requestId, CellMessage.texts(message.headers, header.requestId))
    own.set(header.messageType, "return")
    own.set(header.returnReason, verdict.reason)
    return background(courier.answer(message, via, own, none))
  }

  const isRequestAt = (message: CellMessage.IncomingMessage, address: Address): boolean =>
    message.headers.get(header.messageType) === "req" && isAt(CellMessage.address(message.headers), address)

  const expectsReply = (message: CellMessage.IncomingMessage): boolean =>
    message.headers.get(header.messageType) === "req" && CellMessage.flag(message.headers, header.replyExpected)

  const undeliverable = Effect.fnUntraced(function* (message: CellMessage.IncomingMessage, via: Via, why: string) {
    if (CellMessage.isStreamFrame(message.headers, CellMessage.streamTopic.data)) {
      yield* options.frames().undeliverable(message)
    }
    yield* expectsReply(message)
      ? returnTo(message, via, { code: "comm_error", error: "cannot forward", reason: "cant_forward" })
      : dropped(message, why)
  })

  const forward = Effect.fnUntraced(function* (message: CellMessage.IncomingMessage, via: Via) {
    // What a connection did not take whole may still be on its way: its memory must not be given back.
    const { release: _, ...kept } = message
    if (!(yield* courier.forward(message, (error) => undeliverable(kept, via, error.message)))) {
      const target = CellMessage.text(message.headers, header.destination)
      yield* undeliverable(message, via, `there is no route to ${target}`)
    }
  })

  const refuse = (message: CellMessage.IncomingMessage, via: Via) =>
    expectsReply(message) && message.headers.get(header.channel) !== CellMessage.streamChannel
      ? returnTo(message, via, {
          code: "authentication_error",
          error: `the guard of ${fqcn} refuses this message`,
          reason: "intercept"
        })
      : dropped(message, "the guard refuses it")

  const exchange = (message: CellMessage.IncomingMessage): Effect.Effect<CellReply | undefined> =>
    options.protection()?.exchange(message) ??
    Effect.succeed({
      returnCode: "ok",
      payload: new Map([["cert_error", `${fqcn} has no certificate to give: it does not run in secure mode`]])
    })

  /** A plain reply; `undefined` for none. */
  const handled = Effect.fnUntraced(function* (
    message: CellMessage.IncomingMessage,
    via: Via
  ): Effect.fn.Return<{ readonly reply: CellReply | undefined; readonly secure: boolean }, CellError> {
    const address = CellMessage.address(message.headers)
    const origin = CellMessage.text(message.headers, header.origin)
    if (via !== undefined && isAt(address, CellMessage.byeAddress)) {
      // Nobody says bye for another: that would cut off all who are reached by the same connection.
      yield* origin === via.name ? peers.remove(via, "it said bye") : Effect.void
      return { reply: { returnCode: "ok" }, secure: true }
    }
    if (isAt(address, CellMessage.keyExchangeAddress)) {
      return { reply: yield* exchange(message), secure: true }
    }
    // Nothing is decoded for which there is no handler.
    const handler = handlers.find(address, origin)
    if (handler === undefined) {
      return { reply: { returnCode: "process_exception", error: "no callback" }, secure: false }
    }
    const arrival = { origin, topic: address.topic, headers: message.headers }
    const encoding = CellMessage.text(message.headers, header.payloadEncoding)
    const payload = yield* payloads.decode(encoding, message.payload, arrival)
    const headers = new Map(message.headers)
    headers.delete(header.payloadEncoding)
    const reply = yield* handler({ origin, address, headers, payload }).pipe(
      Effect.catchCause((cause) =>
        Effect.as(Effect.logWarning(`${fqcn}: the handler of ${address.channel}/${address.topic} failed`, cause), {
          returnCode: "process_exception"
        } satisfies CellReply)
      )
    )
    return { reply, secure: true }
  })

  const serve = Effect.fnUntraced(function* (message: CellMessage.IncomingMessage, via: Via) {
    const { reply, secure } = yield* handled(message, via)
    if (reply === undefined || !expectsReply(message)) {
      return
    }
    const own = replyCode(reply.headers ?? new Map(), reply.returnCode || "ok", reply.error)
    if (secure) {
      own.set(header.secure, CellMessage.flag(message.headers, header.secure))
    }
    own.set(header.optional, CellMessage.flag(message.headers, header.optional))
    for (const key of [header.channel, header.topic, header.requestId]) {
      own.set(key, message.headers.get(key))
    }
    own.set(header.messageType, "reply")
    const encoded = yield* Effect.catch(
      payloads.encode(CellMessage.text(message.headers, header.topic), reply.payload),
      (error) => {
        own.set(header.returnCode, "process_exception")
        own.set(header.error, error.message)
        return Effect.succeed(none)
      }
    )
    yield* courier.answer(message, via, own, encoded)
  })

  const dispatch = (message: CellMessage.IncomingMessage, via: Via): Effect.Effect<void> => {
    if (message.headers.get(header.messageType) !== "req") {
      return waiters.settle(CellMessage.owned(message))
    }
    if (message.headers.get(header.channel) !== CellMessage.streamChannel) {
      // It is kept by whoever handles it, for as long as that one likes.
      const answer = serve(CellMessage.owned(message), via)
      const origin = CellMessage.text(message.headers, header.origin)
      return Effect.asVoid(serving(expectsReply(message) ? options.owed.during(origin, answer) : answer))
    }
    const frames = options.frames()
    switch (message.headers.get(header.topic)) {
      case CellMessage.streamTopic.data:
        return frames.data(message)
      case CellMessage.streamTopic.ack:
        return frames.ack(message)
      case CellMessage.streamTopic.error:
        return frames.error(message)
      default:
        return dropped(message, "there is no such stream topic")
    }
  }

  // The order of work is that of docs/wire/cellnet.md, section 8.
  const receive = (message: CellMessage.IncomingMessage, via: Via): Effect.Effect<void> => {
    const defect = CellMessage.defect(message.headers)
    if (defect !== undefined) {
      return dropped(message, defect)
    }
    if (
      via !== undefined &&
      options.bindOrigins &&
      !maySpeakFor(via, CellMessage.text(message.headers, header.origin))
    ) {
      const origin = CellMessage.text(message.headers, header.origin)
      return refusals.count("origin", `${via.name} may not speak for ${origin}, only for itself and the cells below it`)
    }
    if (message.headers.get(header.destination) !== fqcn) {
      // A bye is of one hop: who passes one on lets a child cut another off from the cell between them.
      const isBye = isRequestAt(message, CellMessage.byeAddress)
      return isBye ? dropped(message, "a bye is not passed on") : forward(message, via)
    }
    return Effect.flatMap(guard.refuses(message.headers), (refused) =>
      refused ? refuse(message, via) : open(message, (opened) => dispatch(opened, via))
    )
  }

  /** Says bye to each, and waits until each has answered or is gone, or the time is over. */
  const farewell = Effect.fnUntraced(function* (all: ReadonlyArray<Peer>) {
    const live = all.filter((peer) => peers.get(peer.name) === peer)
    if (live.length === 0) {
      return
    }
    const requestId = yield* random.uuidV4()
    const names = live.map((peer) => peer.name)
    yield* waiters.during(requestId, names, (answers) =>
      Effect.forEach(
        live,
        (peer) => {
          const answer = answers.get(peer.name)
          return courier
            .postTo(peer, CellMessage.byeAddress, { encoded: none, requestId, optional: true })
            .pipe(
              Effect.andThen(answer === undefined ? Effect.void : Deferred.await(answer)),
              Effect.raceFirst(Deferred.await(peer.gone)),
              Effect.ignore
            )
        },
        { concurrency: "unbounded", discard: true }
      ).pipe(Effect.timeoutOption(options.byeTimeout))
    )
  })

  const links = yield* makeLinks({
    fqcn,
    drivers: options.drivers,
    peers,
    connection: options.connection,
    onMessage: receive,
    farewell
  })

  const request: CoreCell["request"] = Effect.fnUntraced(function* (target, address, plain) {
    const requestId = yield* random.uuidV4()
    const ask = (answers: ReadonlyMap<string, Deferred.Deferred<CellMessage.IncomingMessage>>) => {
      const answer = answers.get(target)
      return within(
        Effect.andThen(
          courier.post(target, address, { ...plain, requestId }),
          answer === undefined ? Effect.never : Deferred.await(answer)
        ),
        {
          timeout: plain.timeout,
          extend: plain.extend,
          onTimeout: (millis) => requestTimeout(target, address, "waiting", millis)
        }
      )
    }
    return yield* waiters.during(requestId, [target], ask, plain.secure)
  })

  return {
    fqcn,
    links,
    connected: peers.connected,
    peers: peers.status,
    peerChanges: peers.changes,
    linkFailure: (peer) => Effect.sync(() => links.failure(peer)),
    post: courier.post,
    lost: courier.lost,
    request,
    handle: handlers.add,
    guard: guard.add,
    background,
    serving
  }
})
