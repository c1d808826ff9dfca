import { assert, describe, it } from "@effect/vitest"
import { Effect, Option, Result } from "effect"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import { NumpyScalar } from "../../src/fobs/Values.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import { convert } from "../../src/trainer/internal/paramsFormat.ts"
import { array, exchange, makeJob, modelOf, reasonOf, received, shareable } from "./support.ts"

const { Topic } = ClientApi

type Format = ClientApi.ExchangeFormat

const paramsOf = (params: Iterable<readonly [string, unknown]>, from: Format, to: Format) =>
  Result.map(convert(new FLModel({ params }), from, to), (model) => [...(model.params ?? [])])

const failure = (params: Iterable<readonly [string, unknown]>, from: Format, to: Format): string =>
  Result.getOrThrow(Result.flip(paramsOf(params, from, to)))

const floats = NdArray.fromTyped(Float32Array.of(1, 2, 3, 4, 5, 6), [2, 3])

describe("parameter formats", () => {
  const kinds: ReadonlyArray<readonly [numpy: string, torch: Tensor["dtype"], width: number]> = [
    ["|b1", "BOOL", 1],
    ["|u1", "U8", 1],
    ["|i1", "I8", 1],
    ["<i2", "I16", 2],
    ["<u2", "U16", 2],
    ["<f2", "F16", 2],
    ["<i4", "I32", 4],
    ["<u4", "U32", 4],
    ["<f4", "F32", 4],
    ["<f8", "F64", 8],
    ["<i8", "I64", 8],
    ["<u8", "U64", 8]
  ]
  it.each(kinds)("numpy %s and torch %s are the same bytes, both ways", (numpy, torch, width) => {
    const bytes = Uint8Array.from({ length: 6 * width }, (_, index) => index)
    const ndarray = new NdArray(numpy, [2, 3], bytes)
    const tensor = new Tensor(torch, [2, 3], bytes)
    assert.deepStrictEqual(paramsOf([["w", ndarray]], "numpy", "pytorch"), Result.succeed([["w", tensor]]))
    assert.deepStrictEqual(paramsOf([["w", tensor]], "pytorch", "numpy"), Result.succeed([["w", ndarray]]))
  })

  it("big-endian and column-major arrays become tensors of torch's order", () => {
    const big = new NdArray(">i2", [2], Uint8Array.of(0, 1, 0, 2))
    const columns = new NdArray("|u1", [2, 3], Uint8Array.of(1, 4, 2, 5, 3, 6), "F")
    assert.deepStrictEqual(
      paramsOf(
        [
          ["big", big],
          ["columns", columns]
        ],
        "numpy",
        "pytorch"
      ),
      Result.succeed([
        ["big", new Tensor("I16", [2], Uint8Array.of(1, 0, 2, 0))],
        ["columns", new Tensor("U8", [2, 3], Uint8Array.of(1, 2, 3, 4, 5, 6))]
      ])
    )
  })

  it("numpy scalars become tensors without dimensions", () => {
    const [[, tensor] = []] = Result.getOrThrow(paramsOf([["n", new NumpyScalar("float64", 1.5)]], "numpy", "pytorch"))
    assert.isTrue(tensor instanceof Tensor && tensor.dtype === "F64" && tensor.shape.length === 0)
  })

  it("what the other format lacks is refused by name", () => {
    const complex = new NdArray("<c16", [1], new Uint8Array(16))
    assert.include(failure([["z", complex]], "numpy", "pytorch"), '"z": no tensor has the dtype <c16')
    assert.include(
      failure([["b", new Tensor("BF16", [1], new Uint8Array(2))]], "pytorch", "numpy"),
      '"b": numpy has no BF16'
    )
    assert.include(failure([["s", "text"]], "numpy", "pytorch"), '"s": it is no array')
    assert.include(failure([["s", 1]], "pytorch", "numpy"), '"s": it is no tensor')
    assert.include(failure([["w", floats]], "keras_layer_weights", "numpy"), '"w" is NdArray')
    assert.include(failure([["w", floats]], "numpy", "keras_layer_weights"), '"w" names no layer')
    assert.include(failure([["a_nvf_0_nvf_1", floats]], "numpy", "keras_layer_weights"), "names no layer")
    assert.include(failure([["w", floats]], "keras_layer_weights", "pytorch"), "keras_layer_weights to pytorch")
    assert.include(failure([["w", floats]], "pytorch", "keras_layer_weights"), "pytorch to keras_layer_weights")
  })

  it("layers of keras travel flat, in their order", () => {
    const flat = [
      ["dense_nvf_0", floats],
      ["dense_nvf_1", array(1)],
      ["out_nvf_0", array(2)]
    ] as const
    const layers = [
      ["dense", [floats, array(1)]],
      ["out", [array(2)]]
    ] as const
    assert.deepStrictEqual(
      paramsOf(flat, "numpy", "keras_layer_weights"),
      Result.succeed(layers.map((each) => [...each]))
    )
    assert.deepStrictEqual(
      paramsOf(layers, "keras_layer_weights", "numpy"),
      Result.succeed(flat.map((each) => [...each]))
    )
  })

  it("raw on either side, and equal formats, leave parameters alone; without parameters there is nothing to do", () => {
    const odd = [["x", { nested: true }]] as const
    for (const [from, to] of [
      ["raw", "numpy"],
      ["numpy", "raw"],
      ["raw", "pytorch"],
      ["keras_layer_weights", "raw"],
      ["numpy", "numpy"],
      ["keras_layer_weights", "keras_layer_weights"]
    ] as const) {
      assert.deepStrictEqual(paramsOf(odd, from, to), Result.succeed([["x", { nested: true }]]), `${from} to ${to}`)
    }
    const metrics = new FLModel({ metrics: [["loss", 1]] })
    assert.deepStrictEqual(convert(metrics, "numpy", "pytorch"), Result.succeed(metrics))
  })

  it("a tensor stays one, and an array that a trainer made is taken where tensors are sent", () => {
    const tensor = new Tensor("U8", [1], Uint8Array.of(1))
    assert.deepStrictEqual(paramsOf([["t", tensor]], "pytorch", "pytorch"), Result.succeed([["t", tensor]]))
    const made = paramsOf([["w", new NdArray("|u1", [1], Uint8Array.of(1))]], "pytorch", "pytorch")
    assert.deepStrictEqual(made, Result.succeed([["w", tensor]]))
    assert.deepStrictEqual(paramsOf([["w", floats]], "pytorch", "numpy"), Result.succeed([["w", floats]]))
  })

  it.effect("16.55 tensors at the trainer, numpy at the service: received, subtracted and sent", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const own = { exchange_format: "pytorch", server_expected_format: "numpy", transfer_type: "DIFF" }
      const { session } = yield* job.attach({ task_exchange: ClientApi.body({ ...exchange, ...own }) })
      yield* job.task({ model: shareable(new FLModel({ params: [["w", array(1, 2)]] })) })
      const got = received(yield* session.receive)
      const tensor = got.params?.get("w")
      assert.deepStrictEqual(tensor, new Tensor("F32", [2], array(1, 2).bytes))
      yield* session.send(new FLModel({ params: [["w", new Tensor("F32", [2], array(2, 4).bytes)]] }))
      const result = modelOf((yield* job.message(Topic.resultReady)).body.get("result"))
      assert.deepStrictEqual([result.paramsType, result.params?.get("w")], ["DIFF", array(1, 2)])
    })
  )

  it.effect("16.55 a difference stays in the trainer's form where the service wants that form", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const own = { exchange_format: "pytorch", server_expected_format: "pytorch", transfer_type: "DIFF" }
      const { session } = yield* job.attach({ task_exchange: ClientApi.body({ ...exchange, ...own }) })
      const base = new Tensor("F32", [2], array(1, 2).bytes)
      yield* job.task({ model: shareable(new FLModel({ params: [["w", base]] })) })
      received(yield* session.receive)
      yield* session.send(new FLModel({ params: [["w", array(2, 4)]] }))
      const result = modelOf((yield* job.message(Topic.resultReady)).body.get("result"))
      assert.deepStrictEqual(result.params?.get("w"), new Tensor("F32", [2], array(1, 2).bytes))
    })
  )

  it.effect("a difference of tensors is one of their own dtype, and an array counts as a tensor", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const own = { exchange_format: "pytorch", server_expected_format: "pytorch", transfer_type: "DIFF" }
      const { session } = yield* job.attach({ task_exchange: ClientApi.body({ ...exchange, ...own }) })
      const bfloat = (...bytes: ReadonlyArray<number>) => new Tensor("BF16", [1], Uint8Array.from(bytes))
      const base = new Tensor("F32", [1], array(1).bytes)
      yield* job.task({
        model: shareable(
          new FLModel({
            params: [
              ["b", bfloat(0x80, 0x3f)],
              ["w", base]
            ]
          })
        )
      })
      received(yield* session.receive)
      yield* session.send(
        new FLModel({
          params: [
            ["b", bfloat(0x40, 0x40)],
            ["w", array(3)]
          ]
        })
      )
      const result = modelOf((yield* job.message(Topic.resultReady)).body.get("result"))
      assert.deepStrictEqual(
        [result.paramsType, result.params?.get("b"), result.params?.get("w")],
        ["DIFF", bfloat(0x00, 0x40), new Tensor("F32", [1], array(2).bytes)]
      )
    })
  )

  it.effect("a result in the wrong form is InvalidModel, and the task stays", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const own = { exchange_format: "pytorch", server_expected_format: "numpy" }
      const { session } = yield* job.attach({ task_exchange: ClientApi.body({ ...exchange, ...own }) })
      yield* job.task()
      received(yield* session.receive)
      const odd = new FLModel({ params: [["b", new Tensor("BF16", [1], new Uint8Array(2))]] })
      assert.strictEqual((yield* reasonOf(session.send(odd)))._tag, "InvalidModel")
      assert.deepStrictEqual(yield* session.taskName, Option.some("train"))
    })
  )
})
