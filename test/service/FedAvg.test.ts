import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor, type TensorDtype } from "../../src/fobs/Tensor.ts"
import { NumpyScalar } from "../../src/fobs/Values.ts"
import { FLModel, type ParamsType } from "../../src/model/FLModel.ts"
import * as FedAvg from "../../src/service/FedAvg.ts"
import type { FedAvgError } from "../../src/service/FedAvgError.ts"
import { elements, floats, fromHex, hex, ints, longs, random } from "../fobs/arrays.ts"

const result = (
  trainer: string,
  params: ReadonlyArray<readonly [string, unknown]>,
  steps?: unknown,
  paramsType: ParamsType = "FULL"
): FedAvg.TrainerResult => ({
  trainer,
  model: new FLModel({ params, paramsType, meta: steps === undefined ? [] : [["NUM_STEPS_CURRENT_ROUND", steps]] })
})

const average = (results: Iterable<FedAvg.TrainerResult>, options?: FedAvg.AggregateOptions): FLModel =>
  Result.getOrThrow(FedAvg.aggregate(results, options))

const refusal = (result: Result.Result<unknown, FedAvgError>): string =>
  Result.isFailure(result) ? `${result.failure.reason._tag}: ${result.failure.message}` : "accepted"

const one = (value: number) => [["w", floats([value])]] as const

