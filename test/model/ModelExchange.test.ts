import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import { EnumValue, Float, NumpyScalar } from "../../src/fobs/Values.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import type { ModelError } from "../../src/model/ModelError.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import { Shareable } from "../../src/model/Shareable.ts"
import { elements, floats, fromHex, hex, ints, longs } from "../fobs/arrays.ts"
import { concat, readFixture } from "../fobs/fixtures.ts"

const codec = ModelCodec.codec

const message = (name: string): Map<string, unknown> => {
  const value = Result.getOrThrow(codec.decode(readFixture(`${name}.bin`), { items: "keep" }))
  return value instanceof Map ? value : assert.fail("no dict")
}

const shareableOf = (name: string, entry: "model" | "result"): Shareable => {
  const value = message(name).get(entry)
  return value instanceof Shareable ? value : assert.fail("no Shareable")
}

const refusal = (result: Result.Result<unknown, ModelError>): string =>
  Result.isFailure(result) ? `${result.failure.reason._tag}: ${result.failure.message}` : "accepted"

const dxo = (content: Iterable<readonly [string, unknown]>, headers: Iterable<readonly [string, unknown]> = []) =>
  new Shareable([["__content_type__", "DXO"], ...headers], [["DXO", new Map(content)]])

const weights = new EnumValue("nvflare.apis.dxo.DataKind", "WEIGHTS")

describe("ModelExchange.fromShareable", () => {
  it("reads a task as it was captured", () => {
    const model = Result.getOrThrow(ModelExchange.fromShareable(shareableOf("task_ready_native", "model")))
    assert.strictEqual(model.paramsType, "FULL")
    assert.deepStrictEqual([...model.arrays.keys()], ["layer1.weight", "layer1.bias", "n"])
    assert.deepStrictEqual(model.arrays.get("layer1.weight")?.shape, [4, 3])
    assert.deepStrictEqual([model.startRound, model.currentRound, model.totalRounds], [0, 0, 3])
    assert.deepStrictEqual(
      [...model.meta],
      [
        ["job_id", "job-1"],
        ["site_name", "site-1"]
      ]
    )
    assert.isUndefined(model.metrics)
  })

  it("reads a result with metrics, numpy's numbers among them", () => {
    const model = Result.getOrThrow(ModelExchange.fromShareable(shareableOf("result_ready_full_native", "result")))
    assert.deepStrictEqual(
      [...(model.metrics ?? [])],
      [
        ["accuracy", 0.75],
        ["loss", 0.25]
      ]
    )
    assert.strictEqual(model.meta.get("NUM_STEPS_CURRENT_ROUND"), 20)
    assert.isTrue(model.meta.has("initial_metrics"))
    assert.strictEqual(ModelExchange.numSteps(model), 20)
  })

  it("reads differences, and tasks that ask for a stored model", () => {
    const diff = Result.getOrThrow(ModelExchange.fromShareable(shareableOf("result_ready_diff_native", "result")))
    assert.strictEqual(diff.paramsType, "DIFF")
    const submit = Result.getOrThrow(ModelExchange.fromShareable(shareableOf("task_ready_submit_model", "model")))
    assert.isUndefined(submit.params)
    assert.strictEqual(typeof submit.meta.get("submit_model_name"), "string")
  })

  it("reads metrics alone; what is no number stays out", () => {
    const data = new Map<string, unknown>([
      ["a", 1],
      ["b", new Float(2)],
      ["c", new NumpyScalar("int64", 3n)],
      ["d", true],
      ["e", "x"],
      ["f", floats([4], [])],
      ["g", floats([4])]
    ])
    const model = Result.getOrThrow(
      ModelExchange.fromShareable(
        dxo([
          ["kind", "METRICS"],
          ["data", data]
        ])
      )
    )
    assert.deepStrictEqual(
      [...(model.metrics ?? [])],
      [
        ["a", 1],
        ["b", 2],
        ["c", 3],
        ["d", 1],
        ["f", 4]
      ]
    )
    assert.isUndefined(model.params)
  })

  it("takes any other kind for a full model, and dicts that are not there for empty ones", () => {
    for (const kind of [weights, "WEIGHTS", "SOMETHING", null]) {
      const model = Result.getOrThrow(
        ModelExchange.fromShareable(
          dxo([
            ["kind", kind],
            ["data", null]
          ])
        )
      )
      assert.deepStrictEqual([model.paramsType, model.params?.size, model.meta.size], ["FULL", 0, 0])
    }
  })

  it("takes what the service says about the task into meta, over the model's own", () => {
    const headers = [
      ["_validate_type", "before"],
      ["job_id", "j"],
      ["site_name", null],
      ["other", 1]
    ] as const
    const content = dxo(
      [
        ["kind", weights],
        [
          "meta",
          new Map([
            ["job_id", "old"],
            ["x", "y"]
          ])
        ]
      ],
      headers
    )
    const model = Result.getOrThrow(ModelExchange.fromShareable(content))
    assert.deepStrictEqual(Object.fromEntries(model.meta), { job_id: "j", x: "y", validate_type: "before" })
  })

  it("does not invent rounds", () => {
    const model = Result.getOrThrow(ModelExchange.fromShareable(dxo([["kind", weights]], [["start_round", null]])))
    assert.deepStrictEqual([model.startRound, model.currentRound, model.totalRounds], [undefined, undefined, undefined])
  })

  it.each([
    [
      "another content type",
      new Shareable([["__content_type__", "X"]], [["DXO", new Map([["kind", weights]])]]),
      /^NotADxo: .*"X", not "DXO"/
    ],
    ["no content type", new Shareable([], [["DXO", new Map([["kind", weights]])]]), /^NotADxo: .*missing/],
    ["no DXO", new Shareable([["__content_type__", "DXO"]]), /^NotADxo: .*no "DXO" entry/],
    ["an empty DXO", dxo([]), /^NotADxo: .*no "DXO" entry/],
    [
      "a DXO that is a list",
      new Shareable([["__content_type__", "DXO"]], [["DXO", [1]]]),
      /^NotADxo: .*no "DXO" entry/
    ],
    [
      "data that is a list",
      dxo([
        ["kind", weights],
        ["data", [1]]
      ]),
      /^NotADxo: data/
    ],
    [
      "meta that is a list",
      dxo([
        ["kind", weights],
        ["meta", [1]]
      ]),
      /^NotADxo: meta/
    ],
    [
      "a parameter without a text as its name",
      dxo([
        ["kind", weights],
        ["data", new Map([[1, 2]])]
      ]),
      /^InvalidModel: a name in params/
    ],
    ["a negative round", dxo([["kind", weights]], [["current_round", -1]]), /^InvalidModel: current_round is -1/],
    ["a round with a fraction", dxo([["kind", weights]], [["num_rounds", 1.5]]), /^InvalidModel: num_rounds is 1.5/],
    [
      "a round that is a float",
      dxo([["kind", weights]], [["start_round", new Float(1)]]),
      /^InvalidModel: start_round is the float 1,/
    ],
    [
      "a round that is a bool",
      dxo([["kind", weights]], [["start_round", true]]),
      /^InvalidModel: start_round is boolean/
    ]
  ])("refuses %s", (_, shareable, expected) => {
    assert.match(refusal(ModelExchange.fromShareable(shareable)), expected)
  })
})

