/**
 * Arithmetic on arrays that keeps their dtype, as numpy does it between arrays of one dtype: ints wrap around, floats
 * are rounded to their own width.
 *
 * Results are new arrays in little-endian byte order; the inputs stay as they are.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import { FobsError, InvalidValue } from "./FobsError.ts"
import { float16FromNumbers, float16ToNumber, numberToFloat16 } from "./Half.ts"
import * as DtypeInfo from "./internal/DtypeInfo.ts"
import { NdArray, type TypedArray } from "./NdArray.ts"

const numericKinds: ReadonlySet<DtypeInfo.DtypeKind> = new Set(["i", "u", "f", "c"])

const refuse = (message: string): Result.Result<never, FobsError> =>
  Result.fail(new FobsError({ reason: new InvalidValue({ typeName: "numpy.ndarray", message }) }))

const infoOf = (array: NdArray): DtypeInfo.DtypeInfo | undefined => Result.getOrUndefined(DtypeInfo.parse(array.dtype))

/**
 * Whether arithmetic means something for the array: ints, floats and complex numbers; not bools, text, times, raw and
 * structured elements.
 *
 * @category guards
 * @since 0.1.0
 */
export const isNumeric = (array: NdArray): boolean => {
  const info = infoOf(array)
  return info !== undefined && numericKinds.has(info.kind) && info.itemSize <= (info.kind === "c" ? 16 : 8)
}

/**
 * Elements as they are stored, so that the result can keep the order. float16 comes as float64, so that results are
 * rounded once.
 */
const stored = (array: NdArray): Result.Result<TypedArray, FobsError> =>
  Result.map(array.toStrided(), ({ data }) => (isHalf(array) ? toFloats(data) : data))

const toFloats = (elements: TypedArray): Float64Array<ArrayBuffer> => {
  if (!isBigInts(elements)) return new Float64Array(elements)
  const result = new Float64Array(elements.length)
  for (let i = 0; i < result.length; i++) result[i] = Number(elements[i] ?? 0n)
  return result
}

const isHalf = (array: NdArray): boolean => {
  const info = infoOf(array)
  return info?.kind === "f" && info.itemSize === 2
}

/** An array of the dtype, shape and order of `like` over new elements as {@link stored} gives them. */
const rebuild = (like: NdArray, elements: TypedArray): NdArray => {
  const native = NdArray.fromTyped(
    elements instanceof Float64Array && isHalf(like) ? float16FromNumbers(elements) : elements
  )
  const type = infoOf(like)?.text.slice(1)
  return new NdArray(`${native.dtype.charAt(0)}${type}`, like.shape, native.bytes, like.order).toLittleEndian()
}

type Numbers = Exclude<TypedArray, BigInt64Array | BigUint64Array>
type BigInts = BigInt64Array | BigUint64Array

const isBigInts = (elements: TypedArray): elements is BigInts =>
  elements instanceof BigInt64Array || elements instanceof BigUint64Array

/** Elements of `array` as {@link stored} gave them, to be overwritten: a copy, but where they are one already. */
const writable = <A extends TypedArray>(array: NdArray, elements: A): A =>
  elements.buffer === array.bytes.buffer ? (elements.slice() as A) : elements // slice answers the type it was called on

/** New elements of the same kind: storing wraps ints and rounds floats. */
const computed = <A extends Numbers>(array: NdArray, elements: A, f: (value: number, index: number) => number): A => {
  const result = writable(array, elements)
  for (let i = 0; i < result.length; i++) result[i] = f(result[i] ?? 0, i)
  return result
}

const computedBig = (array: NdArray, elements: BigInts, f: (value: bigint, index: number) => bigint): BigInts => {
  const result = writable(array, elements)
  for (let i = 0; i < result.length; i++) result[i] = f(result[i] ?? 0n, i)
  return result
}

const toBigInt = (value: number): bigint => (Number.isFinite(value) ? BigInt(Math.trunc(value)) : 0n)

/**
 * `array + scalar` in the array's own dtype. The scalar is first rounded to a float dtype, as numpy does; ints wrap
 * around, and a scalar with a fraction is added in float64 and cut towards zero; complex numbers get it on their real
 * part. Arrays that are not {@link isNumeric} come back as they are.
 *
 * @category combinators
 * @since 0.1.0
 */
export const addScalar = (array: NdArray, scalar: number | bigint): NdArray => {
  const info = infoOf(array)
  const elements = isNumeric(array) ? Result.getOrUndefined(stored(array)) : undefined
  if (info === undefined || elements === undefined) return array
  if (isBigInts(elements)) return rebuild(array, addToBigInts(array, elements, scalar))
  if (info.kind === "i" || info.kind === "u") return rebuild(array, addToInts(array, elements, scalar))
  const addend = asFloat(info, Number(scalar))
  const every = info.kind === "c" ? 2 : 1
  return rebuild(
    array,
    computed(array, elements, (value, i) => (i % every === 0 ? value + addend : value))
  )
}

