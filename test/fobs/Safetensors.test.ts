import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as Safetensors from "../../src/fobs/Safetensors.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import { concat, readFixture, vectors } from "./fixtures.ts"
import { hexOf, join } from "./messages.ts"

const items = vectors.flatMap(({ ref_items }) =>
  Object.values(ref_items ?? {}).flatMap((list) => list.filter(({ describe }) => describe.format === "safetensors"))
)

const file = (header: string, data: number): Uint8Array => {
  const text = new TextEncoder().encode(header)
  const length = new Uint8Array(8)
  new DataView(length.buffer).setBigUint64(0, BigInt(text.length), true)
  return join(length, text, new Uint8Array(data))
}

const entry = (begin: number, end: number, shape: ReadonlyArray<number> = [end - begin], dtype = "U8"): string =>
  JSON.stringify({ dtype, shape, data_offsets: [begin, end] })

describe("Safetensors", () => {
  it("has items to test", () => {
    assert.isAbove(items.length, 2)
  })

  it.each(items)("reads $file and writes it again byte for byte", ({ describe: { items: nodes }, file: name }) => {
    const bytes = readFixture(name)
    const tensors = Result.getOrThrow(Safetensors.decode(bytes))
    const described = Array.from(tensors, ([key, { bytes: data, dtype, shape }]) => [key, dtype, shape, hexOf(data)])
    const expected = Object.entries(nodes as Record<string, Record<string, unknown>>)
    assert.deepStrictEqual(
      described,
      expected.map(([key, node]) => [key, node.dtype, node.shape, node.hex])
    )
    assert.strictEqual(hexOf(concat(Result.getOrThrow(Safetensors.encode(tensors)))), hexOf(bytes))
  })

  it("keeps several tensors, scalars, empty ones and odd names", () => {
    const tensors: ReadonlyArray<readonly [string, Tensor]> = [
      ["a", new Tensor("F32", [2, 3], new Uint8Array(24).fill(1))],
      ["__proto__", new Tensor("BF16", [], new Uint8Array(2).fill(2))],
      ["empty", new Tensor("I64", [0, 3], new Uint8Array(0))],
      ['é"\\', new Tensor("BOOL", [3], new Uint8Array(3).fill(1))],
      ["complex", new Tensor("C64", [2], new Uint8Array(16).fill(3))],
      ["eight bits", new Tensor("F8_E4M3", [3], new Uint8Array(3).fill(4))],
      ["four bits", new Tensor("F4", [2, 3], new Uint8Array(3).fill(5))]
    ]
    const bytes = concat(Result.getOrThrow(Safetensors.encode(tensors)))
    assert.strictEqual(new DataView(bytes.buffer).getUint32(0, true) % 8, 0)
    assert.deepStrictEqual(Array.from(Result.getOrThrow(Safetensors.decode(bytes))), tensors)
  })

  it("skips metadata and holes, and does not copy", () => {
    const bytes = file(`{"__metadata__":{"format":"pt"},"b":${entry(4, 6)},"a":${entry(0, 2)}}   `, 8)
    const tensors = Result.getOrThrow(Safetensors.decode(bytes))
    assert.deepStrictEqual(Array.from(tensors.keys()), ["b", "a"])
    assert.strictEqual(tensors.get("a")?.bytes.buffer, bytes.buffer)
    const data = new Uint8Array(8)
    const [, chunk] = Result.getOrThrow(Safetensors.encode([["t", new Tensor("U8", [8], data)]]))
    assert.strictEqual(chunk, data)
  })

  it.each([
    ["too short", new Uint8Array(7)],
    ["a header beyond the file", Uint8Array.of(9, 0, 0, 0, 0, 0, 0, 0, 0x7b, 0x7d)],
    ["a header of 2^63", Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0x80, 0x7b, 0x7d)],
    ["no JSON", file("{not json", 0)],
    ["no utf-8", Uint8Array.of(2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff)],
    ["a list", file("[]", 0)],
    ["null", file("null", 0)],
    ["half a byte", file(`{"a":${entry(0, 2, [3], "F4")}}`, 2)],
    ["an unknown dtype", file(`{"a":${entry(0, 2, [2], "F8")}}`, 2)],
    ["no offsets", file('{"a":{"dtype":"U8","shape":[1]}}', 1)],
    ["a negative dimension", file(`{"a":${entry(0, 2, [-1, -2])}}`, 2)],
    ["a fraction", file(`{"a":${entry(0, 2, [0.5, 4])}}`, 2)],
    ["offsets backwards", file(`{"a":${entry(2, 1, [1])}}`, 2)],
    ["a negative offset", file(`{"a":${entry(-1, 1, [2])}}`, 2)],
    ["offsets beyond the data", file(`{"a":${entry(0, 3)}}`, 2)],
    ["a shape that does not fit", file(`{"a":${entry(0, 2, [3])}}`, 3)],
    ["an overflowing shape", file(`{"a":${entry(0, 2, [2 ** 40, 2 ** 40])}}`, 2)],
    ["an overflow that ends in 0", file(`{"a":${entry(0, 0, [2 ** 40, 2 ** 40, 0])}}`, 2)],
    ["an overlap", file(`{"a":${entry(0, 3)},"b":${entry(2, 4)}}`, 4)]
  ])("refuses %s", (_, bytes) => {
    const result = Safetensors.decode(bytes)
    assert.include(["InvalidValue", "Malformed"], Result.isFailure(result) ? result.failure.reason._tag : "success")
  })

  it("refuses to write what does not fit", () => {
    const small = new Tensor("F32", [2], new Uint8Array(4))
    const fine = new Tensor("U8", [1], new Uint8Array(1))
    for (const tensors of [
      [["a", small]],
      [
        ["a", fine],
        ["a", fine]
      ],
      [["__metadata__", fine]]
    ] as const) {
      const result = Safetensors.encode(tensors)
      assert.strictEqual(Result.isFailure(result) ? result.failure.reason._tag : "success", "NotEncodable")
    }
  })
})
