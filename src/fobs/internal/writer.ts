/** Writes msgpack as msgpack-python does, into a list of chunks (docs/wire/fobs.md, section 3.1). */
import { Pieces } from "../Pieces.ts"
import { Ext, Float } from "../Values.ts"
import { canonical } from "./keys.ts"
import { notEncodable } from "./refusal.ts"

/** An object may lie inside at most this many containers. */
const maxDepth = 511
/** Bytes of this length or more become chunks of their own, uncopied; shorter ones are copied. */
const minChunk = 4096
const maxBuffer = 65536
/** Longer texts go through TextEncoder at once. */
const shortText = 48
const longText = 16384
const maxU64 = 0xffff_ffff_ffff_ffffn
const minI64 = -0x8000_0000_0000_0000n
const two32 = 0x1_0000_0000

const textEncoder = new TextEncoder()

/** What a message calls a value that has no form. */
const describeKind = (value: unknown): string => {
  if (value === undefined) return "undefined"
  if (typeof value !== "object" || value === null) return `a ${typeof value}`
  const name: unknown = value.constructor?.name
  return typeof name === "string" && name !== "" ? `an object of class ${name}` : "an object"
}

/** Text as utf-8; a lone surrogate is refused rather than replaced. */
export const encodeText = (text: string): Uint8Array => {
  if (!text.isWellFormed()) notEncodable("a text with a lone surrogate has no utf-8 form")
  return textEncoder.encode(text)
}

/** Memory for a short message, out of Node's pool: what is not written is not shown. */
const pooled = (capacity: number): Uint8Array => {
  const { buffer, byteOffset } = Buffer.allocUnsafe(capacity)
  return new Uint8Array(buffer, byteOffset, capacity)
}

/** A growing msgpack output. Subclasses add types and externalising. */
export class Writer {
  protected readonly maxInline: number
  private readonly chunks: Array<Uint8Array> = []
  private buffer: Uint8Array
  private dataView: DataView | undefined
  private position = 0
  /** Where the part of `buffer` that is not in `chunks` yet begins. */
  private begin = 0
  private chunkBytes = 0

  constructor(maxInline: number = Number.POSITIVE_INFINITY, capacity = 512) {
    this.maxInline = maxInline
    this.buffer = pooled(capacity)
  }

  /** Made when it is needed: short messages have small integers only. */
  private view(): DataView {
    this.dataView ??= new DataView(this.buffer.buffer, this.buffer.byteOffset, this.buffer.length)
    return this.dataView
  }

  /** Bytes written so far. */
  get length(): number {
    return this.chunkBytes + this.position - this.begin
  }

  /** Ends the output. */
  finish(): Array<Uint8Array> {
    this.flush()
    return this.chunks
  }

  /** Skips `count` bytes and answers where they are; they must be filled in later. */
  hole(count: number): { readonly bytes: Uint8Array; readonly at: number } {
    this.reserve(count)
    const at = this.position
    this.position += count
    return { bytes: this.buffer, at }
  }

  private flush(): void {
    if (this.position === this.begin) return
    this.chunks.push(this.buffer.subarray(this.begin, this.position))
    this.chunkBytes += this.position - this.begin
    this.begin = this.position
  }

  private reserve(count: number): void {
    if (this.position + count > this.buffer.length) this.grow(count)
  }

  private grow(count: number): void {
    this.flush()
    this.buffer = new Uint8Array(Math.max(count, Math.min(this.buffer.length * 4, maxBuffer)))
    this.dataView = undefined
    this.position = 0
    this.begin = 0
  }

  /** Bytes as they are. */
  raw(bytes: Uint8Array): void {
    if (bytes.length >= minChunk) {
      this.flush()
      this.chunks.push(bytes)
      this.chunkBytes += bytes.length
      return
    }
    this.reserve(bytes.length)
    this.buffer.set(bytes, this.position)
    this.position += bytes.length
  }

  /** A value that lies inside `depth` containers. */
  write(value: unknown, depth: number): void {
    if (depth > maxDepth) this.checkDepth(depth)
    switch (typeof value) {
      case "string":
        if (value.length < this.maxInline || !this.externalText(value, depth)) this.text(value)
        return
      case "number":
        if (Number.isSafeInteger(value) && (value !== 0 || !Object.is(value, -0))) this.integer(value)
        else this.float(value)
        return
      case "boolean":
        this.byte(value ? 0xc3 : 0xc2)
        return
      case "bigint":
        this.bigint(value)
        return
      case "object":
        if (value === null) this.byte(0xc0)
        else this.object(value, depth)
        return
      default:
        if (value === undefined) notEncodable("undefined has no form: leave the entry out, or send null")
        else notEncodable(`${describeKind(value)} has no form`)
    }
  }

  protected checkDepth(depth: number): void {
    if (depth > maxDepth) notEncodable(`a value lies inside more than ${maxDepth} containers`)
  }

