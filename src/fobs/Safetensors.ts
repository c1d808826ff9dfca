/**
 * The safetensors format: tensors by name, one after another behind a JSON header.
 *
 * Source: docs/wire/fobs.md, section 4.2.
 *
 * @since 0.1.0
 */
import { Result, Schema } from "effect"
import type { FobsError } from "./FobsError.ts"
import { decodeText } from "./internal/reader.ts"
import { attempt, invalidValue, notEncodable } from "./internal/refusal.ts"
import { encodeText } from "./internal/writer.ts"
import { Tensor, type TensorDtype, tensorWidth } from "./Tensor.ts"

const format = "safetensors"
/** As the format's own library: a longer header is no header. */
const maxHeader = 100_000_000
const metadataKey = "__metadata__"

const Entry = Schema.Struct({
  dtype: Schema.Literals(["BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64"]),
  shape: Schema.Array(Schema.Int),
  data_offsets: Schema.Tuple([Schema.Int, Schema.Int])
})
const decodeEntry = Schema.decodeUnknownResult(Entry)

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

/**
 * The file of some tensors, in the order given: the header, then the data of each, uncopied. Fails with `NotEncodable`
 * when a tensor's bytes don't fit its shape, or a name comes twice.
 *
 * @category encoding
 * @since 0.1.0
 */
export const encode = (
  tensors: Iterable<readonly [name: string, tensor: Tensor]>
): Result.Result<ReadonlyArray<Uint8Array>, FobsError> =>
  attempt(() => {
    const entries: Array<string> = []
    const data: Array<Uint8Array> = []
    const names = new Set<string>()
    let begin = 0
    for (const [name, { bytes, dtype, shape }] of tensors) {
      if (names.has(name) || name === metadataKey) notEncodable(`a safetensors file cannot hold "${name}" (again)`)
      names.add(name)
      if (bytes.length !== byteLength(dtype, shape)) {
        notEncodable(`tensor "${name}": ${bytes.length} bytes are no ${dtype} of shape [${shape}]`)
      }
      const end = begin + bytes.length
      entries.push(`${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets: [begin, end] })}`)
      data.push(bytes)
      begin = end
    }
    return [header(`{${entries.join(",")}}`), ...data]
  })

const header = (json: string): Uint8Array => {
  const text = encodeText(json)
  const length = Math.ceil(text.length / 8) * 8
  const bytes = new Uint8Array(8 + length).fill(0x20, 8)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(length), true)
  bytes.set(text, 8)
  return bytes
}

/** The header's entries, and the bytes behind it. */
const split = (bytes: Uint8Array): readonly [entries: object, data: Uint8Array] => {
  if (bytes.length < 8) invalidValue(format, `${bytes.length} bytes are too short`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const length = view.getBigUint64(0, true)
  if (length > maxHeader || length > bytes.length - 8) {
    invalidValue(format, `a header of ${length} bytes in a file of ${bytes.length}`)
  }
  const data = bytes.subarray(8 + Number(length))
  const text = decodeText(bytes.subarray(8, 8 + Number(length)))
  const json = Result.try((): unknown => JSON.parse(text))
  if (Result.isFailure(json)) return invalidValue(format, "the header is no JSON")
  const value = json.success
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return invalidValue(format, "the header is no JSON object")
  }
  return [value, data]
}

/**
 * The tensors of a file, by name, in the order of the header; their bytes are views of `bytes`. Fails with
 * `InvalidValue` when the header is no valid JSON or asks for bytes that are not there, twice, or too few.
 *
 * @category decoding
 * @since 0.1.0
 */
export const decode = (bytes: Uint8Array): Result.Result<ReadonlyMap<string, Tensor>, FobsError> =>
  attempt(() => {
    const [entries, data] = split(bytes)
    const tensors = new Map<string, Tensor>()
    const ranges: Array<readonly [begin: number, end: number]> = []
    for (const [name, value] of Object.entries(entries)) {
      if (name === metadataKey) continue
      const entry = Result.getOrUndefined(decodeEntry(value))
      if (entry === undefined)
        return invalidValue(format, `the header's entry for ${JSON.stringify(name)} is malformed`)
      const [begin, end] = entry.data_offsets
      if (begin < 0 || end > data.length || end - begin !== byteLength(entry.dtype, entry.shape)) {
        invalidValue(
          format,
          `${JSON.stringify(name)}, ${entry.dtype} of shape [${entry.shape}], cannot lie at ${begin}..${end} of ${data.length} bytes`
        )
      }
      if (end > begin) ranges.push([begin, end])
      tensors.set(name, new Tensor(entry.dtype, entry.shape, data.subarray(begin, end)))
    }
    checkOverlap(ranges)
    return tensors
  })

const checkOverlap = (ranges: Array<readonly [begin: number, end: number]>): void => {
  ranges.sort(([left], [right]) => left - right)
  let last = 0
  for (const [begin, end] of ranges) {
    if (begin < last) invalidValue(format, `two tensors share the bytes from ${begin} on`)
    last = end
  }
}
