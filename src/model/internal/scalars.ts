/**
 * Numbers among the values of a message.
 */
import { Result } from "effect"
import { NdArray } from "../../fobs/NdArray.ts"
import { Float, NumpyScalar } from "../../fobs/Values.ts"

/**
 * The number that a value stands for, as Python's `item()` has it: ints, floats and bools, numpy scalars, arrays
 * without dimensions. A bigint comes rounded to a float64.
 */
export const toNumber = (value: unknown): number | undefined => {
  if (typeof value === "number") return value
  if (typeof value === "bigint" || typeof value === "boolean") return Number(value)
  if (value instanceof Float) return value.value
  if (value instanceof NumpyScalar) return Number(value.value)
  return value instanceof NdArray && value.shape.length === 0 ? fromArray(value) : undefined
}

const fromArray = (array: NdArray): number | undefined => {
  const elements = Result.getOrUndefined(array.toTyped())
  const only = elements?.length === 1 ? elements[0] : undefined // a complex number has two parts
  return only === undefined || isTime(array) ? undefined : Number(only)
}

const isTime = ({ dtype }: NdArray): boolean => dtype.includes("M8") || dtype.includes("m8")

/** An int from 0, where a message has one; floats with a fraction, and those that lossless decoding wraps, are none. */
export const toNonNegativeInt = (value: unknown): number | undefined => {
  if (value instanceof Float || (value instanceof NumpyScalar && value.dtype.startsWith("float"))) return undefined
  if (value instanceof NdArray && value.dtype.includes("f")) return undefined
  const number = toNumber(value)
  return number !== undefined && Number.isSafeInteger(number) && number >= 0 ? number : undefined
}