  private object(value: object, depth: number): void {
    if (Array.isArray(value)) {
      this.list(value, depth)
      return
    }
    const prototype: unknown = Object.getPrototypeOf(value)
    if (prototype === Map.prototype) this.map(value as Map<unknown, unknown>, depth)
    else if (prototype === Object.prototype || prototype === null) {
      if (!this.plainObject(value, depth)) this.record(value as Record<string, unknown>, depth)
    } else if (value instanceof Uint8Array) this.bytes(value, depth)
    else if (value instanceof Float) this.exactFloat(value)
    else if (value instanceof Pieces) this.pieces(value, depth)
    else if (value instanceof Ext) this.ext(value)
    else if (!this.typed(value, depth)) {
      if (value instanceof Map) this.map(value, depth)
      else notEncodable(`${describeKind(value)} has no form${this.hint(value)}`)
    }
  }

  private hint(value: object): string {
    if (value instanceof Date) return ": use PyDateTime"
    if (ArrayBuffer.isView(value)) return ": use NdArray, or a Uint8Array for plain bytes"
    return ""
  }

  /** Takes over objects with a type; false where there is none. */
  protected typed(_value: object, _depth: number): boolean {
    return false
  }

  /** As {@link typed}, for plain objects; false makes them dicts. */
  protected plainObject(_value: object, _depth: number): boolean {
    return false
  }

  /** Takes over texts of `maxInline` UTF-16 units or more. */
  protected externalText(_value: string, _depth: number): boolean {
    return false
  }

  /** Takes over bytes of `maxInline` or more. */
  protected externalBytes(_parts: ReadonlyArray<Uint8Array>, _length: number, _depth: number): boolean {
    return false
  }

  /** Looks at each text key of a dict. */
  protected checkKey(_key: string): void {}

  list(items: ReadonlyArray<unknown>, depth: number): void {
    const count = items.length
    this.header(count, 0x90, 0xdc)
    for (let i = 0; i < count; i++) this.write(items[i], depth + 1)
  }

  private map(map: ReadonlyMap<unknown, unknown>, depth: number): void {
    this.header(map.size, 0x80, 0xde)
    for (const [key, value] of map) {
      if (typeof key === "string") this.textKey(key, depth)
      else this.otherKey(key, depth)
      this.write(value, depth + 1)
    }
  }

  private record(record: Readonly<Record<string, unknown>>, depth: number): void {
    const keys = Object.keys(record)
    this.header(keys.length, 0x80, 0xde)
    for (const key of keys) {
      this.textKey(key, depth)
      this.write(record[key], depth + 1)
    }
  }

  private textKey(key: string, depth: number): void {
    if (depth >= maxDepth) this.checkDepth(depth + 1)
    this.checkKey(key)
    this.text(key)
  }

  private otherKey(key: unknown, depth: number): void {
    if (canonical(key) === undefined) notEncodable(`${describeKind(key)} cannot be the key of a dict`)
    if (key instanceof Uint8Array) this.inlineBytes([key], key.length)
    else this.write(key, depth + 1)
  }

  /** The header of a list (0x90, 0xdc) or map (0x80, 0xde). */
  private header(count: number, fix: number, wide: number): void {
    this.reserve(5)
    if (count <= 15) this.buffer[this.position++] = fix | count
    else if (count <= 0xffff) {
      this.buffer[this.position] = wide
      this.view().setUint16(this.position + 1, count)
      this.position += 3
    } else {
      this.buffer[this.position] = wide + 1
      this.view().setUint32(this.position + 1, count)
      this.position += 5
    }
  }

  private byte(value: number): void {
    this.reserve(1)
    this.buffer[this.position++] = value
  }

  private integer(value: number): void {
    this.reserve(9)
    if (value >= 0) {
      if (value < 0x80) this.buffer[this.position++] = value
      else if (value <= 0xff) this.u8(0xcc, value)
      else if (value <= 0xffff) this.u16(0xcd, value)
      else if (value <= 0xffff_ffff) this.u32(0xce, value)
      else this.u64(0xcf, Math.floor(value / two32), value % two32)
    } else if (value >= -0x20) this.buffer[this.position++] = value & 0xff
    else if (value >= -0x80) this.u8(0xd0, value & 0xff)
    else if (value >= -0x8000) this.u16(0xd1, value & 0xffff)
    else if (value >= -0x8000_0000) this.u32(0xd2, value >>> 0)
    else {
      const high = Math.floor(value / two32)
      this.u64(0xd3, high >>> 0, value - high * two32)
    }
  }

