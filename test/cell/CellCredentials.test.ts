// The library below does not work without it.
import "reflect-metadata"
import { webcrypto } from "node:crypto"
import { appendFileSync, cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as x509 from "@peculiar/x509"
import { Clock, Effect, Logger, Queue } from "effect"
import * as CellCredentials from "../../src/cell/CellCredentials.ts"
import * as Pki from "../../src/cli/internal/testPki.ts"
import { rulesOf } from "../../src/identity/CertificateIdentity.ts"
import { inFolder } from "../../src/identity/Credentials.ts"
import { pki } from "./secure.ts"

const local = "site-1.job-1"
const rules = rulesOf({ local, parent: "site-1", identity: "site-1" })

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "fl-attach-credentials-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const copyOf = (name: string) =>
  Effect.tap(folder, (path) => Effect.sync(() => cpSync(join(pki, name), path, { recursive: true })))

const day = 86_400_000

/** A root's certificate issued once more, to hold for another time. */
const sameKey = ({ certificate, privateKey }: Pki.Holder, validity: Pki.Validity) =>
  x509.X509CertificateGenerator.create(
    {
      subject: certificate.subject,
      issuer: certificate.subject,
      publicKey: certificate.publicKey,
      signingKey: privateKey,
      signingAlgorithm: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
      serialNumber: "03",
      extensions: certificate.extensions,
      ...validity
    },
    webcrypto
  )

/** What is logged, line by line. */
const watchLog = Effect.map(Queue.unbounded<string>(), (lines) => ({
  layer: Logger.layer([Logger.make(({ message }) => void Queue.offerUnsafe(lines, String(message)))]),
  logged: Effect.fnUntraced(function* (says: RegExp) {
    let line = ""
    while (!says.test(line)) line = yield* Queue.take(lines)
    return line
  })
}))

describe("a cell's own certificate in another's name", () => {
  it.live("is not taken at the start: both names are told, and how to name the certificate", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(CellCredentials.watch(inFolder(join(pki, "site-2")), { rules }))
      assert.strictEqual(error.problem, "identity")
      assert.match(error.message, /client\.crt.*"site-2" may not be used by site-1\.job-1, that of "site-1" is needed/)
      assert.match(error.message, /\(identity\)/)
      yield* CellCredentials.load(
        inFolder(join(pki, "site-2")),
        rulesOf({ local, parent: "site-1", identity: "site-2" })
      )
    })
  )

  it.live("is not taken over as a renewal, and the former one goes on", () =>
    Effect.gen(function* () {
      const { layer, logged } = yield* watchLog
      yield* Effect.gen(function* () {
        const certs = yield* copyOf("site-1")
        const credentials = yield* CellCredentials.watch(inFolder(certs), { rules, interval: "20 millis" })
        const before = credentials.current()
        cpSync(join(pki, "site-2"), certs, { recursive: true })
        assert.match(yield* logged(/stay as they were.*(may not be used|renewed)|was renewed/), /"site-2".*"site-1"/)
        assert.strictEqual(credentials.current(), before)
      }).pipe(Effect.provide(layer))
    })
  )
})

describe("what a cell's own certificate builds on", () => {
  it.live("is followed, too: a root of the same key that lives longer", () =>
    Effect.gen(function* () {
      const { layer, logged } = yield* watchLog
      yield* Effect.gen(function* () {
        const certs = yield* folder
        const now = yield* Clock.currentTimeMillis
        const validity = (days: number) => ({ notBefore: new Date(now - day), notAfter: new Date(now + days * day) })
        const root = yield* Pki.makeRoot("project", "01", validity(100))
        const site = yield* Pki.issue(root, "site-1", ["site-1"], "02", validity(90))
        const brief = yield* Effect.promise(() => sameKey(root, validity(40)))
        const write = (name: string, text: string) => writeFileSync(join(certs, name), text, { mode: 0o600 })
        write("client.crt", Pki.certificatePem(site))
        write("client.key", yield* Pki.keyPem(site))
        write("rootCA.pem", Pki.certificatePem({ ...root, certificate: brief }))
        const credentials = yield* CellCredentials.watch(inFolder(certs), { rules, interval: "20 millis" })
        const before = credentials.current().checked
        assert.strictEqual(before.notAfter, brief.notAfter.getTime())
        write("rootCA.pem", Pki.certificatePem(root))
        yield* logged(/site-1.* renewed/)
        const { checked, root: trusted } = credentials.current()
        assert.strictEqual(checked.fingerprint, before.fingerprint)
        assert.strictEqual(checked.notAfter, site.certificate.notAfter.getTime())
        assert.strictEqual(Buffer.from(trusted).toString(), Pki.certificatePem(root))
      }).pipe(Effect.provide(layer))
    })
  )

  it.live("is followed, too: the chain in the certificate's file", () =>
    Effect.gen(function* () {
      const { layer, logged } = yield* watchLog
      yield* Effect.gen(function* () {
        const certs = yield* copyOf("site-1")
        const credentials = yield* CellCredentials.watch(inFolder(certs), { rules, interval: "20 millis" })
        appendFileSync(join(certs, "client.crt"), readFileSync(join(pki, "intermediate.pem")))
        yield* logged(/site-1.* renewed/)
        const { certificate } = credentials.current()
        assert.deepStrictEqual(Buffer.from(certificate), readFileSync(join(certs, "client.crt")))
      }).pipe(Effect.provide(layer))
    })
  )
})
