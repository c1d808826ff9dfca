import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as Decomposer from "../../src/fobs/Decomposer.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { EnumValue, Float } from "../../src/fobs/Values.ts"
import { Dxo } from "../../src/model/Dxo.ts"
import { FLContext } from "../../src/model/FLContext.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import { FLModelEnvelope } from "../../src/model/FLModelEnvelope.ts"
import { Learnable, ModelLearnable } from "../../src/model/Learnable.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import { Shareable } from "../../src/model/Shareable.ts"
import { concat } from "../fobs/fixtures.ts"
import { envelope, messageOf, tuple } from "../fobs/messages.ts"

const codec = ModelCodec.codec

const receive = (type: string, data: unknown): unknown =>
  Result.getOrThrow(codec.decode(messageOf(envelope(type, data)), { lossless: true }))

const refusal = (type: string, data: unknown): string => {
  const result = codec.decode(messageOf(envelope(type, data)), { lossless: true })
  return Result.isFailure(result) ? result.failure.reason._tag : "success"
}

const again = (value: unknown): unknown =>
  Result.getOrThrow(codec.decode(concat(Result.getOrThrow(codec.encode(value)))))

const shareable = "nvflare.apis.shareable.Shareable"
const dxo = "nvflare.apis.dxo.DXO"
const flModel = "nvflare.app_common.abstract.fl_model.FLModel"
const flContext = "nvflare.apis.fl_context.FLContext"
const learnable = "nvflare.app_common.abstract.learnable.Learnable"
const modelLearnable = "nvflare.app_common.abstract.model.ModelLearnable"
const kind = (name: string) => envelope("nvflare.apis.dxo.DataKind", name)
const paramsType = (name: string) => envelope("nvflare.app_common.abstract.fl_model.ParamsType", name)

describe("what the data of a model type may be", () => {
  it.each<[string, unknown, unknown]>([
    [shareable, { a: 1 }, new Shareable([], [["a", 1]])],
    [shareable, { a: 1, __headers__: { x: 2 } }, new Shareable([["x", 2]], [["a", 1]])],
    [shareable, { __headers__: null }, new Shareable()],
    [
      dxo,
      tuple(kind("WEIGHTS"), { m: 1 }, { w: 2 }),
      new Dxo({ kind: "WEIGHTS", data: new Map([["w", 2]]), meta: [["m", 1]] })
    ],
    [dxo, tuple("WEIGHTS", null, null), new Dxo({ kind: "WEIGHTS", data: new Map(), kindAsText: true })],
    [dxo, tuple("anything", {}, {}), new Dxo({ kind: "anything", data: new Map() })],
    [dxo, tuple(null, {}, {}), new Dxo({ kind: null, data: new Map() })],
    [dxo, tuple(kind("APP_DEFINED"), {}, [1]), new Dxo({ kind: "APP_DEFINED", data: [1] })],
    [dxo, tuple("APP_DEFINED", {}, 5), new Dxo({ kind: "APP_DEFINED", data: 5, kindAsText: true })],
    [flModel, tuple(null, null, null, null, null, null, null, null), new FLModelEnvelope({})],
    [
      flModel,
      tuple(null, { w: 1 }, null, null, 0, 1, 2, null),
      new FLModelEnvelope({
        paramsType: "FULL",
        params: new Map([["w", 1]]),
        startRound: 0,
        currentRound: 1,
        totalRounds: 2
      })
    ],
    [
      flModel,
      tuple("DIFF", [1], { lr: 1 }, { a: 1 }, null, null, null, { m: 1 }),
      new FLModelEnvelope({
        paramsType: "DIFF",
        params: [1],
        optimizerParams: new Map([["lr", 1]]),
        metrics: new Map([["a", 1]]),
        meta: new Map([["m", 1]])
      })
    ],
    [
      flModel,
      tuple(paramsType("DIFF"), {}, null, null, null, null, null, {}),
      new FLModelEnvelope({ paramsType: "DIFF", params: new Map() })
    ],
    [flContext, [1, 2], new FLContext(1, 2)],
    [flContext, tuple(null, {}, 3), new FLContext(null, new Map())],
    [learnable, { a: 1 }, new Learnable([["a", 1]])],
    [modelLearnable, {}, new ModelLearnable()]
  ])("%s takes %o", (type, data, expected) => {
    const value = receive(type, data)
    assert.deepStrictEqual(value, expected)
    // Deep equality does not look at classes.
    assert.strictEqual(Object.getPrototypeOf(value), Object.getPrototypeOf(expected))
  })

  it.each<[string, unknown]>([
    [shareable, [["a", 1]]],
    [shareable, null],
    [shareable, { __headers__: [1] }],
    [shareable, { __headers__: new Map([[1, 2]]) }],
    [dxo, ["WEIGHTS", {}, {}]],
    [dxo, tuple("WEIGHTS", {})],
    [dxo, tuple("WEIGHTS", {}, {}, {})],
    [dxo, tuple(1, {}, {})],
    [dxo, tuple(paramsType("FULL"), {}, {})],
    [dxo, tuple("WEIGHTS", [], {})],
    [dxo, tuple("WEIGHTS", {}, [1])],
    [dxo, tuple(null, {}, [1])],
    [dxo, null],
    [flModel, [null, null, null, null, null, null, null, null]],
    [flModel, tuple(null, null, null, null, null, null, null)],
    [flModel, tuple(null, null, null, null, null, null, null, null, null)],
    [flModel, tuple("FULL", null, null, null, null, null, null, null)],
    [flModel, tuple("OTHER", {}, null, null, null, null, null, null)],
    [flModel, tuple(kind("WEIGHTS"), {}, null, null, null, null, null, null)],
    [flModel, tuple(null, null, null, [1], null, null, null, null)],
    [flModel, tuple(null, null, null, null, -1, null, null, null)],
    [flModel, tuple(null, null, null, null, null, new Float(1), null, null)],
    [flModel, tuple(null, null, null, null, null, null, 0.5, null)],
    [flModel, tuple(null, null, null, null, "1", null, null, null)],
    [flModel, tuple(null, null, null, null, null, null, null, [1])],
    [flContext, [1]],
    [flContext, { a: 1, b: 2 }],
    [flContext, null],
    [learnable, [1]],
    [modelLearnable, null]
  ])("%s refuses %o", (type, data) => {
    assert.strictEqual(refusal(type, data), "InvalidValue")
  })
})

