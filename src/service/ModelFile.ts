/**
 * Models in files: `.npz`, as numpy's `savez` and `load` know it.
 *
 * @since 0.1.0
 */
import * as NodePath from "node:path"
import { ByteSize, Effect, FileSystem, type PlatformError, type Scope } from "effect"
import type { FobsError } from "../fobs/FobsError.ts"
import type { NdArray } from "../fobs/NdArray.ts"
import * as Npz from "../fobs/Npz.ts"
import { ModelFileError, ModelFileInvalid, ModelFileIo, ModelFileTooLarge } from "./ModelFileError.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface ReadOptions {
  /** The most bytes of the file, and of all its arrays together. Default: 4 GiB. */
  readonly maxBytes?: number
}

const extension = ".npz"
/** Node reads and writes less than 2 GiB at once. */
const step = 2 ** 28

const invalid = (path: string, what: string): ModelFileError =>
  new ModelFileError({ reason: new ModelFileInvalid({ path, message: `model file ${path}: ${what}` }) })

const tooLarge = (path: string, size: number, limit: number): ModelFileError => {
  const message = `model file ${path} has ${size} bytes, the limit (maxBytes) is ${limit}: raise it if the file is meant to be this large`
  return new ModelFileError({ reason: new ModelFileTooLarge({ path, size, limit, message }) })
}

/** What a person can do about it. */
const advice = (code: string, path: string, operation: "read" | "write"): string => {
  const folder = NodePath.dirname(path)
  switch (code) {
    case "ENOSPC":
    case "EDQUOT":
      return `no space is left for ${folder}: free some, or choose another folder; nothing was left behind`
    case "ENOENT":
      return operation === "write" ? `the folder ${folder} is not there: create it first` : "there is no such file"
    case "ENOTDIR":
      return `${folder} is no folder`
    case "EISDIR":
      return "it is a folder, not a file"
    case "EACCES":
    case "EPERM":
      return `this user may not ${operation} it: check the permissions of ${operation === "write" ? folder : "the file"}`
    case "EROFS":
      return `${folder} lies on a read-only file system: choose another folder`
    default:
      return `the operating system answered ${code}`
  }
}

const ioFailed =
  (path: string, operation: "read" | "write") =>
  (error: PlatformError.PlatformError): ModelFileError => {
    const code = systemCode(error)
    const message = `cannot ${operation} model file ${path}: ${advice(code, path, operation)}`
    return new ModelFileError({ reason: new ModelFileIo({ path, operation, code, message }) })
  }

const systemCode = ({ reason }: PlatformError.PlatformError): string => {
  const cause: unknown = reason.cause
  if (typeof cause === "object" && cause !== null && "code" in cause && typeof cause.code === "string")
    return cause.code
  return reason._tag === "NotFound" ? "ENOENT" : reason._tag
}

/**
 * Reads the arrays of a model file by name. The whole file is read into memory, and the arrays are views of it.
 *
 * Fails with `ModelFileIo` when the file can't be read, `ModelFileTooLarge` when it is larger than `maxBytes`,
 * `ModelFileInvalid` when it is no npz file of arrays.
 *
 * @category reading
 * @since 0.1.0
 */
export const read: (
  path: string,
  options?: ReadOptions
) => Effect.Effect<Map<string, NdArray>, ModelFileError, FileSystem.FileSystem> = Effect.fn("ModelFile.read")(
  function* (path: string, options?: ReadOptions) {
    const maxBytes = options?.maxBytes ?? Npz.defaultMaxBytes
    const bytes = yield* readBytes(path, maxBytes)
    return yield* Effect.mapError(Effect.fromResult(Npz.decode(bytes, { maxBytes })), ({ message }) =>
      invalid(path, message)
    )
  }
)

const readBytes = Effect.fnUntraced(function* (path: string, maxBytes: number) {
  const fs = yield* FileSystem.FileSystem
  const failed = Effect.mapError(ioFailed(path, "read"))
  const { size, type } = yield* failed(fs.stat(path))
  if (type === "Directory") return yield* invalid(path, "it is a folder, not a file")
  if (type !== "File") return yield* invalid(path, `it is a ${type}, not a regular file`)
  const length = Number(ByteSize.toBigInt(size))
  if (length > maxBytes) return yield* tooLarge(path, length, maxBytes)
  const file = yield* failed(fs.open(path))
  const bytes = new Uint8Array(length)
  let at = 0
  while (at < length) {
    const count = yield* failed(file.read(bytes.subarray(at, at + step)))
    if (count === 0) break // somebody cuts the file just now
    at += Number(count)
  }
  return bytes.subarray(0, at)
}, Effect.scoped)

/**
 * Writes arrays as a model file, whole or not at all: into a temporary folder beside `path`, flushed to the disk, then renamed over
 * `path`. After a failure or an interruption an old file at `path` is still there, and nothing else. A symbolic link
 * at `path` is replaced. Array data is not copied and must not change before the end.
 *
 * Fails with `ModelFileInvalid` when `path` does not end in `.npz` or the arrays can't be written, with `ModelFileIo`
 * when the folder is missing, the disk full or the user not allowed.
 *
 * @category writing
 * @since 0.1.0
 */
export const write: (
  path: string,
  arrays: Iterable<readonly [name: string, array: NdArray]>
) => Effect.Effect<void, ModelFileError, FileSystem.FileSystem> = Effect.fn("ModelFile.write")(function* (
  path: string,
  arrays: Iterable<readonly [string, NdArray]>
) {
  if (!path.endsWith(extension)) return yield* invalid(path, `only ${extension} files can be written; name it so`)
  const pieces = yield* Effect.mapError(Effect.fromResult(Npz.encode(arrays)), ({ message }: FobsError) =>
    invalid(path, message)
  )
  yield* Effect.mapError(replace(path, pieces), ioFailed(path, "write"))
})

const replace = Effect.fnUntraced(function* (path: string, pieces: ReadonlyArray<Uint8Array>) {
  const fs = yield* FileSystem.FileSystem
  const folder = yield* fs.makeTempDirectoryScoped({ directory: NodePath.dirname(path), prefix: ".model-" })
  const temporary = NodePath.join(folder, NodePath.basename(path))
  yield* Effect.scoped(writePieces(fs, temporary, pieces))
  yield* fs.rename(temporary, path)
}, Effect.scoped)

const writePieces = Effect.fnUntraced(function* (
  fs: FileSystem.FileSystem,
  path: string,
  pieces: ReadonlyArray<Uint8Array>
): Effect.fn.Return<void, PlatformError.PlatformError, Scope.Scope> {
  const file = yield* fs.open(path, { flag: "wx" })
  for (const piece of pieces) {
    for (let at = 0; at < piece.length; at += step) yield* file.writeAll(piece.subarray(at, at + step))
  }
  yield* file.sync
})
