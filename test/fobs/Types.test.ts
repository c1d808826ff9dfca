import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as Fobs from "../../src/fobs/Fobs.ts"
import { EnumValue, Float, NumpyScalar, OrderedDict, PyDateTime, Tuple } from "../../src/fobs/Values.ts"
import { concat } from "./fixtures.ts"
import { envelope, messageOf, tuple } from "./messages.ts"

const codec = Fobs.make()
const lossless = { lossless: true } as const

const receive = (type: unknown, data: unknown): unknown =>
  Result.getOrThrow(codec.decode(messageOf(envelope(type, data)), lossless))

const reason = (result: Result.Result<unknown, { readonly reason: { readonly _tag: string } }>): string =>
  Result.isFailure(result) ? result.failure.reason._tag : "success"

const refusal = (type: unknown, data: unknown): string =>
  reason(codec.decode(messageOf(envelope(type, data)), lossless))

const odict = "collections.OrderedDict"
const datetime = "datetime.datetime"
const kind = "nvflare.apis.dxo.DataKind"
const ndarray = "numpy.ndarray"
const tensor = "torch.Tensor"
const lazy = "nvflare.fuel.utils.fobs.decomposers.via_downloader.LazyDownloadRef"

describe("what the data of a type may be", () => {
  it.each<[string, unknown, unknown]>([
    ["tuple", [1, "a"], new Tuple([1, "a"])],
    ["tuple", "a\u{1f600}", new Tuple(["a", "\u{1f600}"])],
    ["tuple", Uint8Array.of(1, 2), new Tuple([1, 2])],
    ["tuple", { a: 1, b: 2 }, new Tuple(["a", "b"])],
    ["tuple", tuple(1), new Tuple([1])],
    ["tuple", envelope("set", [1]), new Tuple([1])],
    ["set", [1, 2, 1], new Set([1, 2])],
    ["set", [1, true, new Float(1)], new Set([1])],
    ["set", [tuple(1), tuple(1)], new Set([new Tuple([1])])],
    ["set", "aba", new Set(["a", "b"])],
    [
      odict,
      [["a", 1], tuple("b", 2), ["a", 3]],
      new OrderedDict([
        ["a", 3],
        ["b", 2]
      ])
    ],
    [odict, { a: 1 }, new OrderedDict([["a", 1]])],
    [odict, ["ab"], new OrderedDict([["a", "b"]])],
    [
      odict,
      [
        [tuple(1), 1],
        [tuple(1), 2]
      ],
      new OrderedDict([[new Tuple([1]), 2]])
    ],
    [datetime, "2026-08-01T00:00:00Z", new PyDateTime("2026-08-01T00:00:00+00:00")],
    [
      datetime,
      "2024-02-29T23:59:59.000001-05:30:01.000002",
      new PyDateTime("2024-02-29T23:59:59.000001-05:30:01.000002")
    ],
    [kind, "WEIGHTS", new EnumValue(kind, "WEIGHTS")],
    ["nvflare.apis.job_def.JobMetaKey", "JOB_ID", new EnumValue("nvflare.apis.job_def.JobMetaKey", "JOB_ID")],
    ["numpy.int64", new Float(-2.9), new NumpyScalar("int64", -2)],
    ["numpy.int64", true, new NumpyScalar("int64", 1)],
    ["numpy.int64", -(2n ** 63n), new NumpyScalar("int64", -(2n ** 63n))],
    ["numpy.int32", -0.5, new NumpyScalar("int32", 0)],
    ["numpy.int32", 2 ** 31 - 1, new NumpyScalar("int32", 2 ** 31 - 1)],
    ["numpy.float64", 2, new NumpyScalar("float64", 2)],
    ["numpy.float32", 1e300, new NumpyScalar("float32", Number.POSITIVE_INFINITY)],
    ["numpy.float32", 0.1, new NumpyScalar("float32", Math.fround(0.1))]
  ])("%s takes %o", (type, data, expected) => {
    const value = receive(type, data)
    assert.deepStrictEqual(value, expected)
    // Deep equality does not look at classes.
    assert.strictEqual(Object.getPrototypeOf(value), Object.getPrototypeOf(expected))
  })

  it.each<[string, unknown]>([
    ["tuple", 1],
    ["tuple", null],
    ["tuple", new Float(1)],
    ["set", 1],
    ["set", null],
    ["set", [[1]]],
    ["set", [{}]],
    ["set", [tuple([1])]],
    ["set", [envelope("set", [])]],
    [odict, 1],
    [odict, null],
    [odict, [["a"]]],
    [odict, [["a", 1, 2]]],
    [odict, [1]],
    [odict, [[["a"], 1]]],
    [datetime, 1],
    [datetime, "yesterday"],
    [datetime, "2026-08-01"],
    [datetime, "2026-02-29T00:00:00"],
    [datetime, "2026-13-01T00:00:00"],
    [datetime, "2026-00-01T00:00:00"],
    [datetime, "0000-01-01T00:00:00"],
    [datetime, "2026-04-31T00:00:00"],
    [datetime, "2026-04-00T00:00:00"],
    [datetime, "2026-08-01T24:00:00"],
    [datetime, "2026-08-01T00:60:00"],
    [datetime, "2026-08-01T00:00:60"],
    [datetime, "2026-08-01T00:00:00+24:00"],
    [datetime, "2026-08-01T00:00:00+00:60"],
    [datetime, "2026-08-01T00:00:00\n"],
    [kind, "NOPE"],
    [kind, "__proto__"],
    [kind, 1],
    [kind, null],
    ["nvflare.apis.analytix.LogWriterName", "TORCH_TENSORBOARD"],
    ["nvflare.apis.job_def.JobMetaKey", 1],
    ["numpy.int64", 2n ** 63n],
    ["numpy.int64", 1e19],
    ["numpy.int64", Number.NaN],
    ["numpy.int64", Number.POSITIVE_INFINITY],
    ["numpy.int32", 2 ** 31],
    ["numpy.int32", -(2 ** 31) - 1],
    ["numpy.int32", "1"],
    ["numpy.float64", null],
    ["numpy.float32", "1"],
    [ndarray, [1]],
    [ndarray, "native"],
    [ndarray, {}],
    [ndarray, { type: "native" }],
    [ndarray, { type: "native", data: new Uint8Array(0) }],
    [ndarray, { type: "native", data: "text" }],
    [ndarray, { type: "other", data: "T0" }],
    [ndarray, { data: "T0" }],
    [ndarray, { type: "ref" }],
    [ndarray, { type: "ref", data: "" }],
    [ndarray, { type: "ref", data: 1 }],
    [tensor, { type: "native", data: Uint8Array.of(2, 0, 0, 0, 0, 0, 0, 0, 0x7b, 0x7d) }],
    [tensor, { type: "native", data: Uint8Array.of(1) }],
    [lazy, { type: "ref", data: "T0" }],
    [lazy, { type: "ref", data: "T0", lazy_dot: 4 }],
    [lazy, { type: "native", data: "T0", lazy_dot: 3 }],
    [lazy, { type: "ref", data: 0, lazy_dot: 3 }]
  ])("%s refuses %o", (type, data) => {
    assert.strictEqual(refusal(type, data), "InvalidValue")
  })

  it.each<[unknown, string]>([
    ["os.system", "UnknownType"],
    ["__proto__", "UnknownType"],
    ["nvflare.client.config.ExchangeFormat", "UnknownType"],
    ["nvflare.apis.shareable.Shareable", "UnknownType"],
    [null, "Malformed"],
    ["", "Malformed"],
    [1, "Malformed"],
    [["tuple"], "Malformed"]
  ])("the type %o is refused as %s", (type, expected) => {
    assert.strictEqual(refusal(type, [1]), expected)
  })

  it("refuses bytes that are no npy", () => {
    assert.strictEqual(refusal(ndarray, { type: "native", data: Uint8Array.of(1, 2, 3) }), "Malformed")
  })

  it("reads the three keys of an object in any order, and ignores others", () => {
    const orders: ReadonlyArray<Record<string, unknown>> = [
      { __fobs_data__: [1], __fobs_type__: "tuple" },
      { __fobs_dc__: null, __fobs_data__: [1], x: [], __fobs_type__: "tuple", y: 1 },
      { x: 1, __fobs_type__: "tuple", __fobs_data__: [1] }
    ]
    for (const order of orders) {
      assert.deepStrictEqual(Result.getOrThrow(codec.decode(messageOf(order))), new Tuple([1]))
    }
    assert.strictEqual(reason(codec.decode(messageOf({ __fobs_type__: "tuple", data: [1] }))), "Malformed")
  })

  it("takes typed objects as keys where Python can hash them", () => {
    const map = (key: unknown) => messageOf(new Map([[key, 1]]))
    // Plain msgpack cannot write an object as a key: the map is put together by hand.
    const key = messageOf(tuple(1, "x")).subarray(10)
    const body = Uint8Array.from([0x81, ...key, 0x01])
    const message = new Uint8Array([100, 0, 0, 0, 0, 0, 0, 0, 0, body.length, ...body])
    assert.deepStrictEqual(Result.getOrThrow(codec.decode(message)), new Map([[new Tuple([1, "x"]), 1]]))
    assert.isTrue(Result.isSuccess(codec.decode(map(null))))
    for (const bad of [tuple([1]), envelope("set", []), envelope(odict, [])]) {
      const bytes = messageOf(bad).subarray(10)
      const inner = Uint8Array.from([0x81, ...bytes, 0x01])
      const whole = new Uint8Array([100, 0, 0, 0, 0, 0, 0, 0, 0, inner.length, ...inner])
      assert.strictEqual(reason(codec.decode(whole)), "Malformed")
    }
  })
})

