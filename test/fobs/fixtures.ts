/** The golden vectors (test/fixtures/fobs/README.md). */
import { readFileSync } from "node:fs"
import { gunzipSync } from "node:zlib"
import type { Download } from "../../src/fobs/Fobs.ts"
import { concat } from "../../src/fobs/internal/writer.ts"

const folder = new URL("../fixtures/fobs/", import.meta.url)

export interface Item {
  readonly file: string
  readonly describe: { readonly format: "npz" | "safetensors"; readonly items: Record<string, unknown> }
}

export interface Vector {
  readonly name: string
  readonly file: string
  readonly family: string
  readonly kind: "encode" | "decode_only" | "exchange"
  readonly value?: unknown
  readonly reencode?: "exact" | "semantic"
  readonly max_value_size?: number
  readonly result?: "value" | "error"
  readonly ref_items?: Record<string, ReadonlyArray<Item>>
}

export const readFixture = (file: string): Uint8Array => {
  const bytes = readFileSync(new URL(file, folder))
  const plain = file.endsWith(".gz") ? gunzipSync(bytes) : bytes
  return new Uint8Array(plain.buffer, plain.byteOffset, plain.byteLength)
}

const readJson = (file: string) => JSON.parse(new TextDecoder().decode(readFixture(file)))

export const vectors: ReadonlyArray<Vector> = readJson("index.json").vectors

export interface Payload {
  readonly label: string
  readonly bytes: Uint8Array
  readonly value: unknown
}

/** Every payload of the recorded exchanges that has a file. */
export const payloads: ReadonlyArray<Payload> = vectors
  .filter(({ kind, name }) => kind === "exchange" && name !== "producer_probe")
  .flatMap(({ file }) =>
    readJson(file)
      .messages.filter((message: { file?: string; headers: Record<string, unknown> }) => message.file !== undefined)
      .map((message: { file: string; value: unknown }) => ({
        label: message.file,
        bytes: readFixture(`exchanges/${message.file}`),
        value: message.value
      }))
  )

/** Float texts are information only. */
export const withoutRepr = (node: unknown): unknown => {
  if (Array.isArray(node)) return node.map(withoutRepr)
  if (typeof node !== "object" || node === null) return node
  return Object.fromEntries(
    Object.entries(node)
      .filter(([key, value]) => !(key === "repr" && typeof value === "string"))
      .map(([key, value]) => [key, withoutRepr(value)])
  )
}

/** A sink that takes arrays out under item ids, each object once. */
export const sink = (downloads: ReadonlyArray<Download>) => {
  const taken = new Map<unknown, string>()
  const counts = { 3: 0, 6: 0 }
  return {
    taken,
    add: (dot: 3 | 6, value: unknown) => {
      const known = taken.get(value)
      if (known !== undefined) return known
      const itemId = `T${counts[dot]++}`
      taken.set(value, itemId)
      return itemId
    },
    downloads: () => downloads
  }
}

export { concat }