describe("ModelCodec", () => {
  const w = NdArray.fromTyped(new Float32Array([1, 2]))

  it.each<[string, unknown]>([
    ["a Shareable", new Shareable([["__rc__", "OK"]], [["x", new Shareable()]])],
    ["a Dxo of a known kind", new Dxo({ kind: "WEIGHT_DIFF", data: new Map([["w", w]]), meta: [["n", 1]] })],
    ["a Dxo of an unknown kind", new Dxo({ kind: "MINE", data: new Map() })],
    [
      "an FLContext",
      new FLContext(
        null,
        new Map([
          [
            "a",
            new Map([
              ["value", 1],
              ["mask", 0]
            ])
          ]
        ])
      )
    ],
    ["a ModelLearnable", new ModelLearnable([["model_weights", new Map([["w", w]])]])],
    ["a Learnable", new Learnable([["a", new Learnable()]])]
  ])("brings back %s", (_, value) => {
    assert.deepStrictEqual(again(value), value)
    assert.strictEqual(Object.getPrototypeOf(again(value)), Object.getPrototypeOf(value))
  })

  it("writes an FLModel with metrics as float64, and no type without params", () => {
    const model = new FLModel({ params: [["w", w]], metrics: [["accuracy", 1]], startRound: 0, meta: [["m", 2]] })
    const message = concat(Result.getOrThrow(codec.encode(model)))
    const expected = new FLModelEnvelope({
      paramsType: "FULL",
      params: new Map([["w", w]]),
      metrics: new Map([["accuracy", new Float(1)]]),
      startRound: 0,
      meta: new Map([["m", 2]])
    })
    assert.deepStrictEqual(Result.getOrThrow(codec.decode(message, { lossless: true })), expected)
    assert.deepStrictEqual(again(new FLModel({})), new FLModelEnvelope({}))
  })

  it("keeps what a peer sent apart from headers of a hostile name", () => {
    const data = Object.fromEntries([
      ["__proto__", 1],
      ["__headers__", Object.fromEntries([["__proto__", { rc: 1 }]])]
    ])
    const value = receive(shareable, data)
    assert.instanceOf(value, Shareable)
    if (!(value instanceof Shareable)) return
    assert.deepStrictEqual(Array.from(value.headers.keys()), ["__proto__"])
    assert.strictEqual(value.entries.get("__proto__"), 1)
    assert.strictEqual(value.returnCode, "OK")
  })

  it("reads the properties of a context", () => {
    const context = receive(flContext, [null, { a: { value: 5, mask: 0 }, b: 1 }])
    assert.instanceOf(context, FLContext)
    if (!(context instanceof FLContext)) return
    assert.deepStrictEqual([context.get("a"), context.get("b"), context.get("c")], [5, undefined, undefined])
    assert.isUndefined(new FLContext(null, null).get("a"))
  })

  it("takes types of one's own, in front of its own", () => {
    class Cat {
      readonly name: string
      constructor(name: string) {
        this.name = name
      }
    }
    const cats = Decomposer.make<Cat>({
      typeName: "zoo.Cat",
      is: (value) => value instanceof Cat,
      decompose: ({ name }) => ({ name }),
      recompose: (data) => {
        const name: unknown = data instanceof Map ? data.get("name") : undefined
        return typeof name === "string" ? Result.succeed(new Cat(name)) : Result.fail("a cat has a name")
      }
    })
    const mine = ModelCodec.make([cats, Decomposer.enumeration("zoo.Colour")])
    const value = new Shareable(
      [],
      [
        ["cat", new Cat("Tom")],
        ["colour", new EnumValue("zoo.Colour", "RED")]
      ]
    )
    const message = concat(Result.getOrThrow(mine.encode(value)))
    assert.deepStrictEqual(Result.getOrThrow(mine.decode(message)), value)
    const unknown = codec.decode(message)
    assert.strictEqual(Result.isFailure(unknown) ? unknown.failure.reason._tag : "success", "UnknownType")
  })
})
