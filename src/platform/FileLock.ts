/**
 * Locks that processes on several machines see: flock(2) on a file of a shared directory.
 *
 * @since 0.1.0
 */
import * as NodeFs from "node:fs"
import { Context, Effect, Layer, type Scope } from "effect"
import type { FileError } from "./FileError.ts"
import { FileLockError, LockIo, LockUnsafe } from "./FileLockError.ts"
import { busy, flock } from "./internal/flock.ts"
import { allOrNothing, call, callVoid, infoOf, openScoped } from "./internal/nodeFiles.ts"
import { type FileInfo, PrivateFiles } from "./PrivateFiles.ts"

/**
 * A lock that is held until its scope closes.
 *
 * @category models
 * @since 0.1.0
 */
export interface LockHandle {
  readonly path: string
}

/**
 * @category models
 * @since 0.1.0
 */
export interface LockOptions {
  /** Whether a missing lock file is made; without it, a missing file is an error. */
  readonly create?: boolean
  /** The mode that the file gets or already must be able to get, whatever the umask; 0660 by default. */
  readonly mode?: number
}

/**
 * The exclusive, non-blocking lock of Python's `fcntl.flock`, which it excludes and is excluded by.
 *
 * The lock file is never removed: a lock on a file that others replaced would exclude nobody.
 *
 * @category services
 * @since 0.1.0
 */
export class FileLock extends Context.Service<
  FileLock,
  {
    /**
     * Takes the lock or fails at once with `LockBusy`. The lock is held while the scope is open; it ends with this
     * process too, even by SIGKILL.
     */
    readonly tryLock: (path: string, options?: LockOptions) => Effect.Effect<LockHandle, FileLockError, Scope.Scope>
    /**
     * Whether somebody holds the exclusive lock of this file (`false` for a missing file). It takes a shared lock for an
     * instant: whoever tries to lock exclusively in that instant meets `LockBusy`.
     */
    readonly isLocked: (path: string) => Effect.Effect<boolean, FileLockError>
  }
>()("fl-attach/platform/FileLock") {
  /**
   * Real locks by the command `flock` of util-linux or BusyBox: one child process of a few milliseconds each.
   *
   * @category layers
   * @since 0.1.0
   */
  static readonly layerNode: Layer.Layer<FileLock> = Layer.sync(FileLock, () => makeNode("flock"))

  /**
   * As `layerNode`, with another command in place of `flock`, by name or by path.
   *
   * @category layers
   * @since 0.1.0
   */
  static readonly layerNodeCommand = (command: string): Layer.Layer<FileLock> =>
    Layer.sync(FileLock, () => makeNode(command))

  /**
   * Locks among the users of this layer, on the files of `PrivateFiles`, for tests under TestClock.
   *
   * @category layers
   * @since 0.1.0
   */
  static readonly layerMemory: Layer.Layer<FileLock, never, PrivateFiles> = Layer.effect(
    FileLock,
    Effect.map(PrivateFiles, (files) => makeMemory(files))
  )
}

const defaultMode = 0o660

const unsafe = (path: string, problem: string, fix: string) =>
  new FileLockError({ reason: new LockUnsafe({ path, problem, message: `${path} is ${problem}: ${fix}` }) })

const fromFileError = (path: string) => (error: FileError) => {
  const reason = error.reason
  const fix = "remove it, the lock must be a regular file"
  if (reason._tag === "FileUnsafe") return unsafe(path, reason.problem, fix)
  if (error.code === "EISDIR") return unsafe(path, "a directory", fix)
  const message = `${path} can't be locked: ${error.message}`
  return new FileLockError({ reason: new LockIo({ path, code: error.code, message }) })
}

