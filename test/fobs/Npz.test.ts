import { crc32, deflateRawSync } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import type { FobsError } from "../../src/fobs/FobsError.ts"
import type { NdArray } from "../../src/fobs/NdArray.ts"
import * as Npy from "../../src/fobs/Npy.ts"
import * as Npz from "../../src/fobs/Npz.ts"
import { elements, floats, hex, ints, latin1, mutate, npy, random } from "./arrays.ts"
import { readFixture, vectors } from "./fixtures.ts"

const concat = (pieces: ReadonlyArray<Uint8Array>): Uint8Array => new Uint8Array(Buffer.concat(pieces))
const encode = (arrays: Iterable<readonly [string, NdArray]>): Uint8Array =>
  concat(Result.getOrThrow(Npz.encode(arrays)))
const decode = (bytes: Uint8Array): Map<string, NdArray> => Result.getOrThrow(Npz.decode(bytes))
const file = (array: NdArray): Uint8Array => concat(Result.getOrThrow(Npy.encode(array)))

const refusal = (result: Result.Result<unknown, FobsError>): string =>
  Result.isFailure(result) ? `${result.failure.reason._tag}: ${result.failure.message}` : "accepted"

interface Entry {
  readonly name: string
  readonly content: Uint8Array
  readonly method?: number
  readonly flags?: number
  readonly crc?: number
  readonly size?: number
  readonly packed?: Uint8Array
  readonly extra?: Uint8Array
  readonly wide?: boolean
}

const u16 = (value: number) => Uint8Array.of(value & 255, value >> 8)
const u32 = (value: number) => Uint8Array.of(value & 255, (value >>> 8) & 255, (value >>> 16) & 255, value >>> 24)
const u64 = (value: number) => concat([u32(value % 2 ** 32), u32(Math.floor(value / 2 ** 32))])

/** A zip file as other programs write it: version 2.0, an extra field in front of the data, a comment. */
const zip = (entries: ReadonlyArray<Entry>, comment = "made by hand"): Uint8Array => {
  const body: Array<Uint8Array> = []
  const directory: Array<Uint8Array> = []
  let offset = 0
  for (const { content, name, ...entry } of entries) {
    const method = entry.method ?? 0
    const packed = entry.packed ?? (method === 8 ? deflateRawSync(content) : content)
    const common = concat([u16(20), u16(entry.flags ?? 0), u16(method), u32(0), u32(entry.crc ?? crc32(content))])
    const size = entry.size ?? content.length
    const text = new TextEncoder().encode(name)
    const local = concat([
      latin1("PK\x03\x04"),
      common,
      u32(packed.length),
      u32(size),
      u16(text.length),
      u16(4),
      text,
      latin1("xx\0\0")
    ])
    const all = 0xffffffff
    const sizes = entry.wide ? [u32(all), u32(all)] : [u32(packed.length), u32(size)]
    const wide = entry.wide ? [u16(1), u16(24), u64(size), u64(packed.length), u64(offset)] : []
    const extra = concat([latin1("yy\x02\0zz"), ...wide])
    const rest = [u16(text.length), u16(extra.length), u16(1), u16(0), u16(0), u32(0), u32(entry.wide ? all : offset)]
    directory.push(concat([latin1("PK\x01\x02"), u16(20), common, ...sizes, ...rest, text, extra, latin1("c")]))
    body.push(local, packed)
    offset += local.length + packed.length
  }
  const length = concat(directory).length
  const end = [u32(0), u16(entries.length), u16(entries.length), u32(length), u32(offset), u16(comment.length)]
  return concat([...body, ...directory, latin1("PK\x05\x06"), ...end, latin1(comment)])
}

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
    const content = file(floats([1, 2]))
    const good = zip([{ name: "a", content }], "")
    const cases: ReadonlyArray<readonly [string, Uint8Array, RegExp]> = [
      ["nothing", new Uint8Array(0), /^Malformed: .*no end record/],
      ["a bare npy", content, /^Malformed: .*bare npy array; write it with numpy.savez/],
      ["text", latin1("hello ".repeat(100)), /^Malformed: .*no end record/],
      ["a file cut short", good.subarray(0, good.length - 1), /^Malformed: /],
      [
        "a member that is no npy",
        zip([{ name: "a", content: latin1("x".repeat(100)) }]),
        /^Malformed: .*member "a".*signature/
      ],
      [
        "objects",
        zip([{ name: "a", content: npy("{'descr': '|O', 'fortran_order': False, 'shape': ()}") }]),
        /^InvalidValue: .*member "a".*objects/
      ],
      ["a wrong checksum", zip([{ name: "a", content, crc: 1 }]), /^Malformed: .*checksum of member "a"/],
      [
        "a wrong checksum of a deflated member",
        zip([{ name: "a", content, crc: 1, method: 8 }]),
        /^Malformed: .*checksum/
      ],
      ["an encrypted member", zip([{ name: "a", content, flags: 1 }]), /^InvalidValue: .*encrypted/],
      ["bzip2", zip([{ name: "a", content, method: 12 }]), /^InvalidValue: .*method 12/],
      [
        "deflated bytes that are none",
        zip([{ name: "a", content, method: 8, packed: latin1("\xff\xff\xff") }]),
        /^Malformed: .*inflated/
      ],
      [
        "deflated bytes cut short",
        zip([{ name: "a", content, method: 8, packed: deflateRawSync(content).subarray(0, -6) }]),
        /^Malformed: /
      ],
      [
        "a size that is not the member's",
        zip([{ name: "a", content, size: content.length + 1 }]),
        /^Malformed: .*has 136 bytes, not 137/
      ],
      [
        "a directory beyond the file",
        concat([latin1("PK\x05\x06"), u32(0), u16(1), u16(1), u32(46), u32(1000), u16(0)]),
        /^Malformed: .*outside/
      ],
      [
        "a name that is not utf-8",
        zip([{ name: "aé", content }]).map((byte) => (byte === 0xc3 ? 0xff : byte)),
        /^Malformed: .*not utf-8/
      ]
    ]
    it.each(cases)("%s", (_, bytes, expected) => {
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
    for (let n = 0; n < 20_000; n++) {
      const bytes = mutate(originals[n % originals.length] ?? new Uint8Array(0), next)
      const result = Npz.decode(bytes, { maxBytes })
      if (Result.isFailure(result)) continue
      accepted++
      const total = [...result.success.values()].reduce((sum, array) => sum + array.byteLength, 0)
      assert.isAtMost(total, maxBytes, `seed ${seed}, round ${n}`)
    }
    assert.isAbove(accepted, 100)
  })
})
