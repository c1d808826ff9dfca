import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as Describe from "../../src/cli/Describe.ts"
import * as Npz from "../../src/fobs/Npz.ts"
import * as Safetensors from "../../src/fobs/Safetensors.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import { concat, type Item, payloads, readFixture, sink, vectors, withoutRepr } from "./fixtures.ts"

const codec = ModelCodec.codec

const decode = (bytes: Uint8Array) => Result.getOrThrow(codec.decode(bytes, { lossless: true, items: "keep" }))

const described = (bytes: Uint8Array) => withoutRepr(Describe.describe(decode(bytes)))

/** What an item of a download holds. */
const fetched = ({ describe: { format }, file }: Item): ReadonlyMap<string, unknown> =>
  format === "npz"
    ? Result.getOrThrow(Npz.decode(readFixture(file)))
    : Result.getOrThrow(Safetensors.decode(readFixture(file)))

/** The message in hex with the ids of its datums, which are random, blanked. */
const withoutIds = (message: Uint8Array): string => {
  const bytes = message.slice()
  const view = new DataView(bytes.buffer)
  const size = (at: number) => 10 + Number(view.getBigUint64(at + 2))
  for (let at = size(0); at < bytes.length; at += size(at)) bytes.fill(0, at + 10, at + 26)
  return Buffer.from(bytes).toString("hex")
}

const ofKind = (kind: string) => vectors.filter((vector) => vector.kind === kind)

describe("golden vectors", () => {
  it.each(ofKind("encode"))("$name decodes to the value", ({ file, value }) => {
    assert.deepStrictEqual(described(readFixture(file)), withoutRepr(value))
  })

  it.each(vectors.filter(({ reencode }) => reencode === "exact"))("$name is re-encoded byte for byte", ({ file }) => {
    const bytes = readFixture(file)
    const again = concat(Result.getOrThrow(codec.encode(decode(bytes))))
    assert.strictEqual(Buffer.from(again).toString("hex"), Buffer.from(bytes).toString("hex"))
  })

  it.each(vectors.filter(({ reencode }) => reencode === "semantic"))(
    "$name comes back from its own encoding",
    ({ file, max_value_size, value }) => {
      const options = max_value_size === undefined ? {} : { maxInlineSize: max_value_size }
      const bytes = readFixture(file)
      const again = concat(Result.getOrThrow(codec.encode(decode(bytes), options)))
      assert.deepStrictEqual(described(again), withoutRepr(value))
      if (max_value_size !== undefined) assert.strictEqual(again.length, bytes.length)
    }
  )

  it.each(vectors.filter(({ ref_items }) => ref_items !== undefined))(
    "$name with its arrays fetched is written as the reference does",
    ({ file, ref_items = {} }) => {
      const bytes = readFixture(file)
      const { downloads } = Result.getOrThrow(codec.parse(bytes))
      const items = new Map(
        downloads.map(({ dot, refId }) => [
          dot,
          new Map(ref_items[refId]?.flatMap((item) => Array.from(fetched(item))))
        ])
      )
      const value = Result.getOrThrow(codec.decode(bytes, { lossless: true, items }))
      const again = concat(Result.getOrThrow(codec.encode(value, { references: sink(downloads) })))
      assert.strictEqual(withoutIds(again), withoutIds(bytes))
    }
  )

  it.each(ofKind("decode_only"))("$name has the outcome $result", ({ file, result, value }) => {
    const decoded = codec.decode(readFixture(file), { lossless: true, items: "keep" })
    assert.strictEqual(Result.isSuccess(decoded) ? "value" : "error", result)
    if (Result.isSuccess(decoded)) {
      assert.deepStrictEqual(withoutRepr(Describe.describe(decoded.success)), withoutRepr(value))
    } else assert.strictEqual(decoded.failure._tag, "FobsError")
  })

  it.each(payloads)("the payload $label decodes", ({ bytes, value }) => {
    assert.deepStrictEqual(described(bytes), withoutRepr(value))
  })
})
