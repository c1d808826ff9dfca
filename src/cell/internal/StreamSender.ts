import { Clock, Duration, Effect, Exit, Latch, Schedule } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import { Float } from "../../fobs/Values.ts"
import type { CellError } from "../CellError.ts"
import * as CellMessage from "../CellMessage.ts"
import type { Address } from "../CellTypes.ts"
import type { CoreCell, StreamFrames } from "../CoreCell.ts"
import type { ByteStream, StreamOptions, UsedStreamSettings } from "../StreamTypes.ts"
import { type Chunk, cut } from "./chunks.ts"
import { peerFailed, streamFailed, unreachable } from "./errors.ts"
import { none } from "./payloads.ts"

const { frameKind, header, streamChannel, streamHeader, streamTopic } = CellMessage

const dataAddress: Address = { channel: streamChannel, topic: streamTopic.data }

interface Pending {
  readonly chunk: Chunk
  sentAt: number
  firstRetry: number | undefined
}

/** What is remembered of a stream after its end, for errors that come late. */
interface Identity {
  readonly id: number
  readonly target: string
  readonly address: Address
  readonly requestId: string
  readonly onPeerError: ((error: CellError) => void) | undefined
}

interface Outgoing extends Identity {
  readonly options: StreamOptions
  readonly size: number
  readonly wake: Latch.Latch
  /** Reliable streams: frames that are not acknowledged, by sequence number, in ascending order. */
  readonly pending: Map<number, Pending>
  pendingBytes: number
  frames: number
  sent: number
  acked: number
  lastProgress: number
  failure: CellError | undefined
  isFailedByPeer: boolean
}

const rememberMillis = 300_000
/** One a second, while there is no connection. */
const abortTries = 60
const rememberCount = 10_000

