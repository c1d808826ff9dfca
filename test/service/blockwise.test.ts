import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import type { AnyArray } from "../../src/fobs/TensorMath.ts"
import { FLModel, type ParamsType } from "../../src/model/FLModel.ts"
import * as FedAvg from "../../src/service/FedAvg.ts"
import { random, unaligned } from "../fobs/arrays.ts"

/** Several blocks, and a rest. */
const length = 40_000

type Make = (values: Float64Array) => AnyArray

const halves = (values: Float64Array): Uint8Array =>
  // Half floats from 0.5 to 1, by their bits; bfloat16 in the same range of bits are small, and finite.
  new Uint8Array(Uint16Array.from(values, (value) => 0x3800 + (Math.abs(value) % 0x3ff)).buffer)

const kinds: ReadonlyArray<readonly [string, Make]> = [
  ["float32", (values) => NdArray.fromTyped(Float32Array.from(values))],
  ["float64", (values) => NdArray.fromTyped(values)],
  ["float32 at odd addresses", (values) => unaligned(NdArray.fromTyped(Float32Array.from(values)))],
  ["float32, big-endian", (values) => NdArray.fromTyped(Float32Array.from(values)).toBigEndian()],
  ["float16", (values) => new NdArray("<f2", [length], halves(values))],
  ["complex64", (values) => new NdArray("<c8", [length / 2], new Uint8Array(Float32Array.from(values).buffer))],
  ["int32", (values) => NdArray.fromTyped(Int32Array.from(values))],
  ["uint8", (values) => NdArray.fromTyped(Uint8Array.from(values, Math.abs))],
  [
    "bool",
    (values) =>
      new NdArray(
        "|b1",
        [length],
        Uint8Array.from(values, (value) => Math.abs(value) & 1)
      )
  ],
  ["F32 tensor", (values) => Tensor.fromTyped(Float32Array.from(values))],
  ["F16 tensor", (values) => new Tensor("F16", [length], halves(values))],
  ["BF16 tensor", (values) => new Tensor("BF16", [length], halves(values))]
]

const next = random(7)
const values = () => Float64Array.from({ length }, () => next(1_000_003) / 1000 - 500)

const average = (
  arrays: ReadonlyArray<AnyArray>,
  inPlace: boolean,
  paramsType: ParamsType = "FULL",
  global?: AnyArray
): AnyArray | undefined => {
  const results = arrays.map((array, n) => ({
    trainer: `t${n}`,
    model: new FLModel({ params: [["w", array]], paramsType, meta: [["NUM_STEPS_CURRENT_ROUND", n + 1]] })
  }))
  const options = { inPlace, ...(global === undefined ? {} : { global: new FLModel({ params: [["w", global]] }) }) }
  return Result.getOrThrow(FedAvg.aggregate(results, options)).weights.get("w")
}

const part = (array: AnyArray, from: number, to: number): AnyArray => {
  const bytes = array.bytes.subarray(from, to)
  const size = array.shape.reduce((product, each) => product * each, 1)
  const shape = [((to - from) * size) / array.byteLength]
  return array instanceof NdArray ? new NdArray(array.dtype, shape, bytes) : new Tensor(array.dtype, shape, bytes)
}

/** What comes of arrays so small that they are averaged whole. */
const byParts = (arrays: ReadonlyArray<AnyArray>, paramsType?: ParamsType, global?: AnyArray): Buffer => {
  const total = arrays[0]?.byteLength ?? 0
  const step = total / 40
  return Buffer.concat(
    Array.from({ length: 40 }, (_, n) => {
      const cut = (array: AnyArray) => part(array, n * step, (n + 1) * step)
      return average(arrays.map(cut), false, paramsType, global === undefined ? undefined : cut(global))?.bytes ?? []
    }).map((bytes) => Uint8Array.from(bytes))
  )
}

