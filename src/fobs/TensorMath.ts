/**
 * Arithmetic on what models are made of, numpy's arrays and torch's tensors, that keeps dtypes. Arrays go the way of
 * `NdMath`; tensors likewise, and F16 and BF16 are computed in float32 and rounded once, as torch does.
 *
 * Results are new; the inputs stay as they are.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import { FobsError, InvalidValue } from "./FobsError.ts"
import { bfloat16FromNumbers, bfloat16ToFloat32, float16FromNumbers, float16ToNumber, numberToFloat16 } from "./Half.ts"
import * as ElementLayout from "./internal/ElementLayout.ts"
import { NdArray } from "./NdArray.ts"
import * as NdMath from "./NdMath.ts"
import { Tensor } from "./Tensor.ts"

/**
 * numpy's or torch's array.
 *
 * @category models
 * @since 0.1.0
 */
export type AnyArray = NdArray | Tensor

/**
 * Type and shape in a few words, for errors: `<f4 [2, 3]`, `tensor F32 [2, 3]`.
 *
 * @category getters
 * @since 0.1.0
 */
export const describe = (array: AnyArray): string =>
  `${array instanceof Tensor ? "tensor " : ""}${array.dtype.slice(0, 60)} [${array.shape.join(", ")}]`

/**
 * Whether two have the same kind, dtype and shape; byte order and element order of arrays don't count.
 *
 * @category guards
 * @since 0.1.0
 */
export const isCompatible = (a: AnyArray, b: AnyArray): boolean => {
  if (a instanceof NdArray) return b instanceof NdArray && NdMath.isCompatible(a, b)
  return b instanceof Tensor && a.dtype === b.dtype && isSameShape(a.shape, b.shape)
}

const isSameShape = (a: ReadonlyArray<number>, b: ReadonlyArray<number>): boolean =>
  a.length === b.length && a.every((length, axis) => length === b[axis])

/** The form that a tensor is computed in: float32 for half floats, else its own. */
const wide = (tensor: Tensor): Result.Result<NdArray, FobsError> =>
  tensor.dtype === "F16" || tensor.dtype === "BF16"
    ? Result.map(tensor.toTyped(), (elements) => NdArray.fromTyped(elements, tensor.shape))
    : tensor.toArray()

/** What was computed in that form, as a tensor of the dtype of `like`. */
const narrow = (like: Tensor, array: NdArray): Result.Result<Tensor, FobsError> => {
  const halves = like.dtype === "F16" ? float16FromNumbers : like.dtype === "BF16" ? bfloat16FromNumbers : undefined
  if (halves === undefined) return Tensor.fromArray(array)
  return Result.flatMap(NdMath.toFloat64(array), (values) => Result.succeed(halfTensor(like, halves(values))))
}

const halfTensor = ({ dtype, shape }: Tensor, halves: Uint16Array): Tensor => {
  const bytes = new Uint8Array(halves.buffer, halves.byteOffset, halves.byteLength)
  return new Tensor(dtype, shape, ElementLayout.hostByteOrder === "<" ? bytes : ElementLayout.swapped(bytes, 2))
}

const combine = (
  f: (a: NdArray, b: NdArray) => Result.Result<NdArray, FobsError>,
  a: AnyArray,
  b: AnyArray
): Result.Result<AnyArray, FobsError> => {
  if (a instanceof NdArray && b instanceof NdArray) return f(a, b)
  if (!(a instanceof Tensor && b instanceof Tensor && isCompatible(a, b))) {
    const message = `${describe(a)} and ${describe(b)} differ in dtype or shape`
    return Result.fail(new FobsError({ reason: new InvalidValue({ typeName: "torch.Tensor", message }) }))
  }
  return Result.gen(function* () {
    return yield* narrow(a, yield* f(yield* wide(a), yield* wide(b)))
  })
}

/**
 * `a + b` for two of one kind, dtype and shape. Fails with `InvalidValue` when they are not {@link isCompatible}, or
 * hold no numbers that are computed with: bools, texts, floats of 4 and 8 bits.
 *
 * @category combinators
 * @since 0.1.0
 */
export const add = (a: AnyArray, b: AnyArray): Result.Result<AnyArray, FobsError> => combine(NdMath.add, a, b)

/**
 * `a - b`, as {@link add}.
 *
 * @category combinators
 * @since 0.1.0
 */
export const subtract = (a: AnyArray, b: AnyArray): Result.Result<AnyArray, FobsError> => combine(NdMath.subtract, a, b)

/** torch, too, rounds a scalar to the dtype before it is added. */
const rounded = ({ dtype }: Tensor, scalar: number | bigint): number | bigint => {
  if (dtype === "BF16") return bfloat16ToFloat32(bfloat16FromNumbers([Number(scalar)]))[0] ?? 0
  return dtype === "F16" ? float16ToNumber(numberToFloat16(Number(scalar))) : scalar
}

