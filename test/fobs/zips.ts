/** Zip files of npy arrays, good and bad, for the tests of npz. */
import { crc32, deflateRawSync } from "node:zlib"
import { Result } from "effect"
import type { FobsError } from "../../src/fobs/FobsError.ts"
import type { NdArray } from "../../src/fobs/NdArray.ts"
import * as Npy from "../../src/fobs/Npy.ts"
import { floats, latin1, npy } from "./arrays.ts"

export const concat = (pieces: ReadonlyArray<Uint8Array>): Uint8Array => new Uint8Array(Buffer.concat(pieces))

/** The npy of an array. */
export const file = (array: NdArray): Uint8Array => concat(Result.getOrThrow(Npy.encode(array)))

export const refusal = (result: Result.Result<unknown, FobsError>): string =>
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
export const zip = (entries: ReadonlyArray<Entry>, comment = "made by hand"): Uint8Array => {
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

const content = file(floats([1, 2]))
const good = zip([{ name: "a", content }], "")
/** Files that are refused, and how. */
export const refused: ReadonlyArray<readonly [string, Uint8Array, RegExp]> = [
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
  ["a wrong checksum of a deflated member", zip([{ name: "a", content, crc: 1, method: 8 }]), /^Malformed: .*checksum/],
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
