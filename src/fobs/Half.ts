/**
 * 16-bit floats: numpy's float16 and torch's bfloat16, which JavaScript has no typed array for on every runtime this
 * library supports.
 *
 * @since 0.1.0
 */

/** The smallest float16 above 0, and the smallest normal one. */
const smallest = 2 ** -24
const smallestNormal = 2 ** -14
/** By the exponent's five bits: what the lowest bit of the fraction stands for, and its reciprocal. */
const powers = Float64Array.from({ length: 32 }, (_, bits) => 2 ** (bits - 25))
const reciprocals = powers.map((power) => 1 / power)

/**
 * The number that a float16's 16 bits stand for; every float16 is exact as a number.
 *
 * @category converting
 * @since 0.1.0
 */
export const float16ToNumber = (bits: number): number => {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 0x1f
  const fraction = bits & 0x3ff
  if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : NaN
  if (exponent === 0) return sign * fraction * smallest
  return sign * (1024 + fraction) * (powers[exponent] ?? 0)
}

/** From so many elements on, looking the values up is faster than computing each. */
const tableSize = 0x10000

/** Rounds to the nearest whole number, halves to the even one, as IEEE-754 and numpy do. */
const roundHalfEven = (value: number): number => {
  const floor = Math.floor(value)
  const rest = value - floor
  if (rest !== 0.5) return rest < 0.5 ? floor : floor + 1
  return floor % 2 === 0 ? floor : floor + 1
}

/**
 * The 16 bits of the float16 nearest to a number: ties to even, beyond 65504 infinite, every NaN the quiet one.
 *
 * @category converting
 * @since 0.1.0
 */
export const numberToFloat16 = (value: number): number => {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0
  const magnitude = Math.abs(value)
  if (Number.isNaN(magnitude)) return 0x7e00
  if (magnitude >= 65520) return sign | 0x7c00
  if (magnitude < smallestNormal) return sign | roundHalfEven(magnitude / smallest)
  const exponent = 32 - Math.clz32(magnitude / smallestNormal) // of the leading bit: the quotient lies in 1 .. 2^30
  const fraction = roundHalfEven(magnitude * (reciprocals[exponent] ?? 0)) // 1024 .. 2048; 2048 carries over
  return sign | ((exponent << 10) + (fraction - 1024))
}

/**
 * A copy of float16 elements as float32, which holds each exactly.
 *
 * @category converting
 * @since 0.1.0
 */
export const float16ToFloat32 = (elements: Uint16Array): Float32Array<ArrayBuffer> => {
  const result = new Float32Array(elements.length)
  const table =
    elements.length > tableSize
      ? Float32Array.from({ length: tableSize }, (_, bits) => float16ToNumber(bits))
      : undefined
  for (let i = 0; i < elements.length; i++) {
    const bits = elements[i] ?? 0
    result[i] = table?.[bits] ?? float16ToNumber(bits)
  }
  return result
}

/**
 * A copy of numbers as float16 bits, rounded as {@link numberToFloat16}.
 *
 * @category converting
 * @since 0.1.0
 */
export const float16FromNumbers = (numbers: ArrayLike<number>): Uint16Array<ArrayBuffer> => {
  const result = new Uint16Array(numbers.length)
  for (let i = 0; i < numbers.length; i++) result[i] = numberToFloat16(numbers[i] ?? 0)
  return result
}

/**
 * A copy of bfloat16 elements (the upper half of a float32, as torch and safetensors have them; numpy has none) as
 * float32.
 *
 * @category converting
 * @since 0.1.0
 */
export const bfloat16ToFloat32 = (elements: Uint16Array): Float32Array<ArrayBuffer> => {
  const bits = new Uint32Array(elements.length)
  for (let i = 0; i < elements.length; i++) bits[i] = (elements[i] ?? 0) << 16
  return new Float32Array(bits.buffer)
}

/**
 * A copy of numbers as bfloat16 bits: each the nearest one, ties to even, beyond the largest infinite, every NaN the
 * quiet one, as torch rounds.
 *
 * @category converting
 * @since 0.1.0
 */
export const bfloat16FromNumbers = (numbers: ArrayLike<number>): Uint16Array<ArrayBuffer> => {
  const result = new Uint16Array(numbers.length)
  const single = new Float32Array(1)
  const bits = new Uint32Array(single.buffer)
  for (let i = 0; i < result.length; i++) {
    const value = numbers[i] ?? 0
    single[0] = value
    result[i] = Number.isNaN(value) ? 0x7fc0 : upperHalf(bits[0] ?? 0, Math.abs(value) - Math.abs(single[0]))
  }
  return result
}

/** The nearest bfloat16 of a float32; `rest` is what the number lost on the way to that, and decides a seeming tie. */
const upperHalf = (bits: number, rest: number): number => {
  const half = bits & 0xffff
  const upper = bits >>> 16
  if (half !== 0x8000) return half < 0x8000 ? upper : upper + 1
  if (rest !== 0) return rest < 0 ? upper : upper + 1
  return upper + (upper & 1)
}
