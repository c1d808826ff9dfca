/** Certificates that are replaced while connections live. */
import { X509Certificate } from "node:crypto"
import { chmodSync, copyFileSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeTls from "node:tls"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Logger, Queue } from "effect"
import * as Pki from "../../src/cli/internal/testPki.ts"
import * as Credentials from "../../src/identity/Credentials.ts"
import type { Driver, FrameLink } from "../../src/transport/Drivers.ts"
import * as GrpcDriver from "../../src/transport/GrpcDriver.ts"
import * as TcpDriver from "../../src/transport/TcpDriver.ts"
import * as WebSocketDriver from "../../src/transport/WebSocketDriver.ts"
import { frameOf, makePair, portOf, receiveFrames } from "./net.ts"
import { makePki } from "./pki.ts"

const makers: ReadonlyArray<readonly [url: string, make: (folder: string) => Driver]> = [
  ["stcp://localhost:0", (folder) => TcpDriver.make(optionsOf(folder))],
  ["https://localhost:0", (folder) => WebSocketDriver.make(optionsOf(folder))],
  ["grpcs://localhost:0", (folder) => GrpcDriver.make(optionsOf(folder))]
]

const optionsOf = (folder: string) => ({
  credentials: Credentials.inFolder(folder),
  renewInterval: "20 millis" as const
})

const fingerprintOf = (path: string): string => new X509Certificate(readFileSync(path)).fingerprint256

const dial = (url: string, folder: string) =>
  NodeTls.connect({
    port: portOf(url),
    host: "127.0.0.1",
    ...(url.startsWith("grpcs:") ? { ALPNProtocols: ["h2"] } : {}),
    ca: readFileSync(join(folder, "rootCA.pem")),
    cert: readFileSync(join(folder, "client.crt")),
    key: readFileSync(join(folder, "client.key")),
    checkServerIdentity: () => undefined
  })

/** The certificate that whoever connects now is shown. */
const shownAt = (url: string, folder: string) =>
  Effect.callback<string>((resume) => {
    const socket = dial(url, folder)
    socket.on("error", (error) => resume(Effect.succeed(String(error))))
    socket.once("secureConnect", () => {
      resume(Effect.succeed(socket.getPeerCertificate().fingerprint256))
      socket.destroy()
    })
  })

/** Waits until the listener sends a client away; with TLS 1.3 that is after the client took the listener for good. */
const sentAway = (url: string, folder: string) =>
  Effect.callback<void>((resume) => {
    dial(url, folder)
      .on("error", () => {})
      .on("close", () => resume(Effect.void))
      .resume()
  })

const assertAlive = Effect.fnUntraced(function* (one: FrameLink, other: FrameLink, mark: number) {
  for (const [from, to] of [
    [one, other],
    [other, one]
  ] as const) {
    yield* from.send([frameOf(1000, mark)])
    assert.deepStrictEqual(yield* receiveFrames(to, 1), [frameOf(1000, mark)])
  }
})

