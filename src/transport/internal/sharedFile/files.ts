/**
 * The edge to node:fs. Every operation runs to its end once begun, so that no descriptor or byte count is lost to an
 * interruption; failures are `IoFailed`.
 */
import * as NodeFs from "node:fs"
import * as NodePath from "node:path"
import { Clock, Effect, Result, type Scope } from "effect"
import type { TransportError } from "../../TransportError.ts"
import { ioFailed } from "../errors.ts"

type Done<A> = (error: Error | null | undefined, value: A) => void

const call = <A>(operation: string, path: string, run: (done: Done<A>) => void): Effect.Effect<A, TransportError> =>
  Effect.uninterruptible(
    Effect.callback<A, TransportError>((resume) => {
      run((error, value) =>
        resume(error == null ? Effect.succeed(value) : Effect.fail(ioFailed(operation, path, error)))
      )
    })
  )

/** The same in this thread, for what is in memory: the way to another thread and back would take longer than the call. */
const callHere = <A>(operation: string, path: string, run: () => A): Effect.Effect<A, TransportError> =>
  Effect.try({ try: run, catch: (error) => ioFailed(operation, path, error) })

const callVoid = (operation: string, path: string, run: (done: NodeFs.NoParamCallback) => void) =>
  call<void>(operation, path, (done) => run((error) => done(error, undefined)))

const hasCode = (error: TransportError, codes: ReadonlyArray<string>): boolean =>
  error.reason._tag === "IoFailed" && codes.includes(error.reason.code)

const missing = ["ENOENT", "ENOTDIR", "ESTALE"]

const isMissing = (error: TransportError): boolean => hasCode(error, missing)

const { O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_TRUNC, O_WRONLY } = NodeFs.constants

/**
 * Peers may put what they like into a directory that they share: a link must not lead out of it, a pipe not block.
 */
const open = (path: string, flags: number, mode?: number): Effect.Effect<number, TransportError> =>
  call("open", path, (done) => NodeFs.open(path, flags | O_NOFOLLOW | O_NONBLOCK, mode, done))

export const openForRead = (path: string): Effect.Effect<number, TransportError> => open(path, O_RDONLY)

export const close = (fd: number): Effect.Effect<void> =>
  Effect.ignore(callVoid("close", `descriptor ${fd}`, (done) => NodeFs.close(fd, done)))

/** How Linux tells apart the file systems that are on this machine. */
const localTypes = { ext: 0xef53, xfs: 0x58465342, btrfs: 0x9123683e, tmpfs: 0x01021994, overlay: 0x794c7630 } as const
const localTypeIds = new Set<number>(Object.values(localTypes))

/**
 * Whether files of a directory are on this machine, so that few bytes of them are read from and written to its memory.
 * Of what is not known it is not said: a network file system may take its time.
 */
export const isLocal = (path: string): Effect.Effect<boolean> =>
  call<NodeFs.StatsFs>("look at", path, (done) => NodeFs.statfs(path, done)).pipe(
    Effect.map(({ type }) => localTypeIds.has(type)),
    Effect.orElseSucceed(() => false)
  )

/** What is called few bytes. */
const fewBytes = 64 * 1024

const areFew = (pieces: ReadonlyArray<Uint8Array>): boolean => {
  let size = 0
  for (const { byteLength } of pieces) size += byteLength
  return size <= fewBytes
}

/** At most so many pieces and bytes a call; the system takes 1024 and 2 GiB. */
const maxPieces = 512
const maxBytes = 1024 ** 3

/** The pieces for one call, from `from` on; a piece beyond the limit is cut. */
const batchOf = (pieces: ReadonlyArray<Uint8Array>, from: number): Array<Uint8Array> => {
  const batch: Array<Uint8Array> = []
  let size = 0
  for (let at = from; at < pieces.length && batch.length < maxPieces && size < maxBytes; at++) {
    const piece = pieces[at]
    if (piece !== undefined && piece.byteLength > 0) {
      batch.push(piece.subarray(0, maxBytes - size))
      size += piece.byteLength
    }
  }
  return batch
}

/** An open file. */
export interface Open {
  readonly fd: number
  readonly path: string
  /** See `isLocal`. */
  readonly isLocal: boolean
}

