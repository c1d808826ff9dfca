/**
 * A connection between two named peers: a link after its handshake.
 *
 * Source: docs/wire/transport.md, sections 1 to 3.
 *
 * @since 0.1.0
 */
import { Clock, Duration, Effect, Result, type Scope } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import type { FrameLink, LinkInfo } from "./Drivers.ts"
import * as Frame from "./Frame.ts"
import * as Complaints from "./internal/complaints.ts"
import { closed } from "./internal/errors.ts"
import * as FrameSender from "./internal/frameSender.ts"
import { handshake, type Party, readGreeting, typeName } from "./internal/handshake.ts"
import * as KeepAlive from "./internal/keepAlive.ts"
import type { TransportError } from "./TransportError.ts"

/**
 * What came in one DATA frame. `headers` is empty where the frame had none; `block` is the header block as it came;
 * `block` and `payload` are views that the receiver owns. Where there is a `release`, the payload's memory is lent:
 * calling it gives that back to the link (see `FrameLink.releaseOf`), which nobody has to do; headers and block stay.
 *
 * @category models
 * @since 0.1.0
 */
export interface Incoming {
  readonly headers: ReadonlyMap<string, unknown>
  readonly block: Uint8Array
  readonly payload: Uint8Array
  readonly release?: () => void
}

/**
 * A link whose two ends know each other's names. It lives as long as the Scope it was made in, and dies with its link;
 * after any failure of `receive` it is of no use: close the Scope.
 *
 * @category models
 * @since 0.1.0
 */
export interface Connection {
  /** This end's name. */
  readonly local: string
  /** The other end's name, as it claims it and `verify` let it pass. */
  readonly peer: string
  readonly info: LinkInfo
  /**
   * Sends one message and ends when the link has taken it, in the order of the calls; then `onSent` is called. The
   * pieces must not be changed before. Fails with `BadData` when the message is too large, else as the link.
   */
  readonly send: (
    headers: ReadonlyMap<string, unknown>,
    payload: ReadonlyArray<Uint8Array>,
    onSent?: () => void
  ) => Effect.Effect<void, TransportError>
  /**
   * The next messages, in the order of arrival; suspends until there is one. One consumer at a time. PINGs are
   * answered and lesser frames dropped while it runs, so keep pulling.
   */
  readonly receive: Effect.Effect<NonEmptyReadonlyArray<Incoming>, TransportError>
}

/**
 * @category models
 * @since 0.1.0
 */
export interface Options {
  /** `active` dialed and speaks first; `passive` answers. */
  readonly role: "active" | "passive"
  /** This end's name, a valid FQCN. */
  readonly local: string
  /** Numbers the frames sent to this peer, across reconnects. Default: {@link makeStreamIds} of its own. */
  readonly nextStreamId?: () => number
  /** Judges the peer's name, for instance by its certificate; a failure ends the connection. */
  readonly verify?: (peer: string, info: LinkInfo) => Effect.Effect<void, TransportError>
  /** How long the peer may take to say its name. Default 30 seconds; the reference waits for ever. */
  readonly handshakeTimeout?: Duration.Input
  /** After so much silence of the peer a PING is sent, and again each time it has passed. Default 60 seconds. */
  readonly heartbeatInterval?: Duration.Input
}

/**
 * A counter of stream ids, one a peer: 17, 18, ... 65535, 0, ... Source: docs/wire/transport.md, section 1.4.
 *
 * @category constructors
 * @since 0.1.0
 */
export const makeStreamIds = (): (() => number) => {
  let last = 16
  return () => {
    last = (last + 1) % 65536
    return last
  }
}

const noHeaders: ReadonlyMap<string, unknown> = new Map()

/** What one received frame means for its connection. */
type Meaning =
  | { readonly kind: "message"; readonly message: Incoming }
  | { readonly kind: "nothing" }
  | { readonly kind: "end"; readonly reason: TransportError }

const nothing: Meaning = { kind: "nothing" }

/** A greeting after the handshake: the reference takes it for a new connection and closes the old one, which is this. */
const greetedAgain = Effect.fnUntraced(function* (party: Party, peer: string, type: number, payload: Uint8Array) {
  if (type === Frame.types.hello) {
    yield* Effect.ignore(party.sender.greet(Frame.types.ready))
  }
  const greeting = readGreeting(payload, party.local)
  if (greeting.kind === "unusable") {
    yield* party.complain(`ignored a second ${typeName(type)}: ${greeting.why}`)
    return nothing
  }
  const why = `${peer} sent a second ${typeName(type)}, which ends the connection`
  return { kind: "end", reason: closed(party.link.info.peerAddress, "evicted", why) } satisfies Meaning
})

