import { chmodSync, cpSync, mkdirSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as NdMath from "../../src/fobs/NdMath.ts"
import * as ModelFile from "../../src/service/ModelFile.ts"
import { unpackPki } from "../pki.ts"
import { modelArrays, runToEnd, start, temporaryFolder, type Workspace, workspace } from "./support.ts"

const freePort = Effect.callback<number>((resume) => {
  const server = createServer()
  server.listen(0, "127.0.0.1", () => {
    const address = server.address()
    const port = typeof address === "object" && address !== null ? address.port : 0
    server.close(() => resume(Effect.succeed(port)))
  })
})

const pki = unpackPki()

/** A copy of one of the test PKI's folders, its keys for their owner alone. */
const certificates = (name: string) =>
  Effect.map(temporaryFolder, (folder) => {
    cpSync(join(pki, "pki", name), folder, { recursive: true })
    for (const key of ["client.key", "server.key"]) {
      if (name.endsWith("listener") || key === "client.key") chmodSync(join(folder, key), 0o600)
    }
    return folder
  })

const startParent = Effect.fnUntraced(function* (scheme: "tcp" | "stcp", certs?: string) {
  const url = `${scheme}://127.0.0.1:${yield* freePort}`
  const args = certs === undefined ? [] : ["--certs", certs]
  const parent = yield* start(["parent", "--site", "site-1", "--listen", url, ...args])
  yield* parent.printed(`site-1 listens at ${url}`)
  return { url, parent }
})

const serveArgs = (w: Workspace, url: string, more: ReadonlyArray<string> = []) => [
  ...["serve", "--site", "site-1", "--job", "job-1", "--parent", url, "--model", w.model, "--out", w.out],
  ...["--rounds", "2", "--attach-id", "a", ...more]
]

const profileOf = (w: Workspace, url: string, more: { readonly [field: string]: unknown }) =>
  w.profile("a", { rendezvous_dir: undefined, connect_url: url, ...more })

const secureProfile = (w: Workspace, url: string, certs: string, more: { readonly [field: string]: unknown } = {}) =>
  profileOf(w, url, { connection_security: "mtls", secure_mode: true, ca_cert: join(certs, "rootCA.pem"), ...more })

describe("secure mode over stcp, as processes", () => {
  it.live("rounds with the certificates that fl-attach certs makes", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const certs = join(yield* temporaryFolder, "site-1")
      const made = yield* runToEnd(["certs", "--dir", certs, "--site", "site-1"])
      assert.strictEqual(made.code, 0, made.stderr)
      const { url } = yield* startParent("stcp", certs)
      const service = yield* start(serveArgs(w, url, ["--certs", certs, "--secure"]))
      const trainer = yield* start(["probe", secureProfile(w, url, certs), "--add=1"])
      const served = yield* service.ended
      assert.deepStrictEqual([served.code, served.stderr], [0, ""])
      const probed = yield* trainer.ended
      assert.deepStrictEqual([probed.code, probed.stderr], [0, ""])
      const arrays = yield* Effect.provide(ModelFile.read(w.out), NodeFileSystem.layer)
      for (const [name, before] of modelArrays) {
        const expected = [1, 1].reduce((array, add) => NdMath.addScalar(array, add), before)
        assert.deepStrictEqual(Buffer.from(arrays.get(name)?.bytes ?? []), Buffer.from(expected.bytes), name)
      }
    })
  )
})

describe("a site whose certificate has another name", () => {
  const withIdentity = (certs: string) => ["--certs", certs, "--identity", "acme"]

  const rounds = Effect.fnUntraced(function* (serveFlags: (certs: string) => ReadonlyArray<string>) {
    const w = yield* workspace
    const certs = join(yield* temporaryFolder, "acme")
    const made = yield* runToEnd(["certs", "--dir", certs, "--site", "acme"])
    assert.strictEqual(made.code, 0, made.stderr)
    const url = `stcp://127.0.0.1:${yield* freePort}`
    const parent = yield* start(["parent", "--site", "site-1", "--listen", url, ...withIdentity(certs)])
    yield* parent.printed(`site-1 listens at ${url}`)
    const more = { auth_identity: "acme", job_wait_timeout: 10 }
    yield* start(["probe", secureProfile(w, url, certs, more)])
    return yield* runToEnd(serveArgs(w, url, ["--secure", "--connect-timeout", "2s", ...serveFlags(certs)]))
  })

  it.live("serves with --identity, as parent and trainer do", () =>
    Effect.gen(function* () {
      const { code, stderr } = yield* rounds(withIdentity)
      assert.deepStrictEqual([code, stderr], [0, ""])
    })
  )

  it.live("does not without: the message says what is needed", () =>
    Effect.gen(function* () {
      const { code, stderr } = yield* rounds((certs) => ["--certs", certs])
      assert.strictEqual(code, 2, stderr)
      assert.match(stderr, /"acme".*"site-1" is needed.*\(--identity\)/)
    })
  )
})