  private bigint(value: bigint): void {
    if (value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER)) {
      this.integer(Number(value))
      return
    }
    if (value > maxU64 || value < minI64) notEncodable(`the integer ${value} is outside -2^63 .. 2^64-1`)
    this.reserve(9)
    this.buffer[this.position] = value >= 0n ? 0xcf : 0xd3
    this.view().setBigUint64(this.position + 1, BigInt.asUintN(64, value))
    this.position += 9
  }

  private u8(code: number, value: number): void {
    this.buffer[this.position] = code
    this.buffer[this.position + 1] = value
    this.position += 2
  }

  private u16(code: number, value: number): void {
    this.buffer[this.position] = code
    this.buffer[this.position + 1] = value >>> 8
    this.buffer[this.position + 2] = value
    this.position += 3
  }

  private u32(code: number, value: number): void {
    this.buffer[this.position] = code
    this.view().setUint32(this.position + 1, value)
    this.position += 5
  }

  private u64(code: number, high: number, low: number): void {
    this.buffer[this.position] = code
    this.view().setUint32(this.position + 1, high)
    this.view().setUint32(this.position + 5, low)
    this.position += 9
  }

  private float(value: number): void {
    this.reserve(9)
    this.buffer[this.position] = 0xcb
    this.view().setFloat64(this.position + 1, value)
    this.position += 9
  }

  private exactFloat(float: Float): void {
    if (float.bits === undefined) {
      this.float(float.value)
      return
    }
    this.reserve(9)
    this.buffer[this.position] = 0xcb
    this.view().setBigUint64(this.position + 1, float.bits)
    this.position += 9
  }

  private bytes(bytes: Uint8Array, depth: number): void {
    const parts = [bytes]
    if (bytes.length < this.maxInline || !this.externalBytes(parts, bytes.length, depth)) {
      this.inlineBytes(parts, bytes.length)
    }
  }

  private pieces(pieces: Pieces, depth: number): void {
    if (pieces.byteLength < this.maxInline || !this.externalBytes(pieces.parts, pieces.byteLength, depth)) {
      this.inlineBytes(pieces.parts, pieces.byteLength)
    }
  }

  private inlineBytes(parts: ReadonlyArray<Uint8Array>, length: number): void {
    this.reserve(5)
    if (length <= 0xff) this.u8(0xc4, length)
    else if (length <= 0xffff) this.u16(0xc5, length)
    else if (length <= 0xffff_ffff) this.u32(0xc6, length)
    else notEncodable(`${length} bytes do not fit one value (4 GiB)`)
    for (const part of parts) this.raw(part)
  }

  private ext({ bytes, code }: Ext): void {
    this.reserve(6)
    const length = bytes.length
    const fixed = [1, 2, 4, 8, 16].indexOf(length)
    if (fixed >= 0) this.byte(0xd4 + fixed)
    else if (length <= 0xff) this.u8(0xc7, length)
    else if (length <= 0xffff) this.u16(0xc8, length)
    else this.u32(0xc9, length)
    this.byte(code & 0xff)
    this.raw(bytes)
  }

  /** A text, inline. */
  text(text: string): void {
    const length = text.length
    if (length <= shortText) {
      this.reserve(length + 2)
      const begin = this.position
      const buffer = this.buffer
      let at = begin
      if (length <= 31) buffer[at++] = 0xa0 | length
      else {
        buffer[at++] = 0xd9
        buffer[at++] = length
      }
      let i = 0
      for (; i < length; i++) {
        const code = text.charCodeAt(i)
        if (code >= 0x80) break
        buffer[at++] = code
      }
      if (i === length) {
        this.position = at
        return
      }
    }
    this.utf8(text)
  }

  private utf8(text: string): void {
    if (!text.isWellFormed()) notEncodable("a text with a lone surrogate has no utf-8 form")
    if (text.length > longText) {
      const bytes = textEncoder.encode(text)
      this.reserve(5)
      this.textHeader(bytes.length)
      this.raw(bytes)
      return
    }
    this.reserve(text.length * 3 + 5)
    const begin = this.position
    const { written } = textEncoder.encodeInto(text, this.buffer.subarray(begin + 5))
    this.textHeader(written)
    this.buffer.copyWithin(this.position, begin + 5, begin + 5 + written)
    this.position += written
  }

  private textHeader(length: number): void {
    if (length <= 31) this.buffer[this.position++] = 0xa0 | length
    else if (length <= 0xff) this.u8(0xd9, length)
    else if (length <= 0xffff) this.u16(0xda, length)
    else if (length <= 0xffff_ffff) this.u32(0xdb, length)
    else notEncodable(`a text of ${length} bytes does not fit one value (4 GiB)`)
  }
}

/** The chunks in one piece; a single chunk is given back as it is. */
export const concat = (chunks: ReadonlyArray<Uint8Array>): Uint8Array => {
  if (chunks.length === 1 && chunks[0] !== undefined) return chunks[0]
  const whole = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0))
  let at = 0
  for (const chunk of chunks) {
    whole.set(chunk, at)
    at += chunk.length
  }
  return whole
}