/** Sorts the frames of a peer that has a name. */
const makeSorting = (party: Party, peer: string, answerPing: () => void) =>
  Effect.fnUntraced(function* (bytes: Uint8Array): Effect.fn.Return<Meaning> {
    const release = party.link.releaseOf?.(bytes)
    const decoded = Frame.decode(bytes, release !== undefined)
    if (Result.isFailure(decoded)) {
      yield* party.complain(`dropped a frame of ${peer}: ${decoded.failure.message}`)
      return nothing
    }
    const { appId, block, headers, payload, type } = decoded.success
    switch (type) {
      case Frame.types.data:
        if (appId === Frame.cellAppId) {
          const message = { headers: headers ?? noHeaders, block, payload }
          return { kind: "message", message: release === undefined ? message : { ...message, release } }
        }
        yield* Effect.logDebug(
          `${party.link.info.peerAddress}: dropped a frame of ${peer} for the application ${appId}`
        )
        return nothing
      case Frame.types.ping:
        answerPing()
        return nothing
      case Frame.types.pong:
        return nothing
      case Frame.types.hello:
      case Frame.types.ready:
        return yield* greetedAgain(party, peer, type, payload)
      default:
        yield* party.complain(`dropped a ${typeName(type)} frame of ${peer}, which is not supported`)
        return nothing
    }
  })

/**
 * Does the handshake over a link and yields the connection. The active end says HELLO at once and waits for READY
 * before anything else; the passive end waits for HELLO and answers READY. Either end takes the other's greeting too.
 *
 * Fails with `HandshakeFailed` when the peer's name may not be used, is this end's own, or does not come in time, and
 * as the link and `verify` do. The link stays with its Scope: close that after a failure.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fn("Connection.make")(function* (
  link: FrameLink,
  options: Options
): Effect.fn.Return<Connection, TransportError, Scope.Scope> {
  const { local, role } = options
  const sender = FrameSender.make(link, local, options.nextStreamId ?? makeStreamIds())
  const party: Party = { link, sender, complain: Complaints.make(link.info.peerAddress), local, role }
  const { peer, rest } = yield* handshake(party, Duration.fromInputUnsafe(options.handshakeTimeout ?? "30 seconds"))
  if (options.verify !== undefined) {
    yield* options.verify(peer, link.info)
  }

  const clock = yield* Clock.Clock
  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  let lastReceived = now()
  let backlog = rest
  let ended: TransportError | undefined
  const sort = makeSorting(party, peer, yield* KeepAlive.makeAnswering(sender))
  const interval = Duration.toMillis(options.heartbeatInterval ?? "60 seconds")
  yield* KeepAlive.startHeartbeat(sender, interval, now, () => lastReceived)

  const messagesIn = Effect.fnUntraced(function* (frames: ReadonlyArray<Uint8Array>) {
    const messages: Array<Incoming> = []
    for (const bytes of frames) {
      const meaning = yield* sort(bytes)
      if (meaning.kind === "message") {
        messages.push(meaning.message)
        continue
      }
      party.link.releaseOf?.(bytes)?.()
      if (meaning.kind === "end") {
        ended = meaning.reason
        break
      }
    }
    return messages
  })

  const takeBacklog = () => {
    const frames = backlog
    backlog = []
    return frames
  }

  // Frames that were taken from the link must come out: only the wait for them can be interrupted.
  const receive: Connection["receive"] = Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      while (ended === undefined) {
        const frames = backlog.length > 0 ? takeBacklog() : yield* restore(link.receive)
        lastReceived = now()
        const [first, ...more] = yield* messagesIn(frames)
        if (first !== undefined) {
          return [first, ...more] as const
        }
      }
      return yield* Effect.fail(ended)
    })
  )

  const send: Connection["send"] = (headers, payload, onSent) =>
    Effect.suspend(() => {
      if (ended !== undefined) {
        return Effect.fail(ended)
      }
      const sent = sender.data(headers, payload)
      return onSent === undefined ? sent : Effect.tap(sent, () => Effect.sync(onSent))
    })

  return { local, peer, info: link.info, send, receive }
})
