import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as Npy from "../../src/fobs/Npy.ts"
import { times } from "../support/long.ts"
import { watchMemory } from "../support/memory.ts"
import { floats, hex, latin1, mutate, npy, random } from "./arrays.ts"
import { readFixture, vectors } from "./fixtures.ts"

const mutations = times(20_000, 50)

const header = (descr: string, shape: string, fortran = "False"): string =>
  `{'descr': ${descr}, 'fortran_order': ${fortran}, 'shape': ${shape}, }`

const decode = (bytes: Uint8Array): NdArray => Result.getOrThrow(Npy.decode(bytes))
const encode = (array: NdArray): Uint8Array => new Uint8Array(Buffer.concat(Result.getOrThrow(Npy.encode(array))))

const reason = (result: Result.Result<unknown, { readonly reason: { readonly _tag: string } }>): string =>
  Result.isFailure(result) ? result.failure.reason._tag : "accepted"

interface Description {
  readonly t: string
  readonly dtype: string | ReadonlyArray<unknown>
  readonly shape: ReadonlyArray<number>
  readonly fortran: boolean
  readonly hex?: string
}
const isArray = (value: unknown): value is Description =>
  typeof value === "object" && value !== null && "t" in value && value.t === "ndarray"
const captured = vectors.filter(({ name, value }) => name.startsWith("nd_") && isArray(value))

/** The npy inside a message. */
const inside = (message: Uint8Array): Uint8Array => message.subarray(Buffer.from(message).indexOf(latin1("\x93NUMPY")))