describe("FedAvg.aggregate", () => {
  describe("weights", () => {
    it("are the steps when all report them", () => {
      const model = average([result("a", one(1), 1), result("b", one(5), 3)])
      assert.deepStrictEqual(elements(model.arrays.get("w")), [4])
      const scalars = average([result("a", one(1), 1n), result("b", one(5), new NumpyScalar("int64", 3))])
      assert.deepStrictEqual(elements(scalars.arrays.get("w")), [4])
    })

    it.each([[undefined], [0], [-1], ["3"], [Number.NaN], [Number.POSITIVE_INFINITY], [null]])(
      "are equal when one reports %s",
      (steps) => {
        const model = average([result("a", one(1), steps), result("b", one(5), 3)])
        assert.deepStrictEqual(elements(model.arrays.get("w")), [3])
      }
    )

    it("count for metrics, too, of those that all have", () => {
      const withMetrics = (trainer: string, steps: number, metrics: ReadonlyArray<readonly [string, number]>) => ({
        trainer,
        model: new FLModel({ params: one(1), metrics, meta: [["NUM_STEPS_CURRENT_ROUND", steps]] })
      })
      const all = [
        withMetrics("a", 1, [
          ["loss", 1],
          ["only_a", 9]
        ]),
        withMetrics("b", 3, [["loss", 5]])
      ]
      assert.deepStrictEqual([...(average(all).metrics ?? [])], [["loss", 4]])
      assert.isUndefined(average([result("a", one(1)), all[1] ?? result("b", [])]).metrics)
    })
  })

  describe("of 64-bit ints", () => {
    const big = 2n ** 53n + 1n
    const means = (values: ReadonlyArray<bigint>, steps?: ReadonlyArray<number>) =>
      elements(
        average(values.map((value, n) => result(`t${n}`, [["n", longs([value])]], steps?.[n]))).arrays.get("n")
      ).map(String)

    it.each([
      [[big, big + 2n], undefined, big + 1n],
      [[2n ** 62n + 1n, 2n ** 62n + 3n], undefined, 2n ** 62n + 2n],
      [[2n ** 63n - 1n, 2n ** 63n - 1n, 2n ** 63n - 4n], undefined, 2n ** 63n - 2n],
      [[-(2n ** 63n), -(2n ** 63n) + 2n], undefined, -(2n ** 63n) + 1n],
      // halves to even
      [[1n, 2n], undefined, 2n],
      [[2n, 3n], undefined, 2n],
      [[-1n, -2n], undefined, -2n],
      [[big, big + 4n], [3, 1], big + 1n],
      [[big, big + 4n], [0.75, 0.25], big + 1n],
      [[0n, 10n ** 18n + 1n], [1e300, 1], 0n]
    ] as const)("%s with steps %s is %s, exactly", (values, steps, mean) => {
      assert.deepStrictEqual(means(values, steps), [String(mean)])
    })

    it("unsigned ones and torch's, too", () => {
      const unsigned = (value: bigint) => [["n", NdArray.fromTyped(BigUint64Array.of(value))]] as const
      const model = average([result("a", unsigned(2n ** 64n - 1n)), result("b", unsigned(2n ** 64n - 3n))])
      assert.deepStrictEqual(elements(model.arrays.get("n")).map(String), [String(2n ** 64n - 2n)])
      const tensor = (value: bigint) =>
        [["n", new Tensor("I64", [1], new Uint8Array(BigInt64Array.of(value).buffer))]] as const
      const torch = average([result("a", tensor(big)), result("b", tensor(big + 2n))]).weights.get("n")
      assert.deepStrictEqual(torch, tensor(big + 1n)[0][1])
    })
  })

  it("gives the model of a single trainer bit for bit, whatever it holds", () => {
    const nan = new NdArray("<f4", [2], fromHex("0100c07f000080ff"))
    const text = new NdArray("<U1", [1], fromHex("41000000"))
    const columns = new NdArray(">i2", [2, 2], fromHex("0001000200030004"), "F")
    const model = average([
      result(
        "a",
        [
          ["nan", nan],
          ["text", text],
          ["columns", columns]
        ],
        7
      )
    ])
    assert.deepStrictEqual([...model.arrays.values()], [nan, text, columns])
    assert.strictEqual(model.arrays.get("nan"), nan)
  })

  it("passes on what all trainers have the same", () => {
    const array = longs([2n ** 60n + 1n])
    const text = new NdArray("|S2", [1], fromHex("4142"))
    const masked = floats([Number.NEGATIVE_INFINITY, 1])
    const params = (n: number) =>
      [
        ["long", array],
        ["text", text],
        ["mask", n === 0 ? masked : floats([Number.NEGATIVE_INFINITY, 4])]
      ] as const
    const model = average([0, 1, 2].map((n) => result(`t${n}`, params(n))))
    assert.deepStrictEqual(elements(model.arrays.get("long")), [2n ** 60n + 1n])
    assert.strictEqual(hex(model.arrays.get("text")?.bytes ?? new Uint8Array(0)), "4142")
    assert.deepStrictEqual(elements(model.arrays.get("mask")), [Number.NEGATIVE_INFINITY, 3])
  })

  it("keeps the dtype of each array", () => {
    const arrays = (n: number): ReadonlyArray<readonly [string, NdArray]> => [
      ["f2", new NdArray("<f2", [1], n === 0 ? fromHex("003c") : fromHex("0040"))],
      ["f8", NdArray.fromTyped(Float64Array.of(n))],
      ["i4", ints([n])],
      ["i8", longs([BigInt(n)], [])],
      ["u1", NdArray.fromTyped(Uint8Array.of(n))],
      ["b1", new NdArray("|b1", [1], Uint8Array.of(n === 0 ? 0 : 1))],
      ["c8", new NdArray("<c8", [1], floats([n, 2 * n]).bytes)],
      ["be", new NdArray(">f4", [1], n === 0 ? fromHex("00000000") : fromHex("40400000"))]
    ]
    const model = average([result("a", arrays(0)), result("b", arrays(3)), result("c", arrays(3))])
    const got = [...model.arrays].map(([name, array]) => [name, array.dtype, array.shape, elements(array)])
    assert.deepStrictEqual(got, [
      ["f2", "<f2", [1], [1.6669921875]],
      ["f8", "<f8", [1], [2]],
      ["i4", "<i4", [1], [2]],
      ["i8", "<i8", [], [2n]],
      ["u1", "|u1", [1], [2]],
      ["b1", "|b1", [1], [1]],
      ["c8", "<c8", [1], [2, 4]],
      ["be", "<f4", [1], [2]]
    ])
  })

  it("matches elements of row-major and column-major arrays", () => {
    const rows = floats([1, 2, 3, 4], [2, 2])
    const columns = new NdArray("<f4", [2, 2], floats([3, 5, 4, 6]).bytes, "F")
    const model = average([result("a", [["w", rows]]), result("b", [["w", columns]])])
    assert.deepStrictEqual(elements(model.arrays.get("w")), [2, 3, 4, 5])
  })

  it("agrees with the plain weighted mean for random results", () => {
    const seed = 20_240_613
    const next = random(seed)
    for (let round = 0; round < 50; round++) {
      const all = Array.from({ length: 1 + next(6) }, (_, n) => ({
        n,
        steps: 1 + next(1000),
        value: (next(20_001) - 10_000) / 7
      }))
      const model = average(
        all.map(({ n, steps, value }) => result(`t${n}`, [["w", NdArray.fromTyped(Float64Array.of(value))]], steps))
      )
      const total = all.reduce((sum, { steps }) => sum + steps, 0)
      const mean = all.reduce((sum, { steps, value }) => sum + steps * value, 0) / total
      assert.closeTo(Number(elements(model.arrays.get("w"))[0]), mean, 1e-9, `seed ${seed}, round ${round}`)
    }
  })

  describe("differences", () => {
    const global = new FLModel({
      params: [
        ["w", floats([10, 20])],
        ["n", longs([100n], [])],
        ["frozen", floats([7])]
      ],
      currentRound: 2,
      totalRounds: 5
    })

    it("are averaged and added to the global model", () => {
      const diff = (trainer: string, value: number, steps: number) =>
        result(
          trainer,
          [
            ["w", floats([value, -value])],
            ["n", new NumpyScalar("int64", steps)]
          ],
          steps,
          "DIFF"
        )
      const model = average([diff("a", 1, 1), diff("b", 5, 3)], { global })
      assert.strictEqual(model.paramsType, "FULL")
      assert.deepStrictEqual(
        [...model.arrays].map(([name, array]) => [name, elements(array)]),
        [
          ["w", [14, 16]],
          ["n", [102n]],
          ["frozen", [7]]
        ]
      )
      assert.deepStrictEqual([model.currentRound, model.totalRounds], [2, 5])
    })

    it("need a global model that fits", () => {
      const all = [result("a", one(1), 1, "DIFF")]
      assert.match(refusal(FedAvg.aggregate(all)), /^WrongResult: result of a: it is a DIFF/)
      assert.match(
        refusal(FedAvg.aggregate(all, { global })),
        /^WrongParameter: parameter "w" of a: it is <f4 \[1\], the global model has <f4 \[2\]/
      )
      const unknown = [result("a", [["x", floats([1])]], 1, "DIFF")]
      assert.match(
        refusal(FedAvg.aggregate(unknown, { global })),
        /^WrongParameter: parameter "x" of a: the global model/
      )
      const bool = new NdArray("|b1", [1], Uint8Array.of(1))
      const masks = [result("a", [["m", bool]], 1, "DIFF")]
      assert.match(
        refusal(FedAvg.aggregate(masks, { global: new FLModel({ params: [["m", bool]] }) })),
        /^WrongParameter: parameter "m"/
      )
    })
  })

  describe("torch tensors", () => {
    const tensor = (dtype: TensorDtype, text: string, shape: ReadonlyArray<number> = [1]) =>
      new Tensor(dtype, shape, fromHex(text))

    it("of a single trainer pass bit for bit, in their order among arrays", () => {
      const params = [
        ["nan", tensor("BF16", "c17f80ff", [2])],
        ["array", floats([1])],
        ["eight", tensor("F8_E4M3", "7f")],
        ["empty", tensor("I64", "", [0, 2])]
      ] as const
      const model = average([result("a", params)])
      assert.deepStrictEqual([...model.weights], [...params])
      for (const [name, value] of params) assert.strictEqual(model.params?.get(name), value)
    })

    it("are averaged in float64, rounded once, and keep their dtype", () => {
      // Of 1 and the second next bfloat16, 129 of 512 parts: a little nearer to the one between them than to 1.
      const model = average([
        result("a", [["b", tensor("BF16", "803f")]], 383),
        result("b", [["b", tensor("BF16", "823f")]], 129)
      ])
      assert.deepStrictEqual([...model.weights], [["b", tensor("BF16", "813f")]])

      const kinds = (first: boolean): ReadonlyArray<readonly [string, Tensor]> => [
        ["f2", tensor("F16", first ? "003c" : "0040")],
        ["f4", tensor("F32", first ? "0000803f" : "00000040", [])],
        ["i8", tensor("I64", first ? "0100000000000000" : "0400000000000000", [])],
        ["u1", tensor("U8", first ? "00" : "ff")],
        ["b1", tensor("BOOL", first ? "00" : "01")],
        ["c8", tensor("C64", first ? "0000803f00000000" : "0000004000000040")]
      ]
      const mean = average([result("a", kinds(true)), result("b", kinds(false))])
      assert.deepStrictEqual(
        [...mean.weights],
        [
          ["f2", tensor("F16", "003e")],
          ["f4", tensor("F32", "0000c03f", [])],
          ["i8", tensor("I64", "0200000000000000", [])], // halves to even
          ["u1", tensor("U8", "80")],
          ["b1", tensor("BOOL", "00")],
          ["c8", tensor("C64", "0000c03f0000803f")]
        ]
      )
    })

    it("in differences are added to those of the global model", () => {
      const global = new FLModel({
        params: [
          ["w", tensor("BF16", "803f0040", [2])],
          ["frozen", tensor("F16", "003c")]
        ]
      })
      const diff = (trainer: string, text: string) =>
        result(trainer, [["w", tensor("BF16", text, [2])]], undefined, "DIFF")
      const model = average([diff("a", "803f803f"), diff("b", "40400000")], { global })
      assert.deepStrictEqual(
        [...model.weights],
        [
          ["w", tensor("BF16", "40402040", [2])],
          ["frozen", tensor("F16", "003c")]
        ]
      )
      const arrays = [result("a", [["w", floats([1, 1])]], undefined, "DIFF")]
      assert.match(
        refusal(FedAvg.aggregate(arrays, { global })),
        /^WrongParameter: parameter "w" of a: it is <f4 \[2\], the global model has tensor BF16 \[2\]/
      )
    })

    it("are no arrays, and those without numbers can't be averaged", () => {
      const one = floats([1])
      assert.match(
        refusal(
          FedAvg.aggregate([result("a", [["w", one]]), result("b", [["w", Tensor.fromTyped(Float32Array.of(1))]])])
        ),
        /^WrongParameter: parameter "w" of b: it is tensor F32 \[1\], a has <f4 \[1\]/
      )
      const eight = (text: string) => [["w", tensor("F8_E4M3", text)]] as const
      assert.match(
        refusal(FedAvg.aggregate([result("a", eight("01")), result("b", eight("02"))])),
        /^WrongParameter: parameter "w" of b: it differs from that of a and can't be averaged: .*F8_E4M3/
      )
      const same = average([result("a", eight("01")), result("b", eight("01"))])
      assert.deepStrictEqual([...same.weights], [["w", tensor("F8_E4M3", "01")]])
    })
  })

  describe("refuses", () => {
    it("nothing", () => {
      assert.match(refusal(FedAvg.aggregate([])), /^NoResults: /)
    })

    const text = (letter: string) => new NdArray("|S1", [1], Uint8Array.of(letter.charCodeAt(0)))
    const cases: ReadonlyArray<readonly [string, ReadonlyArray<FedAvg.TrainerResult>, RegExp]> = [
      [
        "a result without parameters",
        [{ trainer: "a", model: new FLModel({ metrics: [["x", 1]] }) }],
        /^WrongResult: result of a: it has no parameters/
      ],
      [
        "a later one without",
        [result("a", one(1)), result("b", [])],
        /^WrongResult: result of b: it has no parameters/
      ],
      [
        "DIFF beside FULL",
        [result("a", one(1)), result("b", one(1), 1, "DIFF")],
        /^WrongResult: result of b: it is DIFF, that of a is FULL/
      ],
      [
        "what is no array",
        [result("a", [["w", new Map()]])],
        /^WrongParameter: parameter "w" of a: it is neither a numpy array nor a tensor/
      ],
      [
        "another shape",
        [result("a", one(1)), result("b", [["w", floats([1, 2])]])],
        /^WrongParameter: parameter "w" of b: it is <f4 \[2\], a has <f4 \[1\]/
      ],
      [
        "another dtype",
        [result("a", one(1)), result("b", [["w", ints([1])]])],
        /^WrongParameter: parameter "w" of b: it is <i4 \[1\], a has <f4 \[1\]/
      ],
      [
        "a missing parameter",
        [result("a", [...one(1), ["v", floats([1])]]), result("b", one(1))],
        /^WrongParameter: parameter "v" of b: it is missing, a has <f4 \[1\]/
      ],
      [
        "a parameter too many",
        [result("a", one(1)), result("b", [...one(1), ["v", floats([1])]])],
        /^WrongParameter: parameter "v" of b: a has none/
      ],
      [
        "texts that differ",
        [result("a", [["w", text("x")]]), result("b", [["w", text("y")]])],
        /^WrongParameter: parameter "w" of b: it differs from that of a/
      ]
    ]
    it.each(cases)("%s", (_, results, expected) => {
      assert.match(refusal(FedAvg.aggregate(results)), expected)
    })
  })
})
