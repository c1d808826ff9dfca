/** Reads msgpack as msgpack-python does, with every limit explicit (docs/wire/fobs.md, section 3.1). */
import { Ext, Float } from "../Values.ts"
import { canonical, KeyedMap } from "./keys.ts"
import { malformed } from "./refusal.ts"
import { findKnown, type KeyMemo, type KnownTexts } from "./texts.ts"

/** At most this many containers inside each other, empty ones included. */
const maxDepth = 1024
/** Longer texts go through TextDecoder at once. */
const shortText = 10
/** The longest text that is looked for among those met before: a UUID fits. */
const memoLength = 36
const two32 = 0x1_0000_0000
const canonicalNaN = 0x7ff8_0000_0000_0000n
const typeKey = "__fobs_type__"
const dataKey = "__fobs_data__"

const textDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

export interface ReaderOptions {
  readonly lossless?: boolean
  /** Refuses keys other than text and bytes, as msgpack-python's defaults do. */
  readonly strictKeys?: boolean
  /** Turns envelopes into values; without it they are ordinary maps. */
  readonly recompose?: (typeName: unknown, data: unknown) => unknown
  /** Texts that are met often, and keys that were met before. */
  readonly known?: KnownTexts
  readonly memo?: KeyMemo
}

/** Utf-8 text, strictly; {@link attempt} knows the exception. */
export const decodeText = (bytes: Uint8Array): string => textDecoder.decode(bytes)

/** Reads one value; the bytes of it are views of the input. */
export class Reader {
  private readonly bytes: Uint8Array
  private dataView: DataView | undefined
  private readonly lossless: boolean
  private readonly strictKeys: boolean
  private readonly recompose: ReaderOptions["recompose"]
  private readonly known: KnownTexts
  private readonly memo: KeyMemo | undefined
  private buffer: Buffer | undefined
  private position = 0

  constructor(bytes: Uint8Array, options: ReaderOptions = {}) {
    this.bytes = bytes
    this.lossless = options.lossless ?? false
    this.strictKeys = options.strictKeys ?? false
    this.recompose = options.recompose
    this.known = options.known ?? []
    this.memo = options.memo
  }

  /** The one value that the input holds. */
  read(): unknown {
    const value = this.value(0)
    if (this.position < this.bytes.length) {
      malformed(`${this.bytes.length - this.position} bytes follow the end of the value`, this.position)
    }
    return value
  }

  /** Goes through the map that the input holds, as {@link read}, but tells the bytes of each value. */
  entries(each: (key: string | Uint8Array, value: Uint8Array) => void): void {
    const code = this.bytes[this.position++] ?? 0
    const count =
      (code & 0xf0) === 0x80
        ? code & 0x0f
        : code === 0xde
          ? this.uint16()
          : code === 0xdf
            ? this.view.getUint32(this.take(4))
            : malformed("there is no map", 0)
    this.enter(count, 2, 0)
    for (let i = 0; i < count; i++) {
      const key = this.key(1)
      const begin = this.position
      this.value(1)
      if (typeof key === "string" || key instanceof Uint8Array) each(key, this.bytes.subarray(begin, this.position))
    }
    if (this.position < this.bytes.length) {
      malformed(`${this.bytes.length - this.position} bytes follow the end of the value`, this.position)
    }
  }

  /** Made when it is needed: short messages have small integers only. */
  private get view(): DataView {
    this.dataView ??= new DataView(this.bytes.buffer, this.bytes.byteOffset, this.bytes.byteLength)
    return this.dataView
  }

  private uint8(): number {
    return this.bytes[this.take(1)] ?? 0
  }

  private uint16(): number {
    const begin = this.take(2)
    return ((this.bytes[begin] ?? 0) << 8) | (this.bytes[begin + 1] ?? 0)
  }

  private take(count: number): number {
    const begin = this.position
    if (count > this.bytes.length - begin) malformed("the value is cut short", begin)
    this.position = begin + count
    return begin
  }

