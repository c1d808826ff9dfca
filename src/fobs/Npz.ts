/**
 * The npz format: a zip file of npy arrays, as numpy's `savez` and `load` know it. Model files and the items of
 * downloads are npz.
 *
 * Source: docs/wire/fobs.md, section 7.2.
 *
 * @since 0.1.0
 */
import { constants, crc32, inflateRawSync } from "node:zlib"
import { Effect, Result } from "effect"
import type { FobsError } from "./FobsError.ts"
import { checksum as checksumInSteps } from "./internal/byteSteps.ts"
import * as Member from "./internal/npzMember.ts"
import * as ZipDirectory from "./internal/ZipDirectory.ts"
import type { NdArray } from "./NdArray.ts"
import * as Npy from "./Npy.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface DecodeOptions {
  /**
   * The most bytes that all arrays together may take, headers included. Deflated members can stand for a thousand
   * times their own size, so this bounds the memory that a hostile file costs. Default: {@link defaultMaxBytes}.
   */
  readonly maxBytes?: number
  /** The most members that the file may have: each costs memory, however small it is. Default: no limit. */
  readonly maxMembers?: number
}

/**
 * 4 GiB: the default of {@link DecodeOptions}.
 *
 * @category constants
 * @since 0.1.0
 */
export const defaultMaxBytes: number = 2 ** 32

/** Compressed bytes inflated in one step to see a header: what they yield is bounded by the ratio. */
const peekStep = 2048
/** zlib counts its buffers in 32 bits. */
const largestChunk = 2 ** 30

// --- decoding ---

/**
 * Reads all arrays by their names (member names without `.npy`), in the order of the zip directory; of two members
 * with one name the later counts, as in Python. Arrays from stored members are views of `bytes`, which must not
 * change any more; deflated ones are copies. Sizes and checksums are checked.
 *
 * Fails with `Malformed` when the bytes are no zip file or a member is no npy, with `InvalidValue` when the arrays
 * are larger than `maxBytes`, or a member is encrypted, packed otherwise than by deflate, or an array that
 * `Npy.decode` refuses.
 *
 * @category decoding
 * @since 0.1.0
 */
export const decode = (
  bytes: Uint8Array,
  options: DecodeOptions = {}
): Result.Result<Map<string, NdArray>, FobsError> =>
  Result.gen(function* () {
    const maxBytes = options.maxBytes ?? defaultMaxBytes
    const members = yield* Result.mapError(ZipDirectory.read(bytes, options.maxMembers), (problem) =>
      Member.noZip(bytes, problem)
    )
    const arrays = new Map<string, NdArray>()
    let total = 0
    for (const member of members) {
      const npy = yield* unpack(member, maxBytes - total)
      total += npy.length
      arrays.set(Member.arrayName(member.name), yield* Member.inMember(member, Npy.decode(npy)))
    }
    return arrays
  })

const unpack = (member: ZipDirectory.Member, maxBytes: number): Result.Result<Uint8Array, FobsError> =>
  Result.gen(function* () {
    yield* Member.checkEntry(member, maxBytes)
    const npy = member.method === Member.stored ? member.data : yield* inflate(member, maxBytes)
    if (npy.length !== member.size) return yield* Result.fail(Member.wrongLength(member, npy.length))
    yield* Member.checkCrc(member, checksum([npy]))
    return npy
  })

/** Inflates as much as the npy header at the start stands for, and no more. */
const inflate = (member: ZipDirectory.Member, maxBytes: number): Result.Result<Uint8Array, FobsError> =>
  Result.gen(function* () {
    const length = yield* Member.checkInflated(member, yield* peekHeader(member), maxBytes)
    return yield* Member.inMember(member, inflateAtMost(member.data, length))
  })

const inflateAtMost = (data: Uint8Array, length: number): Result.Result<Uint8Array, FobsError> =>
  Result.try({
    // One byte more than needed: a full buffer makes zlib ask for a second one.
    try: () => inflateRawSync(data, { maxOutputLength: length, chunkSize: Math.min(length + 1, largestChunk) }),
    catch: () => Member.malformed(undefined, "it cannot be inflated to the bytes that its header stands for")
  })