describe("certificates that are replaced", () => {
  for (const [anyPort, make] of makers) {
    it.live(`${anyPort}: who connects then sees the new one, who is connected stays; a bad one is refused`, () =>
      Effect.gen(function* () {
        const lines = yield* Queue.unbounded<string>()
        const logger = Logger.make(({ message }) => void Queue.offerUnsafe(lines, String(message)))
        const logged = Effect.fnUntraced(function* (says: RegExp) {
          let line = ""
          while (!says.test(line)) line = yield* Queue.take(lines)
          return line
        })
        yield* Effect.gen(function* () {
          const pki = yield* makePki
          const client = pki.folder("site-1")
          const folder = pki.mix({
            "rootCA.pem": "rootCA.pem",
            "server.crt": "site-1-listener/server.crt",
            "server.key": "site-1-listener/server.key"
          })
          const cert = join(folder, "server.crt")
          const former = fingerprintOf(cert)
          const listener = yield* make(folder).listen(anyPort)
          const { active, passive } = yield* makePair(make(client), listener)
          assert.strictEqual(yield* shownAt(listener.connectUrl, client), former)

          writeFileSync(cert, "no certificate")
          assert.include(yield* logged(/goes on with the certificate it has/), listener.connectUrl)
          copyFileSync(join(pki.folder("foreign-full"), "client.crt"), cert)
          yield* logged(/server\.key is not the key of/)
          copyFileSync(join(pki.folder("foreign-full"), "client.key"), join(folder, "server.key"))
          yield* logged(/was not issued by the CA/)
          assert.strictEqual(yield* shownAt(listener.connectUrl, client), former)

          copyFileSync(join(pki.folder("site-2"), "client.crt"), cert)
          copyFileSync(join(pki.folder("site-2"), "client.key"), join(folder, "server.key"))
          assert.match(yield* logged(/the new certificate|shows its renewed/), /is "site-2", and "site-1" is shown/)
          assert.strictEqual(yield* shownAt(listener.connectUrl, client), former)

          copyFileSync(join(client, "client.crt"), cert)
          copyFileSync(join(client, "client.key"), join(folder, "server.key"))
          assert.include(yield* logged(/shows its renewed certificate/), listener.connectUrl)
          const renewed = fingerprintOf(cert)
          assert.notStrictEqual(renewed, former)
          assert.strictEqual(yield* shownAt(listener.connectUrl, client), renewed)
          yield* assertAlive(active, passive, 1)

          // A client that the root has not issued is refused as before.
          const foreign = pki.mix({
            "rootCA.pem": "rootCA.pem",
            "client.crt": "foreign/client.crt",
            "client.key": "foreign/client.key"
          })
          yield* sentAway(listener.connectUrl, foreign)
          yield* assertAlive(active, passive, 2)
        }).pipe(Effect.provide(Logger.layer([logger])))
      })
    )

    it.live(`${anyPort}: a dialer shows what its files hold when it dials`, () =>
      Effect.gen(function* () {
        const pki = yield* makePki
        const listener = yield* make(pki.folder("site-1-listener")).listen(anyPort)
        const folder = pki.mix({
          "rootCA.pem": "rootCA.pem",
          "client.crt": "site-1/client.crt",
          "client.key": "site-1/client.key"
        })
        const driver = make(folder)
        const first = yield* makePair(driver, listener)
        assert.strictEqual(first.passive.info.peerCommonName, "site-1")
        copyFileSync(join(pki.folder("site-2"), "client.crt"), join(folder, "client.crt"))
        copyFileSync(join(pki.folder("site-2"), "client.key"), join(folder, "client.key"))
        const second = yield* makePair(driver, listener)
        assert.strictEqual(second.passive.info.peerCommonName, "site-2")
        yield* assertAlive(first.active, first.passive, 1)
        yield* assertAlive(second.active, second.passive, 2)
      })
    )
  }

  it.live("a listener warns of an open key and of an end that is near, once; a dialer of its own key", () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      const looks = yield* Queue.unbounded<string>()
      const logger = Logger.make(({ logLevel, message }) => {
        const line = String(message)
        if (logLevel !== "Warn") return
        if (line.includes("goes on")) Queue.offerUnsafe(looks, line)
        else lines.push(line)
      })
      yield* Effect.gen(function* () {
        const now = yield* Clock.currentTimeMillis
        const validity = { notBefore: new Date(now - 86_400_000), notAfter: new Date(now + 20.5 * 86_400_000) }
        const root = yield* Pki.makeRoot("project", "01", validity)
        const site = yield* Pki.issue(root, "site-1", ["localhost"], "02", validity)
        const folder = (yield* makePki).mix({})
        const key = yield* Pki.keyPem(site)
        writeFileSync(join(folder, "rootCA.pem"), Pki.certificatePem(root))
        for (const side of ["client", "server"]) {
          writeFileSync(join(folder, `${side}.crt`), Pki.certificatePem(site))
          writeFileSync(join(folder, `${side}.key`), key)
          chmodSync(join(folder, `${side}.key`), 0o644)
        }
        const driver = TcpDriver.make(optionsOf(folder))
        const listener = yield* driver.listen("stcp://localhost:0")
        yield* makePair(driver, listener)
        yield* makePair(driver, listener)
        // Two looks at the files, and what follows the first.
        writeFileSync(join(folder, "server.crt"), "no certificate")
        yield* Queue.take(looks)
        rmSync(join(folder, "server.crt"))
        yield* Queue.take(looks)
        assert.deepStrictEqual(lines.sort(), [
          `other users can get at the private key ${join(folder, "client.key")}: chmod 600 it`,
          `other users can get at the private key ${join(folder, "server.key")}: chmod 600 it`,
          `the certificate of site-1 that ${listener.connectUrl} shows, or its issuer, expires in 20 days: renew it before then`
        ])
      }).pipe(Effect.provide(Logger.layer([logger])))
    })
  )
})
