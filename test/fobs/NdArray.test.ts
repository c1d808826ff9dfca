import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { bfloat16ToFloat32, float16ToNumber, numberToFloat16 } from "../../src/fobs/Half.ts"
import { NdArray, type TypedArray } from "../../src/fobs/NdArray.ts"
import { elements, floats, fromHex, hex, longs, unaligned } from "./arrays.ts"

const typed = (array: NdArray): TypedArray => Result.getOrThrow(array.toTyped())

describe("NdArray.fromTyped", () => {
  const kinds: ReadonlyArray<readonly [string, TypedArray]> = [
    ["|i1", Int8Array.of(-1, 2)],
    ["|u1", Uint8Array.of(1, 2)],
    ["|u1", Uint8ClampedArray.of(1, 2)],
    ["<i2", Int16Array.of(-1, 2)],
    ["<u2", Uint16Array.of(1, 2)],
    ["<i4", Int32Array.of(-1, 2)],
    ["<u4", Uint32Array.of(1, 2)],
    ["<f4", Float32Array.of(-1.5, 2)],
    ["<f8", Float64Array.of(-1.5, 2)],
    ["<i8", BigInt64Array.of(-1n, 2n)],
    ["<u8", BigUint64Array.of(1n, 2n)]
  ]
  it.each(kinds)("%s shares memory with its typed array, both ways", (dtype, source) => {
    const array = NdArray.fromTyped(source, [2, 1])
    assert.strictEqual(array.dtype, dtype)
    assert.deepStrictEqual(array.shape, [2, 1])
    assert.strictEqual(array.bytes.buffer, source.buffer)
    const view = typed(array)
    assert.strictEqual(view.buffer, source.buffer)
    assert.deepStrictEqual([...view], [...source])
    assert.deepStrictEqual(
      [array.size, array.itemSize, array.byteLength],
      [2, source.BYTES_PER_ELEMENT, source.byteLength]
    )
  })

  it("keeps to the part of the buffer that the typed array shows", () => {
    const part = Float32Array.of(1, 2, 3, 4).subarray(1, 3)
    assert.deepStrictEqual(elements(NdArray.fromTyped(part)), [2, 3])
  })

  it("has one element without dimensions", () => {
    const scalar = floats([5], [])
    assert.deepStrictEqual([scalar.size, ...elements(scalar)], [1, 5])
  })

  it.each([[[3]], [[-2, -1]], [[0.5, 4]]])("throws for the shape %j of two elements", (shape) => {
    assert.throws(() => floats([1, 2], shape), RangeError)
  })
})

describe("NdArray.toTyped", () => {
  it("copies unaligned elements", () => {
    const array = unaligned(floats([1, 2, 3]))
    assert.notStrictEqual(typed(array).buffer, array.bytes.buffer)
    assert.deepStrictEqual(elements(array), [1, 2, 3])
  })

  it("copies a Buffer's unaligned elements, too", () => {
    const bytes = Buffer.from([9, ...floats([1, 2]).bytes]).subarray(1)
    assert.deepStrictEqual(elements(new NdArray("<f4", [2], bytes)), [1, 2])
  })

  it("turns big-endian elements", () => {
    assert.deepStrictEqual(elements(new NdArray(">i2", [2], Uint8Array.of(0, 1, 255, 254))), [1, -2])
    assert.deepStrictEqual(elements(new NdArray(">f8", [1], fromHex("3ff8000000000000"))), [1.5])
    assert.deepStrictEqual(elements(new NdArray(">c8", [1], fromHex("3f80000040000000"))), [1, 2])
  })

  it("gives row-major order, whatever the order of the bytes", () => {
    const rows = floats([1, 2, 3, 4, 5, 6], [2, 3])
    const columns = new NdArray("<f4", [2, 3], floats([1, 4, 2, 5, 3, 6]).bytes, "F")
    assert.deepStrictEqual(elements(columns), elements(rows))
    assert.strictEqual(hex(columns.toC().bytes), hex(rows.bytes))
    assert.strictEqual(rows.toC(), rows)
  })

  it.each(["|u1", "<i2", "|S3", "<f4", "|V6", "<f8", "<c16", "|V9"])(
    "rearranges three axes of %s, aligned or not",
    (dtype) => {
      const width = new NdArray(dtype, [], new Uint8Array(0)).itemSize
      const element = (n: number) => Array.from({ length: width }, (_, byte) => (n * 31 + byte * 7) & 255)
      const rows: Array<number> = []
      const columns: Array<number> = []
      for (let i = 0; i < 2; i++)
        for (let j = 0; j < 3; j++) for (let k = 0; k < 4; k++) rows.push(...element(i + 2 * j + 6 * k))
      for (let n = 0; n < 24; n++) columns.push(...element(n))
      const array = new NdArray(dtype, [2, 3, 4], Uint8Array.from(columns), "F")
      for (const each of [array, unaligned(array)])
        assert.strictEqual(hex(each.toC().bytes), hex(Uint8Array.from(rows)))
    }
  )

  it("keeps every bit of NaNs when it rearranges", () => {
    const bytes = fromHex("010000000000f07f020000000000f07f030000000000f07f040000000000f07f")
    const array = new NdArray("<f8", [2, 2], bytes, "F").toC()
    assert.strictEqual(hex(array.bytes), "010000000000f07f030000000000f07f020000000000f07f040000000000f07f")
  })

  it("has bools as 0 and 1, float16 as float32, 64-bit ints and dates as bigints", () => {
    assert.deepStrictEqual(elements(new NdArray("|b1", [2], Uint8Array.of(0, 1))), [0, 1])
    assert.deepStrictEqual(elements(new NdArray("<f2", [3], fromHex("003c00c0ff7b"))), [1, -2, 65504])
    assert.deepStrictEqual(elements(longs([2n ** 62n + 1n])), [2n ** 62n + 1n])
    assert.deepStrictEqual(elements(new NdArray("<M8[s]", [1], longs([-7n]).bytes)), [-7n])
  })

  it.each(["<U1", "|S4", "|V4", "[('a', '<i4')]", "float!"])("refuses %s", (dtype) => {
    const result = new NdArray(dtype, [1], new Uint8Array(4)).toTyped()
    assert.strictEqual(Result.isFailure(result) ? result.failure.reason._tag : "", "InvalidValue")
  })

  it("refuses bytes that don't fit the shape", () => {
    assert.isTrue(Result.isFailure(new NdArray("<f4", [3], new Uint8Array(8)).toTyped()))
    assert.isTrue(Result.isFailure(new NdArray("<f4", [2, 2], new Uint8Array(8), "F").toTyped()))
  })
})