  private value(depth: number): unknown {
    const begin = this.position
    const code = this.bytes[begin]
    if (code === undefined) return malformed("the value is cut short", begin)
    this.position = begin + 1
    if (code < 0x80) return code
    if (code < 0x90) return this.map(code & 0x0f, depth)
    if (code < 0xa0) return this.list(code & 0x0f, depth)
    if (code < 0xc0) return this.text(code & 0x1f)
    if (code >= 0xe0) return code - 0x100
    switch (code) {
      case 0xc0:
        return null
      case 0xc2:
        return false
      case 0xc3:
        return true
      case 0xc4:
        return this.binary(this.uint8())
      case 0xc5:
        return this.binary(this.uint16())
      case 0xc6:
        return this.binary(this.view.getUint32(this.take(4)))
      case 0xca:
        return this.float32(this.take(4))
      case 0xcb:
        return this.float64(this.take(8))
      case 0xd9:
        return this.text(this.uint8())
      case 0xda:
        return this.text(this.uint16())
      case 0xdb:
        return this.text(this.view.getUint32(this.take(4)))
      case 0xdc:
        return this.list(this.uint16(), depth)
      case 0xdd:
        return this.list(this.view.getUint32(this.take(4)), depth)
      case 0xde:
        return this.map(this.uint16(), depth)
      case 0xdf:
        return this.map(this.view.getUint32(this.take(4)), depth)
      default:
        return code < 0xd4 && code >= 0xcc ? this.integer(code) : this.extension(code, begin)
    }
  }

  private integer(code: number): number | bigint {
    switch (code) {
      case 0xcc:
        return this.uint8()
      case 0xcd:
        return this.uint16()
      case 0xce:
        return this.view.getUint32(this.take(4))
      case 0xd0:
        return this.view.getInt8(this.take(1))
      case 0xd1:
        return this.view.getInt16(this.take(2))
      case 0xd2:
        return this.view.getInt32(this.take(4))
      default: {
        const begin = this.take(8)
        const high = code === 0xcf ? this.view.getUint32(begin) : this.view.getInt32(begin)
        const near = high * two32 + this.view.getUint32(begin + 4)
        if (Number.isSafeInteger(near)) return near
        return code === 0xcf ? this.view.getBigUint64(begin) : this.view.getBigInt64(begin)
      }
    }
  }

  private float64(begin: number): number | Float {
    const value = this.view.getFloat64(begin)
    if (!this.lossless) return value
    if (Number.isNaN(value)) {
      const bits = this.view.getBigUint64(begin)
      return bits === canonicalNaN ? value : new Float(value, bits)
    }
    return Number.isSafeInteger(value) && !Object.is(value, -0) ? new Float(value) : value
  }

  private float32(begin: number): number | Float {
    const value = this.view.getFloat32(begin)
    if (!this.lossless) return value
    if (Number.isNaN(value)) {
      const bits = this.view.getUint32(begin)
      const wide = (BigInt(bits >>> 31) << 63n) | canonicalNaN | (BigInt(bits & 0x3f_ffff) << 29n)
      return wide === canonicalNaN ? value : new Float(value, wide)
    }
    return Number.isSafeInteger(value) && !Object.is(value, -0) ? new Float(value) : value
  }

  private binary(length: number): Uint8Array {
    const begin = this.take(length)
    return this.bytes.subarray(begin, begin + length)
  }

  private text(length: number): string {
    if (length === 0) return ""
    return length <= memoLength && this.memo !== undefined ? this.memoText(length, this.memo) : this.freshText(length)
  }

  private freshText(length: number): string {
    const begin = this.take(length)
    return (
      findKnown(this.known, this.bytes, begin, length) ??
      (length <= shortText ? this.shortText(begin, length) : undefined) ??
      this.longText(begin, begin + length)
    )
  }

  /** Buffer is faster than TextDecoder, but replaces what is invalid: then TextDecoder has the last word. */
  private longText(begin: number, end: number): string {
    this.buffer ??= Buffer.from(this.bytes.buffer, this.bytes.byteOffset, this.bytes.length)
    const text = this.buffer.toString("utf8", begin, end)
    return text.includes("\ufffd") ? decodeText(this.bytes.subarray(begin, end)) : text
  }

  private shortText(begin: number, length: number): string | undefined {
    const codes = new Array<number>(length)
    for (let i = 0; i < length; i++) {
      const code = this.bytes[begin + i] ?? 0
      if (code >= 0x80) return undefined
      codes[i] = code
    }
    return String.fromCharCode.apply(null, codes)
  }

