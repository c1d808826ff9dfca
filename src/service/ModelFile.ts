/**
 * Models in files: `.npz`, as numpy's `savez` and `load` know it, and `.safetensors`. The suffix says which.
 *
 * Files may be larger than memory: {@link stream} reads an array at a time, and nothing is held twice.
 *
 * @since 0.1.0
 */
import * as NodePath from "node:path"
import { ByteSize, Effect, FileSystem, type PlatformError, Result, type Scope, Stream } from "effect"
import type { ByteSink, ByteSource } from "../fobs/ByteSource.ts"
import { FobsError } from "../fobs/FobsError.ts"
import { NdArray } from "../fobs/NdArray.ts"
import { defaultMaxBytes } from "../fobs/Npz.ts"
import * as NpzFile from "../fobs/NpzFile.ts"
import * as SafetensorsFile from "../fobs/SafetensorsFile.ts"
import { Tensor } from "../fobs/Tensor.ts"
import type { AnyArray } from "../fobs/TensorMath.ts"
import { ModelFileError, ModelFileInvalid, ModelFileIo, ModelFileTooLarge } from "./ModelFileError.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface ReadOptions {
  /** The most bytes of the file, and of all its arrays together. Default: 4 GiB. */
  readonly maxBytes?: number
}

/**
 * @category models
 * @since 0.1.0
 */
export interface WriteOptions {
  /** Texts to keep in the header of a `.safetensors` file (`__metadata__`), for instance `format`: `pt`. */
  readonly metadata?: Iterable<readonly [name: string, text: string]>
}

/**
 * The formats of model files.
 *
 * @category models
 * @since 0.1.0
 */
export type Format = "npz" | "safetensors"

/**
 * An array of a model file. What numpy knows comes as `NdArray`, from either format; bfloat16 (its `widened` makes
 * float32 of it) and floats of 4 and 8 bits stay `Tensor`s.
 *
 * @category models
 * @since 0.1.0
 */
export type ModelArray = AnyArray

/**
 * The format that a file's name stands for; `undefined` for a suffix other than `.npz` and `.safetensors`.
 *
 * @category getters
 * @since 0.1.0
 */
export const formatOf = (path: string): Format | undefined => {
  const extension = NodePath.extname(path).slice(1)
  return extension === "npz" || extension === "safetensors" ? extension : undefined
}

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

const noFormat = (path: string): ModelFileError =>
  invalid(path, "its name must end in .npz or .safetensors, which says how it is written: name it so")

const checkFormat = (path: string): Effect.Effect<Format, ModelFileError> => {
  const format = formatOf(path)
  return format === undefined ? Effect.fail(noFormat(path)) : Effect.succeed(format)
}

// --- reading ---

/** The file as a source, open as long as the Scope. */
const open = Effect.fnUntraced(function* (
  path: string,
  maxBytes: number
): Effect.fn.Return<ByteSource<ModelFileError>, ModelFileError, FileSystem.FileSystem | Scope.Scope> {
  const fs = yield* FileSystem.FileSystem
  const failed = Effect.mapError(ioFailed(path, "read"))
  const { size, type } = yield* failed(fs.stat(path)) // before it is opened: a pipe would wait for a writer
  if (type === "Directory") return yield* invalid(path, "it is a folder, not a file")
  if (type !== "File") return yield* invalid(path, `it is a ${type}, not a regular file`)
  const length = Number(ByteSize.toBigInt(size))
  if (length > maxBytes) return yield* tooLarge(path, length, maxBytes)
  const file = yield* failed(fs.open(path))
  return {
    size: length,
    readInto: Effect.fnUntraced(function* (offset, target) {
      for (let at = 0; at < target.length; ) {
        const count = yield* failed(file.read(target.subarray(at), { position: BigInt(offset + at) }))
        if (count === 0) return yield* invalid(path, `it was cut to ${offset + at} bytes while it was read; try again`)
        at += count
      }
    })
  }
})

