import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Stream } from "effect"
import * as Safetensors from "../../src/fobs/Safetensors.ts"
import * as SafetensorsFile from "../../src/fobs/SafetensorsFile.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import { times } from "../support/long.ts"
import { mutate, random } from "./arrays.ts"
import { collect, sourceOf } from "./byteSources.ts"
import { concat, refusal } from "./zips.ts"

const mutations = times(3_000)

const tensors: ReadonlyArray<readonly [string, Tensor]> = [
  ["10", new Tensor("F32", [2, 3], new Uint8Array(24).fill(1))],
  ["2", new Tensor("BF16", [], new Uint8Array(2).fill(2))],
  ["empty", new Tensor("I64", [0, 3], new Uint8Array(0))],
  ["__proto__", new Tensor("BOOL", [3], new Uint8Array(3).fill(1))],
  ["large", Tensor.fromTyped(Int32Array.from({ length: 1_300_000 }, (_, n) => n))]
]
const metadata = [
  ["format", "pt"],
  ["é", "x"]
] as const

const read = (bytes: Uint8Array, options?: SafetensorsFile.ReadOptions) =>
  Effect.result(Stream.runCollect(SafetensorsFile.stream(sourceOf(bytes), options)))

const described = (all: Iterable<readonly [string, Tensor]>) =>
  Array.from(all, ([name, { bytes, dtype, shape }]) => [
    name,
    dtype,
    shape,
    Buffer.from(bytes).toString("base64")
  ]).toSorted()

describe("SafetensorsFile", () => {
  it.effect("writes what Safetensors.encode writes, and reads it in its order, each in a buffer of its own", () =>
    Effect.gen(function* () {
      const bytes = yield* collect((sink) => SafetensorsFile.write(tensors, sink, { metadata }))
      assert.isTrue(Buffer.from(concat(Result.getOrThrow(Safetensors.encode(tensors, { metadata })))).equals(bytes))
      const all = yield* Stream.runCollect(SafetensorsFile.stream(sourceOf(bytes)))
      assert.deepStrictEqual(
        all.map(([name]) => name),
        tensors.map(([name]) => name)
      )
      assert.isTrue(JSON.stringify(described(all)) === JSON.stringify(described(tensors)))
      for (const [name, tensor] of all) assert.strictEqual(tensor.bytes.buffer.byteLength, tensor.byteLength, name)
      assert.deepStrictEqual(Result.getOrThrow(Safetensors.decodeMetadata(bytes)), new Map(metadata))
    })
  )

  it.effect("reads metadata, and no tensor for it", () =>
    Effect.gen(function* () {
      const bytes = yield* collect((sink) => SafetensorsFile.write(tensors, sink, { metadata }))
      const source = sourceOf(bytes)
      assert.deepStrictEqual(yield* SafetensorsFile.metadata(source), new Map(metadata))
      assert.isBelow(
        source.reads.reduce((sum, length) => sum + length, 0),
        1000
      )
      const bare = yield* collect((sink) => SafetensorsFile.write([], sink))
      assert.deepStrictEqual(yield* SafetensorsFile.metadata(sourceOf(bare)), new Map())
      const wrong = bare.with(8, 0x5b)
      assert.match(refusal(yield* Effect.result(SafetensorsFile.metadata(sourceOf(wrong)))), /^InvalidValue: .*no JSON/)
      const text = '{"__metadata__":{"a":1}} '
      const number = concat([Uint8Array.of(text.length, 0, 0, 0, 0, 0, 0, 0), new TextEncoder().encode(text)])
      assert.match(refusal(yield* Effect.result(SafetensorsFile.metadata(sourceOf(number)))), /no map of texts/)
    })
  )

  it.effect("is bounded by the limit, and by what the file holds", () =>
    Effect.gen(function* () {
      const bytes = concat(Result.getOrThrow(Safetensors.encode(tensors)))
      const { length } = bytes
      assert.isTrue(Result.isSuccess(yield* read(bytes, { maxBytes: length })))
      assert.match(refusal(yield* read(bytes, { maxBytes: length - 1 })), /^InvalidValue: .*the limit \(maxBytes\) is/)
      assert.match(refusal(yield* read(bytes, { maxBytes: 9 })), /^InvalidValue: .*its header has/)
      assert.match(refusal(yield* read(bytes.subarray(0, length - 1))), /^InvalidValue: .*cannot lie at/)
      assert.match(refusal(yield* read(bytes.subarray(0, 5))), /^InvalidValue: .*too short/)
      assert.match(refusal(yield* read(bytes.subarray(0, 50))), /^InvalidValue: .*a header of/)
    })
  )

  it.effect("answers every damaged file as Safetensors.decode does", () =>
    Effect.gen(function* () {
      const seed = 11_051_967
      const next = random(seed)
      const original = concat(Result.getOrThrow(Safetensors.encode(tensors.slice(0, 4))))
      let accepted = 0
      for (let n = 0; n < mutations; n++) {
        const bytes = mutate(original, next)
        const expected = Safetensors.decode(bytes)
        const result = yield* read(bytes)
        const where = `seed ${seed}, round ${n}`
        if (Result.isFailure(result)) {
          assert.strictEqual(refusal(result), refusal(expected), where)
          continue
        }
        accepted++
        assert.deepStrictEqual(described(result.success), described(Result.getOrThrow(expected)), where)
      }
      assert.isAbove(accepted, 50)
    })
  )
})