  private enter(count: number, bytesEach: number, depth: number): void {
    if (depth >= maxDepth) malformed(`containers lie inside each other more than ${maxDepth} deep`, this.position)
    if (count * bytesEach > this.bytes.length - this.position) {
      malformed(`${count} entries are declared, but the message ends before`, this.position)
    }
  }

  private list(count: number, depth: number): Array<unknown> {
    this.enter(count, 1, depth)
    const list: Array<unknown> = []
    for (let i = 0; i < count; i++) list.push(this.value(depth + 1))
    return list
  }

  private map(count: number, depth: number): unknown {
    this.enter(count, 2, depth)
    const map = new Map<unknown, unknown>()
    let keyed: KeyedMap | undefined
    for (let i = 0; i < count; i++) {
      const key = this.key(depth + 1)
      if (key === typeKey && this.recompose !== undefined) return this.envelope(map, count - i - 1, depth)
      const value = this.value(depth + 1)
      if (keyed === undefined) {
        if (typeof key === "string") {
          map.set(key, value)
          continue
        }
        keyed = new KeyedMap(map)
      }
      keyed.set(key, value)
    }
    return map
  }

  /** The rest of a map from behind its type key on; `before` holds the entries in front of it. */
  private envelope(before: ReadonlyMap<unknown, unknown>, rest: number, depth: number): unknown {
    let hasData = before.has(dataKey)
    let data = before.get(dataKey)
    let typeName = this.value(depth + 1)
    for (let i = 0; i < rest; i++) {
      const key = this.key(depth + 1)
      const value = this.value(depth + 1)
      if (key === dataKey) {
        hasData = true
        data = value
      } else if (key === typeKey) typeName = value
    }
    if (!hasData) malformed(`an object of type ${String(typeName)} has no ${dataKey}`, this.position)
    return this.recompose?.(typeName, data)
  }

  private key(depth: number): unknown {
    const begin = this.position
    const code = this.bytes[begin] ?? 0
    if (code > 0xa0 && code < 0xc0) {
      this.position = begin + 1
      return this.text(code & 0x1f)
    }
    const key = this.value(depth)
    if (typeof key === "string") {
      if (this.isMap(begin)) malformed("a datum reference is no map key", begin)
      return key
    }
    if (key instanceof Uint8Array && this.isMap(begin)) malformed("a datum reference is no map key", begin)
    if (this.strictKeys ? !(key instanceof Uint8Array) : canonical(key) === undefined) {
      malformed(this.strictKeys ? "a map key is neither text nor bytes" : "a list, dict or object is no map key", begin)
    }
    return this.lossless && Object.is(key, -0) ? new Float(-0) : key
  }

  /** Names and ids come again with every message. */
  private memoText(length: number, memo: KeyMemo): string {
    const begin = this.take(length)
    const met = memo.find(this.bytes, begin, length)
    if (met !== undefined) return met
    this.position = begin
    const text = this.freshText(length)
    memo.add(this.bytes, begin, length, text)
    return text
  }

  private isMap(begin: number): boolean {
    const code = this.bytes[begin] ?? 0
    return (code & 0xf0) === 0x80 || code === 0xde || code === 0xdf
  }

  private extension(code: number, begin: number): Ext {
    const length = this.extensionLength(code, begin)
    const kind = this.view.getInt8(this.take(1))
    const bytes = this.binary(length)
    if (kind < -1) malformed(`the reserved ext type ${kind}`, begin)
    if (kind === -1) checkTimestamp(bytes, begin)
    return new Ext(kind, bytes)
  }

  private extensionLength(code: number, begin: number): number {
    if (code >= 0xd4 && code <= 0xd8) return 1 << (code - 0xd4)
    if (code === 0xc7) return this.uint8()
    if (code === 0xc8) return this.uint16()
    if (code === 0xc9) return this.view.getUint32(this.take(4))
    return malformed(`the byte 0x${code.toString(16)} begins no value`, begin)
  }
}

const checkTimestamp = (bytes: Uint8Array, begin: number): void => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const nanoseconds =
    bytes.length === 4 ? 0 : bytes.length === 8 ? view.getUint32(0) >>> 2 : bytes.length === 12 ? view.getUint32(0) : -1
  if (nanoseconds < 0) malformed(`a timestamp of ${bytes.length} bytes`, begin)
  if (nanoseconds >= 1e9) malformed(`a timestamp with ${nanoseconds} nanoseconds`, begin)
}
