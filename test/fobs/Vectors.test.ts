import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as Describe from "../../src/cli/Describe.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import { concat, payloads, readFixture, vectors, withoutRepr } from "./fixtures.ts"

const codec = ModelCodec.codec

const decode = (bytes: Uint8Array) => Result.getOrThrow(codec.decode(bytes, { lossless: true, items: "keep" }))

const described = (bytes: Uint8Array) => withoutRepr(Describe.describe(decode(bytes)))

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