const toModelError = (path: string) => (error: FobsError | ModelFileError) =>
  error instanceof FobsError ? invalid(path, error.message) : error

const fromTensor = ([name, tensor]: readonly [string, Tensor]): readonly [string, ModelArray] => [
  name,
  Result.getOrElse(tensor.toArray(), () => tensor)
]

/**
 * The arrays of a model file by name, one at a time, each in a buffer of its own: the file is never in memory as a
 * whole. In an npz of two arrays with one name, both come.
 *
 * Fails with `ModelFileIo` when the file can't be read, `ModelFileTooLarge` when it is larger than `maxBytes`,
 * `ModelFileInvalid` when it is not what its suffix says, or its arrays are larger than `maxBytes`.
 *
 * @category reading
 * @since 0.1.0
 */
export const stream = (
  path: string,
  options?: ReadOptions
): Stream.Stream<readonly [name: string, array: ModelArray], ModelFileError, FileSystem.FileSystem> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const maxBytes = options?.maxBytes ?? defaultMaxBytes
      const source = yield* open(path, maxBytes)
      const format = yield* checkFormat(path)
      const arrays: Stream.Stream<readonly [string, ModelArray], FobsError | ModelFileError> =
        format === "npz"
          ? NpzFile.stream(source, { maxBytes })
          : Stream.map(SafetensorsFile.stream(source, { maxBytes }), fromTensor)
      return Stream.mapError(arrays, toModelError(path))
    })
  )

/**
 * All arrays of a model file by name; of two with one name the later counts. Takes as much memory as the arrays
 * themselves.
 *
 * Fails as {@link stream}.
 *
 * @category reading
 * @since 0.1.0
 */
export const read: (
  path: string,
  options?: ReadOptions
) => Effect.Effect<Map<string, ModelArray>, ModelFileError, FileSystem.FileSystem> = Effect.fn("ModelFile.read")(
  function* (path: string, options?: ReadOptions) {
    const arrays = new Map<string, ModelArray>()
    yield* Stream.runForEach(stream(path, options), ([name, array]) => Effect.sync(() => arrays.set(name, array)))
    return arrays
  }
)

/**
 * The texts that a `.safetensors` file keeps beside its tensors (`__metadata__`); empty where there are none, and for
 * `.npz`. The tensors are not read.
 *
 * Fails as {@link stream}.
 *
 * @category reading
 * @since 0.1.0
 */
export const readMetadata: (
  path: string,
  options?: ReadOptions
) => Effect.Effect<ReadonlyMap<string, string>, ModelFileError, FileSystem.FileSystem> = Effect.fn(
  "ModelFile.readMetadata"
)(function* (path: string, options?: ReadOptions) {
  const maxBytes = options?.maxBytes ?? defaultMaxBytes
  const source = yield* open(path, maxBytes)
  if ((yield* checkFormat(path)) === "npz") return new Map<string, string>()
  return yield* Effect.mapError(SafetensorsFile.metadata(source, { maxBytes }), toModelError(path))
}, Effect.scoped)

// --- writing ---

const asArray = (path: string, name: string, array: ModelArray): Result.Result<NdArray, ModelFileError> => {
  if (array instanceof NdArray) return Result.succeed(array)
  const other = array.dtype === "BF16" ? ", or widen it first (Tensor.widened)" : ""
  return Result.mapError(array.toArray(), () =>
    invalid(
      path,
      `array ${JSON.stringify(name)} is ${array.dtype}, which numpy lacks: use .safetensors instead of .npz${other}`
    )
  )
}

const asTensor = (path: string, name: string, array: ModelArray): Result.Result<Tensor, ModelFileError> => {
  if (array instanceof Tensor) return Result.succeed(array)
  return Result.mapError(Tensor.fromArray(array), ({ message }) =>
    invalid(path, `array ${JSON.stringify(name)}: ${message}: use .npz instead of .safetensors`)
  )
}

