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
  /**
   * Fails with `BadData` on a broken stream; whatever the file system refuses counts as no news, until it works. Only a
   * thorough look sees what a network file system has not told by itself, and that the log has ended.
   */
  readonly pass: (isThorough: boolean) => Effect.Effect<Pass, TransportError>
  /** As `FrameLink.releaseOf`. */
  readonly releaseOf: (frame: Uint8Array) => (() => void) | undefined
  readonly close: Effect.Effect<void>
}

const minRead = 64 * 1024
const maxRead = 8 * 1024 * 1024
const noNews: Pass = { frames: [], isNews: false, hasMore: false }
const sealed = /^\s*(\d{1,15})\s*$/
const sealedSize = 64

/** Reads the logs of `side` from the first byte of log 0 on; consumed logs are removed. Passes must not overlap. */
export const make = (directory: string, side: Layout.Side, isLocal: boolean): LogReader => {
  const frames = new FrameReader()
  let number = 0
  let offset = 0
  let current: Files.Open | undefined

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
      current = { fd, path, isLocal }
      return current
    })
  })

  /** Reads what is there by now; `undefined` where nothing is. */
  const readOn = Effect.fnUntraced(function* (log: Files.Open) {
    // A peer gets no more memory for a promise than for what it has written.
    const space = frames.space(Math.max(minRead, Math.min(frames.pending, maxRead)))
    const count = yield* Files.readInto(log, space, offset)
    if (count === 0) {
      return undefined
    }
    offset += count
    const cut = frames.filled(count)
    const hasMore = count === space.reduce((size, { byteLength }) => size + byteLength, 0)
    return Result.isFailure(cut)
      ? yield* Effect.fail(badData(`${log.path}: ${cut.failure.message}`))
      : { frames: cut.success, isNews: true, hasMore }
  })

  /** By its path: on a network file system only that asks the server. A removed log can still be read. */
  const hasGrown = Effect.fnUntraced(function* ({ fd, path }: Files.Open) {
    const found = (yield* Files.status(path)) ?? (yield* Files.statusOfOpen(fd, path))
    return found.size > offset
  })

  const goOn = Effect.fnUntraced(function* ({ path }: Files.Open) {
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
    return { frames: [], isNews: true, hasMore: true }
  })

  const attempt = Effect.fnUntraced(function* (isThorough: boolean) {
    const log = yield* opened
    const read = yield* readOn(log)
    if (read !== undefined || !isThorough) {
      return read ?? noNews
    }
    return (yield* hasGrown(log)) ? ((yield* readOn(log)) ?? noNews) : yield* goOn(log)
  })

  const pass: LogReader["pass"] = (isThorough) =>
    attempt(isThorough).pipe(
      Effect.catchIf(
        (error) => error.reason._tag === "IoFailed",
        () => Effect.as(drop, noNews)
      ),
      Effect.uninterruptible
    )

  return { pass, releaseOf: (frame) => frames.releaseOf(frame), close: drop }
}
