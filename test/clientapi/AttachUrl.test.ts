import * as NodeFs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { securityOf, sharedFilePath } from "../../src/clientapi/AttachUrl.ts"

const { cases }: { cases: ReadonlyArray<{ url: string; path?: string }> } = JSON.parse(
  NodeFs.readFileSync(`${import.meta.dirname}/../fixtures/transport/shared_file_urls.json`, "utf8")
)

const field = (url: unknown, declared?: unknown): string =>
  Result.match(securityOf(url, declared), { onFailure: (error) => error.field, onSuccess: (security) => security })

describe("AttachUrl", () => {
  it("takes shared-file URLs apart as the reference does", () => {
    assert.isNotEmpty(cases)
    for (const { url, path } of cases) {
      const result = sharedFilePath(url)
      assert.strictEqual(Result.getOrUndefined(result), path, url)
      if (path === undefined) assert(Result.isFailure(result) && result.failure.message.includes("shared-file://0/"))
    }
  })

  it("takes a shared-file URL for clear, and nothing else", () => {
    assert.strictEqual(field("shared-file://0/a"), "clear")
    assert.strictEqual(field("shared-file://0/a", null), "clear")
    assert.strictEqual(field("shared-file://0/a", "clear"), "clear")
    for (const declared of ["mtls", "tls", "", 0, false]) {
      assert.strictEqual(field("shared-file://0/a", declared), "connection_security")
    }
    assert.strictEqual(field("shared-file://1/a"), "connect_url")
  })

  it("takes secure schemes for mtls, and asks for the choice otherwise", () => {
    for (const scheme of ["https", "grpcs", "agrpcs", "ngrpcs", "stcp", "satcp", "GRPCS"]) {
      assert.strictEqual(field(`${scheme}://h:1`), "mtls")
      assert.strictEqual(field(`${scheme}://h:1`, null), "mtls")
      assert.strictEqual(field(`${scheme}://h:1`, "clear"), "clear")
    }
    for (const scheme of ["tcp", "grpc", "http", "x+y.z-1"]) {
      assert.strictEqual(field(`${scheme}://h:1`), "connection_security")
      assert.strictEqual(field(`${scheme}://h:1`, "clear"), "clear")
      assert.strictEqual(field(`${scheme}://h:1`, "mtls"), "mtls")
      assert.strictEqual(field(`${scheme}://h:1`, "tls"), "connection_security")
      assert.strictEqual(field(`${scheme}://h:1`, "CLEAR"), "connection_security")
      assert.strictEqual(field(`${scheme}://h:1`, true), "connection_security")
    }
  })

  it("refuses what is no URL with a scheme", () => {
    for (const url of ["", "  ", "//h:1", "1tcp://h", "t_cp://h", "file:///a", "FILE://0/a", "tcp://[::1", 5, null]) {
      assert.strictEqual(field(url, "clear"), "connect_url", String(url))
    }
    assert.strictEqual(field(" \u0001tc\tp://h:1", "clear"), "clear")
  })
})
