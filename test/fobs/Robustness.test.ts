/** Values made by chance, and messages damaged by chance. */
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { FobsError } from "../../src/fobs/FobsError.ts"
import * as Keys from "../../src/fobs/Keys.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import { EnumValue, Float, NumpyScalar, OrderedDict, PyDateTime, Tuple } from "../../src/fobs/Values.ts"
import { Dxo } from "../../src/model/Dxo.ts"
import { FLContext } from "../../src/model/FLContext.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import { Shareable } from "../../src/model/Shareable.ts"
import { times, within } from "../support/long.ts"
import { watchMemory } from "../support/memory.ts"
import { concat, readFixture, vectors } from "./fixtures.ts"

const codec = ModelCodec.codec

const seed = Number(process.env.FOBS_SEED ?? 20261129)
const mutations = times(100_000)

/** 32-bit xorshift: the same numbers for the same seed. */
const generator = (start: number) => {
  let state = start | 1
  const next = (): number => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return state >>> 0
  }
  const below = (limit: number): number => next() % limit
  const pick = <A>(list: readonly [A, ...Array<A>]): A => list[below(list.length)] ?? list[0]
  return { next, below, pick }
}

type Chance = ReturnType<typeof generator>

const text = (chance: Chance): string =>
  Array.from({ length: chance.below(40) }, () =>
    chance.pick(["a", "Z", "é", "\u{1f600}", "\0", "\ufeff", "\ufffd", "__proto__"])
  ).join("")

const bytes = (chance: Chance): Uint8Array => Uint8Array.from({ length: chance.below(60) }, () => chance.below(256))

const number = (chance: Chance): unknown => {
  const size = 2 ** chance.below(65)
  return chance.pick<() => unknown>([
    () => Math.trunc((chance.next() / 2 ** 32) * size) * chance.pick([1, -1]) || 0,
    () => new Float(chance.below(100)),
    () => chance.next() / 3.7,
    () => -0,
    () => Number.NaN,
    () => Number.POSITIVE_INFINITY,
    () => new Float(Number.NaN, 0xfff8_0000_0000_0000n + BigInt(chance.next())),
    () => BigInt(2 ** 53) + BigInt(chance.next()),
    () => -(2n ** 63n) + BigInt(chance.next())
  ])()
}

const dict = (chance: Chance, depth: number): Map<unknown, unknown> => {
  const map = new Map<unknown, unknown>()
  for (let i = chance.below(5); i > 0; i--) {
    const key = chance.below(4) > 0 ? text(chance) : hashable(chance)
    if (!Keys.has(map, key)) map.set(key, value(chance, depth - 1))
  }
  return map
}

const hashable = (chance: Chance): unknown =>
  chance.pick<() => unknown>([
    () => chance.below(3),
    () => chance.next() / 3,
    () => chance.pick([true, false, null]),
    () => bytes(chance),
    () => new Tuple([chance.below(2), text(chance)]),
    () => new EnumValue("nvflare.apis.analytix.AnalyticsDataType", "SCALAR")
  ])()

const unique = (chance: Chance): ReadonlyArray<unknown> => {
  const map = new Map<unknown, unknown>()
  for (let i = chance.below(4); i > 0; i--) {
    const key = hashable(chance)
    if (!Keys.has(map, key)) map.set(key, key)
  }
  return Array.from(map.keys())
}

const leaf = (chance: Chance): unknown =>
  chance.pick<() => unknown>([
    () => text(chance),
    () => bytes(chance),
    () => number(chance),
    () => chance.pick([null, true, false]),
    () => new NumpyScalar("float32", Math.fround(chance.next() / 7)),
    () => new NumpyScalar("int32", chance.next() >> 1),
    () => new PyDateTime("2026-08-01T12:34:56.000789-05:30"),
    () => new EnumValue("nvflare.apis.dxo.DataKind", chance.pick(["WEIGHTS", "METRICS"])),
    () =>
      NdArray.fromTyped(
        Float64Array.from({ length: 6 }, () => chance.next()),
        chance.pick([[6], [2, 3], [1, 6, 1]])
      ),
    () => new Tensor("U8", [3], Uint8Array.of(1, 2, 3))
  ])()

const list = (chance: Chance, depth: number): ReadonlyArray<unknown> =>
  Array.from({ length: chance.below(5) }, () => value(chance, depth - 1))

const headers = (chance: Chance, depth: number): Map<string, unknown> =>
  new Map(Array.from({ length: chance.below(3) }, () => [text(chance), value(chance, depth - 1)] as const))

