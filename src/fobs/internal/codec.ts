/** Puts sections, msgpack and types together: the codec behind Fobs.make. */
import { Result } from "effect"
import type { Codec, DecodeOptions, Download, EncodeOptions, Sections } from "../Codec.ts"
import { Datum } from "../Datum.ts"
import type { DecodeContext, Decomposer, EncodeContext } from "../Decomposer.ts"
import { FobsError, InvalidValue, MissingReference, NotEncodable } from "../FobsError.ts"
import { DownloadRef } from "../Values.ts"
import { Reader } from "./reader.ts"
import { attempt, invalidValue, malformed, missingReference, notEncodable, unknownType, unwrap } from "./refusal.ts"
import {
  blobMarker,
  downloadNote,
  fillHeader,
  headerSize,
  idSize,
  mainMarker,
  readSections,
  textMarker,
  uuidBytes,
  uuidText
} from "./sections.ts"
import { KeyMemo, type KnownTexts, knownTexts } from "./texts.ts"
import { concat, encodeText, Writer } from "./writer.ts"

const typeKey = "__fobs_type__"
const dataKey = "__fobs_data__"
const decomposerKey = "__fobs_dc__"
const datumRefType = "nvflare.fuel.utils.fobs.datum.DatumRef"
const dataClass = "nvflare.fuel.utils.fobs.decomposer.DataClassDecomposer"
/** As the reference: longer texts and bytes leave the body. */
const defaultMaxInline = 10_485_760

/** A type with the bytes in front of and behind its data. */
interface TypeEntry {
  readonly decomposer: Decomposer<unknown>
  readonly head: Uint8Array
  readonly tail: Uint8Array
}

const typeEntry = (decomposer: Decomposer<unknown>): TypeEntry => {
  const head = new Writer()
  head.raw(Uint8Array.of(0x83))
  for (const text of [typeKey, decomposer.typeName, dataKey]) head.text(text)
  const tail = new Writer()
  for (const text of [decomposerKey, decomposer.decomposerName]) tail.text(text)
  return { decomposer, head: concat(head.finish()), tail: concat(tail.finish()) }
}

/** The types of a codec; a user's come first, and replace core types of the same name. */
export interface TypeTable {
  readonly extra: ReadonlyArray<TypeEntry>
  readonly core: ReadonlyArray<TypeEntry>
  readonly byName: ReadonlyMap<string, Decomposer<unknown>>
  readonly known: KnownTexts
  readonly memo: KeyMemo
}

const wireWords = ["native", "ref", "type", "data", "lazy_dot", "datum_id", "unwrap", "T0", "T1"]

export const typeTable = (
  extra: ReadonlyArray<Decomposer<unknown>>,
  core: ReadonlyArray<Decomposer<unknown>>
): TypeTable => {
  const byName = new Map<string, Decomposer<unknown>>()
  for (const decomposer of [...extra, ...core]) {
    if (!byName.has(decomposer.typeName)) byName.set(decomposer.typeName, decomposer)
  }
  const own = (decomposer: Decomposer<unknown>): boolean => byName.get(decomposer.typeName) === decomposer
  const names = Array.from(byName.values(), ({ decomposerName, typeName }) => [typeName, decomposerName]).flat()
  return {
    extra: extra.filter(own).map(typeEntry),
    core: core.filter(own).map(typeEntry),
    byName,
    known: knownTexts([typeKey, dataKey, decomposerKey, datumRefType, dataClass, ...names, ...wireWords]),
    memo: new KeyMemo()
  }
}

interface PendingDatum {
  readonly marker: number
  readonly dot: number
  readonly id: Uint8Array
  readonly length: number
  readonly parts: ReadonlyArray<Uint8Array>
}

const countCodePoints = (text: string): number => {
  let count = 0
  for (let i = 0; i < text.length; i++) if ((text.charCodeAt(i) & 0xfc00) !== 0xdc00) count++
  return count
}

class FobsWriter extends Writer {
  /** The type whose decomposer is at work, to name it when it throws. */
  decomposing: string | undefined
  private readonly types: TypeTable
  private readonly context: EncodeContext
  private readonly options: EncodeOptions
  private readonly datums: Array<PendingDatum> = []
  // Made when they are needed, which few messages do.
  private ids: Map<string, Datum | undefined> | undefined
  private forwarded: Map<3 | 6, DownloadRef> | undefined
  private lastId = 0

  constructor(types: TypeTable, options: EncodeOptions) {
    super(options.maxInlineSize ?? defaultMaxInline)
    this.types = types
    this.options = options
    this.context = { reference: (dot, value) => options.references?.add(dot, value) }
  }

  message(value: unknown): Array<Uint8Array> {
    const { at, bytes } = this.hole(headerSize)
    this.write(value, 0)
    fillHeader(bytes, at, mainMarker, 0, this.length - headerSize)
    for (const datum of this.datums) this.section(datum)
    for (const download of this.downloads()) {
      const note = downloadNote(download)
      const id = this.freshId()
      this.section({ marker: textMarker, dot: download.dot, id, length: note.length, parts: [note] })
    }
    return this.finish()
  }

