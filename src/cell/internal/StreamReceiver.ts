import { Cause, Clock, Duration, Effect, Latch } from "effect"
import { CellError } from "../CellError.ts"
import * as CellMessage from "../CellMessage.ts"
import type { Address, Headers } from "../CellTypes.ts"
import type { CoreCell, StreamFrames } from "../CoreCell.ts"
import type { ByteStream, StreamHandler, UsedStreamSettings } from "../StreamTypes.ts"
import { streamFailed } from "./errors.ts"
import { none } from "./payloads.ts"
import { makeRegistry } from "./Registry.ts"
import { makeReassembly, type Reassembly } from "./reassembly.ts"

const { frameKind, header, streamChannel, streamHeader, streamTopic } = CellMessage

/** What answers to a stream need, also after its end. */
interface Identity {
  readonly key: string
  /** As the sender wrote it. */
  readonly id: unknown
  readonly origin: string
  readonly address: Address
  readonly isReliable: boolean
  readonly isProtected: boolean
  readonly requestId: string
}

interface Receiving extends Identity {
  readonly reassembly: Reassembly
  readonly handler: StreamHandler
  readonly wake: Latch.Latch
  readonly retention: number
  /** Chunks in order that are not read yet, from `head` on. */
  chunks: Array<Uint8Array>
  head: number
  /** The headers of the first frame, once it is there. */
  first: Headers | undefined
  ackInterval: number
  received: number
  consumed: number
  ackedOffset: number
  ackedSequence: number
  /** When that was told. */
  ackedAt: number
  isComplete: boolean
  failure: CellError | undefined
}

/** A stream that has ended, kept to answer its sender. */
interface Retained {
  readonly identity: Identity
  readonly expires: number
  readonly outcome:
    | { readonly kind: "complete"; readonly total: number; readonly last: number }
    | { readonly kind: "failed"; readonly errorType: string; readonly message: string }
    | { readonly kind: "aborted" }
}

const failedMillis = 5_000
/** The longest time that bytes are consumed without an acknowledgement, in milliseconds. */
const slowAck = 2_000
const minRetentionMillis = 65_000
const maxRetentionMillis = 3_600_000
const maxRetained = 10_000

const positive = (headers: Headers, key: string): number | undefined => {
  const value = CellMessage.int(headers, key)
  return value !== undefined && value > 0 ? value : undefined
}

/** How long a reliable stream is remembered after its end; docs/wire/cellnet.md, section 10.5. */
const retentionOf = (headers: Headers): number => {
  const retries =
    (CellMessage.number(headers, streamHeader.retryWait) ?? 0) +
    (CellMessage.number(headers, streamHeader.retryTimeout) ?? 0)
  return Math.max(minRetentionMillis, Math.min(retries * 1000, maxRetentionMillis))
}

/** Protected and clear frames are never of one stream: nobody can slip a clear one into a protected stream. */
const keyOf = (origin: string, id: unknown, isProtected: boolean): string | undefined =>
  typeof id === "bigint" || (typeof id === "number" && Number.isInteger(id))
    ? `${origin} ${id}${isProtected ? " protected" : ""}`
    : undefined

