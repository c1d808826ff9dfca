import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { EnumValue, Float, NumpyScalar } from "../../src/fobs/Values.ts"
import * as Analytics from "../../src/model/Analytics.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import type { ModelError } from "../../src/model/ModelError.ts"
import { floats, hex } from "../fobs/arrays.ts"
import { concat, readFixture } from "../fobs/fixtures.ts"

const codec = ModelCodec.codec
const encoded = (value: unknown): string => hex(concat(Result.getOrThrow(codec.encode(value))))

const log = (name: string): Map<string, unknown> => {
  const value = Result.getOrThrow(codec.decode(readFixture(`${name}.bin`)))
  return value instanceof Map ? value : assert.fail("no dict")
}

const record = (name: string) => Result.getOrThrow(Analytics.fromLog(log(name)))

const body = (type: string, value: unknown, more: Iterable<readonly [string, unknown]> = []) =>
  new Map<string, unknown>([
    ["session_id", "s"],
    ["key", "k"],
    ["value", value],
    ["data_type", new EnumValue("nvflare.apis.analytix.AnalyticsDataType", type)],
    ...more
  ])

const refusal = (result: Result.Result<unknown, ModelError>): string => {
  if (Result.isSuccess(result)) return "accepted"
  const { reason } = result.failure
  return reason._tag === "InvalidAnalytics" ? reason.field : reason._tag
}

describe("Analytics.fromLog", () => {
  it("reads captured records", () => {
    const { dataType, extra, globalStep, tag, value, writer } = record("log_scalar")
    assert.deepStrictEqual(
      [tag, value, dataType, globalStep, writer, extra.size],
      ["loss", 0.125, "SCALAR", 7, "TORCH_TB", 0]
    )
    assert.deepStrictEqual(record("log_metrics").value, new Map([["a", 1.5]]))
    assert.strictEqual(record("log_text").path, "x")
    assert.isUndefined(record("log_int_value").writer)
    assert.deepStrictEqual(
      [record("log_scalar_nostep").globalStep, record("log_scalar_nostep").hasStep],
      [undefined, true]
    )
  })

  it("unwraps numpy's numbers and keeps what else came", () => {
    const { extra, globalStep, value } = Result.getOrThrow(
      Analytics.fromLog(
        body("SCALAR", floats([2], []), [
          ["global_step", new NumpyScalar("int64", 3n)],
          ["epoch", 4]
        ])
      )
    )
    assert.deepStrictEqual([value, globalStep, [...extra]], [2, 3, [["epoch", 4]]])
  })

  const accepted: ReadonlyArray<readonly [string, unknown]> = [
    ["SCALAR", true],
    ["METRIC", 5n],
    ["SCALARS", new Map([["a", new NumpyScalar("float32", 1)]])],
    ["PARAMETERS", new Map([["a", "x"]])],
    ["TAGS", new Map([["a", "x"]])],
    ["TAG", "x"],
    ["PARAMETER", [1]],
    ["IMAGE", null]
  ]
  it.each(accepted)("accepts a value of %s", (type, value) => {
    assert.strictEqual(refusal(Analytics.fromLog(body(type, value))), "accepted")
  })

  const refused: ReadonlyArray<readonly [string, string, ReadonlyMap<unknown, unknown>]> = [
    ["a text as SCALAR", "value", body("SCALAR", "1")],
    ["an array as METRIC", "value", body("METRIC", floats([1]))],
    ["None as SCALAR", "value", body("SCALAR", null)],
    ["a number as METRICS", "value", body("METRICS", 1)],
    ["a text among SCALARS", "value", body("SCALARS", new Map([["a", "x"]]))],
    ["a list as PARAMETERS", "value", body("PARAMETERS", [])],
    ["a text as TAGS", "value", body("TAGS", "x")],
    ["a number as TEXT", "value", body("TEXT", 1)],
    ["an unknown type", "data_type", body("SCALAR2", 1)],
    ["a type that is text", "data_type", new Map([...body("SCALAR", 1), ["data_type", "SCALAR"]])],
    [
      "a member of another enum",
      "data_type",
      new Map([...body("TEXT", ""), ["data_type", new EnumValue("x.Y", "TEXT")]])
    ],
    ["a key that is no text", "key", new Map([...body("SCALAR", 1), ["key", 1]])],
    ["a negative step", "global_step", body("SCALAR", 1, [["global_step", -1]])],
    ["a step with a fraction", "global_step", body("SCALAR", 1, [["global_step", 1.5]])],
    ["a step that is a float", "global_step", body("SCALAR", 1, [["global_step", new NumpyScalar("float64", 1)]])],
    ["a step that is text", "global_step", body("SCALAR", 1, [["global_step", "1"]])],
    ["a path that is no text", "path", body("TEXT", "", [["path", 1]])],
    ["an extra value without a text as its name", "extra", new Map<unknown, unknown>([...body("SCALAR", 1), [5, 1]])],
    ["an empty body", "key", new Map()]
  ]
  it.each(refused)("refuses %s (%s)", (_, field, log) => {
    assert.strictEqual(refusal(Analytics.fromLog(log)), field)
  })
})