/**
 * `array + scalar` in the array's own dtype, as `NdMath.addScalar`. What holds no numbers that are computed with comes
 * back as it is.
 *
 * @category combinators
 * @since 0.1.0
 */
export const addScalar = (array: AnyArray, scalar: number | bigint): AnyArray => {
  if (array instanceof NdArray) return NdMath.addScalar(array, scalar)
  const addend = rounded(array, scalar)
  const sum = Result.flatMap(wide(array), (elements) => narrow(array, NdMath.addScalar(elements, addend)))
  return Result.getOrElse(sum, () => array)
}

/**
 * The elements as float64, in row-major order, always a copy, as `NdMath.toFloat64`. Fails with `InvalidValue` for what
 * has no numbers, and for floats of 4 and 8 bits.
 *
 * @category converting
 * @since 0.1.0
 */
export const toFloat64 = (array: AnyArray): Result.Result<Float64Array<ArrayBuffer>, FobsError> =>
  array instanceof NdArray ? NdMath.toFloat64(array) : Result.flatMap(wide(array), NdMath.toFloat64)

/**
 * Float64 elements in row-major order as an array or tensor like `like`, as `NdMath.fromFloat64`: each rounded once.
 * The counterpart of {@link toFloat64}, and fails as it does.
 *
 * @category converting
 * @since 0.1.0
 */
export const fromFloat64 = (like: AnyArray, values: Float64Array): Result.Result<AnyArray, FobsError> => {
  if (like instanceof NdArray) return NdMath.fromFloat64(like, values)
  if (like.dtype !== "BF16") {
    return Result.flatMap(like.toArray(), (array) =>
      Result.flatMap(NdMath.fromFloat64(array, values), Tensor.fromArray)
    )
  }
  if (values.length * 2 === like.byteLength) return Result.succeed(halfTensor(like, bfloat16FromNumbers(values)))
  const message = `${values.length} numbers don't fit ${describe(like)}`
  return Result.fail(new FobsError({ reason: new InvalidValue({ typeName: "torch.Tensor", message }) }))
}

/**
 * Whether elements are ints of 64 bits, which float64 can't hold beyond 2^53.
 *
 * @category guards
 * @since 0.1.0
 */
export const isLongInts = (array: AnyArray): boolean =>
  array instanceof NdArray ? NdMath.isLongInts(array) : array.dtype === "I64" || array.dtype === "U64"

/**
 * The weighted mean of 64-bit ints, as `NdMath.meanOfLongInts`: exact, rounded once. What comes is like the first.
 *
 * @category combinators
 * @since 0.1.0
 */
export const meanOfLongInts = (
  parts: readonly [Weighted, ...ReadonlyArray<Weighted>]
): Result.Result<AnyArray, FobsError> =>
  Result.gen(function* () {
    const part = ({ array, weight }: Weighted) =>
      Result.map(array instanceof NdArray ? Result.succeed(array) : array.toArray(), (elements) => ({
        array: elements,
        weight
      }))
    const [first, ...others] = parts
    const mean = yield* NdMath.meanOfLongInts([yield* part(first), ...(yield* Result.all(others.map(part)))])
    return first.array instanceof NdArray ? mean : yield* Tensor.fromArray(mean)
  })

/**
 * An array or tensor and how much it counts in a mean.
 *
 * @category models
 * @since 0.1.0
 */
export interface Weighted {
  readonly array: AnyArray
  readonly weight: bigint
}

/** Where an element's exponent lies: its bytes from the highest on, and the bits that are all 1 in NaN and infinities. */
const exponents: ReadonlyMap<string, readonly [width: number, high: number, next: number]> = new Map([
  ["f2", [2, 0x7c, 0]],
  ["f4", [4, 0x7f, 0x80]],
  ["f8", [8, 0x7f, 0xf0]],
  ["c8", [4, 0x7f, 0x80]],
  ["c16", [8, 0x7f, 0xf0]],
  ["F16", [2, 0x7c, 0]],
  ["BF16", [2, 0x7f, 0x80]],
  ["F32", [4, 0x7f, 0x80]],
  ["F64", [8, 0x7f, 0xf0]],
  ["C64", [4, 0x7f, 0x80]]
])

/**
 * Whether all elements are finite: none is NaN or an infinity. What holds no floats is; floats of 4, 8 and more than
 * 64 bits are not looked at.
 *
 * @category guards
 * @since 0.1.0
 */
export const isFinite = (array: AnyArray): boolean => {
  const found = exponents.get(array instanceof NdArray ? array.dtype.replace(/^[<>=|]/, "") : array.dtype)
  if (found === undefined) return true
  const [width, high, next] = found
  const { bytes } = array
  const isBig = array instanceof NdArray && array.isBigEndian
  const step = isBig ? 1 : -1
  for (let at = isBig ? 0 : width - 1; at < bytes.length; at += width) {
    if (((bytes[at] ?? 0) & high) === high && ((bytes[at + step] ?? 0) & next) === next) return false
  }
  return true
}
