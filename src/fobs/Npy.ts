/**
 * The npy format: one array with a header in front.
 *
 * Source: docs/wire/fobs.md, section 4.1.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import { FobsError, InvalidValue, Malformed, NotEncodable } from "./FobsError.ts"
import * as DtypeInfo from "./internal/DtypeInfo.ts"
import * as PythonLiteral from "./internal/PythonLiteral.ts"
import { NdArray } from "./NdArray.ts"

const alignment = 64
const growthAxisDigits = 21
const maxHeaderCharacters = 10_000
const maxDimensions = 64
const maxByteSize = 2n ** 63n - 1n
const magic = Uint8Array.of(0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59)

/**
 * What the header of an npy says, and where its data starts.
 *
 * @category models
 * @since 0.1.0
 */
export interface Header {
  readonly dtype: string
  readonly shape: ReadonlyArray<number>
  readonly order: "C" | "F"
  /** Bytes from the start of the npy to the first element. */
  readonly dataOffset: number
  /** Bytes of all elements. */
  readonly dataLength: number
}

const malformed = (offset: number | undefined, what: string): FobsError =>
  new FobsError({ reason: new Malformed({ offset, message: `no npy array: ${what}` }) })
const invalid = (what: string): FobsError =>
  new FobsError({ reason: new InvalidValue({ typeName: "numpy.ndarray", message: `npy array refused: ${what}` }) })
const notEncodable = (what: string): FobsError =>
  new FobsError({ reason: new NotEncodable({ message: `an array cannot be written as npy: ${what}` }) })

/** Column-major data can be told from row-major only with two long dimensions; numpy calls the rest C order. */
const effectiveOrder = (order: "C" | "F", shape: ReadonlyArray<number>): "C" | "F" => {
  if (order === "C" || shape.includes(0)) return "C"
  return shape.filter((length) => length > 1).length > 1 ? "F" : "C"
}

/** Elements times width, or `undefined` where numpy's 63 bits overflow (other dimensions of 0 don't help). */
const byteLength = (shape: ReadonlyArray<number>, itemSize: number): number | undefined => {
  let total = BigInt(Math.max(itemSize, 1))
  for (const length of shape) {
    if (length > 0) total *= BigInt(length)
    if (total > maxByteSize) return undefined
  }
  return shape.includes(0) || itemSize === 0 ? 0 : Number(total)
}

// --- encoding ---

/** `undefined` for text with a character that latin-1 lacks. */
const encodeLatin1 = (text: string): Uint8Array | undefined => {
  const bytes = Buffer.from(text, "utf8")
  if (bytes.length === text.length) return bytes // as nearly always: ASCII
  return /[^\0-\xff]/.test(text) ? undefined : Buffer.from(text, "latin1")
}

