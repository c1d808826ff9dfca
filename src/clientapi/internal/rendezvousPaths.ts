/**
 * Where the rendezvous keeps what, and what of it may be trusted (docs/wire/attach.md, sections 10.1 and 10.3).
 */
import * as NodePath from "node:path"
import { Effect, Result } from "effect"
import { FileError } from "../../platform/FileError.ts"
import type { FileLockError } from "../../platform/FileLockError.ts"
import type { FileInfo, PrivateFiles } from "../../platform/PrivateFiles.ts"
import { sharedFilePath } from "../AttachUrl.ts"
import { type FieldError, refuse } from "../FieldError.ts"
import {
  ListenerUnsafe,
  PathUnsafe,
  type RendezvousError,
  RendezvousIo,
  RootUnsafe,
  rendezvousError,
  SettingInvalid
} from "../RendezvousError.ts"
import { attachId as checkAttachId, siteName as checkSiteName } from "../TrainerName.ts"

type Files = PrivateFiles["Service"]

/** The modes of what the publisher makes. */
export const directoryMode = 0o770
export const fileMode = 0o660

export interface RendezvousKey {
  /** An absolute directory that the service and the trainer share. */
  readonly root: string
  readonly siteName: string
  readonly attachId: string
}

/** All paths of one attach id. */
export interface RendezvousPaths extends RendezvousKey {
  /** `.nvflare`, `client_api_attach` and the site's directory, from the top. */
  readonly parents: readonly [string, string, string]
  readonly site: string
  readonly lock: string
  readonly claim: string
  readonly owner: string
  readonly endpoint: string
}

/** As Python's abspath for an absolute path: dots and slashes resolved, two leading slashes kept. */
const normalize = (path: string): string => {
  const plain = NodePath.posix.normalize(path)
  const trimmed = plain.length > 1 && plain.endsWith("/") ? plain.slice(0, -1) : plain
  return /^\/\/(?!\/)/.test(path) && trimmed !== "/" ? `/${trimmed}` : trimmed
}

const absoluteRoot = (root: unknown): Result.Result<string, FieldError> =>
  typeof root === "string" && root.startsWith("/") && !root.includes("\0")
    ? Result.succeed(normalize(root))
    : refuse("rendezvous_dir", root, "write the absolute path of the directory that service and trainer share")

export const pathsOf = (key: RendezvousKey): Effect.Effect<RendezvousPaths, RendezvousError> =>
  Result.gen(function* () {
    const root = yield* absoluteRoot(key.root)
    const siteName = yield* checkSiteName(key.siteName)
    const attachId = yield* checkAttachId(key.attachId)
    const top = NodePath.join(root, ".nvflare")
    const middle = NodePath.join(top, "client_api_attach")
    const site = NodePath.join(middle, siteName)
    const claim = NodePath.join(site, `${attachId}.claim`)
    return {
      root,
      siteName,
      attachId,
      parents: [top, middle, site] as const,
      site,
      lock: NodePath.join(site, `.${attachId}.lock`),
      claim,
      owner: NodePath.join(claim, "owner.json"),
      endpoint: NodePath.join(claim, "endpoint.json")
    }
  }).pipe(
    Result.mapError(({ field, value, message }) => rendezvousError(new SettingInvalid({ field, value, message }))),
    Effect.fromResult
  )

/** Which error an unsafe path is. */
export type Kind = "root" | "path" | "listener"

const unsafe = (kind: Kind, path: string, problem: string, fix: string): RendezvousError => {
  const fields = { path, problem, message: `${path} ${problem}: ${fix}` }
  if (kind === "root") return rendezvousError(new RootUnsafe(fields))
  return rendezvousError(kind === "listener" ? new ListenerUnsafe(fields) : new PathUnsafe(fields))
}

const described = (info: FileInfo): string =>
  `(mode ${info.mode.toString(8).padStart(4, "0")}, owner uid ${info.owner})`

const kindWords = { file: "a file", directory: "a directory", link: "a symbolic link", other: "a special file" }