/** Writes all pieces to the end of a file and answers their size; a failure may leave a part of them there. */
export const append = Effect.fnUntraced(function* ({ fd, isLocal, path }: Open, given: ReadonlyArray<Uint8Array>) {
  const pieces = [...given]
  let size = 0
  let at = 0
  while (true) {
    const batch = batchOf(pieces, at)
    if (batch.length === 0) {
      return size
    }
    const written = yield* isLocal && areFew(batch)
      ? callHere("append to", path, () => NodeFs.writevSync(fd, batch))
      : call<number>("append to", path, (done) => NodeFs.writev(fd, batch, null, done))
    if (written === 0) {
      return yield* Effect.fail(ioFailed("append to", path, { code: "EIO" }, "the system took no bytes"))
    }
    size += written
    let left = written
    while (at < pieces.length) {
      const piece = pieces[at]
      if (piece === undefined || piece.byteLength > left) {
        break
      }
      left -= piece.byteLength
      at += 1
    }
    const cut = pieces[at]
    if (left > 0 && cut !== undefined) {
      pieces[at] = cut.subarray(left)
    }
  }
})

/** Reads at a position into memory and answers how many bytes came; 0 at the end. */
const read = (fd: number, path: string, into: Uint8Array, position: number): Effect.Effect<number, TransportError> =>
  call("read", path, (done) => NodeFs.read(fd, into, 0, into.byteLength, position, done))

/** The same into several pieces of memory, one after the other. */
export const readInto = (
  { fd, isLocal, path }: Open,
  into: ReadonlyArray<Uint8Array>,
  position: number
): Effect.Effect<number, TransportError> =>
  isLocal && areFew(into)
    ? callHere("read", path, () => NodeFs.readvSync(fd, into, position))
    : call("read", path, (done) => NodeFs.readv(fd, into, position, done))

export const sync = (fd: number, path: string): Effect.Effect<void, TransportError> =>
  callVoid("flush", path, (done) => NodeFs.fsync(fd, done))

export interface Status {
  readonly size: number
  /** Nanoseconds since the epoch by the clock of the file system. */
  readonly modified: bigint
  readonly isFile: boolean
}

const statusOf = (stats: NodeFs.BigIntStats): Status => ({
  size: Number(stats.size),
  modified: stats.mtimeNs,
  isFile: stats.isFile()
})

/** `undefined` where there is nothing. A link is looked at itself. */
export const status = (path: string): Effect.Effect<Status | undefined, TransportError> =>
  call<NodeFs.BigIntStats>("look at", path, (done) => NodeFs.lstat(path, { bigint: true }, done)).pipe(
    Effect.map((stats): Status | undefined => statusOf(stats)),
    Effect.catchIf(isMissing, () => Effect.succeed(undefined))
  )

/** Whether there is a directory, be it by a link of the administrator's. */
export const isDirectory = (path: string): Effect.Effect<boolean, TransportError> =>
  call<NodeFs.Stats>("look at", path, (done) => NodeFs.stat(path, done)).pipe(
    Effect.map((stats) => stats.isDirectory()),
    Effect.catchIf(isMissing, () => Effect.succeed(false))
  )

export const statusOfOpen = (fd: number, path: string): Effect.Effect<Status, TransportError> =>
  Effect.map(
    call<NodeFs.BigIntStats>("look at", path, (done) => NodeFs.fstat(fd, { bigint: true }, done)),
    statusOf
  )

const setMode = (path: string, mode: number) => callVoid("chmod", path, (done) => NodeFs.chmod(path, mode, done))

/** Makes a directory with exactly this mode; fails with `EEXIST` where there is one. */
export const makeDirectory = (path: string, mode: number): Effect.Effect<void, TransportError> =>
  Effect.uninterruptible(
    Effect.andThen(
      callVoid("make directory", path, (done) => NodeFs.mkdir(path, { mode }, done)),
      setMode(path, mode)
    )
  )

/** Makes a directory with this mode, and its parents with plain ones, if it is missing; an existing one stays as it is. */
export const ensureDirectory = (path: string, mode: number): Effect.Effect<void, TransportError> =>
  makeDirectory(path, mode).pipe(
    Effect.catchIf(
      (error) => hasCode(error, ["ENOENT"]),
      () =>
        Effect.andThen(
          callVoid("make directory", path, (done) =>
            NodeFs.mkdir(NodePath.dirname(path), { recursive: true }, (error) => done(error))
          ),
          makeDirectory(path, mode)
        )
    ),
    Effect.catchIf(
      (error) => hasCode(error, ["EEXIST"]),
      (error) => Effect.flatMap(isDirectory(path), (found) => (found ? Effect.void : Effect.fail(error)))
    )
  )

/** Makes an empty file with exactly this mode and answers its descriptor, for appending. Fails where there is one. */
const createOpen = (path: string, mode: number): Effect.Effect<number, TransportError> =>
  Effect.uninterruptible(
    Effect.tap(open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL, mode), (fd) =>
      Effect.onError(
        callVoid("chmod", path, (done) => NodeFs.fchmod(fd, mode, done)),
        () => close(fd)
      )
    )
  )

