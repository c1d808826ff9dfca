/**
 * The central directory of a zip file, read and written: as much of the format as npz needs.
 *
 * By hand and not by a library, because of the limits: every size in a directory is the sender's claim, a member must
 * be seen before it is inflated, and stored members (what numpy writes) stay views.
 *
 * Source: docs/wire/fobs.md, section 7.2.
 */
import { Result } from "effect"

export interface Entry {
  readonly name: string
  /** 0 stored, 8 deflated; others are the reader's to refuse. */
  readonly method: number
  readonly isEncrypted: boolean
  readonly crc: number
  /** The size without compression that the directory claims. */
  readonly size: number
  /** Bytes that the member takes in the file, as the directory claims. */
  readonly packed: number
  /** Where its local header begins in the file. */
  readonly offset: number
}

export interface Member extends Entry {
  /** The member's bytes as they stand in the file: a view. */
  readonly data: Uint8Array
}

/** What is wrong, and where. */
export interface Problem {
  readonly offset: number
  readonly what: string
}

const endLength = 22
const locatorLength = 20
const end64Length = 56
const entryLength = 46
export const localLength = 30
const maxComment = 0xffff
const utf8Flag = 0x800
const in32Bits = 0xffffffff
/** Python's zipfile turns to 64-bit fields here already. */
const zip64Limit = 2 ** 31 - 1

const signature = { end: 0x06054b50, end64: 0x06064b50, locator: 0x07064b50, entry: 0x02014b50, local: 0x04034b50 }

const problem = (offset: number, what: string): Result.Result<never, Problem> => Result.fail({ offset, what })

const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)

/** A 64-bit field; beyond 2^53 it is infinite, which no bound lets pass. */
const getUint64 = (view: DataView, at: number): number => {
  const value = view.getBigUint64(at, true)
  return value > BigInt(Number.MAX_SAFE_INTEGER) ? Infinity : Number(value)
}

// --- reading ---

const findEnd = (view: DataView): number | undefined => {
  const last = view.byteLength - endLength
  for (let at = last; at >= Math.max(0, last - maxComment); at--) {
    if (
      view.getUint32(at, true) === signature.end &&
      at + endLength + view.getUint16(at + 20, true) <= view.byteLength
    ) {
      return at
    }
  }
  return undefined
}

export interface Extent {
  readonly start: number
  readonly end: number
}

/** Where the directory lies: from the end record, or its 64-bit form where a locator stands in front of it. */
const findDirectory = (view: DataView, end: number, base: number): Extent => {
  const narrow = extent(view.getUint32(end + 16, true), view.getUint32(end + 12, true))
  const locator = end - locatorLength
  if (locator < 0 || view.getUint32(locator, true) !== signature.locator) return narrow
  const end64 = getUint64(view, locator + 8) - base
  if (end64 < 0 || end64 + end64Length > locator || view.getUint32(end64, true) !== signature.end64) {
    return extent(Infinity, 0)
  }
  return extent(getUint64(view, end64 + 48), getUint64(view, end64 + 40))
}

const extent = (start: number, length: number): Extent => ({ start, end: start + length })

/** As many bytes from the end of a file are enough for {@link locate}. */
export const tailLength = end64Length + locatorLength + endLength + maxComment

/** The place of the directory in a file, told from its last bytes, which begin at `base`. */
export const locate = (tail: Uint8Array, base: number): Result.Result<Extent, Problem> => {
  const view = viewOf(tail)
  const end = findEnd(view)
  if (end === undefined) return problem(0, "it has no end record of a zip file")
  const directory = findDirectory(view, end, base)
  return directory.end > base + end
    ? problem(base + end, "its directory lies outside of it")
    : Result.succeed(directory)
}

/** The entries of a directory that begins at `base` of its file. */
export const readEntries = (
  directory: Uint8Array,
  base: number,
  maxMembers: number = Number.POSITIVE_INFINITY
): Result.Result<ReadonlyArray<Entry>, Problem> => {
  const view = viewOf(directory)
  const entries: Array<Entry> = []
  for (let at = 0; at < directory.length; ) {
    if (entries.length >= maxMembers) {
      return problem(base + at, `it has more than ${maxMembers} members (maxMembers)`)
    }
    const entry = readEntry(directory, view, at, base)
    if (Result.isFailure(entry)) return Result.fail(entry.failure)
    entries.push(entry.success.entry)
    at = entry.success.next
  }
  return Result.succeed(entries)
}