const checkKind = (kind: Kind, path: string, info: FileInfo, wanted: "file" | "directory") =>
  info.kind === wanted
    ? Effect.void
    : Effect.fail(
        unsafe(
          kind,
          path,
          `is ${kindWords[info.kind]}, not ${kindWords[wanted]} itself`,
          "remove it or correct the path"
        )
      )

/** A directory or file that other users may not reach. */
export const checkPrivate = (kind: Kind, path: string, info: FileInfo, wanted: "file" | "directory") =>
  checkKind(kind, path, info, wanted).pipe(
    Effect.andThen(
      (info.mode & 0o007) === 0
        ? Effect.void
        : Effect.fail(
            unsafe(kind, path, `is open to other users ${described(info)}`, `run "chmod o= ${path}" or remove it`)
          )
    )
  )

/** The root: a real directory in which not everybody may write. */
export const checkRoot = Effect.fnUntraced(function* (files: Files, root: string) {
  const info = yield* files.lstat(root)
  yield* checkKind("root", root, info, "directory")
  if ((info.mode & 0o002) !== 0) {
    const fix = `any user could pose as the service. Run "chmod o-w ${root}" or use a directory of your own`
    return yield* unsafe("root", root, `is writable for all users ${described(info)}`, fix)
  }
})

/** A directory below the root. */
export const checkDirectory = Effect.fnUntraced(function* (files: Files, kind: Kind, path: string) {
  yield* checkPrivate(kind, path, yield* files.lstat(path), "directory")
})

/** A file below the root. */
export const checkFile = Effect.fnUntraced(function* (files: Files, kind: Kind, path: string) {
  yield* checkPrivate(kind, path, yield* files.lstat(path), "file")
})

/** The listener that a URL names: right below the root, and private. */
export const checkListener = Effect.fnUntraced(function* (
  files: Files,
  root: string,
  connectUrl: string
): Effect.fn.Return<void, FileError | RendezvousError> {
  yield* checkRoot(files, root)
  const listener = Result.match(sharedFilePath(connectUrl), { onFailure: () => "", onSuccess: normalize })
  if (NodePath.dirname(listener) !== root || !NodePath.basename(listener).startsWith("lst_")) {
    const fix = "service and trainer must use the same shared root"
    return yield* unsafe("listener", listener, `is not a directory "lst_..." right below ${root}`, fix)
  }
  yield* checkDirectory(files, "listener", listener)
  yield* checkDirectory(files, "listener", NodePath.join(listener, "conns"))
  yield* checkFile(files, "listener", NodePath.join(listener, ".nvf_file_transport"))
})

/** A FileError where nothing excuses it. */
export const fromFileError = (error: FileError): RendezvousError => {
  const reason = error.reason
  if (reason._tag === "FileUnsafe") return unsafe("path", reason.path, `is ${reason.problem}`, "remove it")
  return rendezvousError(new RendezvousIo({ path: reason.path, code: error.code, message: reason.message }))
}

/** As `fromFileError`, for an error channel that has both. */
export const noFileErrors = <A, R>(
  self: Effect.Effect<A, FileError | RendezvousError, R>
): Effect.Effect<A, RendezvousError, R> =>
  Effect.mapError(self, (error) => (error instanceof FileError ? fromFileError(error) : error))

/** A FileLockError other than a busy lock. */
export const fromLockError = (error: FileLockError): RendezvousError => {
  const reason = error.reason
  switch (reason._tag) {
    case "LockUnsupported":
      return rendezvousError(reason)
    case "LockUnsafe":
      return unsafe("path", reason.path, `is ${reason.problem}`, "it must be a regular file for owner and group only")
    case "LockBusy":
      return rendezvousError(new RendezvousIo({ path: reason.path, code: "EAGAIN", message: reason.message }))
    case "LockIo":
      return rendezvousError(new RendezvousIo({ path: reason.path, code: reason.code, message: reason.message }))
  }
}