const shapeText = (shape: ReadonlyArray<number>): string =>
  shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`

const headerText = (descr: string, shape: ReadonlyArray<number>, order: "C" | "F"): string => {
  const growthAxis = order === "F" ? shape.at(-1) : shape[0]
  const growth = growthAxis === undefined ? 0 : growthAxisDigits - String(growthAxis).length
  const fortran = order === "F" ? "True" : "False"
  return `{'descr': ${descr}, 'fortran_order': ${fortran}, 'shape': ${shapeText(shape)}, }${" ".repeat(growth)}`
}

const frameHeader = (text: Uint8Array, version: 1 | 2 | 3): Uint8Array => {
  const prefix = version === 1 ? 10 : 12
  const unpadded = prefix + text.length + 1
  const total = unpadded + alignment - (unpadded % alignment)
  const header = new Uint8Array(total).fill(0x20)
  header.set(magic)
  header.set([version, 0], magic.length)
  const view = new DataView(header.buffer)
  if (version === 1) view.setUint16(8, total - prefix, true)
  else view.setUint32(8, total - prefix, true)
  header.set(text, prefix)
  header[total - 1] = 0x0a
  return header
}

const buildHeader = (descr: string, shape: ReadonlyArray<number>, order: "C" | "F"): Uint8Array => {
  const text = headerText(descr, shape, order)
  const latin1 = encodeLatin1(text)
  if (latin1 === undefined) return frameHeader(new TextEncoder().encode(text), 3)
  const header = frameHeader(latin1, 1)
  return header.length - 10 > 0xffff ? frameHeader(latin1, 2) : header
}

/**
 * Writes an array as numpy does, byte for byte. The second element is the array's own data, not a copy: it must stay
 * unchanged until it has been used up.
 *
 * Fails with `NotEncodable` when dtype, shape and bytes don't fit each other.
 *
 * @category encoding
 * @since 0.1.0
 */
export const encode = (array: NdArray): Result.Result<readonly [header: Uint8Array, data: Uint8Array], FobsError> => {
  const info = DtypeInfo.parse(array.dtype)
  if (Result.isFailure(info)) return Result.fail(notEncodable(info.failure))
  const { itemSize, kind, text } = info.success
  const { bytes, shape } = array
  if (shape.length > maxDimensions) return Result.fail(notEncodable(`more than ${maxDimensions} dimensions`))
  if (!shape.every((length) => Number.isSafeInteger(length) && length >= 0)) {
    return Result.fail(notEncodable(`its shape [${shape.join(", ")}] is not made of whole numbers from 0`))
  }
  const needed = byteLength(shape, itemSize)
  if (needed !== bytes.length) {
    const what = `shape [${shape.join(", ")}] of ${text} needs ${needed ?? "too many"} bytes, it has ${bytes.length}`
    return Result.fail(notEncodable(what))
  }
  const descr = kind === "struct" ? text : `'${text}'`
  const header = buildHeader(descr, shape, effectiveOrder(array.order, shape))
  return Result.succeed([header, bytes])
}

// --- decoding ---

const decodeLatin1 = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1")

const decodeUtf8 = (bytes: Uint8Array): string | undefined =>
  Result.getOrUndefined(Result.try(() => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)))

const tooLong = `its header has more than ${maxHeaderCharacters} characters`

const readText = (bytes: Uint8Array): Result.Result<readonly [text: string, dataOffset: number], FobsError> => {
  if (bytes.length < 10 || !magic.every((byte, i) => bytes[i] === byte)) {
    return Result.fail(malformed(0, "it does not start with the npy signature"))
  }
  const version = bytes[6] ?? 0
  if (version < 1 || version > 3 || bytes[7] !== 0) {
    return Result.fail(malformed(6, `version ${version}.${bytes[7]} is not 1.0, 2.0 or 3.0`))
  }
  const prefix = version === 1 ? 10 : 12
  if (bytes.length < prefix) return Result.fail(malformed(bytes.length, "the header is cut short"))
  const view = new DataView(bytes.buffer, bytes.byteOffset, prefix)
  const length = version === 1 ? view.getUint16(8, true) : view.getUint32(8, true)
  if (length > bytes.length - prefix) return Result.fail(malformed(bytes.length, "the header is cut short"))
  if (length > 4 * maxHeaderCharacters) return Result.fail(malformed(8, tooLong))
  const raw = bytes.subarray(prefix, prefix + length)
  const text = version === 3 ? decodeUtf8(raw) : decodeLatin1(raw)
  if (text === undefined) return Result.fail(malformed(prefix, "its header is not utf-8"))
  if (text.length > maxHeaderCharacters && countCharacters(text) > maxHeaderCharacters)
    return Result.fail(malformed(8, tooLong))
  return Result.succeed([text, prefix + length])
}

const countCharacters = (text: string): number => {
  let count = 0
  for (const _ of text) count++
  return count
}

/** The value of the last entry with each key, when the keys are exactly the three of npy. */
const readKeys = (literal: PythonLiteral.Literal): ReadonlyMap<string, PythonLiteral.Literal> | undefined => {
  if (literal.type !== "dict") return undefined
  const entries = new Map<string, PythonLiteral.Literal>()
  for (const [key, value] of literal.entries) {
    if (key.type !== "text") return undefined
    entries.set(key.value, value)
  }
  return entries.size === 3 ? entries : undefined
}

const readShape = (literal: PythonLiteral.Literal): Result.Result<ReadonlyArray<number>, FobsError> => {
  if (literal.type !== "tuple") return Result.fail(invalid("its shape is no tuple"))
  if (literal.items.length > maxDimensions) return Result.fail(invalid(`it has more than ${maxDimensions} dimensions`))
  const shape: Array<number> = []
  for (const item of literal.items) {
    if (item.type !== "int" || item.value < 0n) return Result.fail(invalid("its shape is not made of ints from 0"))
    if (item.value > BigInt(Number.MAX_SAFE_INTEGER)) return Result.fail(invalid("a dimension is longer than 2^53"))
    shape.push(Number(item.value))
  }
  return Result.succeed(shape)
}

/**
 * Reads the header alone: what the array will be, before its data is there. Only the start of the npy is needed.
 *
 * Fails with `Malformed` when the bytes are no npy header, with `InvalidValue` when it describes an array that is
 * refused: object dtype, more than 64 dimensions, a size beyond 2^63.
 *
 * @category decoding
 * @since 0.1.0
 */
export const decodeHeader = (bytes: Uint8Array): Result.Result<Header, FobsError> =>
  Result.gen(function* () {
    const [text, dataOffset] = yield* readText(bytes)
    const literal = yield* Result.mapError(PythonLiteral.parse(text), (what) => malformed(undefined, what))
    const keys = readKeys(literal)
    const descr = keys?.get("descr")
    const fortran = keys?.get("fortran_order")
    const dimensions = keys?.get("shape")
    if (descr === undefined || fortran === undefined || dimensions === undefined) {
      return yield* Result.fail(invalid("its header has other keys than descr, fortran_order and shape"))
    }
    if (fortran.type !== "name" || fortran.value === "None") {
      return yield* Result.fail(invalid("fortran_order is neither True nor False"))
    }
    const shape = yield* readShape(dimensions)
    const info = yield* Result.mapError(DtypeInfo.fromLiteral(descr, text), invalid)
    const dataLength = byteLength(shape, info.itemSize)
    if (dataLength === undefined) return yield* Result.fail(invalid("its shape stands for more than 2^63 bytes"))
    const order = effectiveOrder(fortran.value === "True" ? "F" : "C", shape)
    return { dtype: info.text, shape, order, dataOffset, dataLength }
  })

/**
 * Reads an array. Its data is a view of the input, at any alignment: it keeps the input alive, and the input must not
 * change any more. Bytes behind the array are ignored, as numpy does.
 *
 * Fails as {@link decodeHeader}, and with `Malformed` when data is missing.
 *
 * @category decoding
 * @since 0.1.0
 */
export const decode = (bytes: Uint8Array): Result.Result<NdArray, FobsError> =>
  Result.flatMap(decodeHeader(bytes), ({ dataLength, dataOffset, dtype, order, shape }) => {
    const there = bytes.length - dataOffset
    if (there < dataLength) {
      return Result.fail(malformed(bytes.length, `its header promises ${dataLength} bytes of data, ${there} are there`))
    }
    const data = new Uint8Array(bytes.buffer, bytes.byteOffset + dataOffset, dataLength) // of a Buffer too
    return Result.succeed(new NdArray(dtype, shape, data, order))
  })
