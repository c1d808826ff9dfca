/**
 * A connection between two named peers: a link after its handshake.
 *
 * Source: docs/wire/transport.md, sections 1 to 3.
 *
 * @since 0.1.0
 */
import { Clock, Duration, Effect, Queue, Result, type Scope } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import * as Msgpack from "../fobs/Msgpack.ts"
import type { FrameLink, LinkInfo } from "./Drivers.ts"
import * as Frame from "./Frame.ts"
import { closed, handshakeFailed } from "./internal/errors.ts"
import { encodeGreeting, readGreeting } from "./internal/handshake.ts"
import type { TransportError } from "./TransportError.ts"

/**
 * What came in one DATA frame. `headers` is empty where the frame had none; `payload` is a view that the receiver owns.
 *
 * @category models
 * @since 0.1.0
 */
export interface Incoming {
  readonly headers: ReadonlyMap<string, unknown>
  readonly payload: Uint8Array
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

const greetingStreamId = 1
const nil = Uint8Array.of(0xc0)
const noHeaders: ReadonlyMap<string, unknown> = new Map()
const maxWarnings = 10
const maxWaitingPongs = 16

/** Sends frames of all kinds over a link, numbering them. */
const makeSender = (link: FrameLink, local: string, nextStreamId: () => number) => {
  let sequence = 0
  const send = (
    type: number,
    headers: ReadonlyMap<string, unknown> | undefined,
    payload: ReadonlyArray<Uint8Array>,
    streamId = nextStreamId()
  ): Effect.Effect<void, TransportError> => {
    sequence = (sequence + 1) % 65536
    const appId = type === Frame.types.data ? Frame.cellAppId : 0
    const frame = Frame.encode({ type, appId, streamId, sequence, headers, payload })
    return Result.isFailure(frame) ? Effect.fail(frame.failure) : link.send(frame.success)
  }
  const greet = (type: number) =>
    Effect.flatMap(Clock.currentTimeMillis, (now) => {
      const payload = Msgpack.encode(encodeGreeting(local, now))
      return Result.isFailure(payload)
        ? Effect.fail(handshakeFailed(local, `the name can't be encoded: ${payload.failure.message}`))
        : send(type, undefined, [payload.success], greetingStreamId)
    })
  return { send, greet }
}

/** Logs what a peer does wrong, at most so often a connection. */
const makeComplaints = (link: FrameLink) => {
  let count = 0
  return (text: string): Effect.Effect<void> => {
    count += 1
    const last = count === maxWarnings ? " (more of this connection goes to the debug log)" : ""
    const line = `${link.info.peerAddress}: ${text}${last}`
    return count > maxWarnings ? Effect.logDebug(line) : Effect.logWarning(line)
  }
}

/** Names for the log. */
const typeName = (type: number): string =>
  Object.entries(Frame.types)
    .find(([, value]) => value === type)?.[0]
    ?.toUpperCase() ?? `type ${type}`

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
  const clock = yield* Clock.Clock
  const nowMillis = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const target = link.info.peerAddress
  const sender = makeSender(link, options.local, options.nextStreamId ?? makeStreamIds())
  const complain = makeComplaints(link)
  let lastReceived = nowMillis()
  let backlog: ReadonlyArray<Uint8Array> = []
  let ended: TransportError | undefined

  const nextFrames = Effect.suspend(() => {
    if (backlog.length > 0) {
      const frames = backlog
      backlog = []
      return Effect.succeed(frames)
    }
    return Effect.map(link.receive, (frames) => {
      lastReceived = nowMillis()
      return frames
    })
  })

  /** Looks at a frame before the peer has a name; answers its name, or `undefined` to go on waiting. */
  const greeted = Effect.fnUntraced(function* (bytes: Uint8Array) {
    const frame = Frame.decode(bytes)
    if (Result.isFailure(frame)) {
      yield* complain(`dropped a frame before the handshake: ${frame.failure.message}`)
      return undefined
    }
    const { payload, type } = frame.success
    if (type !== Frame.types.hello && type !== Frame.types.ready) {
      yield* complain(`dropped a ${typeName(type)} frame before the handshake`)
      return undefined
    }
    if (type === Frame.types.hello) {
      yield* sender.greet(Frame.types.ready)
    }
    const greeting = readGreeting(payload, options.local)
    if (greeting.kind === "refused") {
      return yield* Effect.fail(
        handshakeFailed(target, `the ${typeName(type)} of ${target} is refused: ${greeting.why}`)
      )
    }
    if (greeting.kind === "unusable") {
      yield* complain(`ignored a ${typeName(type)}: ${greeting.why}`)
      return undefined
    }
    return greeting.name
  })

