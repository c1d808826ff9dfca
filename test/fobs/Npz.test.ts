import { deflateRawSync } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import type { NdArray } from "../../src/fobs/NdArray.ts"
import * as Npz from "../../src/fobs/Npz.ts"
import { times } from "../support/long.ts"
import { watchMemory } from "../support/memory.ts"
import { elements, floats, hex, ints, mutate, npy, random } from "./arrays.ts"
import { readFixture, vectors } from "./fixtures.ts"
import { concat, file, refusal, refused, zip } from "./zips.ts"

const mutations = times(20_000, 50)

const encode = (arrays: Iterable<readonly [string, NdArray]>): Uint8Array =>
  concat(Result.getOrThrow(Npz.encode(arrays)))
const decode = (bytes: Uint8Array): Map<string, NdArray> => Result.getOrThrow(Npz.decode(bytes))
const items = vectors
  .flatMap(({ ref_items }) => Object.values(ref_items ?? {}).flat())
  .filter((item) => item.describe.format === "npz")

describe("Npz", () => {
  it("has captured files to test against", () => {
    assert.isAbove(items.length, 20)
  })

  it.each(items)("reads $file and writes it byte for byte", (item) => {
    const bytes = readFixture(item.file)
    const arrays = decode(bytes)
    assert.deepStrictEqual([...arrays.keys()], Object.keys(item.describe.items))
    assert.strictEqual(hex(encode(arrays)), hex(bytes))
  })

  it.effect("writes the same bytes in steps, and refuses the same", () =>
    Effect.gen(function* () {
      const large = floats(new Array(3_000_000).fill(1.5))
      const arrays = [["a", large] as const, ["b", floats([1])] as const]
      const pieces = yield* Npz.encodeInSteps(arrays)
      assert.isTrue(pieces.includes(large.bytes))
      assert.strictEqual(Buffer.compare(concat(pieces), encode(arrays)), 0)
      const twice = yield* Effect.flip(Npz.encodeInSteps([...arrays, ...arrays]))
      assert.strictEqual(twice.reason._tag, "NotEncodable")
    })
  )

  it("gives views of stored members and copies nothing when it writes", () => {
    const array = floats([1, 2, 3])
    const pieces = Result.getOrThrow(Npz.encode([["a", array]]))
    assert.isTrue(pieces.includes(array.bytes))
    const bytes = concat(pieces)
    assert.strictEqual(decode(bytes).get("a")?.bytes.buffer, bytes.buffer)
  })

  it("keeps names of any letters and signs, and their order", () => {
    const names = ["z", "a.b/c", "日本.npy", "__proto__", "", "1", "0"]
    const arrays = decode(encode(names.map((name, n) => [name, floats([n])] as const)))
    assert.deepStrictEqual([...arrays.keys()], names)
    assert.deepStrictEqual(
      names.map((name) => elements(arrays.get(name))),
      names.map((_, n) => [n])
    )
  })

  it("writes and reads a file of nothing, and one of 70000 arrays", () => {
    assert.strictEqual(decode(encode([])).size, 0)
    const array = floats([1])
    const many = encode(Array.from({ length: 70_000 }, (_, n) => [String(n), array] as const))
    assert.strictEqual(decode(many).size, 70_000)
    // More than 65535 members need the 64-bit end record, which Python goes by.
    assert.isAbove(Buffer.from(many).lastIndexOf("PK\x06\x06"), many.length - 120)
  })

  it.each([
    ["stored", {}],
    ["deflated", { method: 8 }],
    ["with 64-bit sizes", { wide: true }],
    ["with a data descriptor", { flags: 8 }]
  ])("reads a member that is %s, named with .npy or without", (_, options) => {
    const arrays = decode(
      zip([
        { name: "a.npy", content: file(floats([1, 2])), ...options },
        { name: "b", content: file(ints([3])), ...options }
      ])
    )
    assert.deepStrictEqual(
      [...arrays].map(([name, array]) => [name, elements(array)]),
      [
        ["a", [1, 2]],
        ["b", [3]]
      ]
    )
  })

  it("reads a deflated member whose header is long and hard to compress", () => {
    const next = random(7)
    const name = Array.from({ length: 9_000 }, () => String.fromCharCode(97 + next(26))).join("")
    const content = npy(
      `{'descr': [('${name}', '|u1')], 'fortran_order': False, 'shape': (3,), }`,
      Uint8Array.of(1, 2, 3)
    )
    const array = decode(zip([{ name: "a", content, method: 8 }])).get("a")
    assert.deepStrictEqual([array?.dtype.length, array && hex(array.bytes)], [9_000 + 13, "010203"])
  })

  it("takes the later of two members with one name", () => {
    const arrays = decode(
      zip([
        { name: "a", content: file(floats([1])) },
        { name: "a.npy", content: file(floats([2])) }
      ])
    )
    assert.deepStrictEqual(elements(arrays.get("a")), [2])
  })

  describe("refuses", () => {
    it.each(refused)("%s", (_, bytes, expected) => {
      assert.match(refusal(Npz.decode(bytes)), expected)
    })

    it("names twice, names of half a character, and arrays that are none", () => {
      assert.match(
        refusal(
          Npz.encode([
            ["a", floats([1])],
            ["a", floats([1])]
          ])
        ),
        /^NotEncodable: array "a".*twice/
      )
      assert.match(refusal(Npz.encode([["\ud800", floats([1])]])), /^NotEncodable: .*surrogate/)
      assert.match(refusal(Npz.encode([["n".repeat(65_532), floats([1])]])), /^NotEncodable: .*longer/)
    })
  })

  describe("bounds what deflated members become", () => {
    const zeros = (length: number) => file(floats(new Array<number>(length).fill(0)))

    it("by the limit", () => {
      const content = zeros(10_000)
      const bytes = zip([
        { name: "a", content, method: 8 },
        { name: "b", content, method: 8 }
      ])
      assert.isTrue(Result.isSuccess(Npz.decode(bytes, { maxBytes: 2 * content.length })))
      const expected = /^InvalidValue: .*member "b" has 40128 bytes, 40127 are left of the limit/
      assert.match(refusal(Npz.decode(bytes, { maxBytes: 2 * content.length - 1 })), expected)
    })

    it("by the limit for stored members, too", () => {
      const bytes = zip([{ name: "a", content: zeros(10) }])
      assert.match(refusal(Npz.decode(bytes, { maxBytes: 100 })), /^InvalidValue: .*limit/)
    })

    it("by the array's own header: a bomb is not inflated", () => {
      const small = file(floats([1]))
      const packed = deflateRawSync(concat([small, new Uint8Array(50_000_000)]))
      const honest = zip([{ name: "a", content: small, method: 8, packed, size: small.length + 50_000_000 }])
      assert.match(refusal(Npz.decode(honest)), /^Malformed: .*its npy header stands for 132/)
      const lying = zip([{ name: "a", content: small, method: 8, packed }])
      assert.match(refusal(Npz.decode(lying)), /^Malformed: .*cannot be inflated/)
    })

    it("by what deflate can reach: a claim of gigabytes reserves nothing", () => {
      const header = npy(`{'descr': '<f4', 'fortran_order': False, 'shape': (${2 ** 28},)}`)
      const bytes = zip([{ name: "a", content: header, method: 8, size: header.length + 2 ** 30 }])
      const before = process.memoryUsage().arrayBuffers
      assert.match(refusal(Npz.decode(bytes)), /^Malformed: /)
      assert.isBelow(process.memoryUsage().arrayBuffers - before, 2 ** 24)
    })
  })

  it("answers every damaged file with arrays or a typed error, in bounded memory", () => {
    const seed = 20_240_612
    const next = random(seed)
    const originals = [
      zip([
        { name: "a", content: file(floats([1, 2])) },
        { name: "b", content: file(ints([3])), method: 8 }
      ]),
      zip([{ name: "a", content: file(floats([1, 2])), wide: true }]),
      encode([["a", floats([1, 2])]]),
      encode([])
    ]
    const maxBytes = 2 ** 20
    let accepted = 0
    const memory = watchMemory(mutations)
    for (let n = 0; n < mutations; n++) {
      memory.at(n)
      const bytes = mutate(originals[n % originals.length] ?? new Uint8Array(0), next)
      const result = Npz.decode(bytes, { maxBytes })
      if (Result.isFailure(result)) continue
      accepted++
      const total = [...result.success.values()].reduce((sum, array) => sum + array.byteLength, 0)
      assert.isAtMost(total, maxBytes, `seed ${seed}, round ${n}`)
    }
    memory.check()
    assert.isAbove(accepted, 100)
  })
})