const checkInfo = (path: string, info: FileInfo): Effect.Effect<void, FileLockError> => {
  if (info.kind !== "file") return Effect.fail(unsafe(path, "no regular file", "remove it"))
  if ((info.mode & 0o007) === 0) return Effect.void
  const mode = info.mode.toString(8).padStart(4, "0")
  return Effect.fail(
    unsafe(path, `open to other users (mode ${mode}, owner uid ${info.owner})`, `run "chmod o= ${path}"`)
  )
}

/** Opens the lock file into the scope and sees that it may serve. O_CLOEXEC, which matters here, is Node's default. */
const openLock = Effect.fnUntraced(function* (path: string, create: boolean, mode: number) {
  const flags = NodeFs.constants.O_RDWR | NodeFs.constants.O_NOFOLLOW | (create ? NodeFs.constants.O_CREAT : 0)
  const fd = yield* openScoped(path, flags, mode)
  const stat = call<NodeFs.Stats>("stat", path, (done) => NodeFs.fstat(fd, done))
  const info = infoOf(yield* stat)
  if (!create || info.kind !== "file" || info.mode === mode) return { fd, info }
  // Only the owner may change a mode. A member of the group comes along with the mode as it is, if it is safe.
  yield* callVoid("chmod", path, (done) => NodeFs.fchmod(fd, mode, done)).pipe(
    Effect.catchIf(
      (error) => error.reason._tag === "FileDenied",
      () => Effect.void
    )
  )
  return { fd, info: infoOf(yield* stat) }
})

const makeNode = (command: string): FileLock["Service"] => {
  const lock = Effect.fnUntraced(function* (
    path: string,
    kind: "exclusive" | "shared",
    options: LockOptions
  ): Effect.fn.Return<void, FileLockError, Scope.Scope> {
    const { fd, info } = yield* openLock(path, options.create ?? false, options.mode ?? defaultMode).pipe(
      Effect.mapError(fromFileError(path))
    )
    yield* checkInfo(path, info)
    yield* flock(command, path, fd, kind)
  })
  return FileLock.of({
    tryLock: Effect.fn("FileLock.tryLock")(function* (path, options = {}) {
      // Whoever retries a busy lock in one scope must not gather descriptors there.
      yield* allOrNothing(lock(path, "exclusive", options))
      return { path }
    }),
    isLocked: Effect.fn("FileLock.isLocked")(function* (path) {
      return yield* Effect.scoped(lock(path, "shared", {})).pipe(probed)
    })
  })
}

/** A lock that was refused as busy is the answer of a probe, and so is a missing file. */
const probed = (lock: Effect.Effect<void, FileLockError>): Effect.Effect<boolean, FileLockError> =>
  lock.pipe(
    Effect.as(false),
    Effect.catchIf(
      (error) => error.reason._tag === "LockBusy",
      () => Effect.succeed(true)
    ),
    Effect.catchIf(
      (error) => error.reason._tag === "LockIo" && error.reason.code === "ENOENT",
      () => Effect.succeed(false)
    )
  )

const makeMemory = (files: PrivateFiles["Service"]): FileLock["Service"] => {
  const held = new Set<string>()
  const check = Effect.fnUntraced(function* (path: string, options: LockOptions) {
    const info = yield* files.lstat(path).pipe(
      Effect.catchIf(
        (error) => error.reason._tag === "FileMissing" && options.create === true,
        () => Effect.andThen(files.write(path, "", { mode: options.mode ?? defaultMode }), files.lstat(path))
      ),
      Effect.mapError(fromFileError(path))
    )
    yield* checkInfo(path, info)
  })
  const take = (path: string) =>
    Effect.suspend(() => (held.has(path) ? busy(path) : Effect.sync(() => void held.add(path))))
  return FileLock.of({
    tryLock: Effect.fnUntraced(function* (path, options = {}) {
      yield* check(path, options)
      yield* Effect.acquireRelease(take(path), () => Effect.sync(() => held.delete(path)))
      return { path }
    }),
    isLocked: (path) => probed(Effect.andThen(check(path, {}), () => (held.has(path) ? busy(path) : Effect.void)))
  })
}
