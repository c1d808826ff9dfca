/** The captured exchanges of test/fixtures/attach (docs/wire/attach.md, section 15) as values that can be sent. */
import { readFileSync } from "node:fs"
import { assert } from "@effect/vitest"
import { Result } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { DownloadRef, EnumValue, Float } from "../../src/fobs/Values.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import { Shareable } from "../../src/model/Shareable.ts"

export const load = (name: string) =>
  JSON.parse(readFileSync(new URL(`../fixtures/attach/${name}.json`, import.meta.url), "utf8"))

type Json = { readonly [key: string]: unknown }

const isJson = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value)

const dtypes: { readonly [name: string]: string } = { float32: "<f4", float64: "<f8", int32: "<i4", int64: "<i8" }

/** Arrays are known by shape and hash alone: zeros stand for them. */
const zeros = ({ dtype, shape }: Json): NdArray => {
  const text = dtypes[String(dtype)] ?? assert.fail(`no dtype ${dtype}`)
  const size = (shape as ReadonlyArray<number>).reduce((product, length) => product * length, 1)
  return new NdArray(text, shape as ReadonlyArray<number>, new Uint8Array(size * Number(text.slice(2))))
}

const floats: { readonly [text: string]: number } = { Infinity: Number.POSITIVE_INFINITY, NaN: Number.NaN }

/** What a captured payload shows, as a value; numbers are ints where they are whole. */
export const valueOf = (json: unknown): unknown => {
  if (Array.isArray(json)) return json.map(valueOf)
  if (typeof json === "string") return floats[json] ?? json
  if (!isJson(json)) return json
  if (isJson(json.__ndarray__)) return zeros(json.__ndarray__)
  if (typeof json.__enum__ === "string") return new EnumValue(json.__enum__, String(json.value))
  const entries = Object.entries(isJson(json.items) ? json.items : json).map(
    ([key, value]) => [key, valueOf(value)] as const
  )
  if (json.__type__ === undefined) return new Map<unknown, unknown>(entries)
  const { __headers__: headers, ...rest } = Object.fromEntries(entries)
  return new Shareable(headers as Map<string, unknown>, Object.entries(rest))
}

/** The exact bytes of a payload, decoded so that 5.0 stays apart from 5. */
export const exactly = (raw: string): unknown =>
  Result.getOrThrow(ModelCodec.codec.decode(Buffer.from(raw, "base64"), { lossless: true, items: "keep" }))

/** The exact value, with the zeros that the shown one has where a reference to an array stands. */
export const filled = (exact: unknown, shown: unknown): unknown => {
  if (exact instanceof DownloadRef) return shown
  if (exact instanceof Map && shown instanceof Map) {
    return new Map([...exact].map(([key, value]) => [key, filled(value, shown.get(key))]))
  }
  return exact instanceof Shareable && shown instanceof Shareable
    ? new Shareable(exact.headers, filled(exact.entries, shown.entries) as Map<unknown, unknown>)
    : exact
}

/** A codec that tells floats from ints. */
export const losslessCodec: typeof ModelCodec.codec = {
  ...ModelCodec.codec,
  decode: (message, options) => ModelCodec.codec.decode(message, { ...options, lossless: true })
}

/** Keys in their order, types and values; arrays are all alike, since references hide them. */
export const outline = (value: unknown): unknown => {
  if (value instanceof NdArray || value instanceof DownloadRef) return "an array"
  if (value instanceof Float) return `float ${value.value}`
  if (typeof value === "number") return Number.isInteger(value) ? `int ${value}` : `float ${value}`
  if (value instanceof EnumValue) return `${value.className}.${value.name}`
  if (value instanceof Shareable) return { headers: outline(value.headers), entries: outline(value.entries) }
  if (value instanceof Map) return [...value].map(([key, each]) => [key, outline(each)])
  return value
}
