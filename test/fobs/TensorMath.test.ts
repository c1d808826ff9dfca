import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { bfloat16FromNumbers, bfloat16ToFloat32 } from "../../src/fobs/Half.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor, type TensorDtype } from "../../src/fobs/Tensor.ts"
import * as TensorMath from "../../src/fobs/TensorMath.ts"
import { floats, fromHex, hex, ints, random } from "./arrays.ts"
import { refusal } from "./zips.ts"

const tensor = (dtype: TensorDtype, text: string, shape?: ReadonlyArray<number>): Tensor => {
  const bytes = fromHex(text)
  return new Tensor(dtype, shape ?? [bytes.length / (dtype === "BF16" || dtype === "F16" ? 2 : 1)], bytes)
}

const numbers = (array: TensorMath.AnyArray): ReadonlyArray<number> => [
  ...Result.getOrThrow(TensorMath.toFloat64(array))
]

const valueOf = (bits: number): number => bfloat16ToFloat32(Uint16Array.of(bits))[0] ?? 0
const bitsOf = (value: number): number => bfloat16FromNumbers([value])[0] ?? -1

describe("bfloat16FromNumbers", () => {
  it("gives back the bits of every bfloat16; of NaN the quiet one", () => {
    for (let bits = 0; bits < 0x10000; bits++) {
      const isNaN = (bits & 0x7fff) > 0x7f80
      if (bitsOf(valueOf(bits)) !== (isNaN ? 0x7fc0 : bits)) assert.fail(`0x${bits.toString(16)}`)
    }
  })

  it("rounds between neighbours to the nearest, ties to even, once", () => {
    for (let bits = 0; bits < 0x7f7f; bits += 7) {
      const [low, high] = [valueOf(bits), valueOf(bits + 1)]
      const middle = (low + high) / 2
      const even = bits % 2 === 0 ? bits : bits + 1
      // The last step is smaller than float32 holds: rounding twice would make a tie of it.
      const step = (high - low) * 2 ** -30
      const got = [middle, middle - step, middle + step, -middle].map(bitsOf)
      assert.deepStrictEqual(got, [even, bits, bits + 1, even | 0x8000], `0x${bits.toString(16)}`)
    }
  })

  it("is infinite from halfway beyond the largest on", () => {
    const largest = valueOf(0x7f7f)
    const halfway = largest + 2 ** 119
    assert.deepStrictEqual(
      [largest, halfway * (1 - 2 ** -40), halfway, 1e300, -Infinity].map(bitsOf),
      [0x7f7f, 0x7f7f, 0x7f80, 0x7f80, 0xff80]
    )
  })
})