describe("FLModel.byteLength", () => {
  it("counts arrays and tensors, and nothing else", () => {
    const tensor = new Tensor("BF16", [3], new Uint8Array(6))
    const params = [
      ["a", floats([1, 2])],
      ["s", new NumpyScalar("int64", 3)],
      ["t", tensor],
      ["text", "none"]
    ] as const
    assert.strictEqual(new FLModel({ params }).byteLength, 8 + 8 + 6)
    assert.strictEqual(new FLModel({}).byteLength, 0)
  })
})

describe("ModelExchange.toShareable", () => {
  const bytesOf = (name: string, change: (body: Map<string, unknown>) => void): string => {
    const body = message(name)
    change(body)
    return hex(concat(Result.getOrThrow(codec.encode(body))))
  }

  it("writes a captured result byte for byte", () => {
    const model = Result.getOrThrow(ModelExchange.fromShareable(shareableOf("result_ready_rounds", "result")))
    const again = bytesOf("result_ready_rounds", (body) =>
      body.set("result", Result.getOrThrow(ModelExchange.toShareable(model)))
    )
    assert.strictEqual(again, hex(readFixture("result_ready_rounds.bin")))
  })

  it("writes differences with the start round that the reference has by default", () => {
    const received = Result.getOrThrow(ModelExchange.fromShareable(shareableOf("result_ready_diff_native", "result")))
    const { meta, metrics, params } = received
    const model = new FLModel({
      paramsType: "DIFF",
      params: params ?? [],
      meta,
      ...(metrics === undefined ? {} : { metrics })
    })
    const again = bytesOf("result_ready_diff_native", (body) =>
      body.set("result", Result.getOrThrow(ModelExchange.toShareable(model)))
    )
    assert.strictEqual(again, hex(readFixture("result_ready_diff_native.bin")))
  })

  it("makes float64 of whole metrics, and lets meta win over them", () => {
    const model = new FLModel({ params: [["w", floats([1])]], metrics: [["accuracy", 1]], meta: [["x", 1]] })
    const content = Result.getOrThrow(ModelExchange.toShareable(model)).entries.get("DXO")
    const meta: unknown = content instanceof Map ? content.get("meta") : undefined
    assert.deepStrictEqual(
      meta,
      new Map<string, unknown>([
        ["initial_metrics", new Map([["accuracy", new Float(1)]])],
        ["x", 1]
      ])
    )
    const other = new FLModel({ params: [], metrics: [["a", 1]], meta: [["initial_metrics", "mine"]] })
    const again = Result.getOrThrow(ModelExchange.fromShareable(Result.getOrThrow(ModelExchange.toShareable(other))))
    assert.strictEqual(again.meta.get("initial_metrics"), "mine")
  })

  it("writes metrics alone as METRICS, and validate_type as a header", () => {
    const model = new FLModel({ metrics: [["a", 2]], meta: [["validate_type", "before"]] })
    const { entries, headers } = Result.getOrThrow(ModelExchange.toShareable(model))
    assert.deepStrictEqual(
      [...headers],
      [
        ["__content_type__", "DXO"],
        ["start_round", 0],
        ["_validate_type", "before"]
      ]
    )
    const content = entries.get("DXO")
    assert.deepStrictEqual(
      content instanceof Map ? content.get("kind") : content,
      new EnumValue("nvflare.apis.dxo.DataKind", "METRICS")
    )
  })

  it("refuses a model of nothing, and rounds that are no ints", () => {
    assert.match(refusal(ModelExchange.toShareable(new FLModel({}))), /^InvalidModel: .*neither/)
    assert.match(
      refusal(ModelExchange.toShareable(new FLModel({ params: [], totalRounds: 1.5 }))),
      /^InvalidModel: num_rounds is 1.5/
    )
    assert.match(
      refusal(ModelExchange.toShareable(new FLModel({ params: [], startRound: -1 }))),
      /^InvalidModel: start_round is -1/
    )
  })
})