describe("NdArray.toStrided", () => {
  it("tells strides instead of rearranging", () => {
    const array = new NdArray("<f4", [2, 3], floats([1, 4, 2, 5, 3, 6]).bytes, "F")
    const { data, shape, stride } = Result.getOrThrow(array.toStrided())
    assert.deepStrictEqual(
      [shape, stride],
      [
        [2, 3],
        [1, 2]
      ]
    )
    assert.strictEqual(data.buffer, array.bytes.buffer)
    assert.strictEqual(data[1 * 1 + 2 * 2], 6)
  })

  it("has an axis for the parts of complex numbers", () => {
    const { shape, stride } = Result.getOrThrow(new NdArray("<c8", [2, 3], new Uint8Array(48)).toStrided())
    assert.deepStrictEqual(
      [shape, stride],
      [
        [2, 3, 2],
        [6, 2, 1]
      ]
    )
  })
})

describe("NdArray.toLittleEndian", () => {
  it("turns bytes and dtype", () => {
    const cases: ReadonlyArray<readonly [string, string, string, string]> = [
      [">i2", "0102", "<i2", "0201"],
      [">c8", "0102030405060708", "<c8", "0403020108070605"],
      [">U2", "0000004100000042", "<U2", "4100000042000000"],
      [">f16", "000102030405060708090a0b0c0d0e0f", "<f16", "0f0e0d0c0b0a09080706050403020100"]
    ]
    for (const [from, bytes, to, turned] of cases) {
      const array = new NdArray(from, [1], fromHex(bytes)).toLittleEndian()
      assert.deepStrictEqual([array.dtype, hex(array.bytes)], [to, turned])
    }
  })

  it("leaves the others alone", () => {
    for (const dtype of ["<f4", "|V4", "[('a', '>i4')]"]) {
      const array = new NdArray(dtype, [1], new Uint8Array(4))
      assert.strictEqual(array.toLittleEndian(), array)
    }
  })
})

describe("16-bit floats", () => {
  it("come back bit for bit, all of them", () => {
    for (let bits = 0; bits < 0x10000; bits++) {
      const value = float16ToNumber(bits)
      if (Number.isNaN(value)) assert.strictEqual(numberToFloat16(value), 0x7e00)
      else assert.strictEqual(numberToFloat16(value), bits)
    }
  })

  it("are rounded to the nearest, halves to even", () => {
    const cases: ReadonlyArray<readonly [number, number]> = [
      [65519.99, 0x7bff],
      [65520, 0x7c00],
      [-1e300, 0xfc00],
      [2049, 0x6800],
      [2051, 0x6802],
      [2047.9999, 0x6800],
      [2 ** -25, 0],
      [2 ** -25 * 1.001, 1],
      [2 ** -14 - 2 ** -25, 0x400],
      [-0, 0x8000]
    ]
    for (const [value, bits] of cases) assert.strictEqual(numberToFloat16(value), bits, String(value))
  })

  it("of torch are the upper half of a float32", () => {
    assert.deepStrictEqual([...bfloat16ToFloat32(Uint16Array.of(0x3f80, 0xc000, 0x7f80))], [1, -2, Infinity])
  })
})