describe("Npy", () => {
  it("has captured arrays to test against", () => {
    assert.isAbove(captured.length, 40)
  })

  it.each(captured)("reads $name and writes it byte for byte", ({ file, value }) => {
    if (!isArray(value)) return assert.fail("no array")
    const bytes = inside(readFixture(file))
    const array = decode(bytes)
    assert.deepStrictEqual(array.shape, value.shape)
    if (typeof value.dtype === "string") assert.strictEqual(array.dtype, value.dtype)
    else assert.isTrue(array.dtype.startsWith("[("))
    assert.strictEqual(array.order, value.fortran ? "F" : "C")
    if (value.hex !== undefined) assert.strictEqual(hex(array.toC().bytes), value.hex)
    assert.strictEqual(hex(encode(array)), hex(bytes.subarray(0, encode(array).length)))
  })

  it("gives a view of the input, whatever kind of bytes that is", () => {
    const bytes = Buffer.concat([latin1("x"), encode(floats([1, 2]))])
    const array = decode(bytes.subarray(1))
    assert.strictEqual(array.bytes.buffer, bytes.buffer)
    assert.isFalse(Buffer.isBuffer(array.bytes))
    bytes[bytes.length - 1] = 0xff
    assert.strictEqual(array.bytes[7], 0xff)
  })

  it("does not copy array data when it writes", () => {
    const array = floats([1, 2])
    assert.strictEqual(Result.getOrThrow(Npy.encode(array))[1], array.bytes)
  })

  describe("accepts", () => {
    const data = new Uint8Array(16)
    const accepted: ReadonlyArray<readonly [string, Uint8Array, string]> = [
      ["version 2", npy(header("'<f4'", "(2,)"), data, 2), "<f4"],
      ["version 3 with a utf-8 name", npy(header("[('日', '<f4')]", "(2,)"), data, 3), "[('日', '<f4')]"],
      ["double quotes", npy(`{"descr": "<f4", "fortran_order": False, "shape": (2,)}`, data), "<f4"],
      ["any order of keys, and no spaces", npy("{'shape':(2,),'fortran_order':False,'descr':'<f4'}", data), "<f4"],
      [
        "a key that comes twice: the last one",
        npy("{'shape':3,'shape':(2,),'fortran_order':False,'descr':'<f4'}", data),
        "<f4"
      ],
      ["padding and a newline", npy(`${header("'<f4'", "(2,)")}    \n`, data), "<f4"],
      ["f4", npy(header("'f4'", "(2,)"), data), "<f4"],
      ["float32", npy(header("'float32'", "(2,)"), data), "<f4"],
      ["=f4", npy(header("'=f4'", "(2,)"), data), "<f4"],
      ["?", npy(header("'?'", "(2,)"), data), "|b1"],
      ["<i1", npy(header("'<i1'", "(2,)"), data), "|i1"],
      ["a date without unit", npy(header("'<M8'", "(2,)"), data), "<M8"],
      ["a time with a multiple", npy(header("'<m8[25us]'", "(2,)"), data), "<m8[25us]"],
      ["a time of one unit", npy(header("'<m8[1ns]'", "(2,)"), data), "<m8[ns]"],
      ["Python 2's texts and long ints", npy(header("u'<f4'", "(2L,)"), data), "<f4"],
      ["text of no width", npy(header("'<U0'", "(2,)")), "<U0"],
      [
        "a field with a title",
        npy(header("[(('title', 'name'), '<i4')]", "(2,)"), data),
        "[(('title', 'name'), '<i4')]"
      ],
      ["a field with a shape", npy(header("[('a', '<i2', (2, 2))]", "(2,)"), data), "[('a', '<i2', (2, 2))]"],
      [
        "fields in a field",
        npy(header("[('a', [('b', '|u1'), ('', '|V3')])]", "(2,)"), data),
        "[('a', [('b', '|u1'), ('', '|V3')])]"
      ],
      ["an escaped name", npy(header("[('it\\'s \\x41', '<i4')]", "(2,)"), data), "[('it\\'s \\x41', '<i4')]"]
    ]
    it.each(accepted)("%s", (_, bytes, dtype) => {
      const array = decode(bytes)
      assert.strictEqual(array.dtype, dtype)
      assert.deepStrictEqual(array.shape, [2])
      assert.strictEqual(hex(encode(decode(encode(array)))), hex(encode(array)))
    })

    it("64 dimensions", () => {
      assert.strictEqual(decode(npy(header("'|u1'", `(${"1, ".repeat(64)})`), Uint8Array.of(7))).shape.length, 64)
    })

    it("bytes behind the data", () => {
      assert.strictEqual(decode(npy(header("'|u1'", "(2,)"), Uint8Array.of(1, 2, 3))).bytes.length, 2)
    })

    it("column-major data, but not as an order where it makes no difference", () => {
      const data = Uint8Array.of(1, 2, 3, 4)
      assert.strictEqual(decode(npy(header("'|u1'", "(2, 2)", "True"), data)).order, "F")
      for (const shape of ["(4,)", "(4, 1)", "(1, 4)", "(2, 0, 2)"]) {
        assert.strictEqual(decode(npy(header("'|u1'", shape, "True"), data)).order, "C")
      }
    })
  })

  describe("refuses", () => {
    const one = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0)
    const refused: ReadonlyArray<readonly [string, string, Uint8Array]> = [
      ["no bytes", "Malformed", new Uint8Array(0)],
      ["a pickle", "Malformed", latin1("\x80\x04\x95 a long enough text")],
      ["version 4", "Malformed", npy(header("'|u1'", "()"), one, 4)],
      ["a header cut short", "Malformed", npy(header("'|u1'", "()")).subarray(0, 40)],
      ["short data", "Malformed", npy(header("'<f8'", "(2,)"), one)],
      ["no literal", "Malformed", npy("import os")],
      ["a call", "Malformed", npy("{'descr': exit(), 'fortran_order': False, 'shape': ()}", one)],
      ["text behind the dict", "Malformed", npy(`${header("'|u1'", "()")} x`, one)],
      ["invalid utf-8", "Malformed", Uint8Array.of(...npy("   ", one, 3).subarray(0, 12), 0xff, 0xff, 0xff)],
      ["a header of 10001 characters", "Malformed", npy(header("'|u1'", "()").padEnd(10_001), one)],
      ["a header of 4 GiB", "Malformed", Uint8Array.of(0x93, ...latin1("NUMPY"), 2, 0, 255, 255, 255, 255, 0)],
      ["a set of other keys", "InvalidValue", npy("{'descr': '|u1', 'fortran_order': False, 'form': ()}", one)],
      ["a fourth key", "InvalidValue", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (), 'x': 1}", one)],
      ["a list instead of the dict", "InvalidValue", npy("['|u1', False, ()]", one)],
      ["an order that is no bool", "InvalidValue", npy(header("'|u1'", "()", "0"), one)],
      ["an order of None", "InvalidValue", npy(header("'|u1'", "()", "None"), one)],
      ["a list as shape", "InvalidValue", npy(header("'|u1'", "[1]"), one)],
      ["an int as shape", "InvalidValue", npy(header("'|u1'", "(1)"), one)],
      ["a negative dimension", "InvalidValue", npy(header("'|u1'", "(-1,)"), one)],
      ["a float dimension", "Malformed", npy(header("'|u1'", "(1.0,)"), one)],
      ["65 dimensions", "InvalidValue", npy(header("'|u1'", `(${"1, ".repeat(65)})`), one)],
      ["2^63 bytes beside a dimension of 0", "InvalidValue", npy(header("'<f8'", `(0, ${2n ** 30n}, ${2n ** 30n})`))],
      ["a dimension beyond 2^53", "InvalidValue", npy(header("'|u1'", `(0, ${2n ** 53n})`))],
      ["a product beyond 2^63", "InvalidValue", npy(header("'|u1'", `(${2n ** 32n}, ${2n ** 31n})`))],
      ["a number of 5000 digits", "Malformed", npy(header("'|u1'", `(${"9".repeat(5000)},)`))],
      ["objects", "InvalidValue", npy(header("'|O'", "(1,)"), one)],
      ["objects as a field", "InvalidValue", npy(header("[('a', '|O')]", "(1,)"), one)],
      ["an unknown dtype", "InvalidValue", npy(header("'<f3'", "(1,)"), one)],
      ["an unknown unit", "InvalidValue", npy(header("'<M8[x]'", "(1,)"), one)],
      ["two fields of one name", "InvalidValue", npy(header("[('a', '|u1'), ('a', '|u1')]", "(1,)"), one)],
      ["no fields", "InvalidValue", npy(header("[]", "(1,)"), one)],
      ["10000 open brackets", "Malformed", npy("[".repeat(9_000), one)],
      ["text without an end", "Malformed", npy(`{'${"\\\\".repeat(2_000)}`, one)]
    ]
    it.each(refused)("%s (%s)", (_, tag, bytes) => {
      assert.strictEqual(reason(Npy.decode(bytes)), tag)
    })
  })

  describe("writes", () => {
    it("the longest header of version 1, and version 2 beyond", () => {
      const dtype = (names: number) => `[${Array.from({ length: names }, (_, n) => `('n${n}', '|u1')`).join(", ")}]`
      const small = encode(new NdArray(dtype(3_500), [0], new Uint8Array(0)))
      const large = encode(new NdArray(dtype(5_000), [0], new Uint8Array(0)))
      assert.deepStrictEqual([small[6], small.length % 64], [1, 0])
      assert.deepStrictEqual([large[6], large.length % 64], [2, 0])
    })

    const refused: ReadonlyArray<readonly [string, NdArray]> = [
      ["too few bytes", new NdArray("<f4", [2], new Uint8Array(7))],
      ["a negative dimension", new NdArray("<f4", [-2], new Uint8Array(8))],
      ["a dimension that is no int", new NdArray("<f4", [0.5], new Uint8Array(2))],
      ["65 dimensions", new NdArray("|u1", new Array(65).fill(1), new Uint8Array(1))],
      ["no dtype", new NdArray("float128!", [1], new Uint8Array(16))],
      ["text that would end the header", new NdArray("<f4', 'x': '", [1], new Uint8Array(4))],
      ["objects", new NdArray("|O", [1], new Uint8Array(8))]
    ]
    it.each(refused)("nothing for %s", (_, array) => {
      assert.strictEqual(reason(Npy.encode(array)), "NotEncodable")
    })
  })

  it("answers every damaged array with a value or a typed error", () => {
    const seed = 20_240_611
    const next = random(seed)
    const originals = captured.map(({ file }) => inside(readFixture(file))).filter(({ length }) => length < 4096)
    let accepted = 0
    const memory = watchMemory(mutations)
    for (let n = 0; n < mutations; n++) {
      memory.at(n)
      const original = originals[n % originals.length] ?? new Uint8Array(0)
      const bytes = mutate(original.subarray(0, 600), next)
      const result = Npy.decode(bytes)
      if (Result.isFailure(result)) continue
      accepted++
      const { dtype, itemSize, shape, size } = result.success
      const again = Npy.encode(result.success)
      assert.isTrue(Result.isSuccess(again), `seed ${seed}, round ${n}: ${dtype} [${shape}]`)
      assert.strictEqual(result.success.bytes.length, size * itemSize, `seed ${seed}, round ${n}`)
    }
    memory.check()
    assert.isAbove(accepted, 100)
  })
})
