/** What a member of an npz must be, and the errors that say so. */
import { Result } from "effect"
import { FobsError, InvalidValue, Malformed, NotEncodable } from "../FobsError.ts"
import * as Npy from "../Npy.ts"
import type * as ZipDirectory from "./ZipDirectory.ts"

const suffix = ".npy"
export const stored = 0
const deflated = 8
/** Deflate never does better than this; a larger claim needs no inflating to be refused. */
const bestRatio = 1032
/** No npy header is longer than this, padding and prefix included. */
export const longestHeader = 40_100

export const malformed = (offset: number | undefined, what: string): FobsError =>
  new FobsError({ reason: new Malformed({ offset, message: `no npz file: ${what}` }) })
export const invalid = (what: string): FobsError =>
  new FobsError({ reason: new InvalidValue({ typeName: "npz", message: `npz file refused: ${what}` }) })
export const quoted = (name: string): string => JSON.stringify(name.length > 60 ? `${name.slice(0, 60)}...` : name)

/** What a directory problem is called; `start` are the first bytes of the file. */
export const noZip = (start: Uint8Array, { offset, what }: ZipDirectory.Problem): FobsError => {
  const isNpy = Result.isSuccess(Npy.decodeHeader(start))
  return malformed(offset, isNpy ? "it is a bare npy array; write it with numpy.savez" : what)
}

export const arrayName = (name: string): string => (name.endsWith(suffix) ? name.slice(0, -suffix.length) : name)

/** Tells the member in an error of npy. */
export const inMember = <A>(
  member: ZipDirectory.Entry,
  result: Result.Result<A, FobsError>
): Result.Result<A, FobsError> =>
  Result.mapError(result, ({ message, reason }) => {
    const what = `member ${quoted(member.name)}: ${message}`
    return reason._tag === "InvalidValue" ? invalid(what) : malformed(undefined, what)
  })

/** Refuses what needs no look at the member's bytes. */
export const checkEntry = (member: ZipDirectory.Entry, maxBytes: number): Result.Result<void, FobsError> => {
  const name = quoted(member.name)
  if (member.isEncrypted) return Result.fail(invalid(`member ${name} is encrypted`))
  if (member.method !== stored && member.method !== deflated) {
    return Result.fail(invalid(`member ${name} is packed by method ${member.method}, not stored or deflated`))
  }
  return member.size > maxBytes ? Result.fail(tooLarge(member, member.size, maxBytes)) : Result.void
}

const tooLarge = (member: ZipDirectory.Entry, size: number, left: number): FobsError =>
  invalid(`member ${quoted(member.name)} has ${size} bytes, ${left} are left of the limit (maxBytes)`)

/** Refuses a deflated member that can't be what its npy header stands for; succeeds with its inflated length. */
export const checkInflated = (
  member: ZipDirectory.Entry,
  { dataLength, dataOffset }: Npy.Header,
  maxBytes: number
): Result.Result<number, FobsError> => {
  const length = dataOffset + dataLength
  if (length > maxBytes) return Result.fail(tooLarge(member, length, maxBytes))
  if (length === member.size && length <= member.packed * bestRatio) return Result.succeed(length)
  const what = `member ${quoted(member.name)} has ${member.size} bytes, its npy header stands for ${length}`
  return Result.fail(malformed(undefined, what))
}

export const wrongLength = (member: ZipDirectory.Entry, length: number): FobsError =>
  malformed(undefined, `member ${quoted(member.name)} has ${length} bytes, not ${member.size}`)

export const checkCrc = (member: ZipDirectory.Entry, crc: number): Result.Result<void, FobsError> =>
  crc === member.crc
    ? Result.void
    : Result.fail(malformed(undefined, `the checksum of member ${quoted(member.name)} is wrong: its bytes are damaged`))

// --- writing ---

/** The directory's entry for an array; the crc is that of header and data. */
export const newMember = (
  name: string,
  encoded: readonly [Uint8Array, Uint8Array],
  crc: number,
  offset: number
): Result.Result<ZipDirectory.NewMember, FobsError> => {
  if (!name.isWellFormed()) return notEncodable(name, "the name holds half a character (a lone surrogate)")
  const text = name + suffix
  const bytes = new TextEncoder().encode(text)
  if (bytes.length > 0xffff) return notEncodable(name, "the name is longer than 65531 bytes")
  const size = encoded[0].length + encoded[1].length
  return Result.succeed({ name: bytes, isAscii: bytes.length === text.length, crc, size, offset })
}

export const notEncodableError = (name: string, what: string): FobsError =>
  new FobsError({ reason: new NotEncodable({ message: `array ${quoted(name)} cannot go into an npz file: ${what}` }) })
export const notEncodable = (name: string, what: string): Result.Result<never, FobsError> =>
  Result.fail(notEncodableError(name, what))
