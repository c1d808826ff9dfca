import { createPublicKey } from "node:crypto"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as CertificateChain from "../../src/identity/CertificateChain.ts"
import { securityVectors, unpackPki } from "../pki.ts"

const folder = unpackPki()
const text = (path: string) => readFileSync(join(folder, path), "utf8")
const root = text("pki/rootCA.pem")
const clock = (value: string | undefined) => (value === undefined ? Date.UTC(2026, 5, 1) : Date.parse(value))
const kindOf = (result: Result.Result<unknown, { readonly kind: string }>) =>
  Result.isFailure(result) ? result.failure.kind : "accept"

describe("CertificateChain", () => {
  for (const one of securityVectors("chain.json").cases) {
    it(`${one.id}: ${one.what}`, () => {
      const checked = CertificateChain.check(one.pem, text(one.root), clock(one.clock))
      assert.strictEqual(Result.isSuccess(checked) ? "accept" : "reject", one.outcome, kindOf(checked))
    })
  }

  it("tells the first common name, the fingerprint and the key", () => {
    const two = Result.getOrThrow(CertificateChain.check(text("pki/bare-two-cn/client.crt"), root, clock(undefined)))
    assert.strictEqual(two.commonName, "site-1")
    const none = Result.getOrThrow(CertificateChain.check(text("pki/no-cn/client.crt"), root, clock(undefined)))
    assert.strictEqual(none.commonName, undefined)
    const site = Result.getOrThrow(CertificateChain.check(text("pki/site-1/client.crt"), root, clock(undefined)))
    assert.match(site.fingerprint, /^[0-9a-f]{64}$/)
    assert.isTrue(site.publicKey.equals(createPublicKey(text("pki/site-1/client.key"))))
  })

  it("checks validity again, with that of the issuers", () => {
    const chained = Result.getOrThrow(CertificateChain.check(text("pki/chained/client.crt"), root, clock(undefined)))
    assert.strictEqual(kindOf(CertificateChain.checkValidity(chained, chained.notBefore)), "accept")
    assert.strictEqual(kindOf(CertificateChain.checkValidity(chained, chained.notBefore - 1)), "validity")
    assert.strictEqual(kindOf(CertificateChain.checkValidity(chained, chained.notAfter)), "accept")
    assert.strictEqual(kindOf(CertificateChain.checkValidity(chained, chained.notAfter + 1)), "validity")
    const expired = CertificateChain.check(text("pki/expired/client.crt"), root, clock(undefined))
    assert.strictEqual(kindOf(expired), "validity")
    if (Result.isFailure(expired)) assert.include(expired.failure.message, "2025-01-01")
  })

  it("takes RSA keys of 2048 bits only", () => {
    const judge = (name: string) => {
      const checked = CertificateChain.check(text(`pki/${name}/client.crt`), root, clock(undefined))
      return kindOf(CertificateChain.checkKey(Result.getOrThrow(checked).publicKey))
    }
    assert.deepStrictEqual(["site-1", "rsa1024", "rsa3072", "ec"].map(judge), ["accept", "key", "key", "key"])
  })

  it("refuses what is no certificate, and too much of it", () => {
    const leaf = text("pki/site-1/client.crt")
    const cases: ReadonlyArray<readonly [string, string]> = [
      ["", "pem"],
      ["-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----", "pem"],
      ["-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "pem"],
      [leaf.replace("MII", "MIA"), "pem"],
      [leaf.repeat(17), "pem"],
      [`${leaf}${" ".repeat(70_000)}`, "pem"],
      [`some words\n${leaf}\nand more`, "accept"]
    ]
    for (const [pem, kind] of cases) {
      assert.strictEqual(kindOf(CertificateChain.check(pem, root, clock(undefined))), kind, pem.slice(0, 60))
    }
  })
})
