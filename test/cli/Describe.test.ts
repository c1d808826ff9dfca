/** Descriptions of whole messages are tested with the golden vectors (test/fobs/Vectors.test.ts). */
import { assert, describe, it } from "@effect/vitest"
import * as Describe from "../../src/cli/Describe.ts"
import { Datum } from "../../src/fobs/Datum.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { EnumValue, Ext, Float, Tuple } from "../../src/fobs/Values.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import { Learnable, ModelLearnable } from "../../src/model/Learnable.ts"

const timestamp = (...words: ReadonlyArray<number>) => {
  const view = new DataView(new ArrayBuffer(words.length * 4))
  words.forEach((word, i) => {
    view.setUint32(i * 4, word)
  })
  return new Ext(-1, new Uint8Array(view.buffer))
}

describe("Describe", () => {
  it.each<[unknown, unknown]>([
    [1, { t: "int", v: "1" }],
    [-(2n ** 63n), { t: "int", v: "-9223372036854775808" }],
    [new Float(1), { t: "float", bits: "3ff0000000000000", repr: "1" }],
    [-0, { t: "float", bits: "8000000000000000", repr: "0" }],
    [new Float(Number.NaN, 0x7ff8_0000_0000_0001n), { t: "float", bits: "7ff8000000000001", repr: "NaN" }],
    [undefined, { t: "none" }],
    [new Tuple([true]), { t: "tuple", v: [{ t: "bool", v: true }] }],
    [
      new Set(["b", "a"]),
      {
        t: "set",
        v: [
          { t: "str", v: "a" },
          { t: "str", v: "b" }
        ]
      }
    ],
    [timestamp(7), { t: "timestamp", seconds: 7, nanoseconds: 0 }],
    [timestamp((5 << 2) | 1, 9), { t: "timestamp", seconds: 2 ** 32 + 9, nanoseconds: 5 }],
    [timestamp(5, 0xffff_ffff, 0xffff_ffff), { t: "timestamp", seconds: -1, nanoseconds: 5 }],
    [new Ext(3, Uint8Array.of(255)), { t: "ext", code: 3, hex: "ff" }],
    [new URL("http://a.b"), { t: "object", class: "URL" }],
    [
      new EnumValue("nvflare.apis.analytix.LogWriterName", "WANDB"),
      {
        t: "enum",
        class: "nvflare.apis.analytix.LogWriterName",
        name: "WANDB",
        value: { t: "str", v: "WEIGHTS_AND_BIASES" }
      }
    ],
    [
      new Datum("x", "01234567-89ab-4cde-8f01-23456789abcd"),
      { t: "datum", kind: "TEXT", dot: 0, id: "01234567-89ab-4cde-8f01-23456789abcd", value: { t: "str", v: "x" } }
    ],
    [new ModelLearnable(), { t: "dictobj", v: [], class: "nvflare.app_common.abstract.model.ModelLearnable" }],
    [new Learnable(), { t: "dictobj", v: [], class: "nvflare.app_common.abstract.learnable.Learnable" }]
  ])("%o", (value, node) => {
    assert.deepStrictEqual(Describe.describe(value), node)
  })

  it("hashes what is long", () => {
    assert.strictEqual(Describe.describe("é".repeat(4096)).v, "é".repeat(4096))
    const { chars, utf8_len, v } = Describe.describe("\u{1f600}".repeat(4097))
    assert.deepStrictEqual([chars, utf8_len, v], [4097, 4097 * 4, undefined])
    assert.strictEqual(Describe.describe(new Uint8Array(256)).hex, "00".repeat(256))
    assert.isUndefined(Describe.describe(new Uint8Array(257)).hex)
    assert.isArray(Describe.describe(new Array(1024).fill(1)).v)
    assert.strictEqual(Describe.describe(new Array(1025).fill(1)).len, 1025)
  })

  it("reads the dtype of structured arrays, and keeps what it cannot read", () => {
    const dtype = (text: string) => Describe.describe(new NdArray(text, [0], new Uint8Array(0))).dtype
    assert.deepStrictEqual(dtype("[('a', '<i4'), ('b\"', '<f8', (2,))]"), [
      ["a", "<i4"],
      ['b"', "<f8", [2]]
    ])
    assert.strictEqual(dtype("[('a"), "[('a")
  })

  it("gives the elements in row-major order", () => {
    const array = new NdArray("|u1", [2, 3], Uint8Array.of(1, 2, 3, 4, 5, 6), "F")
    const { fortran, hex } = Describe.describe(array)
    assert.deepStrictEqual([fortran, hex], [true, "010305020406"])
  })

  it("describes a model as it would travel", () => {
    const node = Describe.describe(new FLModel({ metrics: [["a", 1]] }))
    assert.deepStrictEqual(node.params_type, { t: "none" })
    assert.deepStrictEqual(node.metrics, {
      t: "dict",
      v: [
        [
          { t: "str", v: "a" },
          { t: "float", bits: "3ff0000000000000", repr: "1" }
        ]
      ]
    })
  })

  it("writes canonical JSON", () => {
    assert.strictEqual(
      Describe.canonicalJson({ b: ["é", "\u007f\u{1f600}"], a: 1 }),
      '{"a":1,"b":["\\u00e9","\\u007f\\ud83d\\ude00"]}'
    )
  })
})