/** Makes an empty file with exactly this mode; answers whether it was missing. */
export const createFile = (path: string, mode: number): Effect.Effect<boolean, TransportError> =>
  createOpen(path, mode).pipe(
    Effect.flatMap(close),
    Effect.as(true),
    Effect.catchIf(
      (error) => hasCode(error, ["EEXIST"]),
      () => Effect.succeed(false)
    ),
    Effect.uninterruptible
  )

/** Opens a log for appending; a missing one is made with this mode, an existing one keeps its own. */
export const openForAppend = (path: string, mode: number): Effect.Effect<number, TransportError> =>
  Effect.catchIf(
    createOpen(path, mode),
    (error) => hasCode(error, ["EEXIST"]),
    () => open(path, O_WRONLY | O_APPEND)
  )

const setTimes = Effect.fnUntraced(function* (path: string) {
  const now = (yield* Clock.currentTimeMillis) / 1000
  yield* callVoid("touch", path, (done) => NodeFs.lutimes(path, now, now, done))
})

/** Sets a file's time to now; a missing one is made with this mode. */
export const touch = (path: string, mode: number): Effect.Effect<void, TransportError> =>
  setTimes(path).pipe(
    Effect.catchIf(
      (error) => hasCode(error, ["ENOENT"]),
      () => createFile(path, mode)
    ),
    // Setting a time of one's choice needs the owner; emptying an empty file needs the right to write alone.
    Effect.catchIf(
      (error) => hasCode(error, ["EPERM"]),
      () => Effect.flatMap(open(path, O_WRONLY | O_TRUNC), close)
    ),
    Effect.asVoid,
    Effect.uninterruptible
  )

export const rename = (from: string, to: string): Effect.Effect<void, TransportError> =>
  callVoid("rename to", to, (done) => NodeFs.rename(from, to, done))

export const unlink = (path: string): Effect.Effect<void> =>
  Effect.ignore(callVoid("remove", path, (done) => NodeFs.unlink(path, done)))

/** Removes a directory with all in it; links in it are not followed. */
export const removeTree = (path: string): Effect.Effect<void, TransportError> =>
  callVoid("remove", path, (done) => NodeFs.rm(path, { recursive: true, force: true }, done))

export const list = (path: string): Effect.Effect<ReadonlyArray<NodeFs.Dirent>, TransportError> =>
  call<Array<NodeFs.Dirent>>("list", path, (done) => NodeFs.readdir(path, { withFileTypes: true }, done))

/** The first bytes of a file as ASCII text; `undefined` where it can't be read. */
export const readStart = (path: string, size: number): Effect.Effect<string | undefined> =>
  openForRead(path).pipe(
    Effect.flatMap((fd) => {
      const into = new Uint8Array(size)
      return Effect.ensuring(
        Effect.map(read(fd, path, into, 0), (count) => Buffer.from(into.buffer, 0, count).toString("latin1")),
        close(fd)
      )
    }),
    Effect.orElseSucceed(() => undefined),
    Effect.uninterruptible
  )

/** Small files are written whole, with exactly this mode; an existing one is emptied first. */
export const writeText = (path: string, text: string, mode: number): Effect.Effect<void, TransportError> =>
  open(path, O_WRONLY | O_CREAT | O_TRUNC, mode).pipe(
    Effect.flatMap((fd) =>
      Effect.ensuring(
        Effect.andThen(
          callVoid("chmod", path, (done) => NodeFs.fchmod(fd, mode, done)),
          append({ fd, path, isLocal: false }, [Buffer.from(text, "latin1")])
        ),
        close(fd)
      )
    ),
    Effect.uninterruptible
  )

/**
 * Calls `onChange` with the names that change in a directory, until the Scope closes. Where the system can't watch it
 * (or it is on a network file system, where it sees only this machine's changes) nothing comes: polling remains.
 */
export const watch = (
  directory: string,
  onChange: (name: string | null) => void
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const watcher = Result.try(() => NodeFs.watch(directory, { persistent: false }, (_, name) => onChange(name)))
      if (Result.isSuccess(watcher)) {
        // Without a listener an error would end the process; the watch is a help, not a need.
        watcher.success.on("error", () => watcher.success.close())
      }
      return watcher
    }),
    (watcher) => Effect.sync(() => (Result.isSuccess(watcher) ? watcher.success.close() : undefined))
  ).pipe(Effect.asVoid)
