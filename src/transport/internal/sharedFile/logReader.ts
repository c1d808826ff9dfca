/** The one reader of a log. Source: docs/wire/transport.md, section 9.6. */
import { Effect, Result } from "effect"
import { FrameReader } from "../../FrameReader.ts"
import type { TransportError } from "../../TransportError.ts"
import { badData } from "../errors.ts"
import * as Files from "./files.ts"
import * as Layout from "./layout.ts"

/** What one look at the log brought. */
interface Pass {
  readonly frames: ReadonlyArray<Uint8Array>
  /** Whether anything came: bytes, or the next log. */
  readonly isNews: boolean
  /** Whether more is known to be waiting. */
  readonly hasMore: boolean
}

export interface LogReader {
  /** Fails with `BadData` on a broken stream; whatever the file system refuses counts as no news, until it works. */
  readonly pass: Effect.Effect<Pass, TransportError>
  readonly close: Effect.Effect<void>
}

const maxRead = 8 * 1024 * 1024
const noNews: Pass = { frames: [], isNews: false, hasMore: false }
const sealed = /^\s*(\d{1,15})\s*$/
const sealedSize = 64

interface Open {
  readonly fd: number
  readonly path: string
}

/** Reads the logs of `side` from the first byte of log 0 on; consumed logs are removed. Passes must not overlap. */
export const make = (directory: string, side: Layout.Side): LogReader => {
  const frames = new FrameReader()
  let number = 0
  let offset = 0
  let size = 0
  let current: Open | undefined

  const drop = Effect.suspend(() => {
    const fd = current?.fd
    current = undefined
    return fd === undefined ? Effect.void : Files.close(fd)
  })

  const opened = Effect.suspend(() => {
    if (current !== undefined) {
      return Effect.succeed(current)
    }
    const path = Layout.logOf(directory, side, number)
    return Effect.map(Files.openForRead(path), (fd) => {
      current = { fd, path }
      return current
    })
  })

  /** By its path first: on a network file system only that asks the server. A removed log can still be read. */
  const look = Effect.fnUntraced(function* ({ fd, path }: Open) {
    const found = (yield* Files.status(path)) ?? (yield* Files.statusOfOpen(fd, path))
    size = found.size
  })

  const goOn = Effect.fnUntraced(function* ({ path }: Open) {
    if (offset === 0) {
      return noNews
    }
    const seal = Layout.sealOf(directory, side, number)
    const digits = sealed.exec((yield* Files.readStart(seal, sealedSize)) ?? "")?.[1]
    if (digits === undefined || offset < Number(digits)) {
      return noNews
    }
    if (frames.pending > 0) {
      return yield* Effect.fail(badData(`${path} was sealed within a frame: what follows can't be told apart`))
    }
    yield* drop
    yield* Files.unlink(path)
    yield* Files.unlink(seal)
    number += 1
    offset = 0
    size = 0
    return { frames: [], isNews: true, hasMore: true }
  })

  const attempt = Effect.gen(function* () {
    const log = yield* opened
    if (offset >= size) {
      yield* look(log)
    }
    if (size <= offset) {
      return yield* goOn(log)
    }
    const wanted = Math.min(size - offset, maxRead)
    const space = frames.space(wanted)
    const count = yield* Files.read(log.fd, log.path, space.subarray(0, wanted), offset)
    if (count === 0) {
      size = offset
      return noNews
    }
    offset += count
    const cut = frames.filled(space.subarray(0, count))
    return Result.isFailure(cut)
      ? yield* Effect.fail(badData(`${log.path}: ${cut.failure.message}`))
      : { frames: cut.success, isNews: true, hasMore: offset < size }
  })

  const pass = attempt.pipe(
    Effect.catchIf(
      (error) => error.reason._tag === "IoFailed",
      () => Effect.as(drop, noNews)
    ),
    Effect.uninterruptible
  )

  return { pass, close: drop }
}
