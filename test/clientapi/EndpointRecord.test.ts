import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import { EndpointRecord, endpointRecordJson, parseEndpointRecord } from "../../src/clientapi/EndpointRecord.ts"

const expected = { siteName: "site-1", attachId: "t1" }

const json = {
  schema_version: 1,
  instance_id: "0123456789abcdef0123456789abcdef",
  attach_id: "t1",
  site_name: "site-1",
  cj_fqcn: "relay.site-1.job-1",
  trainer_fqcn: "relay.site-1.-client_api_t1",
  connect_url: "shared-file://0/shared/lst_0123abcd?max_poll_interval=0.05",
  connection_security: "clear"
}

const record: EndpointRecord = {
  schemaVersion: 1,
  instanceId: json.instance_id,
  attachId: "t1",
  siteName: "site-1",
  cjFqcn: "relay.site-1.job-1",
  trainerFqcn: "relay.site-1.-client_api_t1",
  connectUrl: json.connect_url,
  connectionSecurity: "clear"
}

const wrong: ReadonlyArray<readonly [string, unknown]> = [
  ["schema_version", 2],
  ["schema_version", "1"],
  ["schema_version", true],
  ["instance_id", ""],
  ["instance_id", 5],
  ["attach_id", "t2"],
  ["site_name", "site-2"],
  ["site_name", null],
  ["cj_fqcn", ""],
  ["cj_fqcn", "site-1"],
  ["cj_fqcn", "site-2.job-1"],
  ["cj_fqcn", "site-1.job 1"],
  ["trainer_fqcn", "relay.site-1.-client_api_t2"],
  ["trainer_fqcn", undefined],
  ["connect_url", ""],
  ["connect_url", "shared-file://1/a"],
  ["connect_url", "SHARED-FILE://0/shared/lst_0123abcd"],
  ["connection_security", "mtls"]
]

describe("EndpointRecord", () => {
  it("is read from its JSON, and unknown keys are passed over", () => {
    const extended = { ...json, lease: "2999-01-01", __proto__: null }
    assert.deepStrictEqual(Result.getOrThrow(parseEndpointRecord(extended, expected)), record)
    assert.deepStrictEqual(Schema.decodeUnknownSync(EndpointRecord)(extended), record)
  })

  it("is clear also where it does not say so", () => {
    for (const security of [undefined, null]) {
      const result = parseEndpointRecord({ ...json, connection_security: security }, expected)
      assert.deepStrictEqual(Result.getOrThrow(result), record)
    }
  })

  it.effect("is written with its keys sorted", () =>
    Effect.gen(function* () {
      const text = yield* endpointRecordJson(record)
      assert.deepStrictEqual(JSON.parse(text), json)
      assert.deepStrictEqual(Object.keys(JSON.parse(text)), Object.keys(json).sort())
    })
  )

  it.each(wrong)("is refused when %s is %j", (field, value) => {
    const result = parseEndpointRecord({ ...json, [field]: value }, expected)
    assert(Result.isFailure(result))
    assert.strictEqual(result.failure.field, field)
    const found = value === undefined ? "missing" : result.failure.value
    assert.isTrue(result.failure.message.startsWith(`${field} is ${found}: `))
  })

  it("is refused for a network's URL, even a clear one", () => {
    const result = parseEndpointRecord({ ...json, connect_url: "tcp://h:1" }, expected)
    assert(Result.isFailure(result) && result.failure.field === "connect_url")
  })
})