describe("TensorMath", () => {
  it("adds and subtracts tensors in their own dtype, rounded once", () => {
    const one = tensor("BF16", "803f")
    const small = tensor("BF16", "803b") // 2^-8, half of the distance from 1 to the next
    assert.strictEqual(hex(Result.getOrThrow(TensorMath.add(one, small)).bytes), "803f")
    assert.strictEqual(hex(Result.getOrThrow(TensorMath.subtract(one, small)).bytes), "7f3f")
    const halves = Result.getOrThrow(TensorMath.subtract(tensor("F16", "003c0040"), tensor("F16", "00380038")))
    assert.deepStrictEqual(halves, tensor("F16", "0038003e"))
    const bytes = Result.getOrThrow(TensorMath.add(tensor("U8", "ff01"), tensor("U8", "0202")))
    assert.deepStrictEqual(bytes, tensor("U8", "0103"))
    const empty = new Tensor("BF16", [0, 2], new Uint8Array(0))
    assert.deepStrictEqual(Result.getOrThrow(TensorMath.add(empty, empty)), empty)
  })

  it("leaves arrays to NdMath", () => {
    assert.deepStrictEqual(Result.getOrThrow(TensorMath.add(ints([1]), ints([2]))), ints([3]))
    assert.deepStrictEqual(TensorMath.addScalar(floats([1]), 1), floats([2]))
    assert.deepStrictEqual(numbers(floats([1.5])), [1.5])
    assert.deepStrictEqual(Result.getOrThrow(TensorMath.fromFloat64(ints([0]), Float64Array.of(2.5))), ints([2]))
  })

  it("adds a scalar that was rounded to the dtype first", () => {
    // 0.1 is 0.10009765625 in bfloat16, and 0.0999755859375 in float16.
    assert.deepStrictEqual(numbers(TensorMath.addScalar(tensor("BF16", "0000"), 0.1)), [0.10009765625])
    assert.deepStrictEqual(numbers(TensorMath.addScalar(tensor("F16", "0000"), 0.1)), [0.0999755859375])
    assert.deepStrictEqual(numbers(TensorMath.addScalar(Tensor.fromTyped(BigInt64Array.of(2n ** 53n)), 3n)), [
      2 ** 53 + 4
    ])
    for (const other of [tensor("BOOL", "0100"), tensor("F8_E4M3", "01"), tensor("F4", "21", [2])]) {
      assert.deepStrictEqual(TensorMath.addScalar(other, 1), other)
    }
  })

  it("goes to float64 and back, rounding to the nearest and keeping the dtype", () => {
    const values = Float64Array.of(1.003906250001, -2.5)
    const expected: ReadonlyArray<readonly [TensorDtype, string]> = [
      ["BF16", "813f20c0"], // rounded by way of float32 it were a tie, and 803f
      ["F16", "043c00c1"],
      ["F32", "0080803f000020c0"],
      ["I8", "01fe"],
      ["U8", "0100"],
      ["BOOL", "0100"]
    ]
    for (const [dtype, text] of expected) {
      const like = new Tensor(dtype, [1, 2], new Uint8Array(text.length / 2))
      const made = Result.getOrThrow(TensorMath.fromFloat64(like, values))
      assert.deepStrictEqual(made, new Tensor(dtype, [1, 2], fromHex(text)), dtype)
      assert.isTrue(TensorMath.isCompatible(made, like))
    }
    const complex = new Tensor("C64", [1], floats([1, -2]).bytes)
    assert.deepStrictEqual(numbers(complex), [1, -2])
    assert.deepStrictEqual(Result.getOrThrow(TensorMath.fromFloat64(complex, Float64Array.of(1, -2))), complex)
  })

  it("reads tensors at any address", () => {
    const seed = 41
    const next = random(seed)
    for (const dtype of ["BF16", "F16", "F32", "I64"] as const) {
      const bytes = Uint8Array.from({ length: 33 }, () => next(120))
      const at = (start: number) =>
        new Tensor(dtype, [32 / (dtype === "I64" ? 8 : dtype === "F32" ? 4 : 2)], bytes.slice(start).subarray(0, 32))
      const shifted = new Tensor(dtype, at(1).shape, bytes.subarray(1))
      assert.deepStrictEqual(TensorMath.addScalar(shifted, 0), TensorMath.addScalar(at(1), 0), `seed ${seed}, ${dtype}`)
    }
  })

  it("keeps kinds, dtypes and shapes apart", () => {
    const single = new Tensor("F32", [1], new Uint8Array(4))
    assert.isFalse(TensorMath.isCompatible(single, floats([0])))
    assert.isFalse(TensorMath.isCompatible(floats([0]), single))
    assert.isFalse(TensorMath.isCompatible(single, new Tensor("F32", [1, 1], new Uint8Array(4))))
    assert.isFalse(TensorMath.isCompatible(single, new Tensor("I32", [1], new Uint8Array(4))))
    assert.strictEqual(
      refusal(TensorMath.add(single, floats([0]))),
      "InvalidValue: tensor F32 [1] and <f4 [1] differ in dtype or shape"
    )
  })

  it("refuses what has no numbers, and bytes that don't fit", () => {
    const bool = tensor("BOOL", "01")
    const float8 = tensor("F8_E5M2", "01")
    assert.match(refusal(TensorMath.subtract(bool, bool)), /^InvalidValue: .*no numbers/)
    assert.match(refusal(TensorMath.add(float8, float8)), /^InvalidValue: .*numpy has no F8_E5M2$/)
    assert.match(refusal(TensorMath.toFloat64(float8)), /^InvalidValue: /)
    for (const dtype of ["BF16", "F32"] as const) {
      const cut = new Tensor(dtype, [3], new Uint8Array(5))
      assert.match(refusal(TensorMath.toFloat64(cut)), /^InvalidValue: /)
      assert.match(refusal(TensorMath.add(cut, cut)), /^InvalidValue: /)
      assert.match(refusal(TensorMath.fromFloat64(cut, new Float64Array(1))), /^InvalidValue: /)
    }
    const text = new NdArray("|S1", [1], Uint8Array.of(65))
    assert.match(refusal(TensorMath.add(text, text)), /^InvalidValue: /)
  })
})
