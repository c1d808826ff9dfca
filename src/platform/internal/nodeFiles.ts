/**
 * node:fs as Effects: errors as FileError, descriptors that never leak.
 */
import * as NodeFs from "node:fs"
import { Effect, Exit, Result, Scope } from "effect"
import {
  FileDenied,
  FileError,
  type FileErrorReason,
  FileExists,
  FileIo,
  FileMissing,
  FileUnsafe
} from "../FileError.ts"
import type { FileInfo } from "../Files.ts"

/** The system's code of a caught value; `EUNKNOWN` where it has none. */
export const codeOf = (cause: unknown): string =>
  cause instanceof Error && "code" in cause && typeof cause.code === "string" ? cause.code : "EUNKNOWN"

const textOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause))

/** What a person can do about it. */
const nextSteps: ReadonlyMap<string, string> = new Map([
  ["ENOSPC", "the file system is full; free space there or choose another folder"],
  ["EDQUOT", "the disk quota is used up; free space, raise it or choose another folder"],
  ["EMFILE", "this process has too many files open; raise its limit (ulimit -n)"],
  ["ENFILE", "this machine has too many files open; close some programs"],
  ["ESTALE", "the network file system lost it; try again, and mount it anew if that stays so"]
])

const reasonOf = (operation: string, path: string, cause: unknown): FileErrorReason => {
  const code = codeOf(cause)
  switch (code) {
    case "ENOENT":
      return new FileMissing({ path, message: `${path} does not exist (${operation})` })
    case "EEXIST":
      return new FileExists({ path, message: `${path} exists already (${operation})` })
    case "EROFS":
      return new FileDenied({
        operation,
        path,
        code,
        message: `${operation} ${path} failed (${code}): the file system is mounted read-only; choose another folder or mount it writable`
      })
    case "EACCES":
    case "EPERM":
      return new FileDenied({
        operation,
        path,
        code,
        message: `${operation} ${path} is not permitted to this user (${code}): check the owner and mode of it and of the directories above`
      })
    case "ELOOP":
      return new FileUnsafe({
        path,
        problem: "a symbolic link",
        message: `${path} is a symbolic link: put a regular file there`
      })
    default: {
      const next = nextSteps.get(code)
      const what = next === undefined ? `: ${textOf(cause)}` : ` (${code}): ${next}`
      return new FileIo({ operation, path, code, message: `${operation} ${path} failed${what}` })
    }
  }
}

const toFileError = (operation: string, path: string, cause: unknown): FileError =>
  new FileError({ reason: reasonOf(operation, path, cause) })

type Callback<A> = (error: NodeJS.ErrnoException | null, value: A) => void

/** One call of node:fs. A path that Node refuses by an exception (a NUL in it) is a failure too. */
export const call = <A>(
  operation: string,
  path: string,
  run: (done: Callback<A>) => void
): Effect.Effect<A, FileError> =>
  Effect.callback<A, FileError>((resume) => {
    const started = Result.try(() =>
      run((error, value) => resume(error ? Effect.fail(toFileError(operation, path, error)) : Effect.succeed(value)))
    )
    if (Result.isFailure(started)) resume(Effect.fail(toFileError(operation, path, started.failure)))
  })

/** A call without a result. */
export const callVoid = (
  operation: string,
  path: string,
  run: (done: (error: NodeJS.ErrnoException | null) => void) => void
): Effect.Effect<void, FileError> => call<void>(operation, path, (done) => run((error) => done(error, undefined)))

/** What a service tells of a file. */
export const infoOf = (stats: NodeFs.Stats): FileInfo => ({
  kind: stats.isFile() ? "file" : stats.isDirectory() ? "directory" : stats.isSymbolicLink() ? "link" : "other",
  mode: stats.mode & 0o7777,
  owner: stats.uid
})

/** Closes a descriptor; the errors of a network file system come here. */
export const close = (path: string, fd: number): Effect.Effect<void, FileError> =>
  callVoid("close", path, (done) => NodeFs.close(fd, done))

/**
 * A descriptor that belongs to the scope. The opening can be interrupted (a dead network file system may not answer):
 * a descriptor that arrives afterwards is closed where it arrives.
 */
export const openScoped = Effect.fnUntraced(function* (
  path: string,
  flags: number,
  mode?: number
): Effect.fn.Return<number, FileError, Scope.Scope> {
  const slot: { fd: number | undefined; isClosed: boolean } = { fd: undefined, isClosed: false }
  yield* Effect.addFinalizer(() =>
    Effect.suspend(() => {
      slot.isClosed = true
      return slot.fd === undefined ? Effect.void : Effect.ignore(close(path, slot.fd))
    })
  )
  return yield* call<number>("open", path, (done) =>
    NodeFs.open(path, flags, mode, (error, fd) => {
      if (error) return done(error, fd)
      if (slot.isClosed) return NodeFs.close(fd)
      slot.fd = fd
      done(null, fd)
    })
  )
})

/** An acquisition that, if it fails, lets go at once of what it had, and does not leave it to the surrounding scope. */
export const allOrNothing = Effect.fnUntraced(function* <A, E, R>(acquisition: Effect.Effect<A, E, R>) {
  const own = yield* Scope.fork(yield* Effect.scope)
  return yield* acquisition.pipe(
    Scope.provide(own),
    Effect.onError((cause) => Scope.close(own, Exit.failCause(cause)))
  )
})
