import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor, type TensorDtype } from "../../src/fobs/Tensor.ts"
import { refusal } from "./zips.ts"

const both: ReadonlyArray<readonly [TensorDtype, string]> = [
  ["BOOL", "|b1"],
  ["U8", "|u1"],
  ["I8", "|i1"],
  ["I16", "<i2"],
  ["U16", "<u2"],
  ["F16", "<f2"],
  ["I32", "<i4"],
  ["U32", "<u4"],
  ["F32", "<f4"],
  ["C64", "<c8"],
  ["F64", "<f8"],
  ["I64", "<i8"],
  ["U64", "<u8"]
]

describe("Tensor", () => {
  it.each(both)("%s is %s to numpy, over the same bytes", (torch, numpy) => {
    const bytes = new Uint8Array(16).fill(1)
    const shape = [16 / Number(numpy.slice(2))]
    const array = Result.getOrThrow(new Tensor(torch, shape, bytes).toArray())
    assert.deepStrictEqual([array.dtype, array.shape, array.bytes === bytes], [numpy, shape, true])
    const tensor = Result.getOrThrow(Tensor.fromArray(array))
    assert.deepStrictEqual([tensor.dtype, tensor.shape, tensor.bytes === bytes], [torch, shape, true])
    assert.isTrue(Result.isSuccess(tensor.toTyped()))
  })

  it("rearranges big-endian and column-major arrays", () => {
    const array = new NdArray(">i2", [2, 2], Uint8Array.of(0, 1, 0, 3, 0, 2, 0, 4), "F")
    const tensor = Result.getOrThrow(Tensor.fromArray(array))
    assert.deepStrictEqual(tensor, new Tensor("I16", [2, 2], Uint8Array.of(1, 0, 2, 0, 3, 0, 4, 0)))
    assert.deepStrictEqual(
      Result.getOrThrow(Tensor.fromArray(new NdArray("float32", [1], new Uint8Array(4)))).dtype,
      "F32"
    )
  })

  it("reads elements at any address, and half floats as floats", () => {
    const elements = (tensor: Tensor) => [...Result.getOrThrow(tensor.toTyped())]
    const shifted = new Uint8Array(new Uint8Array([9, 0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]).buffer, 1)
    assert.deepStrictEqual(elements(new Tensor("F32", [2], shifted)), [1, -2.5])
    const bfloats = new Uint8Array(new Uint8Array([9, 0x80, 0x3f, 0x20, 0xc0, 0x49, 0x40, 0x80, 0x7f]).buffer, 1)
    assert.deepStrictEqual(elements(new Tensor("BF16", [4], bfloats)), [1, -2.5, 3.140625, Infinity])
    assert.deepStrictEqual(elements(new Tensor("F16", [2], Uint8Array.of(0, 0x3c, 0, 0xc1))), [1, -2.5])
    assert.deepStrictEqual(elements(Tensor.fromTyped(BigInt64Array.of(1n, -1n))), [1n, -1n])
    assert.deepStrictEqual(elements(new Tensor("BOOL", [2], Uint8Array.of(1, 0))), [1, 0])
  })

  it("widens bfloat16 only, exactly", () => {
    const tensor = new Tensor("BF16", [1, 2], Uint8Array.of(0x80, 0x3f, 0x20, 0xc0))
    assert.deepStrictEqual(tensor.widened(), Tensor.fromTyped(Float32Array.of(1, -2.5), [1, 2]))
    const half = new Tensor("F16", [1], new Uint8Array(2))
    assert.strictEqual(half.widened(), half)
  })

  it("refuses what the other side lacks", () => {
    assert.match(
      refusal(new Tensor("BF16", [1], new Uint8Array(2)).toArray()),
      /^InvalidValue: numpy has no BF16.*widened/
    )
    for (const dtype of ["<c16", "<U1", "|S1", "<M8[s]", "[('a', '<f4')]", "nonsense"]) {
      const refused = refusal(Tensor.fromArray(new NdArray(dtype, [1], new Uint8Array(8))))
      assert.match(refused, /^InvalidValue: no tensor has the dtype/, dtype)
    }
    assert.match(refusal(new Tensor("F32", [3], new Uint8Array(8)).toTyped()), /^InvalidValue: .*does not fit 8 bytes/)
  })
})
