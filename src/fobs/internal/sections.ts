/** The sections of a message: headers, datums, download notes (docs/wire/fobs.md, sections 2 and 6.1). */
import { Result } from "effect"
import type { Download, Sections } from "../Codec.ts"
import { Datum } from "../Datum.ts"
import { toHex } from "./keys.ts"
import { decodeText } from "./reader.ts"
import { malformed } from "./refusal.ts"

export const headerSize = 10
export const idSize = 16
export const mainMarker = 100
export const textMarker = 101
export const blobMarker = 102
const fileMarker = 103

const textEncoder = new TextEncoder()

export const uuidText = (bytes: Uint8Array): string => {
  const hex = toHex(bytes)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}

const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** The 16 bytes of a UUID in its text form; `undefined` for any other text. */
export const uuidBytes = (text: string): Uint8Array | undefined => {
  if (!uuid.test(text)) return undefined
  const hex = text.replaceAll("-", "")
  return Uint8Array.from({ length: idSize }, (_, i) => Number.parseInt(hex.slice(i * 2, i * 2 + 2), 16))
}

const two32 = 0x1_0000_0000

/** By hand: a DataView costs more than all of a short message. */
const setUint32 = (bytes: Uint8Array, at: number, value: number): void => {
  bytes[at] = value >>> 24
  bytes[at + 1] = value >>> 16
  bytes[at + 2] = value >>> 8
  bytes[at + 3] = value
}

const getUint32 = (bytes: Uint8Array, at: number): number =>
  (((bytes[at] ?? 0) << 24) | ((bytes[at + 1] ?? 0) << 16) | ((bytes[at + 2] ?? 0) << 8) | (bytes[at + 3] ?? 0)) >>> 0

/** Writes the header of a section into `bytes` at `at`. */
export const fillHeader = (bytes: Uint8Array, at: number, marker: number, dot: number, size: number): void => {
  bytes[at] = marker
  bytes[at + 1] = dot
  setUint32(bytes, at + 2, Math.floor(size / two32))
  setUint32(bytes, at + 6, size % two32)
}

interface Section {
  readonly marker: number
  readonly dot: number
  readonly content: Uint8Array
  readonly end: number
}

const readSection = (message: Uint8Array, begin: number): Section => {
  const left = message.length - begin
  if (left < headerSize) malformed(`a section header has 10 bytes, ${left} are left`, begin)
  // Beyond 2^53 the number is not exact, but too large all the same.
  const size = getUint32(message, begin + 2) * two32 + getUint32(message, begin + 6)
  if (size === 0) malformed("a section of size 0", begin)
  if (size > left - headerSize) malformed(`a section of ${size} bytes, ${left - headerSize} are left`, begin)
  const at = begin + headerSize
  const end = at + size
  return { marker: message[begin] ?? 0, dot: message[begin + 1] ?? 0, content: message.subarray(at, end), end }
}

const none: ReadonlyMap<string, Datum> = new Map()

/** Cuts a message into its sections. */
export const readSections = (message: Uint8Array): Sections => {
  if (message.length === 0) malformed("the message is empty", 0)
  const main = readSection(message, 0)
  if (main.marker !== mainMarker) malformed(`a message begins with marker 100, not ${main.marker}`, 0)
  if (main.end === message.length) return { body: main.content, datums: none, downloads: [] }
  const datums = new Map<string, Datum>()
  const downloads = new Map<number, Download>()
  let begin = main.end
  while (begin < message.length) {
    const section = readSection(message, begin)
    const datum = readDatum(section, begin)
    datums.set(datum.id, datum)
    if (datum.dot === 3 || datum.dot === 6) downloads.set(datum.dot, readDownload(datum, datum.dot, begin))
    else if (datum.dot !== 0) malformed(`nothing here handles datums of object type ${datum.dot}`, begin)
    begin = section.end
  }
  return { body: main.content, datums, downloads: [...downloads.values()] }
}

const readDatum = ({ content, dot, marker }: Section, begin: number): Datum => {
  if (marker === fileMarker) malformed("datums that hold a file are not supported", begin)
  if (marker !== textMarker && marker !== blobMarker) malformed(`a datum has marker 101 or 102, not ${marker}`, begin)
  if (content.length <= idSize) malformed(`a datum of ${content.length} bytes has no value behind its id`, begin)
  const value = content.subarray(idSize)
  return new Datum(marker === textMarker ? decodeText(value) : value, uuidText(content.subarray(0, idSize)), dot)
}

const readDownload = (datum: Datum, dot: 3 | 6, begin: number): Download => {
  const text = typeof datum.value === "string" ? datum.value : decodeText(datum.value)
  const note = Result.getOrUndefined(Result.try((): unknown => JSON.parse(text)))
  if (typeof note !== "object" || note === null) return malformed("a download datum is no JSON object", begin)
  const fqcn = "fqcn" in note ? note.fqcn : undefined
  const refId = "ref_id" in note ? note.ref_id : undefined
  if (typeof fqcn !== "string" || typeof refId !== "string") {
    return malformed("a download datum names no fqcn and ref_id", begin)
  }
  return { dot, fqcn, refId }
}

/** The value of a download datum, as the reference spells it. */
export const downloadNote = ({ fqcn, refId }: Download): Uint8Array =>
  textEncoder.encode(`{"fqcn": ${JSON.stringify(fqcn)}, "ref_id": ${JSON.stringify(refId)}}`)