  private section({ dot, id, length, marker, parts }: PendingDatum): void {
    const { at, bytes } = this.hole(headerSize)
    fillHeader(bytes, at, marker, dot, length + idSize)
    this.raw(id)
    for (const part of parts) this.raw(part)
  }

  private downloads(): ReadonlyArray<Download> {
    const { forwarded, options } = this
    if (forwarded === undefined && options.references === undefined) return []
    const downloads = [...(options.references?.downloads() ?? []), ...(forwarded?.values() ?? [])]
    if (new Set(downloads.map(({ dot }) => dot)).size < downloads.length) {
      notEncodable("a message holds one download of a kind: arrays of its own, or those of one other source")
    }
    return downloads
  }

  /** An id that no other datum of this message has. Ids mean nothing outside of it, so they need no chance. */
  private freshId(): Uint8Array {
    for (;;) {
      const id = new Uint8Array(idSize)
      id[6] = 0x40
      id[8] = 0x80
      new DataView(id.buffer).setUint32(12, ++this.lastId)
      if (this.ids?.has(uuidText(id)) !== true) return id
    }
  }

  protected override checkKey(key: string): void {
    if (key === typeKey) notEncodable(`a dict must not hold the key ${typeKey}: it would pass for a typed object`)
  }

  protected override plainObject(value: object, depth: number): boolean {
    return this.types.extra.length > 0 && this.tryTypes(this.types.extra, value, depth)
  }

  protected override typed(value: object, depth: number): boolean {
    if (value instanceof Datum) {
      this.datum(value, depth)
      return true
    }
    if (value instanceof DownloadRef) this.forward(value)
    return this.tryTypes(this.types.extra, value, depth) || this.tryTypes(this.types.core, value, depth)
  }

  private tryTypes(entries: ReadonlyArray<TypeEntry>, value: object, depth: number): boolean {
    for (const entry of entries) {
      if (!entry.decomposer.is(value)) continue
      const { decomposer } = entry
      this.decomposing = decomposer.typeName
      const answer = decomposer.decompose(value, this.context)
      this.decomposing = undefined
      this.raw(entry.head)
      this.write(Result.isResult(answer) ? this.success(decomposer.typeName, answer) : answer, depth + 1)
      this.raw(entry.tail)
      return true
    }
    return false
  }

  private success(typeName: string, answer: Result.Result<unknown, unknown>): unknown {
    if (Result.isSuccess(answer)) return answer.success
    if (answer.failure instanceof FobsError) return unwrap(Result.fail(answer.failure))
    return notEncodable(`${typeName}: ${String(answer.failure)}`)
  }

  private forward(ref: DownloadRef): void {
    this.forwarded ??= new Map()
    const first = this.forwarded.get(ref.dot)
    if (first === undefined) this.forwarded.set(ref.dot, ref)
    else if (first.fqcn !== ref.fqcn || first.refId !== ref.refId) {
      notEncodable(`a message cannot forward both ${first.refId} of ${first.fqcn} and ${ref.refId} of ${ref.fqcn}`)
    }
  }

  private datum(datum: Datum, depth: number): void {
    const id = uuidBytes(datum.id)
    if (id === undefined) {
      notEncodable(`a Datum's id is no UUID in lower case: ${JSON.stringify(datum.id)}`)
      return
    }
    if (datum.value.length === 0) notEncodable("a Datum's value must not be empty")
    this.ids ??= new Map()
    if (!this.ids.has(datum.id)) {
      this.ids.set(datum.id, datum)
      const bytes = typeof datum.value === "string" ? encodeText(datum.value) : datum.value
      const marker = typeof datum.value === "string" ? textMarker : blobMarker
      this.datums.push({ marker, dot: datum.dot, id, length: bytes.length, parts: [bytes] })
    } else if (this.ids.get(datum.id) !== datum) notEncodable(`two datums have the id ${datum.id}`)
    this.datumRef(datum.id, false, depth)
  }

  protected override externalText(value: string, depth: number): boolean {
    if (value === "" || countCodePoints(value) < this.maxInline) return false
    const bytes = encodeText(value)
    this.externalise(textMarker, [bytes], bytes.length, depth)
    return true
  }

  protected override externalBytes(parts: ReadonlyArray<Uint8Array>, length: number, depth: number): boolean {
    if (length === 0) return false
    this.externalise(blobMarker, parts, length, depth)
    return true
  }

  private externalise(marker: number, parts: ReadonlyArray<Uint8Array>, length: number, depth: number): void {
    const id = this.freshId()
    const text = uuidText(id)
    this.ids ??= new Map()
    this.ids.set(text, undefined)
    this.datums.push({ marker, dot: 0, id, length, parts })
    this.datumRef(text, true, depth)
  }

