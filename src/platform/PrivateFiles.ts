/**
 * Files and directories whose modes, owners and links matter.
 *
 * @since 0.1.0
 */
import * as NodeFs from "node:fs"
import { Context, Effect, Layer } from "effect"
import * as AtomicFile from "./AtomicFile.ts"
import { FileError, FileUnsafe } from "./FileError.ts"
import type { Files } from "./Files.ts"
import * as MemoryFiles from "./internal/memoryFiles.ts"
import { call, callVoid, infoOf, openScoped } from "./internal/nodeFiles.ts"

export type { FileContent, FileInfo, Files, WriteOptions } from "./Files.ts"

/**
 * The most bytes that `PrivateFiles.read` takes in: 1 MiB. It is for small records, not for data.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxFileBytes = 1024 * 1024

const unsafe = (path: string, problem: string) =>
  new FileError({ reason: new FileUnsafe({ path, problem, message: `${path} is ${problem}: it can't be used` }) })

/**
 * The operations on files that a protocol over a shared directory needs and that must not follow links or lose a mode to
 * the umask. All paths are absolute.
 *
 * @category services
 * @since 0.1.0
 */
export class PrivateFiles extends Context.Service<PrivateFiles, Files>()("fl-attach/platform/PrivateFiles") {
  /**
   * The files of this machine.
   *
   * @category layers
   * @since 0.1.0
   */
  static readonly layerNode: Layer.Layer<PrivateFiles> = Layer.sync(PrivateFiles, () =>
    PrivateFiles.of({
      lstat: (path) =>
        Effect.map(
          call<NodeFs.Stats>("lstat", path, (done) => NodeFs.lstat(path, done)),
          infoOf
        ),
      read: (path) => Effect.scoped(read(path)),
      write: AtomicFile.write,
      makeDirectory: (path, mode) =>
        Effect.andThen(
          callVoid("mkdir", path, (done) => NodeFs.mkdir(path, mode, done)),
          callVoid("chmod", path, (done) => NodeFs.chmod(path, mode, done))
        ).pipe(Effect.uninterruptible),
      list: (path) => call<Array<string>>("list", path, (done) => NodeFs.readdir(path, done)),
      rename: (from, to) => callVoid("rename", from, (done) => NodeFs.rename(from, to, done)),
      remove: (path) => callVoid("remove", path, (done) => NodeFs.rm(path, { recursive: true, force: true }, done))
    })
  )

  /**
   * Files in memory, for tests under TestClock: they begin with `/` alone and are fresh in each build of the layer.
   *
   * @category layers
   * @since 0.1.0
   */
  static readonly layerMemory: Layer.Layer<PrivateFiles> = Layer.sync(PrivateFiles, () =>
    PrivateFiles.of(MemoryFiles.make())
  )
}

// Without O_NONBLOCK, the opening of a pipe would wait for its other end.
const readFlags = NodeFs.constants.O_RDONLY | NodeFs.constants.O_NOFOLLOW | NodeFs.constants.O_NONBLOCK

const read = Effect.fnUntraced(function* (path: string) {
  const fd = yield* openScoped(path, readFlags)
  const stats = yield* call<NodeFs.Stats>("stat", path, (done) => NodeFs.fstat(fd, done))
  if (!stats.isFile()) return yield* unsafe(path, "no regular file")
  if (stats.size > maxFileBytes) return yield* unsafe(path, `${stats.size} bytes long (at most ${maxFileBytes})`)
  const buffer = new Uint8Array(stats.size)
  let end = 0
  while (end < buffer.length) {
    const from = end
    const count = yield* call<number>("read", path, (done) =>
      NodeFs.read(fd, buffer, from, buffer.length - from, null, done)
    )
    if (count === 0) break
    end += count
  }
  return { info: infoOf(stats), bytes: buffer.subarray(0, end) }
})