/** The receiving half of byte streams; docs/wire/cellnet.md, sections 10.4 to 10.6. */
export const makeReceiver = Effect.fnUntraced(function* (
  core: Pick<CoreCell, "fqcn" | "post" | "background" | "serving">,
  settings: UsedStreamSettings
): Effect.fn.Return<Pick<ByteStream, "handle"> & Pick<StreamFrames, "data" | "undeliverable">> {
  const clock = yield* Clock.Clock
  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const registry = makeRegistry<StreamHandler>()
  const active = new Map<string, Receiving>()
  const retained = new Map<string, Retained>()
  /** How to give the memory of chunks back that were lent. */
  const releases = new WeakMap<Uint8Array, () => void>()
  const release = (chunk: Uint8Array): void => releases.get(chunk)?.()
  const keep = (chunk: Uint8Array): Uint8Array => {
    if (!releases.has(chunk)) {
      return chunk
    }
    const copy = chunk.slice()
    release(chunk)
    return copy
  }

  const retain = (identity: Identity, millis: number, outcome: Retained["outcome"]) => {
    active.delete(identity.key)
    for (const [key, entry] of retained) {
      if (retained.size < maxRetained && entry.expires > now()) {
        break
      }
      retained.delete(key)
    }
    retained.set(identity.key, { identity, outcome, expires: now() + millis })
  }

  const post = (origin: string, topic: string, headers: Headers, optional: boolean) =>
    core.post(origin, { channel: streamChannel, topic }, { encoded: none, headers, optional })

  const sendAck = (identity: Identity, offset: number, sequence: number, optional: boolean) => {
    const headers = new Map<string, unknown>([
      [streamHeader.id, identity.id],
      [streamHeader.dataType, frameKind.ack],
      [streamHeader.offset, offset],
      [streamHeader.sequence, sequence]
    ])
    return core.background(post(identity.origin, streamTopic.ack, headers, optional))
  }

  const ack = (stream: Receiving, offset: number) => {
    const sequence = stream.reassembly.highest()
    const isRepeated = stream.ackedOffset >= offset && stream.ackedSequence >= sequence
    stream.ackedOffset = Math.max(stream.ackedOffset, offset)
    stream.ackedSequence = sequence
    stream.ackedAt = now()
    return sendAck(stream, offset, sequence, stream.isComplete && (!stream.isReliable || isRepeated))
  }

  /** Twice, since older senders know errors only as acknowledgements. */
  const sendError = (identity: Identity, errorType: string, message: string, optional: boolean) => {
    const headers = new Map<string, unknown>([
      [streamHeader.id, identity.id],
      [streamHeader.dataType, frameKind.error],
      [streamHeader.errorMessage, message],
      [streamHeader.channel, identity.address.channel],
      [streamHeader.topic, identity.address.topic],
      [streamHeader.errorType, errorType]
    ])
    if (identity.requestId !== "") {
      headers.set(streamHeader.requestId, identity.requestId)
    }
    return core.background(
      Effect.andThen(
        post(identity.origin, streamTopic.error, headers, optional),
        post(identity.origin, streamTopic.ack, headers, optional)
      )
    )
  }

  /** Ends a stream; its reader fails. Only the first failure counts. */
  const end = (stream: Receiving, error: CellError) => {
    stream.failure ??= error
    stream.chunks.slice(stream.head).forEach(release)
    stream.chunks = []
    stream.head = 0
    stream.wake.openUnsafe()
  }

  const fail = (stream: Receiving, message: string, errorType = "StreamError"): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (stream.failure !== undefined) {
        return Effect.void
      }
      end(stream, streamFailed(stream.origin, message, errorType))
      if (stream.isReliable || !stream.isComplete) {
        retain(stream, stream.isReliable ? stream.retention : failedMillis, { kind: "failed", errorType, message })
      }
      return sendError(stream, errorType, message, false)
    })

  const name = ({ address, id, origin }: Identity): string =>
    `the stream ${id} of ${origin} for ${address.channel}/${address.topic}`

  /** Waits until `isReady`; the latch is closed before each look, so that no frame is missed. */
  const waitFor = Effect.fnUntraced(function* (stream: Receiving, isReady: () => boolean) {
    while (true) {
      stream.wake.closeUnsafe()
      if (stream.failure !== undefined) {
        return yield* Effect.fail(stream.failure)
      }
      if (isReady()) {
        return
      }
      const waited = yield* Effect.timeoutOption(stream.wake.await, Duration.millis(settings.readTimeout))
      if (waited._tag === "None") {
        yield* fail(stream, `${name(stream)} brought nothing for ${settings.readTimeout} ms (readTimeout)`)
      }
    }
  })

  const read = (stream: Receiving): Effect.Effect<Uint8Array | undefined, CellError> => {
    const taken = Effect.suspend(() => {
      const chunk = stream.chunks[stream.head]
      if (chunk === undefined) {
        return Effect.succeed(undefined)
      }
      stream.head += 1
      if (stream.head === stream.chunks.length) {
        stream.chunks = []
        stream.head = 0
      }
      stream.consumed += chunk.byteLength
      // On a slow link by time, too: acknowledgements are signs of life, and tell how far a transfer has come.
      return stream.consumed - stream.ackedOffset >= stream.ackInterval || now() - stream.ackedAt >= slowAck
        ? Effect.as(ack(stream, stream.consumed), chunk)
        : Effect.succeed(chunk)
    })
    return Effect.andThen(
      waitFor(stream, () => stream.head < stream.chunks.length || stream.isComplete),
      taken
    )
  }

  const consume = (stream: Receiving): Effect.Effect<void> =>
    Effect.gen(function* () {
      yield* waitFor(stream, () => stream.first !== undefined)
      const headers = stream.first ?? new Map()
      const size = Math.max(0, CellMessage.int(headers, streamHeader.size) ?? 0)
      const next = read(stream)
      const { address, isProtected, origin } = stream
      yield* stream.handler({ origin, address, headers, size, isProtected, read: next, release, keep })
      // The handler wants no more; the sender must not wait for that.
      for (let left = yield* next; left !== undefined; left = yield* next) {
        release(left)
      }
    }).pipe(
      Effect.catchCause((cause) => {
        if (Cause.hasInterruptsOnly(cause)) {
          return Effect.failCause(cause as Cause.Cause<never>)
        }
        const error = Cause.squash(cause)
        const reason = error instanceof CellError ? error.reason : undefined
        const errorType = reason?._tag === "StreamFailed" ? reason.kind : "StreamError"
        return Effect.andThen(
          Effect.logDebug(`${core.fqcn}: ${name(stream)} failed`, cause),
          fail(stream, error instanceof Error ? error.message : String(error), errorType)
        )
      })
    )

  const open = Effect.fnUntraced(function* (identity: Identity, headers: Headers) {
    const window = positive(headers, streamHeader.windowSize) ?? settings.windowSize
    const chunk = positive(headers, streamHeader.chunkSize) ?? settings.chunkSize
    const maxStored = settings.maxOutOfSequenceChunks ?? Math.max(16, Math.min(Math.ceil(window / chunk) + 1, 1024))
    const maxBytes = settings.maxBlobSize > 0 ? settings.maxBlobSize : Number.POSITIVE_INFINITY
    const handler = registry.find(identity.address, identity.origin)
    const stream: Receiving = {
      ...identity,
      reassembly: makeReassembly(maxStored, maxBytes),
      handler: handler ?? (() => Effect.void),
      wake: Latch.makeUnsafe(),
      retention: retentionOf(headers),
      chunks: [],
      head: 0,
      first: undefined,
      ackInterval: settings.defaultAckInterval,
      received: 0,
      consumed: 0,
      ackedOffset: 0,
      ackedSequence: -1,
      ackedAt: now(),
      isComplete: false,
      failure: undefined
    }
    active.set(stream.key, stream)
    const { channel, topic } = identity.address
    if (handler === undefined) {
      yield* fail(stream, `${name(stream)}: No callback is registered for ${channel}/${topic}`)
    } else if (!(yield* core.serving(consume(stream)))) {
      yield* fail(stream, `${name(stream)}: ${core.fqcn} is too busy`)
    }
    return stream
  })

  const accept = Effect.fnUntraced(function* (
    stream: Receiving,
    message: CellMessage.IncomingMessage,
    sequence: number
  ) {
    const { headers, payload } = message
    const address = streamAddress(headers)
    if (message.release !== undefined) {
      releases.set(payload, message.release)
    }
    if (sequence === 0 && (address.channel !== stream.address.channel || address.topic !== stream.address.topic)) {
      return yield* fail(stream, `${name(stream)} changed its address`)
    }
    const isFinal = CellMessage.int(headers, streamHeader.dataType) === frameKind.final
    const accepted = stream.reassembly.accept(sequence, payload, isFinal)
    if (accepted.kind === "duplicate") {
      message.release?.()
      return yield* stream.isReliable ? ack(stream, stream.consumed) : Effect.void
    }
    if (accepted.kind === "overflow") {
      return yield* fail(
        stream,
        `${name(stream)}: too many chunks came before frame ${stream.reassembly.highest() + 1}`
      )
    }
    if (accepted.kind === "stored") {
      return
    }
    if (sequence === 0) {
      stream.first = headers
      const window = positive(headers, streamHeader.windowSize) ?? settings.windowSize
      stream.ackInterval = Math.min(positive(headers, streamHeader.ackInterval) ?? settings.defaultAckInterval, window)
    }
    for (const chunk of accepted.chunks) {
      stream.received += chunk.byteLength
      if (chunk.byteLength > 0) {
        stream.chunks.push(chunk)
      }
    }
    if (accepted.isComplete) {
      stream.isComplete = true
      active.delete(stream.key)
      if (stream.isReliable) {
        const last = stream.reassembly.highest()
        retain(stream, stream.retention, { kind: "complete", total: stream.received, last })
      }
    }
    stream.wake.openUnsafe()
    if (accepted.isComplete) {
      yield* ack(stream, stream.received)
    }
  })

  const answerAgain = ({ identity, outcome }: Retained): Effect.Effect<void> => {
    if (!identity.isReliable || outcome.kind === "aborted") {
      return Effect.void
    }
    return outcome.kind === "complete"
      ? sendAck(identity, outcome.total, outcome.last, true)
      : sendError(identity, outcome.errorType, outcome.message, true)
  }

  const abort = (key: string, headers: Headers) =>
    Effect.sync(() => {
      const stream = active.get(key)
      if (stream !== undefined) {
        const message = `${name(stream)} was given up by its sender: ${CellMessage.text(headers, streamHeader.errorMessage)}`
        end(stream, streamFailed(stream.origin, message))
        retain(stream, failedMillis, { kind: "aborted" })
      }
    })

  const data: StreamFrames["data"] = Effect.fnUntraced(function* (message) {
    const { headers } = message
    const origin = CellMessage.text(headers, header.origin)
    const id = headers.get(streamHeader.id)
    const isProtected = message.isProtected ?? false
    const key = keyOf(origin, id, isProtected)
    const sequence = CellMessage.int(headers, streamHeader.sequence)
    if (key === undefined) {
      return yield* Effect.logDebug(`${core.fqcn}: dropped a frame of ${origin} without a stream id`)
    }
    if (headers.has(streamHeader.errorMessage)) {
      return yield* abort(key, headers)
    }
    if (sequence === undefined || sequence < 0) {
      return yield* Effect.logDebug(`${core.fqcn}: dropped a frame of ${origin} without a sequence number`)
    }
    const past = retained.get(key)
    if (past !== undefined) {
      if (past.expires > now()) {
        message.release?.()
        return yield* answerAgain(past)
      }
      retained.delete(key)
    }
    const identity: Identity = {
      key,
      id,
      origin,
      address: streamAddress(headers),
      isReliable: CellMessage.flag(headers, streamHeader.reliable),
      isProtected,
      requestId: CellMessage.text(headers, streamHeader.requestId)
    }
    const stream = active.get(key) ?? (yield* open(identity, headers))
    if (stream.failure === undefined) {
      yield* accept(stream, message, sequence)
    } else {
      message.release?.()
    }
  })

  const undeliverable: StreamFrames["undeliverable"] = ({ headers }) => {
    const origin = CellMessage.text(headers, header.origin)
    if (!CellMessage.flag(headers, header.optional) || headers.has(streamHeader.errorMessage)) {
      return Effect.void
    }
    const destination = CellMessage.text(headers, header.destination)
    const own = new Map<string, unknown>([
      [streamHeader.id, headers.get(streamHeader.id)],
      [streamHeader.dataType, frameKind.error],
      [streamHeader.errorMessage, `stream forwarding to ${destination} failed: target_unreachable`],
      [streamHeader.errorType, "StreamTargetUnreachable"],
      [streamHeader.failedDestination, destination]
    ])
    for (const key of [streamHeader.channel, streamHeader.topic, streamHeader.requestId]) {
      if (headers.has(key)) {
        own.set(key, headers.get(key))
      }
    }
    return core.background(post(origin, streamTopic.error, own, true))
  }

  return { handle: registry.add, data, undeliverable }
})

const streamAddress = (headers: Headers): Address => ({
  channel: CellMessage.text(headers, streamHeader.channel),
  topic: CellMessage.text(headers, streamHeader.topic)
})
