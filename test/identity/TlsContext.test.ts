import { chmodSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import { TestClock } from "effect/testing"
import * as Credentials from "../../src/identity/Credentials.ts"
import type { CredentialsError } from "../../src/identity/CredentialsError.ts"
import * as TlsContext from "../../src/identity/TlsContext.ts"
import { makePki } from "../transport/pki.ts"

const mutual = { security: "mtls", fallback: true } as const
const oneWay = { security: "tls", fallback: true } as const

const at = (date: string) => TestClock.setTime(DateTime.toEpochMillis(DateTime.makeUnsafe(date)))

const problemOf = (effect: Effect.Effect<unknown, CredentialsError>) =>
  Effect.map(Effect.flip(effect), ({ problem, setting }) => `${setting} ${problem}`)

describe("Credentials", () => {
  it.effect("names what lies beside the root, and keeps what is named", () =>
    Effect.gen(function* () {
      const pki = yield* makePki
      const folder = pki.folder("site-1-listener")
      assert.deepStrictEqual(
        yield* Credentials.discover({ ...Credentials.inFolder(folder), clientKey: "/elsewhere/client.key" }),
        {
          caCert: join(folder, "rootCA.pem"),
          clientCert: join(folder, "client.crt"),
          clientKey: "/elsewhere/client.key",
          serverCert: join(folder, "server.crt"),
          serverKey: join(folder, "server.key")
        }
      )
      assert.deepStrictEqual(yield* Credentials.discover({ clientCert: "a" }), { clientCert: "a" })
    })
  )
})

describe("TlsContext", () => {
  it.effect("takes the pair of its side, or the other's where that is allowed", () =>
    Effect.gen(function* () {
      yield* at("2026-01-01T00:00:00Z")
      const pki = yield* makePki
      const both = Credentials.inFolder(pki.folder("site-1-listener"))
      const client = Credentials.inFolder(pki.folder("site-1"))
      const server = Credentials.inFolder(pki.folder("server"))
      const shown = yield* TlsContext.forListener(both, mutual)
      assert.notStrictEqual(shown.cert, (yield* TlsContext.forDialer(both, mutual)).cert)
      assert.strictEqual(
        (yield* TlsContext.forListener(client, mutual)).cert,
        (yield* TlsContext.forDialer(client, mutual)).cert
      )
      assert.strictEqual(
        (yield* TlsContext.forDialer(server, mutual)).cert,
        (yield* TlsContext.forListener(server, mutual)).cert
      )
      const strict = { ...mutual, fallback: false }
      assert.strictEqual(yield* problemOf(TlsContext.forListener(client, strict)), "server_cert missing")
      assert.strictEqual(yield* problemOf(TlsContext.forDialer(server, strict)), "client_cert missing")
    })
  )

  it.effect("a dialer with one-way TLS shows nothing, and trusts the custom root where there is one", () =>
    Effect.gen(function* () {
      yield* at("2026-01-01T00:00:00Z")
      const pki = yield* makePki
      const plain = yield* TlsContext.forDialer(Credentials.inFolder(pki.folder("site-1")), oneWay)
      assert.deepStrictEqual(Object.keys(plain).sort(), ["ca", "security"])
      const custom = pki.mix({ "rootCA.pem": "rootCA.pem", "customRootCA.pem": "foreignCA.pem" })
      const other = yield* TlsContext.forDialer(Credentials.inFolder(custom), oneWay)
      assert.notStrictEqual(other.ca, plain.ca)
      // With certificates on both sides the project's root counts alone, and a listener of another CA is no use.
      const foreign = pki.mix({
        "rootCA.pem": "rootCA.pem",
        "client.crt": "foreign/client.crt",
        "client.key": "foreign/client.key"
      })
      assert.strictEqual(
        yield* problemOf(TlsContext.forListener(Credentials.inFolder(foreign), mutual)),
        "client_cert foreign"
      )
      assert.strictEqual((yield* TlsContext.forListener(Credentials.inFolder(foreign), oneWay)).security, "tls")
    })
  )

  it.effect("looks at the clock for the pair and for the root", () =>
    Effect.gen(function* () {
      const pki = yield* makePki
      const site = Credentials.inFolder(pki.folder("site-1"))
      const expired = Credentials.inFolder(pki.folder("expired"))
      yield* at("2024-06-01T00:00:00Z")
      assert.isDefined((yield* TlsContext.forDialer(expired, mutual)).cert)
      yield* at("2025-01-02T00:00:00Z")
      assert.strictEqual(yield* problemOf(TlsContext.forDialer(expired, mutual)), "client_cert expired")
      yield* at("2055-01-01T00:00:00Z")
      assert.strictEqual(yield* problemOf(TlsContext.forDialer(site, mutual)), "ca_cert expired")
      yield* at("2023-01-01T00:00:00Z")
      assert.strictEqual(yield* problemOf(TlsContext.forDialer(site, mutual)), "ca_cert expired")
    })
  )

  it.effect("says which file is the matter", () =>
    Effect.gen(function* () {
      yield* at("2026-01-01T00:00:00Z")
      const pki = yield* makePki
      const dial = (folder: string) => problemOf(TlsContext.forDialer(Credentials.inFolder(folder), mutual))
      const pair = { "client.crt": "site-1/client.crt", "client.key": "site-1/client.key" }
      assert.strictEqual(yield* dial(pki.mix(pair)), "ca_cert missing")
      assert.strictEqual(yield* dial(pki.mix({ ...pair, "rootCA.pem": "site-1/client.key" })), "ca_cert invalid")
      assert.strictEqual(
        yield* dial(pki.mix({ ...pair, "rootCA.pem": "rootCA.pem", "client.key": "site-2/client.key" })),
        "client_key mismatch"
      )
      const locked = pki.mix({ ...pair, "rootCA.pem": "rootCA.pem" })
      writeFileSync(join(locked, "client.key"), "-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
      assert.strictEqual(yield* dial(locked), "client_key encrypted")
      const damaged = pki.mix({ ...pair, "rootCA.pem": "rootCA.pem" })
      writeFileSync(join(damaged, "client.crt"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
      assert.strictEqual(yield* dial(damaged), "client_cert invalid")
      const unreadable = pki.mix({ ...pair, "rootCA.pem": "rootCA.pem" })
      chmodSync(join(unreadable, "client.key"), 0)
      // Nothing is unreadable for root.
      const expected = process.getuid?.() === 0 ? undefined : "client_key unreadable"
      if (expected !== undefined) assert.strictEqual(yield* dial(unreadable), expected)
      assert.strictEqual(yield* problemOf(TlsContext.forDialer({}, mutual)), "ca_cert missing")
    })
  )

  it("takes the first of several common names, and none for none", () => {
    assert.strictEqual(TlsContext.commonNameOf({ CN: "site-1" }), "site-1")
    assert.strictEqual(TlsContext.commonNameOf({ CN: ["site-1", "site-2"] }), "site-1")
    assert.isUndefined(TlsContext.commonNameOf({}))
    assert.isUndefined(TlsContext.commonNameOf({ CN: "" }))
  })
})
