import { deflateRawSync } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Stream } from "effect"
import { FobsError } from "../../src/fobs/FobsError.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as Npz from "../../src/fobs/Npz.ts"
import * as NpzFile from "../../src/fobs/NpzFile.ts"
import { times } from "../support/long.ts"
import { elements, floats, hex, ints, longs, mutate, npy, random } from "./arrays.ts"
import { collect, sourceOf } from "./byteSources.ts"
import { concat, file, refusal, refused, zip } from "./zips.ts"

const mutations = times(3_000)

const read = (bytes: Uint8Array, options?: Npz.DecodeOptions) =>
  Effect.result(Stream.runCollect(NpzFile.stream(sourceOf(bytes), options)))

const described = (arrays: Iterable<readonly [string, NdArray]>) =>
  [...new Map(arrays)].map(([name, { bytes, dtype, order, shape }]) => [name, dtype, shape, order, hex(bytes)])

const many = [
  ["columns", new NdArray(">i2", [2, 2], Uint8Array.of(0, 1, 0, 2, 0, 3, 0, 4), "F")],
  ["n", longs([7n], [])],
  ["empty", floats([], [0, 4])],
  ["large", NdArray.fromTyped(Float64Array.from({ length: 700_000 }, (_, n) => n))],
  ...Array.from({ length: 3000 }, (_, n) => [`layer_${n}`, floats([n])] as const)
] as ReadonlyArray<readonly [string, NdArray]>

describe("NpzFile", () => {
  it.effect("writes what Npz.encode writes, and reads it, each array in a buffer of its own", () =>
    Effect.gen(function* () {
      const bytes = yield* collect((sink) => NpzFile.write(many, sink))
      assert.isTrue(Buffer.from(concat(Result.getOrThrow(Npz.encode(many)))).equals(bytes))
      const arrays = yield* Stream.runCollect(NpzFile.stream(sourceOf(bytes)))
      assert.deepStrictEqual(
        arrays.map(([name]) => name),
        many.map(([name]) => name)
      )
      assert.isTrue(JSON.stringify(described(arrays)) === JSON.stringify(described(many)))
      for (const [name, array] of arrays) assert.strictEqual(array.bytes.buffer.byteLength, array.byteLength, name)
    })
  )

  it.effect("reads no more than it is asked for", () =>
    Effect.gen(function* () {
      const bytes = yield* collect((sink) => NpzFile.write(many.slice(3).toReversed(), sink))
      const source = sourceOf(bytes)
      const first = yield* Stream.runCollect(Stream.take(NpzFile.stream(source), 1))
      assert.deepStrictEqual(elements(first[0]?.[1]), [2999])
      assert.isBelow(
        source.reads.reduce((sum, length) => sum + length, 0),
        700_000
      )
    })
  )

  it.effect("takes arrays as they are made", () =>
    Effect.gen(function* () {
      const written: Array<number> = []
      const made: Array<number> = []
      const make = function* () {
        for (let n = 0; n < 3; n++) {
          made.push(written.length)
          yield [`a${n}`, NdArray.fromTyped(new Uint8Array(300_000))] as const
        }
      }
      yield* NpzFile.write(make(), (bytes) => Effect.sync(() => written.push(bytes.length)))
      assert.isTrue(made.every((count, n) => n === 0 || count > (made[n - 1] ?? 0)))
    })
  )

  describe("refuses what Npz.decode refuses", () => {
    it.effect.each(refused)("%s", ([, bytes, expected]) =>
      Effect.gen(function* () {
        assert.match(refusal(yield* read(bytes)), expected)
      })
    )

    it.effect("members over the limit, and too many of them", () =>
      Effect.gen(function* () {
        const content = file(floats(new Array<number>(10_000).fill(0)))
        const bytes = zip([
          { name: "a", content, method: 8 },
          { name: "b", content, method: 8 }
        ])
        assert.isTrue(Result.isSuccess(yield* read(bytes, { maxBytes: 2 * content.length })))
        const expected = /^InvalidValue: .*member "b" has 40128 bytes, 40127 are left of the limit/
        assert.match(refusal(yield* read(bytes, { maxBytes: 2 * content.length - 1 })), expected)
        assert.match(refusal(yield* read(bytes, { maxMembers: 1 })), /^Malformed: .*more than 1 members/)
      })
    )

    it.effect("bombs, before they are inflated", () =>
      Effect.gen(function* () {
        const small = file(floats([1]))
        const packed = deflateRawSync(concat([small, new Uint8Array(50_000_000)]))
        const honest = zip([{ name: "a", content: small, method: 8, packed, size: small.length + 50_000_000 }])
        assert.match(refusal(yield* read(honest)), /^Malformed: .*its npy header stands for 132/)
        const lying = zip([{ name: "a", content: small, method: 8, packed }])
        assert.match(refusal(yield* read(lying)), /^Malformed: .*inflates to more than its header stands for/)
        const header = npy(`{'descr': '<f4', 'fortran_order': False, 'shape': (${2 ** 28},)}`)
        const claim = zip([{ name: "a", content: header, method: 8, size: header.length + 2 ** 30 }])
        const before = process.memoryUsage().arrayBuffers
        assert.match(refusal(yield* read(claim)), /^Malformed: .*its npy header stands for/)
        assert.isBelow(process.memoryUsage().arrayBuffers - before, 2 ** 24)
      })
    )

    it.effect("names twice, and arrays that are none", () =>
      Effect.gen(function* () {
        const write = (arrays: Iterable<readonly [string, NdArray]>) =>
          Effect.result(NpzFile.write(arrays, () => Effect.void))
        const twice = [
          ["a", floats([1])],
          ["a", floats([1])]
        ] as const
        assert.match(refusal(yield* write(twice)), /^NotEncodable: array "a".*twice/)
        const short = new NdArray("<f4", [2], new Uint8Array(4))
        assert.match(refusal(yield* write([["a", short]])), /^NotEncodable: array "a".*needs 8 bytes/)
      })
    )
  })

  it.effect("passes on what its source fails with", () =>
    Effect.gen(function* () {
      const source = { size: 1000, readInto: () => Effect.fail("gone" as const) }
      const error = yield* Effect.flip(Stream.runDrain(NpzFile.stream(source)))
      assert.strictEqual(error, "gone")
    })
  )

  it.effect("answers every damaged file as Npz.decode does", () =>
    Effect.gen(function* () {
      const seed = 20_240_613
      const next = random(seed)
      const originals = [
        zip([
          { name: "a", content: file(floats([1, 2])) },
          { name: "b", content: file(ints([3])), method: 8 }
        ]),
        zip([{ name: "a", content: file(floats([1, 2])), wide: true }]),
        concat(Result.getOrThrow(Npz.encode([["a", floats([1, 2])]])))
      ]
      let accepted = 0
      for (let n = 0; n < mutations; n++) {
        const bytes = mutate(originals[n % originals.length] ?? new Uint8Array(0), next)
        const expected = Npz.decode(bytes, { maxBytes: 2 ** 20 })
        const result = yield* read(bytes, { maxBytes: 2 ** 20 })
        const where = `seed ${seed}, round ${n}`
        if (Result.isFailure(result)) {
          assert.isTrue(result.failure instanceof FobsError, where)
          assert.isTrue(Result.isFailure(expected), where)
          continue
        }
        accepted++
        assert.deepStrictEqual(described(result.success), described(Result.getOrThrow(expected)), where)
      }
      assert.isAbove(accepted, 50)
    })
  )
})
