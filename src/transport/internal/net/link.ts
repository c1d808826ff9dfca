/** What all network links share: waiting receivers, a queue of senders, the deadline of a send, the end. */
import { Clock, Duration, Effect, Latch, type Scope } from "effect"
import * as Arr from "effect/Array"
import { formatDuration } from "../../../platform/DurationText.ts"
import type { FrameLink, LinkInfo } from "../../Drivers.ts"
import type { TransportError } from "../../TransportError.ts"
import { closed } from "../errors.ts"

/** The bytes of one frame. */
type Pieces = ReadonlyArray<Uint8Array>

/** What a link needs of its socket, stream or whatever carries it. */
export interface Carrier {
  readonly info: LinkInfo
  /** Hands pieces to the system, in order, and calls `done` once when it has taken them all. */
  readonly write: (pieces: Pieces, done: (error: TransportError | undefined) => void) => void
  /** Stops and resumes the coming of frames, for a receiver that is slow. */
  readonly pause: () => void
  readonly resume: () => void
  /** Ends the carrier when it has written what it was given. */
  readonly close: () => void
  /** Ends it at once. */
  readonly destroy: () => void
}

export interface Settings {
  /** How long the system may take no byte of what is to be sent; in seconds `streaming_send_timeout`. */
  readonly sendTimeout: Duration.Duration
  /** How long a close waits for bytes that the peer is slow to take. */
  readonly closeTimeout: Duration.Duration
  /** Frames that nobody has received stop the reading when they have so many bytes. */
  readonly receiveBytes: number
  /** Frames are written together, and large ones in parts, of about so many bytes; `undefined`: each on its own. */
  readonly batchBytes: number | undefined
}

export interface Link {
  readonly frames: FrameLink
  /** Tells of frames that came. */
  readonly deliver: (frames: ReadonlyArray<Uint8Array>) => void
  /** Tells of the end, once; frames that came before can still be received. */
  readonly end: (reason: TransportError) => void
  /** Tells that the carrier is gone for good. */
  readonly gone: () => void
}

type Resume = (effect: Effect.Effect<void, TransportError>) => void

/** A frame, or the part of one, that waits to be written. `resume` is there at the last part. */
interface Waiting {
  readonly pieces: Pieces
  readonly size: number
  readonly resume: Resume | undefined
}

const sizeOf = (pieces: Pieces): number => pieces.reduce((size, piece) => size + piece.byteLength, 0)

/** Cuts a frame into parts of at most `limit` bytes. */
const partsOf = (pieces: Pieces, limit: number): Array<Pieces> => {
  const parts: Array<Pieces> = []
  let part: Array<Uint8Array> = []
  let room = limit
  for (const piece of pieces) {
    let at = 0
    while (at < piece.byteLength) {
      const taken = piece.subarray(at, at + room)
      part.push(taken)
      at += taken.byteLength
      room -= taken.byteLength
      if (room === 0) {
        parts.push(part)
        part = []
        room = limit
      }
    }
  }
  if (part.length > 0) {
    parts.push(part)
  }
  return parts
}

/** The frames that wait to be written, and the one write that is under way. */
const makeOutbox = (carrier: Carrier, batchBytes: number | undefined, clock: Clock.Clock, busy: Latch.Latch) => {
  let waiting: Array<Waiting> = []
  let first = 0
  let current: ReadonlyArray<Waiting> = []
  /** When the present write began; monotonic nanoseconds. */
  let since: bigint | undefined

  const nextBatch = (): Array<Waiting> => {
    const batch: Array<Waiting> = []
    let size = 0
    while (first < waiting.length) {
      const next = waiting[first]
      if (next === undefined || (batch.length > 0 && (batchBytes === undefined || size + next.size > batchBytes))) {
        break
      }
      batch.push(next)
      size += next.size
      first += 1
    }
    if (first === waiting.length) {
      waiting = []
      first = 0
    }
    return batch
  }

  const pump = (onFailure: (reason: TransportError) => void): void => {
    if (since !== undefined) {
      return
    }
    const batch = nextBatch()
    if (batch.length === 0) {
      busy.closeUnsafe()
      return
    }
    since = clock.monotonicTimeNanosUnsafe()
    current = batch
    busy.openUnsafe()
    const [only] = batch
    const pieces = batch.length === 1 && only !== undefined ? only.pieces : batch.flatMap((one) => one.pieces)
    carrier.write(pieces, (error) => {
      if (current !== batch) {
        return
      }
      since = undefined
      current = []
      if (error !== undefined) {
        for (const { resume } of batch) {
          resume?.(Effect.fail(error))
        }
        onFailure(error)
        return
      }
      for (const { resume } of batch) {
        resume?.(Effect.void)
      }
      pump(onFailure)
    })
  }

  const add = (pieces: Pieces, resume: Resume): void => {
    const size = sizeOf(pieces)
    if (batchBytes === undefined || size <= batchBytes) {
      waiting.push({ pieces, size, resume })
      return
    }
    const parts = partsOf(pieces, batchBytes)
    for (const [index, part] of parts.entries()) {
      waiting.push({ pieces: part, size: sizeOf(part), resume: index === parts.length - 1 ? resume : undefined })
    }
  }

  const fail = (reason: TransportError): void => {
    const lost = [...current, ...waiting.slice(first)]
    waiting = []
    first = 0
    current = []
    for (const { resume } of lost) {
      resume?.(Effect.fail(reason))
    }
  }

  return { add, pump, fail, since: () => since }
}