describe("FLModel.arrays", () => {
  it("has arrays and numpy's scalars, and nothing else", () => {
    const model = new FLModel({
      params: [
        ["a", floats([1])],
        ["b", new NumpyScalar("int64", 2n)],
        ["c", new NumpyScalar("float32", 0.5)],
        ["d", 1],
        ["e", new Map()]
      ]
    })
    const found = [...model.arrays].map(([name, { dtype, shape }]) => [name, dtype, shape])
    assert.deepStrictEqual(found, [
      ["a", "<f4", [1]],
      ["b", "<i8", []],
      ["c", "<f4", []]
    ])
    assert.deepStrictEqual([elements(model.arrays.get("b")), elements(model.arrays.get("c"))], [[2n], [0.5]])
    assert.strictEqual(new FLModel({}).arrays.size, 0)
  })
})

describe("ModelExchange.difference", () => {
  const base = new FLModel({
    params: [
      ["w", floats([1, 2])],
      ["n", longs([5n], [])],
      ["gone", floats([1])]
    ]
  })

  it("subtracts what both have, in the dtype of each", () => {
    const trained = new FLModel({
      params: [
        ["n", longs([7n], [])],
        ["w", floats([1.5, 1])],
        ["new", floats([1])]
      ],
      metrics: [["loss", 1]],
      currentRound: 3,
      meta: [["NUM_STEPS_CURRENT_ROUND", 10]]
    })
    const diff = Result.getOrThrow(ModelExchange.difference(trained, base))
    assert.strictEqual(diff.paramsType, "DIFF")
    assert.deepStrictEqual(
      [...diff.arrays].map(([name, array]) => [name, array.dtype, elements(array)]),
      [
        ["w", "<f4", [0.5, -1]],
        ["n", "<i8", [2n]]
      ]
    )
    assert.deepStrictEqual([diff.metrics?.get("loss"), diff.currentRound, ModelExchange.numSteps(diff)], [1, 3, 10])
  })

  it.each([
    ["another shape", floats([1, 2, 3])],
    ["another dtype", ints([1, 2])]
  ])("refuses %s", (_, array) => {
    const trained = new FLModel({ params: [["w", array]] })
    assert.match(refusal(ModelExchange.difference(trained, base)), /^ParamsMismatch: .*"w".*<f4 \[2\]/)
  })

  it("subtracts tensors, bfloat16 too", () => {
    const tensors = (b: string, n: bigint) =>
      new FLModel({
        params: [
          ["b", new Tensor("BF16", [1], fromHex(b))],
          ["n", Tensor.fromTyped(BigInt64Array.of(n), [])]
        ]
      })
    const diff = Result.getOrThrow(ModelExchange.difference(tensors("4040", -1n), tensors("803f", 2n ** 62n)))
    assert.deepStrictEqual([...diff.weights], [...tensors("0040", -(2n ** 62n) - 1n).weights])
    const array = new FLModel({ params: [["b", floats([1])]] })
    assert.match(
      refusal(ModelExchange.difference(tensors("4040", 1n), array)),
      /^ParamsMismatch: .*"b": tensor BF16 \[1\] and <f4 \[1\] differ/
    )
  })

  it("refuses bools, and models with nothing in common", () => {
    const bools = new FLModel({ params: [["m", new NdArray("|b1", [1], Uint8Array.of(1))]] })
    assert.match(refusal(ModelExchange.difference(bools, bools)), /^ParamsMismatch: .*"m"/)
    assert.match(
      refusal(ModelExchange.difference(new FLModel({ params: [] }), base)),
      /^InvalidModel: .*no array in common/
    )
  })
})

