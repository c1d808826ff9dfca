/** Hand-made messages: what a peer may send that no encoder of ours would. */
import { Result } from "effect"
import * as Msgpack from "../../src/fobs/Msgpack.ts"

const two32 = 0x1_0000_0000

export const section = (marker: number, dot: number, content: Uint8Array): Uint8Array => {
  const bytes = new Uint8Array(10 + content.length)
  const view = new DataView(bytes.buffer)
  view.setUint8(0, marker)
  view.setUint8(1, dot)
  view.setUint32(2, Math.floor(content.length / two32))
  view.setUint32(6, content.length % two32)
  bytes.set(content, 10)
  return bytes
}

export const join = (...parts: ReadonlyArray<Uint8Array>): Uint8Array =>
  Uint8Array.from(parts.flatMap((part) => Array.from(part)))

/** A message whose body is these msgpack bytes. */
export const bodyOf = (...bytes: ReadonlyArray<number>): Uint8Array => section(100, 0, Uint8Array.from(bytes))

/** A message whose body is this value as plain msgpack: envelopes are dicts here. */
export const messageOf = (value: unknown): Uint8Array => section(100, 0, Result.getOrThrow(Msgpack.encode(value)))

/** A typed object in plain form. */
export const envelope = (type: unknown, data: unknown): Record<string, unknown> => ({
  __fobs_type__: type,
  __fobs_data__: data,
  __fobs_dc__: "x"
})

export const tuple = (...items: ReadonlyArray<unknown>): Record<string, unknown> => envelope("tuple", items)

export const datum = (marker: number, dot: number, id: string, value: string | Uint8Array): Uint8Array => {
  const idBytes = Uint8Array.from(id.replaceAll("-", "").match(/../g) ?? [], (pair) => Number.parseInt(pair, 16))
  return section(marker, dot, join(idBytes, typeof value === "string" ? new TextEncoder().encode(value) : value))
}

export const datumRef = (id: unknown, unwrap: Record<string, unknown> = { unwrap: true }): Record<string, unknown> =>
  envelope("nvflare.fuel.utils.fobs.datum.DatumRef", { data: { datum_id: id, ...unwrap } })

export const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex")
