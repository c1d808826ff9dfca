/** The one writer of a log. Source: docs/wire/transport.md, section 9.5. */
import { Effect, Fiber } from "effect"
import type { TransportError } from "../../TransportError.ts"
import * as Files from "./files.ts"
import * as Layout from "./layout.ts"
import type { Settings } from "./settings.ts"

interface LogWriter {
  /** Appends one frame, and starts the next log when this one is full. After a failure the log can't be trusted. */
  readonly append: (pieces: ReadonlyArray<Uint8Array>) => Effect.Effect<void, TransportError>
  readonly close: Effect.Effect<void>
}

/** A log is flushed before it is sealed: what takes long then is begun when it has come so far, step by step. */
const firstFlush = 1 / 2
const flushStep = 1 / 16

/** Opens log 0 of a side for appending; one at a time may append, and nobody after `close`. */
export const make = Effect.fnUntraced(function* (
  directory: string,
  side: Layout.Side,
  settings: Settings,
  isLocal: boolean
) {
  let number = 0
  let path = Layout.logOf(directory, side, number)
  let fd = yield* Files.openForAppend(path, settings.fileMode)
  let size = (yield* Effect.onError(Files.statusOfOpen(fd, path), () => Files.close(fd))).size

  let flushed = 0
  let flushing: Fiber.Fiber<void> | undefined

  /** Flushes what is there beside the appends. Its failure is met again by the flush before the seal. */
  const flushAhead = Effect.gen(function* () {
    const { maxLogSize } = settings
    const isDue = !settings.fsync && size >= maxLogSize * firstFlush && size - flushed >= maxLogSize * flushStep
    if (isDue && (flushing === undefined || flushing.pollUnsafe() !== undefined)) {
      flushed = size
      flushing = yield* Effect.forkDetach(Effect.ignore(Files.sync(fd, path)))
    }
  })

  /** A descriptor is not closed under a flush: its number may be another file's by then. */
  const flushedAhead = Effect.suspend(() => (flushing === undefined ? Effect.void : Fiber.await(flushing)))

  /** The size is announced by a rename, so that whoever sees it sees all of it. */
  const rotate = Effect.gen(function* () {
    yield* flushedAhead
    yield* Files.sync(fd, path)
    yield* Files.close(fd)
    const seal = Layout.sealOf(directory, side, number)
    yield* Files.writeText(`${seal}.tmp`, String(size), settings.fileMode)
    yield* Files.rename(`${seal}.tmp`, seal)
    number += 1
    path = Layout.logOf(directory, side, number)
    fd = yield* Files.openForAppend(path, settings.fileMode)
    size = 0
    flushed = 0
    flushing = undefined
  })

  const append: LogWriter["append"] = Effect.fnUntraced(function* (pieces) {
    size += yield* Files.append({ fd, path, isLocal }, pieces)
    if (settings.fsync) {
      yield* Files.sync(fd, path)
    }
    yield* size >= settings.maxLogSize ? rotate : flushAhead
  }, Effect.uninterruptible)

  /** What was appended is with the system: nobody has to wait until it is on the disk. */
  const close = Effect.suspend(() => {
    const closing = Effect.andThen(flushedAhead, Files.close(fd))
    return flushing === undefined ? closing : Effect.asVoid(Effect.forkDetach(closing))
  })

  return { append, close } satisfies LogWriter
}, Effect.uninterruptible)