  private datumRef(id: string, unwrapped: boolean, depth: number): void {
    // Three containers, written without this.write: an id must never leave the body itself.
    this.checkDepth(depth + 3)
    this.raw(datumRefEntry.head)
    this.raw(datumRefData)
    this.text(id)
    this.text("unwrap")
    this.raw(Uint8Array.of(unwrapped ? 0xc3 : 0xc2))
    this.raw(datumRefEntry.tail)
  }
}

const datumRefEntry = typeEntry({
  typeName: datumRefType,
  decomposerName: dataClass,
  is: (value): value is unknown => value instanceof Datum,
  decompose: (value) => value,
  recompose: Result.succeed
})

/** `{"data": {"datum_id":` */
const datumRefData = (() => {
  const writer = new Writer()
  writer.raw(Uint8Array.of(0x81))
  writer.text("data")
  writer.raw(Uint8Array.of(0x82))
  writer.text("datum_id")
  return concat(writer.finish())
})()

const threw = (typeName: string, cause: unknown): string => `the decomposer of ${typeName} threw: ${String(cause)}`

class FobsReader {
  /** The type whose decomposer is at work, to name it when it throws. */
  recomposing: string | undefined
  private readonly types: TypeTable
  private readonly sections: Sections
  private readonly options: DecodeOptions
  private readonly context: DecodeContext

  constructor(types: TypeTable, sections: Sections, options: DecodeOptions) {
    this.types = types
    this.sections = sections
    this.options = options
    this.context = { lossless: options.lossless ?? false, item: (dot, itemId) => this.item(dot, itemId) }
  }

  read(): unknown {
    return new Reader(this.sections.body, {
      lossless: this.context.lossless,
      known: this.types.known,
      memo: this.types.memo,
      recompose: (typeName, data) => this.recompose(typeName, data)
    }).read()
  }

  private recompose(typeName: unknown, data: unknown): unknown {
    if (typeof typeName !== "string" || typeName === "") return malformed("the type of an object is no name")
    const decomposer = this.types.byName.get(typeName)
    if (decomposer === undefined) {
      if (typeName === datumRefType) return this.datum(data)
      return unknownType(typeName, `no type ${JSON.stringify(typeName)} is registered; add a Decomposer for it`)
    }
    this.recomposing = typeName
    const value = unwrap(decomposer.recompose(data, this.context))
    this.recomposing = undefined
    return value
  }

  private datum(data: unknown): unknown {
    const attributes: unknown = data instanceof Map ? data.get("data") : undefined
    if (!(attributes instanceof Map)) return invalidValue(datumRefType, "there are no attributes")
    const id: unknown = attributes.get("datum_id")
    if (typeof id !== "string") return invalidValue(datumRefType, "datum_id is no text")
    if (!attributes.has("unwrap")) return invalidValue(datumRefType, "unwrap is missing")
    const datum = this.sections.datums.get(id)
    if (!(datum instanceof Datum)) return missingReference(id, `the message holds no datum ${JSON.stringify(id)}`)
    const unwrapped: unknown = attributes.get("unwrap")
    if (unwrapped !== true && unwrapped !== false && unwrapped !== null) {
      return invalidValue(datumRefType, "unwrap is no bool")
    }
    return unwrapped === true ? datum.value : datum
  }

  private item(dot: 3 | 6, itemId: string): Result.Result<unknown, FobsError> {
    const missing = (what: string): Result.Result<never, FobsError> =>
      Result.fail(new FobsError({ reason: new MissingReference({ id: itemId, message: `array ${itemId}: ${what}` }) }))
    const download = this.sections.downloads.find((candidate) => candidate.dot === dot)
    if (download === undefined) return missing("the message names no download that it is part of")
    const { items } = this.options
    if (items === undefined) return missing(`it stayed at ${download.fqcn} and was not fetched`)
    if (items === "keep") return Result.succeed(new DownloadRef(download.fqcn, download.refId, itemId, dot))
    const found = items.get(dot)
    return found?.has(itemId) === true
      ? Result.succeed(found.get(itemId))
      : missing(`the download ${download.refId} of ${download.fqcn} holds no such item`)
  }
}

export const makeCodec = (types: TypeTable): Codec => {
  const parse = (message: Uint8Array): Result.Result<Sections, FobsError> => attempt(() => readSections(message))
  return {
    encode: (value, options = {}) => {
      const writer = new FobsWriter(types, options)
      return attempt(
        () => writer.message(value),
        (cause) =>
          writer.decomposing === undefined
            ? undefined
            : new FobsError({ reason: new NotEncodable({ message: threw(writer.decomposing, cause) }) })
      )
    },
    parse,
    decode: (message, options = {}) => {
      let reader: FobsReader | undefined
      return attempt(
        () => {
          reader = new FobsReader(types, message instanceof Uint8Array ? readSections(message) : message, options)
          return reader.read()
        },
        (cause) => {
          const typeName = reader?.recomposing
          if (typeName === undefined) return undefined
          return new FobsError({ reason: new InvalidValue({ typeName, message: threw(typeName, cause) }) })
        }
      )
    }
  }
}