describe("what a type may be written from", () => {
  it.each<[string, unknown]>([
    ["a set that holds a list", new Set([[1]])],
    ["a text that is no datetime", new PyDateTime("soon")],
    ["an unknown member", new EnumValue(kind, "NOPE")],
    ["an unknown enum", new EnumValue("my.Enum", "A")],
    ["an int64 out of range", new NumpyScalar("int64", 2n ** 63n)],
    ["an int32 that is NaN", new NumpyScalar("int32", Number.NaN)],
    ["a dict with the type key", { a: [{ __fobs_type__: "tuple" }] }],
    ["a Map with the type key", new Map([["__fobs_type__", 1]])],
    ["a tuple around an undefined", new Tuple([undefined])],
    ["a class that nobody registered", new URL("http://a.b")]
  ])("%s is refused", (_, value) => {
    assert.include(["NotEncodable", "InvalidValue"], reason(codec.encode(value)))
  })

  it("allows 255 tuples inside each other, as the reference", () => {
    const nest = (depth: number): unknown => (depth === 0 ? 1 : new Tuple([nest(depth - 1)]))
    const message = concat(Result.getOrThrow(codec.encode(nest(255))))
    assert.deepStrictEqual(Result.getOrThrow(codec.decode(message)), nest(255))
    assert.strictEqual(reason(codec.encode(nest(256))), "NotEncodable")
  })
})

describe("PyDateTime", () => {
  it.each([
    ["2026-08-01T12:34:56", "2026-08-01T12:34:56.000Z"],
    ["2026-08-01T12:34:56.123456", "2026-08-01T12:34:56.123Z"],
    ["1999-12-31T23:59:59.999999-05:30", "2000-01-01T05:29:59.999Z"],
    ["2026-08-01T00:00:00+00:00:30", "2026-07-31T23:59:30.000Z"],
    ["0001-01-01T00:00:00", "0001-01-01T00:00:00.000Z"]
  ])("%s is the instant %s", (iso, instant) => {
    assert.strictEqual(new PyDateTime(iso).toDate().toISOString(), instant)
  })

  it("is made of a Date in the form that a sender writes", () => {
    assert.strictEqual(PyDateTime.fromDate(new Date("2026-08-01T12:34:56Z")).iso, "2026-08-01T12:34:56+00:00")
    assert.strictEqual(PyDateTime.fromDate(new Date("2026-08-01T12:34:56.07Z")).iso, "2026-08-01T12:34:56.070000+00:00")
    assert.isTrue(Number.isNaN(new PyDateTime("soon").toDate().getTime()))
  })
})
