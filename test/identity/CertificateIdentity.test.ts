import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as CertificateIdentity from "../../src/identity/CertificateIdentity.ts"

const { cases } = JSON.parse(readFileSync(new URL("../fixtures/security/identity.json", import.meta.url), "utf8"))

describe("CertificateIdentity", () => {
  // The same id stands for several cases.
  for (const [index, one] of cases.entries()) {
    it(`${index} ${one.id}`, () => {
      const rules = {
        local: one.local_fqcn,
        exact: new Map<string, string>(Object.entries(one.exact_map)),
        prefixes: new Map<string, string>(Object.entries(one.prefix_map))
      }
      assert.strictEqual(CertificateIdentity.expectedCommonName(rules, one.claimed_fqcn), one.resolved)
      const checked = CertificateIdentity.check(rules, one.claimed_fqcn, one.peer_cn ?? undefined)
      assert.strictEqual(Result.isSuccess(checked) ? "accept" : "reject", one.outcome)
    })
  }

  it("makes the rules of a site, and says what a wrong certificate must be", () => {
    const rules = CertificateIdentity.rulesOf({
      local: "site-1.-client_api_t1",
      parent: "site-1",
      identity: "Site One",
      others: new Map([["server", "server.example"]])
    })
    assert.strictEqual(CertificateIdentity.expectedCommonName(rules, "site-1.job"), "Site One")
    assert.strictEqual(CertificateIdentity.expectedCommonName(rules, "server.job"), "server.example")
    const wrong = CertificateIdentity.check(rules, "site-1", "site-1")
    assert.isTrue(Result.isFailure(wrong))
    if (Result.isFailure(wrong)) {
      assert.deepInclude({ ...wrong.failure }, { claimed: "site-1", expected: "Site One", found: "site-1" })
      assert.include(wrong.failure.message, "Site One")
    }
    const admin = "_admin_6f2a9b1e-6a3b-4a55-9d2c-0d7b8b6f5c11"
    assert.isTrue(Result.isFailure(CertificateIdentity.check(rules, admin, admin)))
  })
})