const asFloat = ({ itemSize, kind }: DtypeInfo.DtypeInfo, value: number): number => {
  if (kind === "f" && itemSize === 2) return float16ToNumber(numberToFloat16(value))
  return itemSize === (kind === "c" ? 8 : 4) ? Math.fround(value) : value
}

const addToInts = (array: NdArray, elements: Numbers, scalar: number | bigint): Numbers => {
  if (typeof scalar === "number" && !Number.isInteger(scalar)) {
    return computed(array, elements, (value) => Math.trunc(value + scalar))
  }
  const wrapped = Number(BigInt.asIntN(32, BigInt(scalar)))
  return computed(array, elements, (value) => value + wrapped)
}

const addToBigInts = (array: NdArray, elements: BigInts, scalar: number | bigint): BigInts => {
  if (typeof scalar === "number" && !Number.isInteger(scalar)) {
    return computedBig(array, elements, (value) => toBigInt(Number(value) + scalar))
  }
  const addend = BigInt(scalar)
  return computedBig(array, elements, (value) => value + addend)
}

/**
 * Applies `f` to each element; `index` counts in row-major order. 64-bit ints pass through `number` and lose digits
 * beyond 2^53; complex numbers come as real and imaginary parts in turn. The result keeps dtype and shape, in row-major order.
 *
 * Fails with `InvalidValue` when the array is not {@link isNumeric}.
 *
 * @category combinators
 * @since 0.1.0
 */
export const map = (array: NdArray, f: (value: number, index: number) => number): Result.Result<NdArray, FobsError> => {
  if (!isNumeric(array)) return refuse(`elements of ${shortDtype(array)} are no numbers`)
  const rowMajor = array.toC()
  return Result.map(stored(rowMajor), (elements) =>
    rebuild(
      rowMajor,
      isBigInts(elements)
        ? computedBig(array, elements, (value, i) => toBigInt(f(Number(value), i)))
        : computed(array, elements, f)
    )
  )
}

const shortDtype = (array: NdArray): string => array.dtype.slice(0, 60)
const describe = (array: NdArray): string => `${shortDtype(array)} [${array.shape.join(", ")}]`

/** The byte order does not count: values do. */
const sameType = (a: NdArray, b: NdArray): boolean => {
  const [left, right] = [infoOf(a), infoOf(b)]
  if (left === undefined || right === undefined) return false
  return left.kind === "struct" || right.kind === "struct"
    ? left.text === right.text
    : left.kind === right.kind && left.text.slice(1) === right.text.slice(1)
}

/**
 * Whether two arrays have the same shape and dtype; byte order and element order don't count.
 *
 * @category guards
 * @since 0.1.0
 */
export const isCompatible = (a: NdArray, b: NdArray): boolean =>
  sameType(a, b) && a.shape.length === b.shape.length && a.shape.every((length, axis) => length === b.shape[axis])

const combine = (
  a: NdArray,
  b: NdArray,
  numbers: (x: number, y: number) => number,
  bigints: (x: bigint, y: bigint) => bigint
): Result.Result<NdArray, FobsError> => {
  if (!isCompatible(a, b)) return refuse(`${describe(a)} and ${describe(b)} differ in dtype or shape`)
  if (!isNumeric(a)) return refuse(`elements of ${shortDtype(a)} are no numbers`)
  const [left, right] = a.order === b.order ? [a, b] : [a.toC(), b.toC()]
  return Result.gen(function* () {
    const x = yield* stored(left)
    const y = yield* stored(right)
    if (isBigInts(x) && isBigInts(y))
      return rebuild(
        left,
        computedBig(a, x, (value, i) => bigints(value, y[i] ?? 0n))
      )
    if (isBigInts(x) || isBigInts(y)) return yield* refuse(`${describe(a)} and ${describe(b)} differ in dtype`)
    return rebuild(
      left,
      computed(a, x, (value, i) => numbers(value, y[i] ?? 0))
    )
  })
}

/**
 * `a + b` for arrays of one dtype and shape. Fails with `InvalidValue` when they are not {@link isCompatible}, or not
 * {@link isNumeric}.
 *
 * @category combinators
 * @since 0.1.0
 */
export const add = (a: NdArray, b: NdArray): Result.Result<NdArray, FobsError> =>
  combine(
    a,
    b,
    (x, y) => x + y,
    (x, y) => x + y
  )

/**
 * `a - b`, as {@link add}.
 *
 * @category combinators
 * @since 0.1.0
 */
export const subtract = (a: NdArray, b: NdArray): Result.Result<NdArray, FobsError> =>
  combine(
    a,
    b,
    (x, y) => x - y,
    (x, y) => x - y
  )

/**
 * The elements as float64, in row-major order, always a copy: bools as 0 and 1, 64-bit ints rounded beyond 2^53,
 * complex numbers as real and imaginary parts in turn. Fails with `InvalidValue` for everything else.
 *
 * @category converting
 * @since 0.1.0
 */
