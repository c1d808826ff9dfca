import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as NdMath from "../../src/fobs/NdMath.ts"
import { elements, floats, fromHex, hex, ints, longs, unaligned } from "./arrays.ts"

const failure = (result: Result.Result<unknown, { readonly reason: { readonly _tag: string } }>): string =>
  Result.isFailure(result) ? result.failure.reason._tag : "accepted"

const half = (bits: string): NdArray => new NdArray("<f2", [bits.length / 4], fromHex(bits))

// The expected values are numpy's.
describe("NdMath.addScalar", () => {
  it("rounds to the width of floats, the scalar first", () => {
    assert.deepStrictEqual(elements(NdMath.addScalar(floats([0.1, 1e8]), 0.2)), [Math.fround(0.30000001192092896), 1e8])
    assert.strictEqual(hex(NdMath.addScalar(half("003c0068"), 0.1).bytes), "663c0068")
    assert.deepStrictEqual(elements(NdMath.addScalar(NdArray.fromTyped(Float64Array.of(0.1)), 0.2)), [0.1 + 0.2])
  })

  it("wraps ints around", () => {
    assert.deepStrictEqual(elements(NdMath.addScalar(NdArray.fromTyped(Int8Array.of(127, -128)), 1)), [-128, -127])
    assert.deepStrictEqual(elements(NdMath.addScalar(NdArray.fromTyped(Uint8Array.of(255, 0)), -1)), [254, 255])
    assert.deepStrictEqual(elements(NdMath.addScalar(longs([2n ** 63n - 1n]), 1)), [-(2n ** 63n)])
    assert.deepStrictEqual(elements(NdMath.addScalar(longs([1n]), 2n ** 53n)), [2n ** 53n + 1n])
  })

  it("cuts the sum of an int and a fraction towards zero", () => {
    assert.deepStrictEqual(elements(NdMath.addScalar(ints([1, -3]), 0.5)), [1, -2])
    assert.deepStrictEqual(elements(NdMath.addScalar(longs([1n, -3n]), 0.5)), [1n, -2n])
  })

  it("adds to the real part of complex numbers", () => {
    const array = NdMath.addScalar(new NdArray("<c8", [2], floats([1, 2, 3, 4]).bytes), 1)
    assert.deepStrictEqual([array.dtype, array.shape, elements(array)], ["<c8", [2], [2, 2, 4, 4]])
  })

  it("leaves an input alone that lies at an odd address", () => {
    const array = unaligned(floats([1, 2]))
    assert.deepStrictEqual(elements(NdMath.addScalar(array, 1)), [2, 3])
    assert.deepStrictEqual(elements(Result.getOrThrow(NdMath.add(array, array))), [2, 4])
    assert.deepStrictEqual(elements(array), [1, 2])
  })

  it("keeps shape and order, and leaves its input alone", () => {
    const array = new NdArray(">i2", [2, 2], Uint8Array.of(0, 1, 0, 2, 0, 3, 0, 4), "F")
    const sum = NdMath.addScalar(array, 1)
    assert.deepStrictEqual([sum.dtype, sum.shape, sum.order, hex(sum.bytes)], ["<i2", [2, 2], "F", "0200030004000500"])
    assert.strictEqual(hex(array.bytes), "0001000200030004")
  })

  it.each(["|b1", "|S1", "|V1", "[('a', '|u1')]"])("does not touch %s", (dtype) => {
    const array = new NdArray(dtype, [1], Uint8Array.of(1))
    assert.strictEqual(NdMath.addScalar(array, 1), array)
  })
})

describe("NdMath.map", () => {
  it("counts in row-major order and keeps the dtype", () => {
    const array = new NdArray("<i4", [2, 2], ints([1, 3, 2, 4]).bytes, "F")
    const mapped = Result.getOrThrow(NdMath.map(array, (value, index) => value * 10 + index))
    assert.deepStrictEqual([mapped.dtype, mapped.order, elements(mapped)], ["<i4", "C", [10, 21, 32, 43]])
  })

  it("rounds once to float16", () => {
    // 2049 + 2^-20 lies above the middle of 2048 and 2050; as float32 it would lie on it.
    const mapped = Result.getOrThrow(NdMath.map(half("003c"), () => 2049 + 2 ** -20))
    assert.strictEqual(hex(mapped.bytes), "0168")
  })

  it("takes 64-bit ints as numbers", () => {
    assert.deepStrictEqual(elements(Result.getOrThrow(NdMath.map(longs([3n]), (value) => value / 2))), [1n])
  })

  it("refuses what has no numbers", () => {
    assert.strictEqual(failure(NdMath.map(new NdArray("|b1", [1], Uint8Array.of(1)), (x) => x)), "InvalidValue")
  })
})