/** The members in directory order. Nothing is inflated or copied. */
export const read = (bytes: Uint8Array, maxMembers?: number): Result.Result<ReadonlyArray<Member>, Problem> =>
  Result.gen(function* () {
    const { end, start } = yield* locate(bytes, 0)
    const view = viewOf(bytes)
    const members: Array<Member> = []
    for (const entry of yield* readEntries(bytes.subarray(start, end), start, maxMembers)) {
      const data = readData(bytes, view, entry)
      if (data === undefined) {
        return yield* problem(start, `the bytes of member ${JSON.stringify(entry.name.slice(0, 60))} are not there`)
      }
      members.push({ ...entry, data })
    }
    return members
  })

const readEntry = (
  bytes: Uint8Array,
  view: DataView,
  at: number,
  base: number
): Result.Result<{ readonly entry: Entry; readonly next: number }, Problem> => {
  if (at + entryLength > bytes.length || view.getUint32(at, true) !== signature.entry) {
    return problem(base + at, "its directory holds something that is no entry")
  }
  const nameEnd = at + entryLength + view.getUint16(at + 28, true)
  const extraEnd = nameEnd + view.getUint16(at + 30, true)
  const next = extraEnd + view.getUint16(at + 32, true)
  if (next > bytes.length) return problem(base + at, "an entry of its directory is cut short")
  const name = decodeName(bytes.subarray(at + entryLength, nameEnd))
  if (name === undefined) return problem(base + at, "the name of a member is not utf-8")
  const [size, packed, offset] = readSizes(view, at, nameEnd, extraEnd)
  const method = view.getUint16(at + 10, true)
  const isEncrypted = (view.getUint16(at + 8, true) & 1) === 1
  const crc = view.getUint32(at + 16, true)
  return Result.succeed({ entry: { name, method, isEncrypted, crc, size, packed, offset }, next })
}

const decodeName = (bytes: Uint8Array): string | undefined =>
  Result.getOrUndefined(Result.try(() => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)))

/** Size, packed size and offset; those that don't fit 32 bits follow in the zip64 extra field, in this order. */
const readSizes = (view: DataView, at: number, extraStart: number, extraEnd: number): [number, number, number] => {
  const sizes: [number, number, number] = [
    view.getUint32(at + 24, true),
    view.getUint32(at + 20, true),
    view.getUint32(at + 42, true)
  ]
  let { start, end } = findExtra64(view, extraStart, extraEnd)
  for (const [n, size] of sizes.entries()) {
    if (size !== in32Bits || start + 8 > end) continue
    sizes[n] = getUint64(view, start)
    start += 8
  }
  return sizes
}

const findExtra64 = (view: DataView, extraStart: number, extraEnd: number): Extent => {
  for (let at = extraStart; at + 4 <= extraEnd; ) {
    const end = at + 4 + view.getUint16(at + 2, true)
    if (end > extraEnd) break
    if (view.getUint16(at, true) === 1) return { start: at + 4, end }
    at = end
  }
  return { start: 0, end: 0 }
}

/**
 * Where a member's bytes begin, behind its local header, of which at least {@link localLength} bytes are there; name and
 * extra field may differ in length from the directory's. `undefined` for what is no local header.
 */
export const dataStart = (local: DataView, offset: number): number | undefined =>
  local.getUint32(0, true) === signature.local
    ? offset + localLength + local.getUint16(26, true) + local.getUint16(28, true)
    : undefined

const readData = (bytes: Uint8Array, view: DataView, { offset, packed }: Entry): Uint8Array | undefined => {
  if (offset + localLength > bytes.length) return undefined
  const start = dataStart(new DataView(view.buffer, view.byteOffset + offset, localLength), offset)
  if (start === undefined || start + packed > bytes.length) return undefined
  return new Uint8Array(bytes.buffer, bytes.byteOffset + start, packed)
}

// --- writing ---

export interface NewMember {
  readonly name: Uint8Array
  readonly isAscii: boolean
  readonly crc: number
  readonly size: number
  readonly offset: number
}