/** Nobody may wait for ever for a peer that takes nothing. */
const watchSends = Effect.fnUntraced(function* (
  clock: Clock.Clock,
  timeout: Duration.Duration,
  busy: Latch.Latch,
  since: () => bigint | undefined,
  onStall: () => void
) {
  const limit = BigInt(Math.round(Duration.toMillis(timeout) * 1e6))
  while (true) {
    yield* busy.await
    const began = since()
    if (began === undefined) {
      yield* Effect.yieldNow
      continue
    }
    const left = began + limit - clock.monotonicTimeNanosUnsafe()
    if (left <= 0n) {
      return onStall()
    }
    yield* Effect.sleep(Duration.nanos(left))
  }
})

/** A link over a carrier, which closes with the Scope. The carrier tells of its events by what is answered. */
export const make = Effect.fnUntraced(function* (
  carrier: Carrier,
  settings: Settings
): Effect.fn.Return<Link, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const busy = yield* Latch.make(false)
  const over = yield* Latch.make(false)
  const { peerAddress } = carrier.info
  const outbox = makeOutbox(carrier, settings.batchBytes, clock, busy)

  let ended: TransportError | undefined
  let ready: Array<Uint8Array> = []
  let readyBytes = 0
  let isPaused = false
  let waiter: ((effect: Effect.Effect<Arr.NonEmptyReadonlyArray<Uint8Array>, TransportError>) => void) | undefined

  const wake = (): void => {
    const resume = waiter
    waiter = undefined
    resume?.(receive)
  }

  const end = (reason: TransportError): void => {
    if (ended === undefined) {
      ended = reason
      outbox.fail(reason)
      wake()
    }
  }

  const deliver = (frames: ReadonlyArray<Uint8Array>): void => {
    if (ended !== undefined || frames.length === 0) {
      return
    }
    for (const frame of frames) {
      ready.push(frame)
      readyBytes += frame.byteLength
    }
    if (!isPaused && readyBytes >= settings.receiveBytes) {
      isPaused = true
      carrier.pause()
    }
    wake()
  }

  const fail = (reason: TransportError): void => {
    end(reason)
    carrier.destroy()
  }

  // Frames leave `ready` in the last step alone, which no interruption can part.
  const receive: FrameLink["receive"] = Effect.suspend(() => {
    const frames = ready
    if (Arr.isArrayNonEmpty(frames)) {
      ready = []
      readyBytes = 0
      if (isPaused && ended === undefined) {
        isPaused = false
        carrier.resume()
      }
      return Effect.succeed(frames)
    }
    if (ended !== undefined) {
      return Effect.fail(ended)
    }
    return Effect.callback<Arr.NonEmptyReadonlyArray<Uint8Array>, TransportError>((resume) => {
      waiter = resume
      return Effect.sync(() => {
        waiter = waiter === resume ? undefined : waiter
      })
    })
  })

  const send: FrameLink["send"] = (pieces) =>
    Effect.callback<void, TransportError>((resume) => {
      if (ended !== undefined) {
        resume(Effect.fail(ended))
        return
      }
      outbox.add(pieces, resume)
      outbox.pump(fail)
    })

  yield* watchSends(clock, settings.sendTimeout, busy, outbox.since, () => {
    const waited = formatDuration(settings.sendTimeout)
    const message = `${peerAddress} took no byte for ${waited} (streaming_send_timeout): the connection is closed`
    fail(closed(peerAddress, "io", message))
  }).pipe(Effect.forkScoped)

  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      end(closed(peerAddress, "local", `the connection with ${peerAddress} was closed here`))
      carrier.close()
      yield* Effect.timeoutOption(over.await, settings.closeTimeout)
      carrier.destroy()
    })
  )

  return { frames: { info: carrier.info, send, receive }, deliver, end, gone: () => over.openUnsafe() }
})
