/**
 * Arithmetic on large arrays, a block at a time: beside the arrays it takes the memory of some blocks, and none for what
 * comes of it where that may lie in the place of an array.
 */
import { Result } from "effect"
import type { FobsError } from "../../fobs/FobsError.ts"
import { NdArray } from "../../fobs/NdArray.ts"
import { Tensor, tensorWidth } from "../../fobs/Tensor.ts"
import * as TensorMath from "../../fobs/TensorMath.ts"

type AnyArray = TensorMath.AnyArray
type Computed = Result.Result<AnyArray, FobsError>
/** Arrays of one kind, dtype and shape. */
type Alike = readonly [AnyArray, ...ReadonlyArray<AnyArray>]

/** Elements of a block. */
const blockLength = 16384

const widthOf = (array: AnyArray): number => (array instanceof NdArray ? array.itemSize : tensorWidth[array.dtype])
const sizeOf = ({ shape }: AnyArray): number => shape.reduce((size, length) => size * length, 1)
const blockBytes = (array: AnyArray): number => blockLength * widthOf(array)
/** What is not so is refused by what looks at the array as a whole. */
const isWhole = (array: AnyArray): boolean => sizeOf(array) * widthOf(array) === array.byteLength

const rowMajor = (array: AnyArray): AnyArray => (array instanceof NdArray ? array.toC() : array)

const withBytes = (like: AnyArray, bytes: Uint8Array, shape: ReadonlyArray<number>): AnyArray =>
  like instanceof NdArray ? new NdArray(like.dtype, shape, bytes) : new Tensor(like.dtype, shape, bytes)

/**
 * What `f` makes of arrays in row-major order, block by block, put together in `target`. Small arrays, and what is not
 * whole, are one block, and stay where `f` puts them.
 */
const inBlocks = (arrays: Alike, f: (blocks: Alike) => Computed, target: () => Uint8Array): Computed => {
  const [first, ...others] = arrays
  const { byteLength, shape } = first
  const step = blockBytes(first)
  if (byteLength <= step || !arrays.every(isWhole)) return f(arrays)
  return Result.gen(function* () {
    const bytes = target()
    let made = first
    for (let start = 0; start < byteLength; start += step) {
      const end = Math.min(start + step, byteLength)
      const length = [(end - start) / widthOf(first)]
      const block = (array: AnyArray) => withBytes(array, array.bytes.subarray(start, end), length)
      made = yield* f([block(first), ...others.map(block)])
      bytes.set(made.bytes, start)
    }
    return withBytes(made, bytes, shape)
  })
}

/** Fails with `InvalidValue` when the array has no numbers to compute a mean of. */
export const checkNumbers = (array: AnyArray): Result.Result<void, FobsError> => {
  const small = isWhole(array) ? withBytes(array, new Uint8Array(), [0]) : array
  return Result.flatMap(TensorMath.toFloat64(small), () => Result.void)
}

// --- means ---

/** An array beside the first, and how much of the running mean it makes: its weight through the sum up to it. */
export interface Share {
  readonly array: AnyArray
  readonly share: number
}

/** Moves a mean towards a value: what is equal stays equal to the last bit; infinities don't become NaN. */
export const towards = (mean: number, value: number, share: number): number =>
  Number.isFinite(mean) ? mean + (value - mean) * share : mean + value

const moveTowards = (mean: Float64Array, values: Float32Array | Float64Array, share: number): void => {
  for (let i = 0; i < mean.length; i++) mean[i] = towards(mean[i] ?? 0, values[i] ?? 0, share)
}

const meanOfAny =
  (shares: ReadonlyArray<number>) =>
  ([first, ...others]: Alike): Computed =>
    Result.gen(function* () {
      const mean = yield* TensorMath.toFloat64(first)
      for (const [n, other] of others.entries()) {
        moveTowards(mean, yield* TensorMath.toFloat64(other), shares[n] ?? 0)
      }
      return yield* TensorMath.fromFloat64(first, mean)
    })

const isLittleEndian = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1

/** Whether this machine has a typed array of such floats. */
const isNative = ({ dtype }: AnyArray): boolean => isLittleEndian && ["<f4", "F32", "<f8", "F64"].includes(dtype)

/** As {@link meanOfAny}, in the same memory for each block: what it answers lasts until it is called again. */
const meanOfNative = (shares: ReadonlyArray<number>, width: number) => {
  const elements = width === 4 ? new Float32Array(blockLength) : new Float64Array(blockLength)
  const bytes = new Uint8Array(elements.buffer)
  const mean = new Float64Array(blockLength)
  return ([first, ...others]: Alike): Computed => {
    // Arrays may lie unaligned.
    bytes.set(first.bytes)
    for (let i = 0; i < blockLength; i++) mean[i] = elements[i] ?? 0
    for (const [n, other] of others.entries()) {
      bytes.set(other.bytes)
      moveTowards(mean, elements, shares[n] ?? 0)
    }
    for (let i = 0; i < blockLength; i++) elements[i] = mean[i] ?? 0
    return Result.succeed(withBytes(first, bytes.subarray(0, first.byteLength), first.shape))
  }
}

/**
 * The mean of arrays that are compatible: made in float64 and rounded once, in row-major order and little-endian, with
 * kind, dtype and shape of the first. With `inPlace` it may lie in the memory of the first.
 *
 * Fails as {@link checkNumbers}.
 */
export const mean = (first: AnyArray, others: ReadonlyArray<Share>, inPlace: boolean): Computed => {
  const shares = others.map(({ share }) => share)
  const arrays: Alike = [rowMajor(first), ...others.map(({ array }) => rowMajor(array))]
  const [base] = arrays
  const isLarge = base.byteLength > blockBytes(base) && arrays.every(isWhole)
  const f = isLarge && arrays.every(isNative) ? meanOfNative(shares, widthOf(base)) : meanOfAny(shares)
  // A row-major copy is ours.
  return inBlocks(arrays, f, () => (inPlace || base !== first ? base.bytes : new Uint8Array(base.byteLength)))
}

// --- sums ---

/**
 * As `TensorMath.add`. With `inPlace` the sum may lie in the memory of the second array.
 *
 * Fails as that does.
 */
export const add = (a: AnyArray, b: AnyArray, inPlace: boolean): Computed => {
  const isAlike = TensorMath.isCompatible(a, b) && rowMajor(a) === a && rowMajor(b) === b
  if (!inPlace || !isAlike) return TensorMath.add(a, b)
  return inBlocks(
    [a, b],
    ([x, ...others]) => TensorMath.add(x, others[0] ?? x),
    () => b.bytes
  )
}