const version = 45
const dosDate = 0x0021

const writeCommon = (view: DataView, at: number, member: NewMember): void => {
  view.setUint16(at, version, true)
  view.setUint16(at + 2, member.isAscii ? 0 : utf8Flag, true)
  view.setUint16(at + 8, dosDate, true)
  view.setUint32(at + 10, member.crc, true)
  view.setUint16(at + 22, member.name.length, true)
}

/** What stands before the data of a stored member; as numpy writes it, with the sizes in a zip64 field. */
export const localHeader = (member: NewMember): Uint8Array => {
  const header = new Uint8Array(localLength + member.name.length + 20)
  const view = viewOf(header)
  view.setUint32(0, signature.local, true)
  writeCommon(view, 4, member)
  view.setUint32(18, in32Bits, true)
  view.setUint32(22, in32Bits, true)
  view.setUint16(28, 20, true)
  header.set(member.name, localLength)
  const extra = localLength + member.name.length
  view.setUint16(extra, 1, true)
  view.setUint16(extra + 2, 16, true)
  view.setBigUint64(extra + 4, BigInt(member.size), true)
  view.setBigUint64(extra + 12, BigInt(member.size), true)
  return header
}

const entry = (member: NewMember): Uint8Array => {
  const isLarge = member.size > zip64Limit
  const isFar = member.offset > zip64Limit
  const wide = [...(isLarge ? [member.size, member.size] : []), ...(isFar ? [member.offset] : [])]
  const extra = wide.length === 0 ? 0 : 4 + 8 * wide.length
  const bytes = new Uint8Array(entryLength + member.name.length + extra)
  const view = viewOf(bytes)
  view.setUint32(0, signature.entry, true)
  view.setUint16(4, (3 << 8) | version, true) // made on Unix: the attributes below are its file mode
  writeCommon(view, 6, member)
  view.setUint32(20, isLarge ? in32Bits : member.size, true)
  view.setUint32(24, isLarge ? in32Bits : member.size, true)
  view.setUint16(30, extra, true)
  view.setUint32(38, 0o600 << 16, true)
  view.setUint32(42, isFar ? in32Bits : member.offset, true)
  bytes.set(member.name, entryLength)
  const at = entryLength + member.name.length
  if (extra > 0) {
    view.setUint16(at, 1, true)
    view.setUint16(at + 2, extra - 4, true)
    for (const [n, value] of wide.entries()) view.setBigUint64(at + 4 + 8 * n, BigInt(value), true)
  }
  return bytes
}

const end64 = (count: number, offset: number, length: number): Uint8Array => {
  const bytes = new Uint8Array(end64Length + locatorLength)
  const view = viewOf(bytes)
  view.setUint32(0, signature.end64, true)
  view.setBigUint64(4, BigInt(end64Length - 12), true)
  view.setUint16(12, version, true)
  view.setUint16(14, version, true)
  view.setBigUint64(24, BigInt(count), true)
  view.setBigUint64(32, BigInt(count), true)
  view.setBigUint64(40, BigInt(length), true)
  view.setBigUint64(48, BigInt(offset), true)
  view.setUint32(end64Length, signature.locator, true)
  view.setBigUint64(end64Length + 8, BigInt(offset + length), true)
  view.setUint32(end64Length + 16, 1, true)
  return bytes
}

/** The directory at `offset`, and the end records. */
export const directory = (members: ReadonlyArray<NewMember>, offset: number): ReadonlyArray<Uint8Array> => {
  const entries = members.map(entry)
  const length = entries.reduce((sum, { length }) => sum + length, 0)
  const count = members.length
  const isWide = count > 0xffff || offset > zip64Limit || length > zip64Limit
  const end = new Uint8Array(endLength)
  const view = viewOf(end)
  view.setUint32(0, signature.end, true)
  view.setUint16(8, Math.min(count, 0xffff), true)
  view.setUint16(10, Math.min(count, 0xffff), true)
  view.setUint32(12, Math.min(length, in32Bits), true)
  view.setUint32(16, Math.min(offset, in32Bits), true)
  return [...entries, ...(isWide ? [end64(count, offset, length)] : []), end]
}
