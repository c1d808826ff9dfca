import { assert, describe, it } from "@effect/vitest"
import { NdArray, type TypedArray } from "../../src/fobs/NdArray.ts"
import { Tensor, type TensorDtype } from "../../src/fobs/Tensor.ts"
import * as TensorMath from "../../src/fobs/TensorMath.ts"
import { fromHex } from "./arrays.ts"

const oddities = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]

describe("whether all elements are finite", () => {
  it.each<readonly [string, (values: ReadonlyArray<number>) => TypedArray, number]>([
    ["float32", (values) => Float32Array.from(values), 3.4e38],
    ["float64", (values) => Float64Array.from(values), Number.MAX_VALUE]
  ])("%s, in both byte orders, at every place", (_, make, largest) => {
    for (const turn of [(array: NdArray) => array, (array: NdArray) => array.toBigEndian()]) {
      const isFinite = (...values: ReadonlyArray<number>) => TensorMath.isFinite(turn(NdArray.fromTyped(make(values))))
      assert.isTrue(isFinite(0, -0, 1.5, largest, -largest, 5e-324))
      for (const odd of oddities) {
        for (const place of [0, 1, 2])
          assert.isFalse(isFinite(...[1, 2, 3].map((value, n) => (n === place ? odd : value))))
      }
    }
  })

  it.each<readonly [string, string, boolean]>([
    ["<f2", "ff7b", true],
    ["<f2", "007c", false],
    ["<f2", "017e", false],
    [">f2", "7c00", false],
    ["<c8", "0000803f0000807f", false],
    ["<c8", "0000803f0000803f", true],
    ["<c16", "000000000000f03f000000000000f07f", false],
    ["<i4", "ffffff7f", true],
    ["|b1", "01", true],
    ["<U1", "ffffff7f", true]
  ])("%s %s: %s", (dtype, bytes, finite) =>
    assert.strictEqual(TensorMath.isFinite(new NdArray(dtype, [1], fromHex(bytes))), finite)
  )

  it.each<readonly [TensorDtype, string, boolean]>([
    ["BF16", "7f7f", true],
    ["BF16", "807f", false],
    ["F16", "007c", false],
    ["F32", "0000c07f", false],
    ["F64", "000000000000f07f", false],
    ["I64", "ffffffffffffff7f", true]
  ])("tensor %s %s: %s", (dtype, bytes, finite) =>
    assert.strictEqual(TensorMath.isFinite(new Tensor(dtype, [1], fromHex(bytes))), finite)
  )
})