describe("Analytics.toLog", () => {
  it.each(["log_scalar", "log_scalar_nostep", "log_metric", "log_metrics", "log_param", "log_text", "log_tags"])(
    "writes %s byte for byte",
    (name) => {
      const sessionId = String(log(name).get("session_id"))
      const again = Result.getOrThrow(Analytics.toLog(sessionId, record(name)))
      assert.strictEqual(encoded(again), hex(readFixture(`${name}.bin`)))
    }
  )

  it("makes float64 of whole numbers", () => {
    const scalar = new Analytics.AnalyticsRecord({ tag: "a", value: 1, dataType: "SCALAR" })
    assert.deepStrictEqual(Result.getOrThrow(Analytics.toLog("s", scalar)).get("value"), new Float(1))
    const metrics = new Analytics.AnalyticsRecord({ tag: "a", value: new Map([["x", 1]]), dataType: "METRICS" })
    assert.deepStrictEqual(
      Result.getOrThrow(Analytics.toLog("s", metrics)).get("value"),
      new Map([["x", new Float(1)]])
    )
  })

  it("refuses what the receiver would drop", () => {
    const of = (fields: Partial<ConstructorParameters<typeof Analytics.AnalyticsRecord>[0]>) =>
      refusal(
        Analytics.toLog("s", new Analytics.AnalyticsRecord({ tag: "a", value: 1, dataType: "SCALAR", ...fields }))
      )
    assert.strictEqual(of({}), "accepted")
    assert.strictEqual(of({ value: "x" }), "value")
    assert.strictEqual(of({ globalStep: -1 }), "global_step")
    assert.strictEqual(of({ globalStep: 0.5 }), "global_step")
    assert.strictEqual(of({ extra: [["session_id", "other"]] }), "extra")
    assert.strictEqual(of({ extra: [["global_step", 1]] }), "extra")
  })
})

describe("Analytics.toDxo", () => {
  it("makes what the reference makes", () => {
    assert.strictEqual(encoded(Analytics.toDxo(record("log_scalar"))), hex(readFixture("log_dxo_scalar.bin")))
  })

  it("has keyword values only when there are some; an explicit None is one", () => {
    const data = (fields: Partial<ConstructorParameters<typeof Analytics.AnalyticsRecord>[0]>) => {
      const dxo = Analytics.toDxo(new Analytics.AnalyticsRecord({ tag: "a", value: "x", dataType: "TEXT", ...fields }))
      return dxo.data instanceof Map ? Object.fromEntries(dxo.data) : {}
    }
    const plain = { track_key: "a", track_value: "x" }
    assert.deepStrictEqual(data({}), plain)
    assert.deepStrictEqual(data({ globalStep: null }), { ...plain, analytics_kwargs: new Map([["global_step", null]]) })
    assert.deepStrictEqual(data({ path: "" }), { ...plain, analytics_kwargs: new Map([["path", ""]]) })
    assert.deepStrictEqual(data({ globalStep: 0, path: "p", extra: [["e", 1]] }), {
      ...plain,
      global_step: 0,
      path: "p",
      analytics_kwargs: new Map<string, unknown>([
        ["global_step", 0],
        ["path", "p"],
        ["e", 1]
      ])
    })
  })
})