/** Looks at the start of the inflated bytes, from a start of the deflated ones that grows until the header is there. */
const peekHeader = (member: ZipDirectory.Member): Result.Result<Npy.Header, FobsError> => {
  for (let length = peekStep; ; length += peekStep) {
    const start = Result.try(() =>
      inflateRawSync(member.data.subarray(0, length), { finishFlush: constants.Z_SYNC_FLUSH })
    )
    if (Result.isFailure(start))
      return Member.inMember(member, Result.fail(Member.malformed(undefined, "it cannot be inflated")))
    const header = Npy.decodeHeader(start.success)
    const isAll = length >= member.data.length || start.success.length >= Member.longestHeader
    if (Result.isSuccess(header) || isAll) return Member.inMember(member, header)
  }
}

// --- encoding ---

/** node:zlib takes at most 4 GiB at once. */
const checksumStep = 2 ** 30

const checksum = (pieces: ReadonlyArray<Uint8Array>): number => {
  let crc = 0
  for (const piece of pieces) {
    for (let at = 0; at < piece.length; at += checksumStep) crc = crc32(piece.subarray(at, at + checksumStep), crc)
  }
  return crc
}

interface Encoded {
  readonly name: string
  readonly pieces: readonly [Uint8Array, Uint8Array]
}

const encodeArrays = (
  arrays: Iterable<readonly [name: string, array: NdArray]>
): Result.Result<ReadonlyArray<Encoded>, FobsError> =>
  Result.gen(function* () {
    const names = new Set<string>()
    const encoded: Array<Encoded> = []
    for (const [name, array] of arrays) {
      if (names.has(name)) return yield* Member.notEncodable(name, "the name is there twice")
      names.add(name)
      const pieces = yield* Result.mapError(Npy.encode(array), ({ message }) => Member.notEncodableError(name, message))
      encoded.push({ name, pieces })
    }
    return encoded
  })

const assemble = (
  arrays: ReadonlyArray<Encoded & { readonly crc: number }>
): Result.Result<ReadonlyArray<Uint8Array>, FobsError> =>
  Result.gen(function* () {
    const all: Array<Uint8Array> = []
    const members: Array<ZipDirectory.NewMember> = []
    let offset = 0
    for (const { crc, name, pieces } of arrays) {
      const member = yield* Member.newMember(name, pieces, crc, offset)
      const local = ZipDirectory.localHeader(member)
      members.push(member)
      all.push(local, ...pieces)
      offset += local.length + member.size
    }
    return [...all, ...ZipDirectory.directory(members, offset)]
  })

/**
 * Writes arrays as numpy's `savez` does, byte for byte, as pieces whose concatenation is the file. Array data is not
 * copied: it must stay unchanged until the pieces are used up.
 *
 * Fails with `NotEncodable` when an array is none (`Npy.encode`), or a name is met twice, is longer than 65531 bytes, or no
 * well-formed text.
 *
 * @category encoding
 * @since 0.1.0
 */
export const encode = (
  arrays: Iterable<readonly [name: string, array: NdArray]>
): Result.Result<ReadonlyArray<Uint8Array>, FobsError> =>
  Result.flatMap(encodeArrays(arrays), (encoded) =>
    assemble(encoded.map((array) => ({ ...array, crc: checksum(array.pieces) })))
  )

/**
 * As {@link encode}, with pauses in which others may run: the checksum of a large array takes a while.
 *
 * @category encoding
 * @since 0.1.0
 */
export const encodeInSteps = Effect.fnUntraced(function* (
  arrays: Iterable<readonly [name: string, array: NdArray]>
): Effect.fn.Return<ReadonlyArray<Uint8Array>, FobsError> {
  const encoded = yield* Effect.fromResult(encodeArrays(arrays))
  const checked = yield* Effect.forEach(encoded, (array) =>
    Effect.map(checksumInSteps(array.pieces), (crc) => ({ ...array, crc }))
  )
  return yield* Effect.fromResult(assemble(checked))
})