/** The sending half of byte streams; docs/wire/cellnet.md, sections 10.2, 10.3 and 10.6. */
export const makeSender = Effect.fnUntraced(function* (
  core: Pick<CoreCell, "post" | "background">,
  random: SecureRandom["Service"],
  settings: UsedStreamSettings
): Effect.fn.Return<Pick<ByteStream, "send"> & Pick<StreamFrames, "ack" | "error">> {
  const clock = yield* Clock.Clock
  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const active = new Map<number, Outgoing>()
  const ended = new Map<number, { readonly identity: Identity; readonly at: number }>()
  // Ids must not come again for a while, in another process neither: microseconds since the epoch, as the reference.
  let lastId = (yield* Clock.currentTimeMillis) * 1000 + (yield* random.intBetween(0, 999_999))

  const remember = ({ address, id, onPeerError, requestId, target }: Identity) => {
    const at = now()
    for (const [id, entry] of ended) {
      if (ended.size < rememberCount && at - entry.at <= rememberMillis) {
        break
      }
      ended.delete(id)
    }
    // No more than this: a stream holds on to its blob.
    ended.set(id, { identity: { address, id, onPeerError, requestId, target }, at })
  }

  const remembered = (id: number): Identity | undefined => {
    const entry = ended.get(id)
    return entry !== undefined && now() - entry.at <= rememberMillis ? entry.identity : undefined
  }

  const frameHeaders = (stream: Outgoing, chunk: Chunk): Map<string, unknown> => {
    const { options } = stream
    const isReliable = options.reliable ?? false
    const headers = new Map(options.headers)
    headers.set(streamHeader.channel, stream.address.channel)
    headers.set(streamHeader.topic, stream.address.topic)
    headers.set(streamHeader.size, stream.size)
    headers.set(streamHeader.id, stream.id)
    headers.set(streamHeader.dataType, chunk.isFinal ? frameKind.final : frameKind.chunk)
    headers.set(streamHeader.sequence, chunk.sequence)
    headers.set(streamHeader.offset, chunk.offset)
    headers.set(streamHeader.reliable, isReliable)
    headers.set(streamHeader.optional, options.optional ?? false)
    headers.set(streamHeader.chunkSize, settings.chunkSize)
    headers.set(streamHeader.windowSize, settings.windowSize)
    if (chunk.sequence === 0) {
      headers.set(streamHeader.ackInterval, settings.ackInterval)
      if (isReliable) {
        headers.set(streamHeader.retryWait, new Float(settings.retryWait / 1000))
        headers.set(streamHeader.retryTimeout, new Float(settings.retryTimeout / 1000))
      }
    }
    return headers
  }

  const post = (stream: Outgoing, chunk: Chunk): Effect.Effect<void, CellError> =>
    core.post(stream.target, dataAddress, {
      encoded: { encoding: "bytes", pieces: chunk.pieces },
      headers: frameHeaders(stream, chunk),
      optional: stream.options.optional ?? false,
      secure: stream.options.secure ?? false
    })

  const fail = (stream: Outgoing, message: string) =>
    Effect.fail(
      streamFailed(
        stream.target,
        `the stream to ${stream.target} for ${stream.address.channel}/${stream.address.topic} failed: ${message}`
      )
    )

  /** Sends one frame for the first time, or again. What may heal is left to the next repetition. */
  const transmit = (stream: Outgoing, chunk: Chunk): Effect.Effect<void, CellError> =>
    stream.options.reliable === true
      ? Effect.catchIf(
          post(stream, chunk),
          (error) => error.reason._tag === "TargetUnreachable",
          (error) => Effect.logDebug(`frame ${chunk.sequence} is sent again later: ${error.message}`)
        )
      : post(stream, chunk)

  const sendChunk = Effect.fnUntraced(function* (stream: Outgoing, chunk: Chunk) {
    if (stream.options.reliable === true) {
      stream.pending.set(chunk.sequence, { chunk, sentAt: now(), firstRetry: undefined })
      stream.pendingBytes += chunk.length
      if (stream.pendingBytes > settings.retryMaxPendingBytes) {
        return yield* fail(
          stream,
          `${stream.pendingBytes} bytes are unacknowledged, ${settings.retryMaxPendingBytes} may be (retryMaxPendingBytes)`
        )
      }
    }
    yield* transmit(stream, chunk)
    stream.frames += 1
    stream.sent += chunk.length
    stream.options.onProgress?.()
  })

  /** When the next frame must be sent again, in milliseconds of the clock. */
  const nextRetry = (stream: Outgoing): number => {
    let due = Number.POSITIVE_INFINITY
    for (const entry of stream.pending.values()) {
      due = Math.min(due, entry.sentAt + settings.retryWait)
    }
    return due
  }

  const retryDue = Effect.fnUntraced(function* (stream: Outgoing, at: number) {
    for (const [sequence, entry] of [...stream.pending]) {
      if (at - entry.sentAt < settings.retryWait || !stream.pending.has(sequence)) {
        continue
      }
      if (entry.firstRetry !== undefined && at - entry.firstRetry >= settings.retryTimeout) {
        return yield* fail(
          stream,
          `frame ${sequence} is unacknowledged ${settings.retryTimeout} ms after its first repetition (retryTimeout)`
        )
      }
      entry.firstRetry ??= at
      entry.sentAt = at
      yield* transmit(stream, entry.chunk)
    }
  })

  /**
   * Waits until `isDone`, sending again what is due; fails when the peer reports a failure, or at `deadline`. The latch
   * is closed before each look, so that no acknowledgement is missed.
   */
  const waitFor = Effect.fnUntraced(function* (
    stream: Outgoing,
    isDone: () => boolean,
    deadline: () => number,
    late: string
  ) {
    while (true) {
      stream.wake.closeUnsafe()
      if (stream.failure !== undefined) {
        return yield* Effect.fail(stream.failure)
      }
      if (isDone()) {
        return
      }
      const at = now()
      const retry = nextRetry(stream)
      if (at >= retry) {
        yield* retryDue(stream, at)
      } else if (at >= deadline()) {
        return yield* fail(stream, late)
      } else {
        const wait = Math.min(retry, deadline()) - at
        yield* Number.isFinite(wait)
          ? Effect.raceFirst(stream.wake.await, Effect.sleep(Duration.millis(wait)))
          : stream.wake.await
      }
    }
  })

  const awaitRoom = (stream: Outgoing) => {
    const began = now()
    const deadline = () =>
      Math.min(
        began + settings.ackWait,
        Math.max(stream.lastProgress + settings.ackProgressTimeout, began + settings.ackProgressCheckInterval)
      )
    const late = `the receiver consumes nothing more (ackProgressTimeout: ${settings.ackProgressTimeout} ms, ackWait: ${settings.ackWait} ms)`
    return waitFor(stream, () => stream.sent - stream.acked <= settings.windowSize, deadline, late)
  }

  const transfer = Effect.fnUntraced(function* (stream: Outgoing, blob: ReadonlyArray<Uint8Array>) {
    for (const chunk of cut(blob, settings.chunkSize)) {
      // The final chunk ignores the window.
      if (!chunk.isFinal && chunk.sequence > 0) {
        yield* awaitRoom(stream)
      }
      if (stream.failure !== undefined) {
        return yield* Effect.fail(stream.failure)
      }
      yield* sendChunk(stream, chunk)
    }
    if (stream.options.reliable === true) {
      yield* waitFor(
        stream,
        () => stream.pending.size === 0,
        () => Number.POSITIVE_INFINITY,
        ""
      )
    }
  })

  /** Tells the receiver that no more will come. */
  const abort = (stream: Outgoing, message: string) => {
    const headers = new Map(stream.options.headers)
    headers.set(streamHeader.id, stream.id)
    headers.set(streamHeader.dataType, frameKind.error)
    headers.set(streamHeader.offset, stream.sent)
    headers.set(streamHeader.errorMessage, message)
    const { secure = false } = stream.options
    const posted = core.post(stream.target, dataAddress, { encoded: none, headers, optional: true, secure })
    // The receiver holds what it has of the stream until it is told, so it is told when the connection is there again.
    return core.background(
      Effect.retry(posted, {
        while: ({ reason }) => reason._tag === "TargetUnreachable",
        schedule: Schedule.spaced("1 second"),
        times: abortTries
      })
    )
  }

  const close = (stream: Outgoing, exit: Exit.Exit<void, CellError>): Effect.Effect<void> => {
    active.delete(stream.id)
    remember(stream)
    stream.pending.clear()
    // Nothing has left yet, or the receiver knows already.
    if (Exit.isSuccess(exit) || stream.isFailedByPeer || stream.frames === 0) {
      return Effect.void
    }
    const error = Exit.findErrorOption(exit)
    return abort(stream, error._tag === "Some" ? error.value.message : "the sender gave up the stream")
  }

  const send: ByteStream["send"] = (target, address, blob, options = {}) =>
    Effect.suspend(() => {
      lastId += 1
      const stream: Outgoing = {
        id: lastId,
        target,
        address,
        requestId: options.headers === undefined ? "" : CellMessage.text(options.headers, streamHeader.requestId),
        onPeerError: options.onPeerError,
        options,
        size: options.size ?? CellMessage.byteLength(blob),
        wake: Latch.makeUnsafe(),
        pending: new Map(),
        pendingBytes: 0,
        frames: 0,
        sent: 0,
        acked: 0,
        lastProgress: now(),
        failure: undefined,
        isFailedByPeer: false
      }
      active.set(stream.id, stream)
      return Effect.onExit(transfer(stream, blob), (exit) => close(stream, exit))
    })

  const peerError = (identity: Identity, headers: CellMessage.IncomingMessage["headers"]): CellError => {
    const message = CellMessage.text(headers, streamHeader.errorMessage)
    return CellMessage.text(headers, streamHeader.errorType) === "StreamTargetUnreachable"
      ? unreachable(identity.target, message)
      : peerFailed(identity.target, identity.address.topic, message)
  }

  const failByPeer = (stream: Outgoing, error: CellError) => {
    stream.failure ??= error
    stream.isFailedByPeer = true
    stream.wake.openUnsafe()
  }

  const acknowledge = (stream: Outgoing, headers: CellMessage.IncomingMessage["headers"]) => {
    if (headers.has(streamHeader.errorMessage)) {
      const error = peerError(stream, headers)
      stream.onPeerError?.(error)
      return failByPeer(stream, error)
    }
    const offset = Math.min(CellMessage.int(headers, streamHeader.offset) ?? 0, stream.sent)
    if (offset > stream.acked) {
      stream.acked = offset
      stream.lastProgress = now()
      stream.options.onConsumed?.(offset)
    }
    if (stream.options.reliable === true) {
      const highest = CellMessage.int(headers, streamHeader.sequence)
      if (highest === undefined) {
        stream.failure ??= streamFailed(stream.target, `${stream.target} doesn't support reliable streams`)
      }
      for (const [sequence, entry] of stream.pending) {
        if (highest === undefined || sequence > highest) {
          break
        }
        stream.pending.delete(sequence)
        stream.pendingBytes -= entry.chunk.length
      }
    }
    stream.wake.openUnsafe()
  }

  const ack: StreamFrames["ack"] = ({ headers }) =>
    Effect.sync(() => {
      const stream = active.get(CellMessage.int(headers, streamHeader.id) ?? -1)
      if (stream !== undefined && CellMessage.text(headers, header.origin) === stream.target) {
        acknowledge(stream, headers)
      }
    })

  const error: StreamFrames["error"] = ({ headers }) =>
    Effect.sync(() => {
      const id = CellMessage.int(headers, streamHeader.id) ?? -1
      const stream = active.get(id)
      const identity = stream ?? remembered(id)
      const failedAt =
        CellMessage.text(headers, streamHeader.failedDestination) || CellMessage.text(headers, header.origin)
      if (
        identity === undefined ||
        failedAt !== identity.target ||
        CellMessage.text(headers, streamHeader.channel) !== identity.address.channel ||
        CellMessage.text(headers, streamHeader.topic) !== identity.address.topic ||
        CellMessage.text(headers, streamHeader.requestId) !== identity.requestId
      ) {
        return
      }
      const reported = peerError(identity, headers)
      identity.onPeerError?.(reported)
      if (stream !== undefined) {
        failByPeer(stream, reported)
      }
    })

  return { send, ack, error }
})
