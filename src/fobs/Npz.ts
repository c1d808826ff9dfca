/**
 * The npz format: a zip file of npy arrays, as numpy's `savez` and `load` know it. Model files and the items of
 * downloads are npz.
 *
 * Source: docs/wire/fobs.md, section 7.2.
 *
 * @since 0.1.0
 */
import { constants, crc32, inflateRawSync } from "node:zlib"
import { Result } from "effect"
import { FobsError, InvalidValue, Malformed, NotEncodable } from "./FobsError.ts"
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
}

/**
 * 4 GiB: the default of {@link DecodeOptions}.
 *
 * @category constants
 * @since 0.1.0
 */
export const defaultMaxBytes: number = 2 ** 32

const suffix = ".npy"
const stored = 0
const deflated = 8
/** Deflate never does better than this; a larger claim needs no inflating to be refused. */
const bestRatio = 1032
/** Compressed bytes inflated in one step to see a header: what they yield is bounded by the ratio. */
const peekStep = 2048
/** No npy header is longer than this, padding and prefix included. */
const longestHeader = 40_100
/** zlib counts its buffers in 32 bits. */
const largestChunk = 2 ** 30

const malformed = (offset: number | undefined, what: string): FobsError =>
  new FobsError({ reason: new Malformed({ offset, message: `no npz file: ${what}` }) })
const invalid = (what: string): FobsError =>
  new FobsError({ reason: new InvalidValue({ typeName: "npz", message: `npz file refused: ${what}` }) })
const quoted = (name: string): string => JSON.stringify(name.length > 60 ? `${name.slice(0, 60)}...` : name)

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
    const members = yield* Result.mapError(ZipDirectory.read(bytes), ({ offset, what }) =>
      malformed(offset, isNpy(bytes) ? "it is a bare npy array; write it with numpy.savez" : what)
    )
    const arrays = new Map<string, NdArray>()
    let total = 0
    for (const member of members) {
      const npy = yield* unpack(member, maxBytes - total)
      total += npy.length
      arrays.set(arrayName(member.name), yield* inMember(member, Npy.decode(npy)))
    }
    return arrays
  })

const isNpy = (bytes: Uint8Array): boolean => Result.isSuccess(Npy.decodeHeader(bytes))

const arrayName = (name: string): string => (name.endsWith(suffix) ? name.slice(0, -suffix.length) : name)

/** Tells the member in an error of npy. */
const inMember = <A>(member: ZipDirectory.Member, result: Result.Result<A, FobsError>): Result.Result<A, FobsError> =>
  Result.mapError(result, ({ message, reason }) => {
    const what = `member ${quoted(member.name)}: ${message}`
    return reason._tag === "InvalidValue" ? invalid(what) : malformed(undefined, what)
  })

const unpack = (member: ZipDirectory.Member, maxBytes: number): Result.Result<Uint8Array, FobsError> =>
  Result.gen(function* () {
    const name = quoted(member.name)
    if (member.isEncrypted) return yield* Result.fail(invalid(`member ${name} is encrypted`))
    if (member.method !== stored && member.method !== deflated) {
      return yield* Result.fail(invalid(`member ${name} is packed by method ${member.method}, not stored or deflated`))
    }
    const isStored = member.method === stored
    if (member.size > maxBytes) return yield* Result.fail(tooLarge(member, maxBytes))
    const npy = isStored ? member.data : yield* inflate(member, maxBytes)
    if (npy.length !== member.size) {
      return yield* Result.fail(malformed(undefined, `member ${name} has ${npy.length} bytes, not ${member.size}`))
    }
    if (checksum([npy]) !== member.crc) {
      return yield* Result.fail(malformed(undefined, `the checksum of member ${name} is wrong: its bytes are damaged`))
    }
    return npy
  })

const tooLarge = (member: ZipDirectory.Member, left: number): FobsError =>
  invalid(`member ${quoted(member.name)} has ${member.size} bytes, ${left} are left of the limit (maxBytes)`)

/** Inflates as much as the npy header at the start stands for, and no more. */
const inflate = (member: ZipDirectory.Member, maxBytes: number): Result.Result<Uint8Array, FobsError> =>
  Result.gen(function* () {
    const { dataLength, dataOffset } = yield* peekHeader(member)
    const length = dataOffset + dataLength
    if (length > maxBytes) return yield* Result.fail(tooLarge({ ...member, size: length }, maxBytes))
    if (length !== member.size || length > member.data.length * bestRatio) {
      const what = `member ${quoted(member.name)} has ${member.size} bytes, its npy header stands for ${length}`
      return yield* Result.fail(malformed(undefined, what))
    }
    return yield* inMember(member, inflateAtMost(member.data, length))
  })

const inflateAtMost = (data: Uint8Array, length: number): Result.Result<Uint8Array, FobsError> =>
  Result.try({
    // One byte more than needed: a full buffer makes zlib ask for a second one.
    try: () => inflateRawSync(data, { maxOutputLength: length, chunkSize: Math.min(length + 1, largestChunk) }),
    catch: () => malformed(undefined, "it cannot be inflated to the bytes that its header stands for")
  })

/** Looks at the start of the inflated bytes, from a start of the deflated ones that grows until the header is there. */
const peekHeader = (member: ZipDirectory.Member): Result.Result<Npy.Header, FobsError> => {
  for (let length = peekStep; ; length += peekStep) {
    const start = Result.try(() =>
      inflateRawSync(member.data.subarray(0, length), { finishFlush: constants.Z_SYNC_FLUSH })
    )
    if (Result.isFailure(start)) return inMember(member, Result.fail(malformed(undefined, "it cannot be inflated")))
    const header = Npy.decodeHeader(start.success)
    const isAll = length >= member.data.length || start.success.length >= longestHeader
    if (Result.isSuccess(header) || isAll) return inMember(member, header)
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
  Result.gen(function* () {
    const pieces: Array<Uint8Array> = []
    const members: Array<ZipDirectory.NewMember> = []
    const names = new Set<string>()
    let offset = 0
    for (const [name, array] of arrays) {
      if (names.has(name)) return yield* notEncodable(name, "the name is there twice")
      names.add(name)
      const encoded = yield* Result.mapError(Npy.encode(array), ({ message }) => notEncodableError(name, message))
      const member = yield* newMember(name, encoded, offset)
      const local = ZipDirectory.localHeader(member)
      members.push(member)
      pieces.push(local, ...encoded)
      offset += local.length + member.size
    }
    return [...pieces, ...ZipDirectory.directory(members, offset)]
  })

const newMember = (
  name: string,
  encoded: readonly [Uint8Array, Uint8Array],
  offset: number
): Result.Result<ZipDirectory.NewMember, FobsError> => {
  if (!name.isWellFormed()) return notEncodable(name, "the name holds half a character (a lone surrogate)")
  const text = name + suffix
  const bytes = new TextEncoder().encode(text)
  if (bytes.length > 0xffff) return notEncodable(name, "the name is longer than 65531 bytes")
  const size = encoded[0].length + encoded[1].length
  return Result.succeed({ name: bytes, isAscii: bytes.length === text.length, crc: checksum(encoded), size, offset })
}

const notEncodableError = (name: string, what: string): FobsError =>
  new FobsError({ reason: new NotEncodable({ message: `array ${quoted(name)} cannot go into an npz file: ${what}` }) })
const notEncodable = (name: string, what: string): Result.Result<never, FobsError> =>
  Result.fail(notEncodableError(name, what))
