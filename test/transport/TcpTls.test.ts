import { readFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeTls from "node:tls"
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Fiber, Layer } from "effect"
import * as CertificateIdentity from "../../src/identity/CertificateIdentity.ts"
import * as Credentials from "../../src/identity/Credentials.ts"
import * as Connection from "../../src/transport/Connection.ts"
import type { DriverListener, Resources } from "../../src/transport/Drivers.ts"
import * as PeerIdentity from "../../src/transport/PeerIdentity.ts"
import * as TcpDriver from "../../src/transport/TcpDriver.ts"
import * as WebSocketDriver from "../../src/transport/WebSocketDriver.ts"
import { connectAs, frameOf, makePair, portOf, rawServer, rawSocket, receiveFrames, serveAs } from "./net.ts"
import { makePki, type Pki } from "./pki.ts"
import { silently } from "./support.ts"

class TestPki extends Context.Service<TestPki, Pki>()("test/transport/TestPki") {}

const anyPort = "stcp://127.0.0.1:0"
const clear = TcpDriver.make()

/** A driver with the files of a folder. */
const driverWith = (folder: string) =>
  TcpDriver.make({ credentials: Credentials.inFolder(folder), handshakeTimeout: "2 seconds" })

const withPki = <A, E, R>(body: (pki: Pki) => Effect.Effect<A, E, R>) => silently(Effect.flatMap(TestPki, body))