describe("what serve and probe say", () => {
  const brief = ["--connect-timeout", "1s"]
  const wait = { job_wait_timeout: 1 }

  /** Both at the same URL, secure: exit codes, and what each says on its last line. */
  const both = Effect.fnUntraced(function* (url: string, certs: string) {
    const w = yield* workspace
    const secure = ["--certs", certs, "--secure"]
    const ended = yield* Effect.all(
      [
        runToEnd(serveArgs(w, url, [...secure, ...brief])),
        runToEnd(["probe", secureProfile(w, url, certs, wait), "--add=1"])
      ],
      { concurrency: 2 }
    )
    return ended.map(({ code, stderr }) => ({ code, last: stderr.trimEnd().split("\n").at(-1) ?? "" }))
  })

  const holds = (ended: Effect.Success<ReturnType<typeof both>>, code: number, says: RegExp) => {
    for (const end of ended) {
      assert.strictEqual(end.code, code, end.last)
      assert.match(end.last, says)
    }
  }

  it.live("of certificates that can't be used: nothing is dialed", () =>
    Effect.gen(function* () {
      const url = "stcp://127.0.0.1:9"
      holds(yield* both(url, yield* certificates("expired")), 2, /client\.crt.*holds from .* to 2025-01-01.*: renew it/)
      holds(yield* both(url, yield* certificates("foreign")), 2, /client\.crt.* is not issued by the own root: check/)
    })
  )

  it.live("of another site's certificate: both names, and the flag or field that names it", () =>
    Effect.gen(function* () {
      const [serve, probe] = yield* both("stcp://127.0.0.1:9", yield* certificates("site-2"))
      const says = /"site-2" may not be used by site-1\.\S+, that of "site-1" is needed.*name it \((\S+)\)/
      assert.deepStrictEqual([serve?.code, probe?.code], [2, 2])
      assert.strictEqual(says.exec(serve?.last ?? "")?.[1], "--identity", serve?.last)
      assert.strictEqual(says.exec(probe?.last ?? "")?.[1], "auth_identity", probe?.last)
    })
  )

  it.live("of files for the connection alone, without --secure: the same, and at once", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const said = Effect.fnUntraced(function* (certs: string) {
        const { code, stderr } = yield* runToEnd(serveArgs(w, "stcp://127.0.0.1:9", ["--certs", certs]))
        assert.strictEqual(code, 2, stderr)
        assert.strictEqual(stderr.trimEnd().split("\n").length, 1, stderr)
        return stderr
      })
      const other = yield* said(yield* certificates("site-2"))
      assert.match(other, /"site-2" may not be used by site-1\.job-1, that of "site-1" is needed.*\(--identity\)/)
      assert.match(yield* said(yield* certificates("expired")), /client\.crt expired on 2025-01-01: renew it/)
      const broken = yield* certificates("site-1")
      writeFileSync(join(broken, "client.key"), "-----BEGIN PRIVATE KEY-----\n")
      assert.match(yield* said(broken), /client\.key holds no private key in PEM .*: put the one there/)
      rmSync(join(broken, "client.key"))
      mkdirSync(join(broken, "client.key"))
      assert.match(yield* said(broken), /client\.key is a folder: give the path of the file/)
    })
  )

  it.live("of a root that holds nothing: that file, and not the certificate", () =>
    Effect.gen(function* () {
      const certs = yield* certificates("site-1")
      writeFileSync(join(certs, "rootCA.pem"), "")
      holds(yield* both("stcp://127.0.0.1:9", certs), 2, /ca_cert: \S+rootCA\.pem: there is no certificate/)
    })
  )

  it.live("of a trainer in secure mode and a service that is not", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const certs = yield* certificates("site-1")
      const { url } = yield* startParent("stcp", certs)
      const service = yield* start(serveArgs(w, url, ["--certs", certs, "--attach-timeout", "3s"]))
      const probe = yield* runToEnd(["probe", secureProfile(w, url, certs, { job_wait_timeout: 2 })])
      assert.strictEqual(probe.code, 1)
      assert.match(
        probe.stderr,
        /SESSION_OPEN .* is not protected.*start the service with --secure, or leave secure_mode/
      )
      const served = yield* service.ended
      assert.strictEqual(served.code, 1)
      assert.match(served.stderr, /authentication_error.*it may be in secure mode, and this service is not: .*--secure/)
    })
  )

  it.live("of another project's parent, and of a parent with another site's certificate", () =>
    Effect.gen(function* () {
      const { url } = yield* startParent("stcp", yield* certificates("site-2"))
      const other = yield* both(url, yield* certificates("foreign-full"))
      holds(other, 1, /not issued by the CA in ca_cert \(rootCA\.pem\): use the files of one project on both sides/)
      const wrong = yield* both(url, yield* certificates("site-1"))
      holds(wrong, 1, /the certificate of "site-2" may not be used by site-1, that of "site-1" is needed: check/)
    })
  )

  it.live("of TLS at a clear port, of clear words at a TLS port, and of mtls with a clear scheme", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const certs = yield* certificates("site-1")
      const { url } = yield* startParent("stcp", certs)
      const { url: open } = yield* startParent("tcp")
      const toClear = yield* both(open.replace("tcp:", "stcp:"), certs)
      holds(toClear, 1, /it may not speak TLS \(check the port and the scheme\)/)

      const clear = url.replace("stcp:", "tcp:")
      const serve = yield* runToEnd(serveArgs(w, clear, brief))
      const probe = yield* runToEnd(["probe", profileOf(w, clear, { connection_security: "clear", ...wait })])
      for (const { code, stderr } of [serve, probe]) {
        assert.strictEqual(code, 1, stderr)
        assert.match(stderr, /it may want TLS \(scheme stcp\), or be another service: check port and scheme/)
      }
      const mtls = ["--certs", certs, "--connection-security", "mtls", ...brief]
      const mixed = [
        yield* runToEnd(serveArgs(w, clear, mtls)),
        yield* runToEnd(["probe", secureProfile(w, clear, certs, wait)])
      ]
      for (const { code, stderr } of mixed) {
        assert.strictEqual(code, 2, stderr)
        assert.match(stderr, /in clear, but connection_security is mtls: write stcp:/)
      }
    })
  )

  it.live("of a scheme with TLS that is to be clear: from serve and parent", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const url = "stcp://127.0.0.1:9"
      const clear = ["--certs", yield* certificates("site-1"), "--connection-security", "clear"]
      for (const args of [serveArgs(w, url, clear), ["parent", "--site", "site-1", "--listen", url, ...clear]]) {
        const { code, stderr } = yield* runToEnd(args)
        assert.strictEqual(code, 2, stderr)
        assert.match(stderr, /stcp:\/\/127\.0\.0\.1:9 has TLS by its scheme, but --connection-security is clear/)
      }
    })
  )

  it.live("of a host that nobody knows", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const url = "tcp://no-such-host.invalid:8002"
      const serve = yield* runToEnd(serveArgs(w, url, brief))
      const probe = yield* runToEnd(["probe", profileOf(w, url, { connection_security: "clear", ...wait })])
      for (const { code, stderr } of [serve, probe]) {
        assert.strictEqual(code, 1, stderr)
        assert.match(stderr, /\(E[A-Z_]+\): .*check/)
      }
    })
  )

  it.live("of an attach id that the other side does not have", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const { url } = yield* startParent("tcp")
      const service = yield* start(serveArgs(w, url, ["--attach-timeout", "2s"]))
      const profile = w.profile("b", {
        rendezvous_dir: undefined,
        connect_url: url,
        connection_security: "clear",
        ...wait
      })
      const probe = yield* runToEnd(["probe", profile])
      assert.strictEqual(probe.code, 1)
      assert.match(probe.stderr, /no SESSION_OPEN came by .*: check that a service waits for this attach id/)
      const serve = yield* service.ended
      assert.strictEqual(serve.code, 1)
      assert.match(
        serve.stderr,
        /no trainer attached as .*_a within --attach-timeout \(2s\).*Start one with attach_id "a"/
      )
    })
  )
})