const convert = <A>(
  path: string,
  arrays: Iterable<readonly [string, ModelArray]>,
  one: (path: string, name: string, array: ModelArray) => Result.Result<A, ModelFileError>
): Result.Result<ReadonlyArray<readonly [string, A]>, ModelFileError> =>
  Result.all(
    Array.from(arrays, ([name, array]) => Result.map(one(path, name, array), (converted) => [name, converted] as const))
  )

/** What to write, by the format that the name stands for. */
const prepare = (
  path: string,
  arrays: Iterable<readonly [string, ModelArray]>,
  options: WriteOptions | undefined
): Result.Result<WriteTo, ModelFileError> => {
  const format = formatOf(path)
  if (format === undefined) return Result.fail(noFormat(path))
  return format === "npz"
    ? Result.map(convert(path, arrays, asArray), (converted) => (sink) => NpzFile.write(converted, sink))
    : Result.map(
        convert(path, arrays, asTensor),
        (converted) => (sink) => SafetensorsFile.write(converted, sink, options)
      )
}

/**
 * Whether the format that a path stands for has a place for each of the arrays; {@link write} fails with the same
 * `ModelFileInvalid` where it has not. Nothing is written.
 *
 * @category writing
 * @since 0.1.0
 */
export const check = (
  path: string,
  arrays: Iterable<readonly [name: string, array: ModelArray]>
): Result.Result<void, ModelFileError> => Result.map(prepare(path, arrays, undefined), () => undefined)

/**
 * Writes arrays as a model file, whole or not at all: into a temporary folder beside `path`, flushed to the disk, then
 * renamed over `path`. After a failure or an interruption an old file at `path` is still there, and nothing else. A
 * symbolic link at `path` is replaced. Array data is not copied (except big-endian and column-major arrays, for
 * safetensors) and must not change before the end.
 *
 * Fails with `ModelFileInvalid` when `path` ends neither in `.npz` nor in `.safetensors`, or the format has no place for
 * an array, with `ModelFileIo` when the folder is missing, the disk full or the user not allowed.
 *
 * @category writing
 * @since 0.1.0
 */
export const write: (
  path: string,
  arrays: Iterable<readonly [name: string, array: ModelArray]>,
  options?: WriteOptions
) => Effect.Effect<void, ModelFileError, FileSystem.FileSystem> = Effect.fn("ModelFile.write")(function* (
  path: string,
  arrays: Iterable<readonly [string, ModelArray]>,
  options?: WriteOptions
) {
  yield* replace(path, yield* Effect.fromResult(prepare(path, arrays, options)))
})

type WriteTo = (sink: ByteSink<ModelFileError>) => Effect.Effect<void, FobsError | ModelFileError>

const replace = Effect.fnUntraced(function* (path: string, writeTo: WriteTo) {
  const fs = yield* FileSystem.FileSystem
  const failed = Effect.mapError(ioFailed(path, "write"))
  const folder = yield* failed(fs.makeTempDirectoryScoped({ directory: NodePath.dirname(path), prefix: ".model-" }))
  const temporary = NodePath.join(folder, NodePath.basename(path))
  yield* Effect.scoped(writeFile(fs, path, temporary, writeTo))
  yield* failed(fs.rename(temporary, path))
}, Effect.scoped)

const writeFile = Effect.fnUntraced(function* (
  fs: FileSystem.FileSystem,
  path: string,
  temporary: string,
  writeTo: WriteTo
): Effect.fn.Return<void, ModelFileError, Scope.Scope> {
  const failed = Effect.mapError(ioFailed(path, "write"))
  const file = yield* failed(fs.open(temporary, { flag: "wx" }))
  yield* Effect.mapError(
    writeTo((bytes) => failed(file.writeAll(bytes))),
    toModelError(path)
  )
  yield* failed(file.sync)
})