describe("arrays and tensors of a model", () => {
  const tensor = Tensor.fromTyped(Float32Array.of(1, 2), [2])
  const bfloat = new Tensor("BF16", [1], fromHex("803f"))
  const rest = { paramsType: "DIFF", metrics: [["loss", 1]], startRound: 1, currentRound: 2, totalRounds: 3 } as const
  const meta = [["NUM_STEPS_CURRENT_ROUND", 10]] as const
  const of = (...params: ReadonlyArray<readonly [string, unknown]>) => new FLModel({ ...rest, meta, params })

  it("are its weights, in their order", () => {
    const model = of(["b", bfloat], ["s", "text"], ["w", floats([1])], ["n", new NumpyScalar("int32", 7)])
    assert.deepStrictEqual(
      [...model.weights],
      [
        ["b", bfloat],
        ["w", floats([1])],
        ["n", ints([7], [])]
      ]
    )
    assert.deepStrictEqual([...new FLModel({ metrics: [] }).weights], [])
  })

  it("become each other; all else stays", () => {
    const arrays = of(["w", floats([1, 2])])
    const tensors = of(["w", tensor])
    assert.deepStrictEqual(Result.getOrThrow(ModelExchange.toTensors(arrays)), tensors)
    assert.deepStrictEqual(Result.getOrThrow(ModelExchange.toArrays(tensors)), arrays)
    assert.deepStrictEqual(Result.getOrThrow(ModelExchange.toArrays(arrays)), arrays)
    const mixed = of(["b", bfloat], ["n", new NumpyScalar("int32", 7)])
    const made = Result.getOrThrow(ModelExchange.toTensors(mixed))
    assert.deepStrictEqual(
      [...made.weights],
      [
        ["b", bfloat],
        ["n", Tensor.fromTyped(Int32Array.of(7), [])]
      ]
    )
    const scalar = of(["n", new NumpyScalar("int32", 7)])
    assert.deepStrictEqual(Result.getOrThrow(ModelExchange.toArrays(scalar)), scalar)
    const none = new FLModel({ metrics: [["loss", 1]] })
    assert.strictEqual(Result.getOrThrow(ModelExchange.toTensors(none)), none)
  })

  it("are refused by name where the other kind lacks them", () => {
    assert.match(refusal(ModelExchange.toArrays(of(["b", bfloat]))), /^InvalidModel: parameter "b": numpy has no BF16/)
    const text = new NdArray("<U1", [1], new Uint8Array(4))
    assert.match(
      refusal(ModelExchange.toTensors(of(["t", text]))),
      /^InvalidModel: parameter "t": no tensor has .* <U1/
    )
    assert.match(refusal(ModelExchange.toTensors(of(["t", "text"]))), /^InvalidModel: parameter "t": it is no array/)
    assert.match(refusal(ModelExchange.toArrays(of(["t", []]))), /^InvalidModel: parameter "t": it is no tensor/)
  })
})
