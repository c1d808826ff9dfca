/** The one writer of a log. Source: docs/wire/transport.md, section 9.5. */
import { Effect } from "effect"
import type { TransportError } from "../../TransportError.ts"
import * as Files from "./files.ts"
import * as Layout from "./layout.ts"
import type { Settings } from "./settings.ts"

interface LogWriter {
  /** Appends one frame, and starts the next log when this one is full. After a failure the log can't be trusted. */
  readonly append: (pieces: ReadonlyArray<Uint8Array>) => Effect.Effect<void, TransportError>
  readonly close: Effect.Effect<void>
}

/** Opens log 0 of a side for appending; one at a time may append, and nobody after `close`. */
export const make = Effect.fnUntraced(function* (directory: string, side: Layout.Side, settings: Settings) {
  let number = 0
  let path = Layout.logOf(directory, side, number)
  let fd = yield* Files.openForAppend(path, settings.fileMode)
  let size = (yield* Effect.onError(Files.statusOfOpen(fd, path), () => Files.close(fd))).size

  /** The size is announced by a rename, so that whoever sees it sees all of it. */
  const rotate = Effect.gen(function* () {
    yield* Files.sync(fd, path)
    yield* Files.close(fd)
    const seal = Layout.sealOf(directory, side, number)
    yield* Files.writeText(`${seal}.tmp`, String(size), settings.fileMode)
    yield* Files.rename(`${seal}.tmp`, seal)
    number += 1
    path = Layout.logOf(directory, side, number)
    fd = yield* Files.openForAppend(path, settings.fileMode)
    size = 0
  })

  const append: LogWriter["append"] = Effect.fnUntraced(function* (pieces) {
    size += yield* Files.append(fd, path, pieces)
    if (settings.fsync) {
      yield* Files.sync(fd, path)
    }
    if (size >= settings.maxLogSize) {
      yield* rotate
    }
  }, Effect.uninterruptible)

  return { append, close: Effect.suspend(() => Files.close(fd)) } satisfies LogWriter
}, Effect.uninterruptible)