export const toFloat64 = (array: NdArray): Result.Result<Float64Array<ArrayBuffer>, FobsError> => {
  if (!isNumeric(array) && infoOf(array)?.kind !== "b") return refuse(`elements of ${shortDtype(array)} are no numbers`)
  return Result.map(array.toTyped(), toFloats)
}

const roundHalfEven = (value: number): number => {
  const rounded = Math.round(value)
  return Math.abs(value % 1) === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded
}

const limits = ({ itemSize, kind }: DtypeInfo.DtypeInfo): readonly [low: bigint, high: bigint] => {
  if (kind === "b") return [0n, 1n]
  const bits = BigInt(itemSize * 8)
  return kind === "u" ? [0n, 2n ** bits - 1n] : [-(2n ** (bits - 1n)), 2n ** (bits - 1n) - 1n]
}

const clamp = <A extends number | bigint>(value: A, low: A, high: A): A =>
  value < low ? low : value > high ? high : value

/**
 * Float64 elements in row-major order as an array of the dtype and shape of `like`: floats rounded to their width,
 * ints and bools rounded to the nearest (halves to even) and held within their range, NaN as 0 there. The counterpart
 * of {@link toFloat64}, and fails as it does.
 *
 * @category converting
 * @since 0.1.0
 */
export const fromFloat64 = (like: NdArray, values: Float64Array): Result.Result<NdArray, FobsError> => {
  const rowMajor = like.toC()
  const info = infoOf(like)
  return Result.flatMap(stored(rowMajor), (elements) => {
    if (info === undefined || elements.length !== values.length || !(isNumeric(like) || info.kind === "b")) {
      return refuse(`${values.length} numbers don't fit ${describe(like)}`)
    }
    if (info.kind === "f" || info.kind === "c") {
      return isBigInts(elements)
        ? refuse(`elements of ${shortDtype(like)} are no floats`)
        : Result.succeed(
            rebuild(
              rowMajor,
              computed(like, elements, (_, i) => values[i] ?? 0)
            )
          )
    }
    return Result.succeed(rebuild(rowMajor, roundedInts(like, elements, values, limits(info))))
  })
}

const roundedInts = (
  like: NdArray,
  elements: TypedArray,
  values: Float64Array,
  [low, high]: readonly [bigint, bigint]
): TypedArray => {
  const at = (i: number): number => clamp(roundHalfEven(values[i] ?? 0), Number(low), Number(high))
  // The highest 64-bit int lies between two float64s: only as a bigint it can be held.
  if (isBigInts(elements)) return computedBig(like, elements, (_, i) => clamp(toBigInt(at(i)), low, high))
  return computed(like, elements, (_, i) => at(i))
}

/**
 * Whether the array's elements are ints of 64 bits, which float64 can't hold beyond 2^53.
 *
 * @category guards
 * @since 0.1.0
 */
export const isLongInts = (array: NdArray): boolean => {
  const info = infoOf(array)
  return (info?.kind === "i" || info?.kind === "u") && info.itemSize === 8
}

/** The quotient to the nearest, halves to even; `divisor` is positive. */
const divideRounded = (dividend: bigint, divisor: bigint): bigint => {
  const floor = dividend / divisor - (dividend < 0n && dividend % divisor !== 0n ? 1n : 0n)
  const rest = 2n * (dividend - floor * divisor)
  return rest > divisor || (rest === divisor && floor % 2n !== 0n) ? floor + 1n : floor
}

/**
 * The weighted mean of arrays of 64-bit ints, exact, rounded to the nearest once (halves to even). Dtype and shape are
 * those of the first, in row-major order. Weights are positive.
 *
 * Fails with `InvalidValue` when the arrays are not {@link isCompatible} with each other, or are no 64-bit ints.
 *
 * @category combinators
 * @since 0.1.0
 */
export const meanOfLongInts = (
  parts: readonly [Weighted, ...ReadonlyArray<Weighted>]
): Result.Result<NdArray, FobsError> =>
  Result.gen(function* () {
    const [{ array: like }] = parts
    const columns: Array<{ readonly elements: BigInts; readonly weight: bigint }> = []
    let total = 0n
    for (const { array, weight } of parts) {
      if (!isCompatible(array, like)) return yield* refuse(`${describe(array)} and ${describe(like)} differ`)
      const elements = yield* array.toTyped()
      if (!isBigInts(elements)) return yield* refuse(`elements of ${shortDtype(array)} are no 64-bit ints`)
      columns.push({ elements, weight })
      total += weight
    }
    const mean = (i: number): bigint => {
      let sum = 0n
      for (const { elements, weight } of columns) sum += weight * (elements[i] ?? 0n)
      return divideRounded(sum, total)
    }
    const rowMajor = like.toC()
    return rebuild(
      rowMajor,
      computedBig(like, columns[0]?.elements ?? new BigInt64Array(0), (_, i) => mean(i))
    )
  })

/**
 * An array and how much it counts in a mean.
 *
 * @category models
 * @since 0.1.0
 */
export interface Weighted {
  readonly array: NdArray
  readonly weight: bigint
}
