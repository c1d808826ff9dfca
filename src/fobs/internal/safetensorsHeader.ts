/** The JSON header of safetensors, read and written (docs/wire/fobs.md, section 4.2). */
import { Record, Result, Schema } from "effect"
import type { Tensor } from "../Tensor.ts"
import { type TensorDtype, tensorWidth } from "../Tensor.ts"
import { decodeText } from "./reader.ts"
import { invalidValue, notEncodable } from "./refusal.ts"
import { encodeText } from "./writer.ts"

const format = "safetensors"
/** As the format's own library: a longer header is no header. */
const maxHeader = 100_000_000
const metadataKey = "__metadata__"

const Entry = Schema.Struct({
  dtype: Schema.Literals(Record.keys(tensorWidth)),
  shape: Schema.Array(Schema.Int),
  data_offsets: Schema.Tuple([Schema.Int, Schema.Int])
})
const decodeEntry = Schema.decodeUnknownResult(Entry)
const decodeMetadata = Schema.decodeUnknownResult(Schema.Record(Schema.String, Schema.String))

/** Bytes that a shape takes; `undefined` where a dimension is negative or the product is no safe integer. */
const byteLength = (dtype: TensorDtype, shape: ReadonlyArray<number>): number | undefined => {
  let elements = 1
  for (const dimension of shape) {
    if (!Number.isSafeInteger(dimension) || dimension < 0) return undefined
    elements *= dimension
    if (!Number.isSafeInteger(elements)) return undefined
  }
  const bytes = elements * tensorWidth[dtype]
  return Number.isSafeInteger(bytes) ? bytes : undefined
}

// --- writing ---

/** The header of tensors whose data follows in this order. */
export const writeHeader = (
  tensors: Iterable<readonly [name: string, tensor: Tensor]>,
  metadata: Iterable<readonly [string, string]>
): Uint8Array => {
  const own = Object.fromEntries(metadata)
  const entries = Object.keys(own).length === 0 ? [] : [`${JSON.stringify(metadataKey)}:${JSON.stringify(own)}`]
  const names = new Set<string>([metadataKey])
  let begin = 0
  for (const [name, { bytes, dtype, shape }] of tensors) {
    if (names.has(name)) notEncodable(`a safetensors file cannot hold "${name}" (again)`)
    names.add(name)
    if (bytes.length !== byteLength(dtype, shape)) {
      notEncodable(`tensor "${name}": ${bytes.length} bytes are no ${dtype} of shape [${shape}]`)
    }
    const end = begin + bytes.length
    entries.push(`${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets: [begin, end] })}`)
    begin = end
  }
  return pad(`{${entries.join(",")}}`)
}

const pad = (json: string): Uint8Array => {
  const text = encodeText(json)
  const length = Math.ceil(text.length / 8) * 8
  const bytes = new Uint8Array(8 + length).fill(0x20, 8)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(length), true)
  bytes.set(text, 8)
  return bytes
}

// --- reading ---

/** Bytes of the length field in front of the JSON. */
export const lengthField = 8

/** Where the data of a file of `size` bytes begins, told from its first 8 bytes. */
export const readLength = (start: Uint8Array, size: number): number => {
  if (start.length < lengthField) invalidValue(format, `${size} bytes are too short`)
  const view = new DataView(start.buffer, start.byteOffset, lengthField)
  const length = view.getBigUint64(0, true)
  if (length > maxHeader || length > size - lengthField) {
    invalidValue(format, `a header of ${length} bytes in a file of ${size}`)
  }
  return lengthField + Number(length)
}

/** A tensor without its data, which lies from `begin` to `end` of the file's data. */
export interface TensorPlace {
  readonly name: string
  readonly dtype: TensorDtype
  readonly shape: ReadonlyArray<number>
  readonly begin: number
  readonly end: number
}

const parse = (json: Uint8Array): object => {
  const text = decodeText(json)
  const parsed = Result.try((): unknown => JSON.parse(text))
  if (Result.isFailure(parsed)) return invalidValue(format, "the header is no JSON")
  const value = parsed.success
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return invalidValue(format, "the header is no JSON object")
  }
  return value
}

/** The tensors of a header, in its order, with `dataLength` bytes behind it. */
export const readHeader = (json: Uint8Array, dataLength: number): ReadonlyArray<TensorPlace> => {
  const places: Array<TensorPlace> = []
  for (const [name, value] of Object.entries(parse(json))) {
    if (name === metadataKey) continue
    const entry = Result.getOrUndefined(decodeEntry(value))
    if (entry === undefined) return invalidValue(format, `the header's entry for ${JSON.stringify(name)} is malformed`)
    const { data_offsets, dtype, shape } = entry
    const [begin, end] = data_offsets
    if (begin < 0 || end > dataLength || end - begin !== byteLength(dtype, shape)) {
      invalidValue(
        format,
        `${JSON.stringify(name)}, ${dtype} of shape [${shape}], cannot lie at ${begin}..${end} of ${dataLength} bytes`
      )
    }
    places.push({ name, dtype, shape, begin, end })
  }
  checkOverlap(places)
  return places
}

/** The texts that a header keeps beside the tensors; empty where there are none. */
export const readMetadata = (json: Uint8Array): ReadonlyMap<string, string> => {
  const entries = parse(json)
  const own: unknown = Object.hasOwn(entries, metadataKey) ? Reflect.get(entries, metadataKey) : {}
  const metadata = Result.getOrUndefined(decodeMetadata(own))
  if (metadata === undefined) return invalidValue(format, `${metadataKey} is no map of texts`)
  return new Map(Object.entries(metadata))
}

const checkOverlap = (places: ReadonlyArray<TensorPlace>): void => {
  let last = 0
  for (const { begin, end } of inFileOrder(places)) {
    if (end === begin) continue
    if (begin < last) invalidValue(format, `two tensors share the bytes from ${begin} on`)
    last = end
  }
}

/** Sorted by where the data lies. */
export const inFileOrder = (places: ReadonlyArray<TensorPlace>): ReadonlyArray<TensorPlace> =>
  places.toSorted((left, right) => left.begin - right.begin)