  const handshake = Effect.gen(function* () {
    if (options.role === "active") {
      yield* sender.greet(Frame.types.hello)
    }
    while (true) {
      const frames = yield* nextFrames
      for (const [index, bytes] of frames.entries()) {
        const name = yield* greeted(bytes)
        if (name !== undefined) {
          backlog = frames.slice(index + 1)
          return name
        }
      }
    }
  })

  const timeout = Duration.fromInputUnsafe(options.handshakeTimeout ?? "30 seconds")
  const peer = yield* Effect.timeoutOrElse(handshake, {
    duration: timeout,
    orElse: () => {
      const awaited = options.role === "active" ? "READY" : "HELLO"
      const message = `no usable ${awaited} from ${target} within ${Duration.format(timeout)} (handshakeTimeout)`
      return Effect.fail(handshakeFailed(target, message))
    }
  })
  if (options.verify !== undefined) {
    yield* options.verify(peer, link.info)
  }

  const pongs = yield* Queue.dropping<void>(maxWaitingPongs)
  yield* Queue.take(pongs).pipe(
    Effect.flatMap(() => sender.send(Frame.types.pong, undefined, [nil])),
    Effect.forever,
    Effect.ignore,
    Effect.forkScoped
  )

  const heartbeat = Duration.toMillis(options.heartbeatInterval ?? "60 seconds")
  yield* Effect.gen(function* () {
    let lastPing = 0
    while (true) {
      const due = Math.max(lastReceived, lastPing) + heartbeat
      const now = nowMillis()
      if (now < due) {
        yield* Effect.sleep(Duration.millis(due - now))
      } else {
        lastPing = now
        yield* sender.send(Frame.types.ping, undefined, [nil])
      }
    }
  }).pipe(Effect.ignore, Effect.forkScoped)

  /** A greeting after the handshake: the reference takes it for a new connection, and closes the old one: this one. */
  const regreeted = Effect.fnUntraced(function* (type: number, payload: Uint8Array) {
    if (type === Frame.types.hello) {
      yield* Effect.ignore(sender.greet(Frame.types.ready))
    }
    const greeting = readGreeting(payload, options.local)
    if (greeting.kind === "unusable") {
      return yield* complain(`ignored a second ${typeName(type)}: ${greeting.why}`)
    }
    ended = closed(target, "evicted", `${peer} sent a second ${typeName(type)}, which ends the connection`)
  })

  const take = Effect.fnUntraced(function* (bytes: Uint8Array) {
    const decoded = Frame.decode(bytes)
    if (Result.isFailure(decoded)) {
      yield* complain(`dropped a frame of ${peer}: ${decoded.failure.message}`)
      return undefined
    }
    const { appId, headers, payload, type } = decoded.success
    switch (type) {
      case Frame.types.data:
        if (appId === Frame.cellAppId) {
          return { headers: headers ?? noHeaders, payload }
        }
        yield* Effect.logDebug(`${target}: dropped a frame of ${peer} for the application ${appId}`)
        return undefined
      case Frame.types.ping:
        Queue.offerUnsafe(pongs, undefined)
        return undefined
      case Frame.types.pong:
        return undefined
      case Frame.types.hello:
      case Frame.types.ready:
        yield* regreeted(type, payload)
        return undefined
      default:
        yield* complain(`dropped a ${typeName(type)} frame of ${peer}, which is not supported`)
        return undefined
    }
  })

  const takeAll = Effect.fnUntraced(function* (frames: ReadonlyArray<Uint8Array>) {
    const messages: Array<Incoming> = []
    for (const bytes of frames) {
      const message = yield* take(bytes)
      if (message !== undefined) {
        messages.push(message)
      }
      if (ended !== undefined) {
        break
      }
    }
    return messages
  })

  const receive: Connection["receive"] = Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      while (ended === undefined) {
        const [first, ...more] = yield* takeAll(yield* restore(nextFrames))
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
      const sent = sender.send(Frame.types.data, headers, payload)
      return onSent === undefined ? sent : Effect.tap(sent, () => Effect.sync(onSent))
    })

  return { local: options.local, peer, info: link.info, send, receive }
})