const value = (chance: Chance, depth: number): unknown =>
  depth === 0
    ? leaf(chance)
    : chance.pick<() => unknown>([
        () => leaf(chance),
        () => list(chance, depth),
        () => new Tuple(list(chance, depth)),
        () => dict(chance, depth),
        () => new OrderedDict(dict(chance, depth)),
        () => new Set(unique(chance)),
        () => new Shareable(headers(chance, depth), dict(chance, depth)),
        () => new Dxo({ kind: "COLLECTION", data: dict(chance, depth), meta: dict(chance, depth) }),
        () => new FLContext(value(chance, depth - 1), dict(chance, depth))
      ])()

describe(`FOBS by chance, seed ${seed}`, () => {
  it("any value comes back, and is written the same again", () => {
    const chance = generator(seed)
    for (let i = 0; i < 2000; i++) {
      const original = value(chance, 4)
      const options = { maxInlineSize: chance.pick([1, 20, 1000, 10_485_760]) }
      const message = concat(Result.getOrThrow(codec.encode(original, options)))
      const back = Result.getOrThrow(codec.decode(message, { lossless: true }))
      assert.deepStrictEqual(back, original, `value ${i}`)
      const again = concat(Result.getOrThrow(codec.encode(back, options)))
      assert.isTrue(Buffer.from(again).equals(message), `bytes of value ${i}`)
    }
  })

  it(
    `a damaged message gives a value or a typed error, ${mutations} times`,
    () => {
      const chance = generator(seed)
      const originals = vectors
        .filter(({ kind }) => kind !== "exchange")
        .map(({ file }) => readFixture(file))
        .filter(({ length }) => length > 0 && length < 4000)
      const outcomes = { value: 0, error: 0 }
      const memory = watchMemory(mutations)
      for (let i = 0; i < mutations; i++) {
        memory.at(i)
        const original = originals[i % originals.length] ?? new Uint8Array(1)
        const result = codec.decode(damage(original, originals, chance), { lossless: i % 2 === 0, items: "keep" })
        if (Result.isSuccess(result)) {
          outcomes.value++
          // What was taken must be of a kind that can be written, or be refused as a typed error.
          const again = codec.encode(result.success)
          if (Result.isFailure(again)) assert.instanceOf(again.failure, FobsError)
        } else {
          outcomes.error++
          assert.instanceOf(result.failure, FobsError)
          assert.notInclude(result.failure.message, " threw: ")
        }
      }
      memory.check()
      assert.isAbove(outcomes.value, 1000)
      assert.isAbove(outcomes.error, 1000)
    },
    within(30_000)
  )
})

const damage = (original: Uint8Array, others: ReadonlyArray<Uint8Array>, chance: Chance): Uint8Array => {
  const bytes = original.slice()
  // Most damage goes to the body: a wrong section header is refused before anything is read.
  const place = (): number => (chance.below(10) === 0 ? 0 : Math.min(10, bytes.length - 1)) + chance.below(bytes.length)
  const codes = [
    0xc1, 0xdd, 0xdf, 0xdb, 0xc6, 0xc9, 0xd9, 0x80, 0x90, 0xa0, 0xff, 0x00, 0x83, 0xcb, 0xcf, 0xc7
  ] as const
  switch (chance.below(6)) {
    case 0:
      return fixSize(bytes.subarray(0, 1 + chance.below(bytes.length)), chance)
    case 1: {
      const other = others[chance.below(others.length)] ?? bytes
      const from = chance.below(other.length)
      const part = other.subarray(from, from + chance.below(40))
      const at = Math.min(place(), bytes.length)
      return fixSize(concat([bytes.subarray(0, at), part, bytes.subarray(at)]), chance)
    }
    case 2: {
      const at = Math.min(place(), bytes.length)
      return fixSize(concat([bytes.subarray(0, at), bytes.subarray(at + 1 + chance.below(8))]), chance)
    }
    default:
      for (let i = 1 + chance.below(4); i > 0; i--) {
        const at = place() % bytes.length
        bytes[at] = chance.below(3) === 0 ? chance.pick(codes) : (bytes[at] ?? 0) ^ (1 << chance.below(8))
      }
      return bytes
  }
}

/** Mostly makes the size of the body fit again, so that the damage is met in the body. */
const fixSize = (message: Uint8Array, chance: Chance): Uint8Array => {
  const bytes = message.slice()
  if (bytes.length > 10 && chance.below(4) > 0) new DataView(bytes.buffer).setBigUint64(2, BigInt(bytes.length - 10))
  return bytes
}