describe("averages of large arrays", () => {
  it.each(kinds)("are those of their parts: %s", (_, make) => {
    const arrays = [make(values()), make(values()), make(values())]
    const before = arrays.map(({ bytes }) => Buffer.from(bytes))
    const expected = byParts(arrays)
    const mean = average(arrays, false)
    assert.isTrue(expected.equals(mean?.bytes ?? new Uint8Array()))
    assert.deepStrictEqual(mean?.shape, arrays[0]?.shape)
    arrays.forEach(({ bytes }, n) => {
      assert.isTrue(before[n]?.equals(bytes), "an input was changed")
    })

    const inPlace = average(arrays, true)
    assert.isTrue(expected.equals(inPlace?.bytes ?? new Uint8Array()))
    assert.strictEqual(inPlace?.dtype, mean?.dtype)
    assert.strictEqual(inPlace?.bytes, arrays[0]?.bytes)
    assert.isTrue(before[1]?.equals(arrays[1]?.bytes ?? new Uint8Array()))
  })

  it.each(kinds.filter(([name]) => name !== "bool"))("of differences are added in place: %s", (_, make) => {
    const global = make(values())
    const sent = Buffer.from(global.bytes)
    const arrays = [make(values()), make(values())]
    const expected = byParts(arrays, "DIFF", global)
    assert.isTrue(expected.equals(average(arrays, false, "DIFF", global)?.bytes ?? new Uint8Array()))
    const sum = average(arrays, true, "DIFF", global)
    assert.isTrue(expected.equals(sum?.bytes ?? new Uint8Array()))
    assert.strictEqual(sum?.bytes, arrays[0]?.bytes)
    assert.isTrue(sent.equals(global.bytes))
  })

  it("are rounded once from float64", () => {
    const [a, b, c] = [values(), values(), values()].map((each) => Float32Array.from(each))
    const expected = Float32Array.from({ length }, (_, i) => {
      const two = (a?.[i] ?? 0) + ((b?.[i] ?? 0) - (a?.[i] ?? 0)) * (2 / 3)
      return two + ((c?.[i] ?? 0) - two) * (3 / 6)
    })
    const mean = average(
      [a, b, c].map((each) => NdArray.fromTyped(each ?? new Float32Array())),
      true
    )
    assert.isTrue(Buffer.from(expected.buffer).equals(mean?.bytes ?? new Uint8Array()))
  })

  it("match elements of row-major and column-major arrays", () => {
    const shape = [200, 200]
    const rows = NdArray.fromTyped(Float32Array.from(values()), shape)
    const columns = new NdArray("<f4", shape, NdArray.fromTyped(Float32Array.from(values())).bytes, "F")
    for (const arrays of [
      [rows, columns],
      [columns, rows]
    ]) {
      const expected = byParts(arrays.map((array) => array.toC()))
      const before = Buffer.from(columns.bytes)
      assert.isTrue(expected.equals(average(arrays, false)?.bytes ?? new Uint8Array()))
      assert.isTrue(before.equals(columns.bytes))
    }
  })

  it("leave alone what shares memory with the model that was sent, or with another array", () => {
    const array = NdArray.fromTyped(Float32Array.from(values()))
    const other = NdArray.fromTyped(Float32Array.from(values()))
    const before = Buffer.from(array.bytes)
    const results = [
      {
        trainer: "a",
        model: new FLModel({
          params: [
            ["v", array],
            ["w", array]
          ]
        })
      },
      {
        trainer: "b",
        model: new FLModel({
          params: [
            ["v", other],
            ["w", other]
          ]
        })
      }
    ] // one array under two names
    const twice = Result.getOrThrow(FedAvg.aggregate(results, { inPlace: true })).weights
    assert.isTrue(before.equals(array.bytes))
    assert.isTrue(Buffer.from(twice.get("v")?.bytes ?? []).equals(twice.get("w")?.bytes ?? new Uint8Array()))

    const sum = average([array, other], true, "FULL", array)
    assert.isTrue(before.equals(array.bytes))
    assert.isTrue(byParts([array, other]).equals(sum?.bytes ?? new Uint8Array()))
  })
})