describe("NdMath.add and subtract", () => {
  it("keep the dtype", () => {
    const sum = Result.getOrThrow(NdMath.add(floats([0.1, 1]), floats([0.2, 2])))
    assert.deepStrictEqual([sum.dtype, elements(sum)], ["<f4", [Math.fround(0.3), 3]])
    const difference = Result.getOrThrow(
      NdMath.subtract(NdArray.fromTyped(Uint8Array.of(1)), NdArray.fromTyped(Uint8Array.of(2)))
    )
    assert.deepStrictEqual(elements(difference), [255])
    assert.deepStrictEqual(elements(Result.getOrThrow(NdMath.subtract(longs([2n ** 60n + 1n]), longs([2n ** 60n])))), [
      1n
    ])
  })

  it("match elements, not bytes", () => {
    const columns = new NdArray(">i2", [2, 2], Uint8Array.of(0, 1, 0, 3, 0, 2, 0, 4), "F")
    const rows = NdArray.fromTyped(Int16Array.of(1, 2, 3, 4), [2, 2])
    assert.deepStrictEqual(elements(Result.getOrThrow(NdMath.subtract(columns, rows))), [0, 0, 0, 0])
  })

  it("refuse other shapes and dtypes, and what has no numbers", () => {
    assert.strictEqual(failure(NdMath.add(floats([1, 2]), floats([1, 2], [2, 1]))), "InvalidValue")
    assert.strictEqual(failure(NdMath.add(floats([1]), ints([1]))), "InvalidValue")
    const bool = new NdArray("|b1", [1], Uint8Array.of(1))
    assert.strictEqual(failure(NdMath.subtract(bool, bool)), "InvalidValue")
  })
})

describe("NdMath.toFloat64 and fromFloat64", () => {
  it("round ints and bools to the nearest, halves to even, within their range", () => {
    const back = (like: NdArray, ...values: Array<number>) =>
      elements(Result.getOrThrow(NdMath.fromFloat64(like, Float64Array.from(values))))
    assert.deepStrictEqual(back(ints([0, 0, 0, 0, 0]), 0.5, 1.5, -0.5, -1.5, 2.51), [0, 2, 0, -2, 3])
    assert.deepStrictEqual(back(NdArray.fromTyped(new Uint8Array(3)), -7, 300, Number.NaN), [0, 255, 0])
    assert.deepStrictEqual(back(longs([0n, 0n, 0n]), 2 ** 63, -Infinity, Number.NaN), [
      2n ** 63n - 1n,
      -(2n ** 63n),
      0n
    ])
    assert.deepStrictEqual(back(new NdArray("|b1", [3], new Uint8Array(3)), 0.4, 0.5, 0.6), [0, 0, 1])
  })

  it("round floats once", () => {
    const result = Result.getOrThrow(NdMath.fromFloat64(half("0000"), Float64Array.of(2049 + 2 ** -20)))
    assert.strictEqual(hex(result.bytes), "0168")
  })

  it("are each other's reverse, in row-major order", () => {
    const array = new NdArray("<f4", [2, 2], floats([1, 3, 2, 4]).bytes, "F")
    const values = Result.getOrThrow(NdMath.toFloat64(array))
    assert.deepStrictEqual([...values], [1, 2, 3, 4])
    const back = Result.getOrThrow(NdMath.fromFloat64(array, values))
    assert.deepStrictEqual([back.order, elements(back)], ["C", [1, 2, 3, 4]])
  })

  it("refuse text, and another number of elements", () => {
    assert.strictEqual(failure(NdMath.toFloat64(new NdArray("|S1", [1], new Uint8Array(1)))), "InvalidValue")
    assert.strictEqual(failure(NdMath.fromFloat64(floats([1]), new Float64Array(2))), "InvalidValue")
    assert.strictEqual(
      failure(NdMath.fromFloat64(new NdArray("<M8[s]", [1], new Uint8Array(8)), new Float64Array(1))),
      "InvalidValue"
    )
  })
})
