/**
 * Files and directories whose modes, owners and links matter.
 *
 * @since 0.1.0
 */
import * as NodeFs from "node:fs"
import { Context, Effect, Layer } from "effect"
import * as AtomicFile from "./AtomicFile.ts"
import { FileError, FileUnsafe } from "./FileError.ts"
import * as MemoryFiles from "./internal/memoryFiles.ts"
import { call, callVoid, infoOf, openScoped } from "./internal/nodeFiles.ts"

/**
 * What is at a path, links not followed.
 *
 * @category models
 * @since 0.1.0
 */
export interface FileInfo {
  readonly kind: "file" | "directory" | "link" | "other"
  /** The permission bits, `0o7777` at most. */
  readonly mode: number
  /** The owner's user id. */
  readonly owner: number
}

/**
 * A file's bytes, with the facts of the very file that they were read from. The bytes belong to the caller.
 *
 * @category models
 * @since 0.1.0
 */
export interface FileContent {
  readonly info: FileInfo
  readonly bytes: Uint8Array
}

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
export class PrivateFiles extends Context.Service<
  PrivateFiles,
  {
    /** What is at the path; a link is described, not followed. */
    readonly lstat: (path: string) => Effect.Effect<FileInfo, FileError>
    /** The content of a regular file of at most `maxFileBytes`; a link is refused. */
    readonly read: (path: string) => Effect.Effect<FileContent, FileError>
    /** See AtomicFile.write: whole or not at all, with exactly this mode. */
    readonly write: (
      path: string,
      content: string | Uint8Array,
      options: AtomicFile.WriteOptions
    ) => Effect.Effect<void, FileError>
    /** Makes one directory with exactly this mode; `FileExists` if something is there already. */
    readonly makeDirectory: (path: string, mode: number) => Effect.Effect<void, FileError>
    /** The names in a directory. */
    readonly list: (path: string) => Effect.Effect<ReadonlyArray<string>, FileError>
    readonly rename: (from: string, to: string) => Effect.Effect<void, FileError>
    /** Removes a file or a directory with all that is in it; links are removed, not followed; missing is no error. */
    readonly remove: (path: string) => Effect.Effect<void, FileError>
  }
>()("fl-attach/platform/PrivateFiles") {
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
