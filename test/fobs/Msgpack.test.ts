import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as Msgpack from "../../src/fobs/Msgpack.ts"
import { EnumValue, Ext, Float, Tuple } from "../../src/fobs/Values.ts"
import { hexOf } from "./messages.ts"

const hex = (value: unknown): string => hexOf(Result.getOrThrow(Msgpack.encode(value)))
const bytes = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text, "hex"))
const decode = (text: string, options?: Msgpack.DecodeOptions): unknown =>
  Result.getOrThrow(Msgpack.decode(bytes(text), options))
const reason = (result: Result.Result<unknown, { readonly reason: { readonly _tag: string } }>): string =>
  Result.isFailure(result) ? result.failure.reason._tag : "success"

describe("Msgpack", () => {
  it.each([
    [0, "00"],
    [127, "7f"],
    [128, "cc80"],
    [255, "ccff"],
    [256, "cd0100"],
    [65535, "cdffff"],
    [65536, "ce00010000"],
    [4294967295, "ceffffffff"],
    [4294967296, "cf0000000100000000"],
    [Number.MAX_SAFE_INTEGER, "cf001fffffffffffff"],
    [2n ** 64n - 1n, "cfffffffffffffffff"],
    [5n, "05"],
    [-1, "ff"],
    [-32, "e0"],
    [-33, "d0df"],
    [-128, "d080"],
    [-129, "d1ff7f"],
    [-32769, "d2ffff7fff"],
    [-2147483648, "d280000000"],
    [-2147483649, "d3ffffffff7fffffff"],
    [Number.MIN_SAFE_INTEGER, "d3ffe0000000000001"],
    [-(2n ** 63n), "d38000000000000000"],
    [0.5, "cb3fe0000000000000"],
    [-0, "cb8000000000000000"],
    [2 ** 53, "cb4340000000000000"],
    [Number.NaN, "cb7ff8000000000000"],
    [new Float(1), "cb3ff0000000000000"],
    [new Float(Number.NaN, 0x7ff8_0000_0000_0001n), "cb7ff8000000000001"],
    [null, "c0"],
    [true, "c3"],
    ["é", "a2c3a9"],
    [new Tuple([1, "a"]), "9201a161"],
    [{ a: [1, {}] }, "81a161920180"],
    [new Map([[1, false]]), "8101c2"],
    [Uint8Array.of(1, 2), "c4020102"],
    [new Ext(5, Uint8Array.of(7)), "d40507"]
  ])("writes %s as %s", (value, expected) => {
    assert.strictEqual(hex(value), expected)
  })

  it.each([31, 32, 48, 49, 255, 256, 16384, 16385, 65535, 65536])("keeps texts of %d characters", (length) => {
    for (const text of ["a".repeat(length), "é".repeat(length), `${"a".repeat(length - 1)}\u{1f600}`]) {
      const encoded = Result.getOrThrow(Msgpack.encode([text, 1]))
      assert.deepStrictEqual(Result.getOrThrow(Msgpack.decode(encoded)), [text, 1])
      const utf8 = Buffer.byteLength(text)
      const header = utf8 <= 31 ? 1 : utf8 <= 255 ? 2 : utf8 <= 65535 ? 3 : 5
      assert.strictEqual(encoded.length, 1 + header + utf8 + 1)
    }
  })

  it("keeps a leading U+FEFF and a real U+FFFD", () => {
    for (const text of ["\ufeffa", "\ufeff".repeat(20), "\ufffd".repeat(20)]) {
      assert.strictEqual(Result.getOrThrow(Msgpack.decode(Result.getOrThrow(Msgpack.encode(text)))), text)
    }
  })

  it.each([
    [undefined, "undefined"],
    [{ a: undefined }, "undefined"],
    [() => 1, "function"],
    [Symbol("x"), "symbol"],
    [2n ** 64n, "outside"],
    [-(2n ** 63n) - 1n, "outside"],
    ["\ud800", "surrogate"],
    [`${"a".repeat(20000)}\udc00`, "surrogate"],
    [new Date(0), "PyDateTime"],
    [new Float32Array(1), "NdArray"],
    [new EnumValue("a.B", "C"), "EnumValue"],
    [new Map([[[1], 2]]), "key"]
  ])("refuses to write %s", (value, word) => {
    const result = Msgpack.encode(value)
    assert.strictEqual(reason(result), "NotEncodable")
    assert.include(Result.isFailure(result) ? result.failure.message : "", word)
  })

  it("reads what no encoder of ours writes", () => {
    assert.strictEqual(decode("d3ffffffffffffffff"), -1)
    assert.strictEqual(decode("cf0020000000000000"), 2n ** 53n)
    assert.strictEqual(decode("d3ffe0000000000000"), -(2n ** 53n))
    assert.strictEqual(decode("ca3fa00000"), 1.25)
    assert.deepStrictEqual(decode("c70a056162636465666768696a"), new Ext(5, new TextEncoder().encode("abcdefghij")))
    assert.deepStrictEqual(decode("df00000001a16101"), new Map([["a", 1]]))
  })

  it.each([
    ["", "cut short"],
    ["c1", "begins no value"],
    ["92ff", "declared"],
    ["81a161", "cut short"],
    ["0000", "follow"],
    ["a5ff", "cut short"],
    ["a1ff", "utf-8"],
    [`b4${"ff".repeat(20)}`, "utf-8"],
    ["a3eda080", "utf-8"],
    ["ddffffffff", "declared"],
    ["df7fffffff", "declared"],
    ["dbffffffff", "cut short"],
    ["c6ffffffff", "cut short"],
    ["cb00", "cut short"],
    ["8190c0", "key"],
    ["8180c0", "key"],
    ["d4fe00", "reserved"],
    ["d4ff00", "timestamp"],
    ["d7ffee6b280000000001", "nanoseconds"]
  ])("refuses the bytes %s", (text, word) => {
    const result = Msgpack.decode(bytes(text))
    assert.strictEqual(reason(result), "Malformed")
    assert.include(Result.isFailure(result) ? result.failure.message : "", word)
  })

  it("refuses keys other than text and bytes, at any depth, only where it is told so", () => {
    for (const text of ["8101c0", "91820101a16181c0c0", "81cb3ff0000000000000c0"]) {
      assert.isTrue(Result.isSuccess(Msgpack.decode(bytes(text))))
      assert.strictEqual(reason(Msgpack.decode(bytes(text), { keys: "strBytes" })), "Malformed")
    }
    assert.deepStrictEqual(decode("81c4016101", { keys: "strBytes" }), new Map([[Uint8Array.of(0x61), 1]]))
  })

  it("takes the type key of FOBS as an ordinary key", () => {
    const map = { __fobs_type__: "tuple", __fobs_data__: [1] }
    assert.deepStrictEqual(decode(hex(map)), new Map<string, unknown>(Object.entries(map)))
  })

  it("allows 1024 containers inside each other, and 511 when writing", () => {
    assert.isTrue(Result.isSuccess(Msgpack.decode(bytes(`${"91".repeat(1023)}80`))))
    assert.isTrue(Result.isSuccess(Msgpack.decode(bytes(`${"91".repeat(1024)}c0`))))
    assert.strictEqual(reason(Msgpack.decode(bytes(`${"91".repeat(1024)}80`))), "Malformed")
    assert.strictEqual(reason(Msgpack.decode(bytes("91".repeat(1_000_000)))), "Malformed")
    const nest = (depth: number, leaf: unknown): unknown => (depth === 0 ? leaf : [nest(depth - 1, leaf)])
    assert.isTrue(Result.isSuccess(Msgpack.encode(nest(511, 1))))
    assert.isTrue(Result.isSuccess(Msgpack.encode(nest(511, []))))
    assert.strictEqual(reason(Msgpack.encode(nest(512, 1))), "NotEncodable")
    const circle: Array<unknown> = []
    circle.push(circle)
    assert.strictEqual(reason(Msgpack.encode(circle)), "NotEncodable")
  })

  it("has no room for a thousand headers that each claim the rest of the input", () => {
    const input = new Uint8Array(1 << 20)
    for (let i = 0; i < 1024; i++) {
      const at = i * 5
      input[at] = 0xdd
      new DataView(input.buffer).setUint32(at + 1, input.length - at - 5)
    }
    const before = process.memoryUsage().arrayBuffers + process.memoryUsage().heapUsed
    assert.strictEqual(reason(Msgpack.decode(input)), "Malformed")
    const after = process.memoryUsage().arrayBuffers + process.memoryUsage().heapUsed
    assert.isBelow(after - before, 256 * 1024 * 1024)
  })

  it("keeps the keys of dicts apart as Python does", () => {
    // {1: "a", 1.0: "b", true: "c"}
    assert.deepStrictEqual(decode("8301a161cb3ff0000000000000a162c3a163"), new Map([[1, "c"]]))
    // {0: "a", "0": "b", false: "c", -0.0: "d"}
    assert.deepStrictEqual(
      decode("8400a161a130a162c2a163cb8000000000000000a164"),
      new Map<unknown, unknown>([
        [0, "d"],
        ["0", "b"]
      ])
    )
    // {2^53: "a", float 2^53: "b"}
    assert.deepStrictEqual(decode("82cf0020000000000000a161cb4340000000000000a162"), new Map([[2n ** 53n, "b"]]))
    // {b"a": 1, "a": 2, b"a": 3}
    assert.deepStrictEqual(
      decode("83c4016101a16102c4016103"),
      new Map<unknown, unknown>([
        [Uint8Array.of(0x61), 3],
        ["a", 2]
      ])
    )
  })

  it("takes __proto__ and its kin as keys like others", () => {
    const record = Object.fromEntries([
      ["__proto__", { polluted: true }],
      ["constructor", 1]
    ])
    const map = decode(hex(record))
    assert.instanceOf(map, Map)
    assert.deepStrictEqual(
      map,
      new Map<string, unknown>([
        ["__proto__", new Map([["polluted", true]])],
        ["constructor", 1]
      ])
    )
    assert.isUndefined(Reflect.get({}, "polluted"))
  })

  it("gives views of the input", () => {
    const input = bytes("c403010203")
    const value = Result.getOrThrow(Msgpack.decode(input))
    assert.strictEqual(value instanceof Uint8Array ? value.buffer : undefined, input.buffer)
  })
})