layer(Layer.effect(TestPki, makePki), { excludeTestServices: true })("TcpDriver with TLS", (it) => {
  const schemes: ReadonlyArray<readonly [scheme: string, resources: Resources, isMutual: boolean]> = [
    ["stcp", {}, true],
    ["satcp", { connection_security: "mtls" }, true],
    // What is neither clear nor one-way is mutual, as with the reference.
    ["stcp", { connection_security: "clear" }, true],
    ["stcp", { connection_security: "tls" }, false]
  ]
  for (const [scheme, resources, isMutual] of schemes) {
    it.effect(`${scheme} ${JSON.stringify(resources)}`, () =>
      withPki((pki) =>
        Effect.gen(function* () {
          const driver = driverWith(pki.folder("site-1-listener"))
          const listener = yield* driver.listen(`${scheme}://127.0.0.1:0`, resources)
          const accepting = yield* Effect.forkScoped(listener.accept)
          const active = yield* driverWith(pki.folder("site-1")).connect(listener.connectUrl, resources)
          const passive = yield* Fiber.join(accepting)
          const frames = [frameOf(16, 1), frameOf(2_000_000, 2), frameOf(70_000, 3)]
          for (const [from, to] of [
            [active, passive],
            [passive, active]
          ] as const) {
            yield* Effect.forkScoped(Effect.forEach(frames, (bytes) => from.send([bytes])))
            assert.deepStrictEqual(yield* receiveFrames(to, frames.length), frames)
          }
          assert.deepInclude(active.info, { scheme, peerCommonName: "site-1", security: isMutual ? "mtls" : "tls" })
          assert.strictEqual(passive.info.peerCommonName, isMutual ? "site-1" : undefined)
        })
      )
    )
  }

  it.effect("a listener that is told to be secure is so, whatever its scheme says", () =>
    withPki((pki) =>
      Effect.gen(function* () {
        const driver = driverWith(pki.folder("site-1-listener"))
        for (const [what, resources] of [
          ["tcp", { connection_security: "mtls" }],
          ["tcp://127.0.0.1:0", { connection_security: "mtls" }],
          ["tcp", { secure: true }]
        ] as const) {
          const listener = yield* driver.listen(what, resources)
          assert.match(listener.connectUrl, /^stcp:/)
          const { active } = yield* makePair(driver, listener)
          assert.strictEqual(active.info.scheme, "stcp")
        }
        const { active } = yield* makePair(
          TcpDriver.make({ credentials: Credentials.inFolder(pki.folder("site-1")) }),
          yield* driver.listen(anyPort)
        )
        assert.strictEqual(active.info.security, "mtls")
      })
    )
  )

  it.effect("serves with the client pair where there is no other, and says the first of several common names", () =>
    withPki((pki) =>
      Effect.gen(function* () {
        const listener = yield* driverWith(pki.folder("site-1")).listen(anyPort)
        for (const [folder, name] of [
          ["bare-two-cn", "site-1"],
          ["no-cn", undefined],
          ["site-2", "site-2"],
          ["chained", "site-1"],
          ["ec", "site-1"],
          ["rsa3072", "site-1"]
        ] as const) {
          const { active, passive } = yield* makePair(driverWith(pki.folder(folder)), listener)
          assert.strictEqual(passive.info.peerCommonName, name, folder)
          assert.strictEqual(active.info.peerCommonName, "site-1")
        }
      })
    )
  )

  it.effect("refuses to use certificates that can't serve, and says why", () =>
    withPki((pki) =>
      Effect.gen(function* () {
        const site = { "rootCA.pem": "rootCA.pem", "server.crt": "site-1-listener/server.crt" }
        const listeners = [
          ["server_cert", "lacks serverAuth", pki.folder("eku-client")],
          ["client_cert", "expired on 2025-01-01", pki.folder("expired")],
          ["client_cert", "valid from 2053", pki.folder("notyet")],
          ["client_cert", "was not issued by", pki.folder("foreign")],
          ["client_cert", "was not issued by", pki.folder("leaf-issued")],
          ["client_cert", "TLS does not take", pki.folder("rsa1024")],
          ["server_key", "is not the key of", pki.mix({ ...site, "server.key": "site-1/client.key" })],
          ["server_key", "server.key does not lie beside", pki.mix(site)],
          [
            "server_cert",
            "no certificate",
            pki.mix({ ...site, "server.crt": "site-1/client.key", "server.key": "site-1/client.key" })
          ],
          ["server_key", "no private key", pki.mix({ ...site, "server.key": "site-1/client.crt" })],
          ["ca_cert", "is not there", pki.mix({})]
        ] as const
        for (const [setting, says, folder] of listeners) {
          const { reason } = yield* Effect.flip(Effect.scoped(driverWith(folder).listen(anyPort)))
          assert.deepInclude(reason, { _tag: "BadConfig", setting }, says)
          assert.include(reason.message, says)
        }
        const dialers = [
          ["client_cert", "lacks clientAuth", pki.folder("eku-server")],
          ["client_cert", "expired on", pki.folder("expired")]
        ] as const
        for (const [setting, says, folder] of dialers) {
          const { reason } = yield* Effect.flip(Effect.scoped(driverWith(folder).connect("stcp://127.0.0.1:9")))
          assert.deepInclude(reason, { _tag: "BadConfig", setting })
          assert.include(reason.message, says)
        }
        const without = yield* Effect.flip(Effect.scoped(clear.listen(anyPort)))
        assert.deepInclude(without.reason, { _tag: "BadConfig", setting: "ca_cert" })
      })
    )
  )

  /** A listener as it should not be; ours would not open it. */
  const badServer = (folder: string, name: string) =>
    Effect.map(
      rawServer((socket) => {
        const tls = new NodeTls.TLSSocket(socket, {
          isServer: true,
          cert: readFileSync(join(folder, `${name}.crt`)),
          key: readFileSync(join(folder, `${name}.key`))
        })
        tls.on("error", () => {})
      }),
      ({ port }) => `stcp://127.0.0.1:${port}`
    )

  it.effect("tells a dialer what is wrong with the listener's certificate", () =>
    withPki((pki) =>
      Effect.gen(function* () {
        const driver = driverWith(pki.folder("site-1"))
        for (const [problem, folder, name] of [
          ["expired", "expired", "client"],
          ["expired", "notyet", "client"],
          ["foreign", "foreign", "client"],
          ["purpose", "leaf-issued", "client"],
          ["purpose", "eku-client", "server"]
        ] as const) {
          const url = yield* badServer(pki.folder(folder), name)
          const { reason } = yield* Effect.flip(driver.connect(url))
          assert.deepInclude(reason, { _tag: "TlsFailed", problem }, folder)
        }
      })
    )
  )

  it.effect("refuses foreign, expired and missing certificates of dialers, and goes on serving others", () =>
    withPki((pki) =>
      Effect.gen(function* () {
        const listener = yield* driverWith(pki.folder("site-1-listener")).listen(anyPort)
        yield* serveAs("site-1", listener)
        const read = (folder: string, file: string) => readFileSync(join(pki.folder(folder), file))
        for (const folder of ["foreign", "expired", "notyet", "leaf-issued", "eku-server", undefined]) {
          const ended = yield* Effect.callback<string>((resume) => {
            const socket = NodeTls.connect({
              port: portOf(listener.connectUrl),
              host: "127.0.0.1",
              ca: read("site-1", "rootCA.pem"),
              checkServerIdentity: () => undefined,
              ...(folder === undefined ? {} : { cert: read(folder, "client.crt"), key: read(folder, "client.key") })
            })
            socket.on("error", () => {})
            socket.on("close", () => resume(Effect.succeed("closed")))
            socket.on("data", () => resume(Effect.succeed("served")))
            socket.write(frameOf(16, 4))
          })
          assert.strictEqual(ended, "closed", folder)
        }
        const connection = yield* connectAs(driverWith(pki.folder("site-1")), listener.connectUrl, "site-1.a")
        assert.strictEqual(connection.peer, "site-1")
      })
    )
  )

  it.effect("tells a dialer that its certificate is refused", () =>
    withPki((pki) =>
      Effect.gen(function* () {
        // Both have a certificate of their own CA, and trust the other's: only the listener minds.
        const listener = yield* driverWith(pki.folder("site-1")).listen(anyPort)
        const mixed = pki.mix({ "rootCA.pem": "rootCA.pem" })
        const noCertificate = TcpDriver.make({ credentials: Credentials.inFolder(mixed) })
        const { reason } = yield* noCertificate.connect(listener.connectUrl, { connection_security: "tls" }).pipe(
          Effect.flatMap((link) => Connection.make(link, { role: "active", local: "site-1.a" })),
          Effect.flip
        )
        assert.deepInclude(reason, { _tag: "TlsFailed", problem: "refused" })
        assert.include(reason.message, "client.crt")
      })
    )
  )

  it.effect("binds names to certificates on both sides", () =>
    withPki((pki) =>
      Effect.gen(function* () {
        const rules = CertificateIdentity.rulesOf({ local: "site-1", parent: "site-1", identity: "site-1" })
        const listener = yield* driverWith(pki.folder("site-1-listener")).listen(anyPort)
        yield* serveAs("site-1", listener, () => {}, { verify: PeerIdentity.verifyWith(rules) })
        const own = driverWith(pki.folder("site-1"))
        const right = yield* connectAs(own, listener.connectUrl, "site-1.-client_api_t1")
        assert.strictEqual(right.peer, "site-1")
        // READY comes first, as with the reference; then the connection ends.
        const wrong = yield* connectAs(driverWith(pki.folder("site-2")), listener.connectUrl, "site-1.-client_api_t2")
        assert.deepInclude((yield* Effect.flip(wrong.receive)).reason, { _tag: "ConnectionClosed", by: "peer" })

        const impostor = yield* driverWith(pki.folder("site-2")).listen(anyPort)
        yield* serveAs("site-1", impostor)
        const verify = PeerIdentity.verifyWith({ ...rules, local: "site-1.-client_api_t1" })
        const { reason } = yield* own.connect(impostor.connectUrl).pipe(
          Effect.flatMap((link) => Connection.make(link, { role: "active", local: "site-1.-client_api_t1", verify })),
          Effect.flip
        )
        assert.strictEqual(reason._tag, "HandshakeFailed")
        assert.include(reason.message, 'the certificate of "site-2"')
      })
    )
  )

  it.effect("tells TLS on a clear port from clear on a TLS port", () =>
    withPki((pki) =>
      Effect.gen(function* () {
        const driver = driverWith(pki.folder("site-1-listener"))
        const secure = yield* driver.listen(anyPort)
        const open = yield* driver.listen("tcp://127.0.0.1:0")
        yield* serveAs("site-1", secure)
        yield* serveAs("site-1", open)
        const toClear = yield* Effect.flip(driver.connect(open.connectUrl.replace("tcp:", "stcp:")))
        assert.strictEqual(toClear.reason._tag, "TlsFailed")
        assert.match(toClear.message, /check the port/)
        const toSecure = yield* Effect.flip(connectAs(driver, secure.connectUrl.replace("stcp:", "tcp:"), "site-1.a"))
        assert.match(toSecure.message, /stcp/)
        // Whoever answers a TLS handshake with silence, too.
        const silent = yield* rawServer(() => {})
        const quick = TcpDriver.make({
          credentials: Credentials.inFolder(pki.folder("site-1")),
          handshakeTimeout: "100 millis"
        })
        const waiting = yield* Effect.flip(quick.connect(`stcp://127.0.0.1:${silent.port}`))
        assert.deepInclude(waiting.reason, { _tag: "TlsFailed", problem: "notTls" })
      })
    )
  )

  it.effect("does not wait with others for a client that is silent in its handshake, and sends it away", () =>
    withPki((pki) =>
      Effect.gen(function* () {
        const driver = TcpDriver.make({
          credentials: Credentials.inFolder(pki.folder("site-1-listener")),
          handshakeTimeout: "300 millis"
        })
        const listener: DriverListener = yield* driver.listen(anyPort)
        yield* serveAs("site-1", listener)
        const silent = yield* Effect.forEach(Array.from({ length: 10 }), () => rawSocket(listener.connectUrl))
        const gone = yield* Effect.forEach(
          silent,
          (socket, index) =>
            Effect.callback<void>((resume) => {
              socket.resume()
              socket.on("close", () => resume(Effect.void))
              if (index % 2 === 0) socket.write(Buffer.from([0x16, 3, 1, 2, 0]))
            }),
          { concurrency: "unbounded" }
        ).pipe(Effect.forkScoped)
        const connection = yield* connectAs(driver, listener.connectUrl, "site-1.a")
        assert.strictEqual(connection.peer, "site-1")
        yield* Fiber.join(gone)
      })
    )
  )

  it.effect(
    "tells the wanted host with satcp and https, and not with stcp, as the reference; speaks TLS 1.2, and not 1.1",
    () =>
      withPki((pki) =>
        Effect.gen(function* () {
          const folder = pki.folder("site-1-listener")
          const names: Array<string | false> = []
          const server = yield* rawServer((socket) => {
            const tls = new NodeTls.TLSSocket(socket, {
              isServer: true,
              maxVersion: "TLSv1.2",
              cert: readFileSync(join(folder, "server.crt")),
              key: readFileSync(join(folder, "server.key"))
            })
            tls.on("error", () => {})
            tls.on("secure", () => {
              // "false" where no name was told.
              names.push(tls.servername ?? false)
              tls.destroy()
            })
          })
          const credentials = Credentials.inFolder(pki.folder("site-1"))
          const tcp = driverWith(pki.folder("site-1"))
          for (const [scheme, driver] of [
            ["stcp", tcp],
            ["satcp", tcp],
            ["https", WebSocketDriver.make({ credentials })]
          ] as const) {
            // What becomes of the connection then does not matter.
            yield* Effect.exit(driver.connect(`${scheme}://localhost:${server.port}`))
          }
          assert.deepStrictEqual(names, [false, "localhost", "localhost"])

          const listener = yield* driverWith(folder).listen(anyPort)
          const versionOf = (maxVersion: "TLSv1.1" | "TLSv1.2") =>
            Effect.callback<string>((resume) => {
              const socket = NodeTls.connect({
                port: portOf(listener.connectUrl),
                host: "127.0.0.1",
                ca: readFileSync(join(folder, "rootCA.pem")),
                cert: readFileSync(join(folder, "client.crt")),
                key: readFileSync(join(folder, "client.key")),
                checkServerIdentity: () => undefined,
                minVersion: "TLSv1.1",
                maxVersion,
                ciphers: "DEFAULT:@SECLEVEL=0"
              })
              socket.on("secureConnect", () => {
                resume(Effect.succeed(String(socket.getProtocol())))
                socket.destroy()
              })
              socket.on("error", (error: NodeJS.ErrnoException) => resume(Effect.succeed(error.code ?? "")))
            })
          assert.strictEqual(yield* versionOf("TLSv1.2"), "TLSv1.2")
          assert.match(yield* versionOf("TLSv1.1"), /PROTOCOL_VERSION/)
        })
      )
  )

  it.effect("trusts a custom root with one-way TLS, and nothing but that", () =>
    withPki((pki) =>
      Effect.gen(function* () {
        const oneWay = { connection_security: "tls" }
        const gateway = pki.mix({
          "rootCA.pem": "foreignCA.pem",
          "server.crt": "foreign/client.crt",
          "server.key": "foreign/client.key"
        })
        const listener = yield* driverWith(gateway).listen(anyPort, oneWay)
        const knowing = pki.mix({ "rootCA.pem": "rootCA.pem", "customRootCA.pem": "foreignCA.pem" })
        const link = yield* driverWith(knowing).connect(listener.connectUrl, oneWay)
        assert.strictEqual(link.info.peerCommonName, "site-1")
        const { reason } = yield* Effect.flip(driverWith(pki.folder("site-1")).connect(listener.connectUrl, oneWay))
        assert.deepInclude(reason, { _tag: "TlsFailed", problem: "foreign" })
        // The same files, named one by one by the connector.
        const byName = yield* clear.connect(listener.connectUrl, {
          ...oneWay,
          ca_cert: join(pki.folder("site-1"), "rootCA.pem"),
          custom_ca_cert: join(gateway, "rootCA.pem")
        })
        assert.strictEqual(byName.info.security, "tls")
      })
    )
  )
})
