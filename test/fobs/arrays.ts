/** Arrays and bytes for the tests of arrays and models. */
import { Result } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"

export const latin1 = (text: string): Uint8Array => Uint8Array.from(text, (c) => c.charCodeAt(0))

export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex")

export const fromHex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "hex"))

/** An npy with this header text, unpadded. */
export const npy = (header: string, data: Uint8Array = new Uint8Array(0), version = 1): Uint8Array => {
  const text = version === 3 ? new TextEncoder().encode(header) : latin1(header)
  const prefix = new Uint8Array(version === 1 ? 10 : 12)
  prefix.set([0x93, ...latin1("NUMPY"), version, 0])
  const view = new DataView(prefix.buffer)
  if (version === 1) view.setUint16(8, text.length, true)
  else view.setUint32(8, text.length, true)
  return new Uint8Array(Buffer.concat([prefix, text, data]))
}

export const floats = (values: ReadonlyArray<number>, shape?: ReadonlyArray<number>): NdArray =>
  NdArray.fromTyped(Float32Array.from(values), shape)

export const ints = (values: ReadonlyArray<number>, shape?: ReadonlyArray<number>): NdArray =>
  NdArray.fromTyped(Int32Array.from(values), shape)

export const longs = (values: ReadonlyArray<bigint>, shape?: ReadonlyArray<number>): NdArray =>
  NdArray.fromTyped(BigInt64Array.from(values), shape)

export const elements = (array: NdArray | undefined): ReadonlyArray<number | bigint> =>
  array === undefined ? [] : [...Result.getOrThrow(array.toTyped())]

/** The same bytes at an odd address. */
export const unaligned = (array: NdArray): NdArray => {
  const shifted = new Uint8Array(array.bytes.length + 1)
  shifted.set(array.bytes, 1)
  return new NdArray(array.dtype, array.shape, shifted.subarray(1), array.order)
}

/** 32-bit xorshift: the same numbers for the same seed. */
export const random = (seed: number): ((below: number) => number) => {
  let state = seed | 1
  return (below) => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) % below
  }
}

/** A copy with bytes changed, cut off, put in or taken out at random. */
export const mutate = (bytes: Uint8Array, next: (below: number) => number): Uint8Array => {
  let result = [...bytes]
  for (let n = next(4); n >= 0; n--) {
    const at = next(result.length + 1)
    const kind = next(5)
    if (kind === 0) result[at] = next(256)
    else if (kind === 1) result[at] = ((result[at] ?? 0) ^ (1 << next(8))) & 255
    else if (kind === 2) result = result.slice(0, at)
    else if (kind === 3) result.splice(at, 0, ...Array.from({ length: next(9) }, () => next(256)))
    else result.splice(at, next(9))
  }
  return Uint8Array.from(result)
}
