/**
 * Files that appear whole or not at all.
 *
 * @since 0.1.0
 */
import * as NodeFs from "node:fs"
import * as NodePath from "node:path"
import { Effect } from "effect"
import * as SecureRandom from "effect/crypto/SecureRandom"
import type { FileError } from "./FileError.ts"
import type { WriteOptions } from "./Files.ts"
import { call, callVoid, close } from "./internal/nodeFiles.ts"

const flags =
  NodeFs.constants.O_WRONLY | NodeFs.constants.O_CREAT | NodeFs.constants.O_EXCL | NodeFs.constants.O_NOFOLLOW

// The mode comes first: nobody may open the file between its content and its mode.
const fill = Effect.fnUntraced(function* (path: string, fd: number, content: string | Uint8Array, mode: number) {
  yield* callVoid("chmod", path, (done) => NodeFs.fchmod(fd, mode, done)).pipe(
    Effect.andThen(callVoid("write", path, (done) => NodeFs.writeFile(fd, content, done))),
    Effect.onError(() => Effect.ignore(close(path, fd)))
  )
  // Not ignored: a full quota of a network file system shows only here.
  yield* close(path, fd)
})

/**
 * Writes `content` to a temporary file `.attach-*.tmp` beside `path`, with its mode set before the content, and renames
 * it over `path`: a reader sees the old file or the new one. A symbolic link at `path` is replaced, not followed. After a
 * failure the old file is still there and the temporary one is gone.
 *
 * It can't be interrupted. The content is not flushed to the disk (a crash of the machine may lose it).
 *
 * @category combinators
 * @since 0.1.0
 */
export const write = Effect.fn("AtomicFile.write")(function* (
  path: string,
  content: string | Uint8Array,
  options: WriteOptions
): Effect.fn.Return<void, FileError> {
  const suffix = Buffer.from(SecureRandom.randomBytesUnsafe(6)).toString("hex")
  const temporary = NodePath.join(NodePath.dirname(path), `.attach-${suffix}.tmp`)
  const fd = yield* call<number>("create", temporary, (done) => NodeFs.open(temporary, flags, 0o600, done))
  yield* fill(temporary, fd, content, options.mode).pipe(
    Effect.andThen(callVoid("rename", path, (done) => NodeFs.rename(temporary, path, done))),
    Effect.onError(() => Effect.ignore(callVoid("remove", temporary, (done) => NodeFs.unlink(temporary, done))))
  )
}, Effect.uninterruptible)
