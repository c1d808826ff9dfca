import { createServer } from "node:net"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as NdMath from "../../src/fobs/NdMath.ts"
import * as ModelFile from "../../src/service/ModelFile.ts"
import { modelArrays, runToEnd, start, type Workspace, workspace } from "./support.ts"

const freePort = Effect.callback<number>((resume) => {
  const server = createServer()
  server.listen(0, "127.0.0.1", () => {
    const address = server.address()
    const port = typeof address === "object" && address !== null ? address.port : 0
    server.close(() => resume(Effect.succeed(port)))
  })
})

/** A parent that listens, at a port of its own. */
const startParent = Effect.fnUntraced(function* (port: number, site = "site-1") {
  const parent = yield* start(["parent", "--site", site, "--listen", `tcp://127.0.0.1:${port}`])
  yield* parent.printed(`${site} listens at tcp://127.0.0.1:${port}`)
  return parent
})

const serveArgs = (w: Workspace, url: string, ids: ReadonlyArray<string>, more: ReadonlyArray<string> = []) => [
  ...["serve", "--site", "site-1", "--job", "job-1", "--parent", url, "--model", w.model, "--out", w.out],
  ...["--rounds", "3", ...ids.flatMap((id) => ["--attach-id", id]), ...more]
]

const probe = (w: Workspace, attachId: string, url: string, more: { readonly [field: string]: unknown } = {}) =>
  start([
    "probe",
    w.profile(attachId, { rendezvous_dir: undefined, connect_url: url, connection_security: "clear", ...more }),
    "--add=1"
  ])

const assertModel = Effect.fnUntraced(function* (w: Workspace) {
  const arrays = yield* ModelFile.read(w.out)
  for (const [name, before] of modelArrays) {
    const expected = [1, 1, 1].reduce((array, add) => NdMath.addScalar(array, add), before)
    assert.deepStrictEqual(Buffer.from(arrays.get(name)?.bytes ?? []), Buffer.from(expected.bytes), name)
  }
}, Effect.provide(NodeFileSystem.layer))

describe("parent, serve and probe over tcp", () => {
  it.live("three rounds; the parent tells who came and went, and ends with its signal", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const port = yield* freePort
      const url = `tcp://127.0.0.1:${port}`
      const parent = yield* startParent(port)
      const service = yield* start(serveArgs(w, url, ["a"]))
      yield* service.printed(`waiting for 1 trainer (a) of site site-1 at ${url}`)
      const trainer = yield* probe(w, "a", url)
      const served = yield* service.ended
      assert.deepStrictEqual([served.code, served.stderr], [0, ""])
      const probed = yield* trainer.ended
      assert.deepStrictEqual([probed.code, probed.stderr], [0, ""])
      yield* assertModel(w)
      yield* parent.printed("site-1.-client_api_a is gone")
      yield* parent.printed("site-1.job-1 is gone")
      yield* parent.kill("SIGTERM")
      const { code, stdout } = yield* parent.ended
      assert.strictEqual(code, 143)
      assert.include(stdout, "site-1.job-1 connected (127.0.0.1:")
      assert.include(stdout, "it said bye")
    })
  )

  it.live("a parent that is killed and started again: all come back, and the rounds complete", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const port = yield* freePort
      const url = `tcp://127.0.0.1:${port}`
      const first = yield* startParent(port)
      const service = yield* start(serveArgs(w, url, ["a", "b"]))
      const one = yield* probe(w, "a", url)
      yield* one.printed("attached to job job-1")
      yield* first.kill("SIGKILL")
      yield* first.ended
      const second = yield* startParent(port)
      yield* second.printed("site-1.job-1 connected")
      yield* second.printed("site-1.-client_api_a connected")
      const other = yield* probe(w, "b", url)
      const served = yield* service.ended
      assert.strictEqual(served.code, 0, served.stderr)
      assert.include(served.stderr, `warn: no connection to the client parent ${url}`)
      assert.deepStrictEqual([(yield* one.ended).code, (yield* other.ended).code], [0, 0])
      yield* assertModel(w)
    })
  )
})

describe("what is told when it does not come about", () => {
  it.live("to serve: nobody at the port, another service there, another site's parent", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const port = yield* freePort
      const url = `tcp://127.0.0.1:${port}`
      const absent = yield* runToEnd(serveArgs(w, url, ["a"], ["--connect-timeout", "500ms"]))
      assert.strictEqual(absent.code, 1)
      assert.include(absent.stderr, `fl-attach: no connection to the client parent ${url} within 500ms`)
      assert.include(absent.stderr, "(ECONNREFUSED): nobody listens there: start the listener, or check host and port")

      const ssh = createServer((socket) => socket.on("error", () => {}).write("SSH-2.0-OpenSSH_9.6\r\n"))
      yield* Effect.acquireRelease(
        Effect.callback<void>((resume) => void ssh.listen(port, "127.0.0.1", () => resume(Effect.void))),
        () => Effect.sync(() => ssh.close())
      )
      const stranger = yield* runToEnd(serveArgs(w, url, ["a"], ["--connect-timeout", "500ms"]))
      assert.strictEqual(stranger.code, 1)
      assert.include(stranger.stderr, "is another service, it says")

      const other = yield* freePort
      yield* startParent(other, "site-2")
      const wrong = yield* runToEnd(serveArgs(w, `tcp://127.0.0.1:${other}`, ["a"]))
      assert.strictEqual(wrong.code, 2)
      assert.include(wrong.stderr, "is the client parent site-2, but this service is site-1.job-1")
    })
  )

  it.live("to probe: nobody there, another site's parent", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const port = yield* freePort
      const url = `tcp://127.0.0.1:${port}`
      const absent = yield* Effect.flatMap(probe(w, "a", url, { job_wait_timeout: 0.5 }), ({ ended }) => ended)
      assert.strictEqual(absent.code, 1)
      assert.include(absent.stderr, "(ECONNREFUSED): nobody listens there")

      const parent = yield* startParent(port, "site-2")
      const wrong = yield* Effect.flatMap(probe(w, "a", url), ({ ended }) => ended)
      assert.strictEqual(wrong.code, 2)
      assert.include(wrong.stderr, "is the cell site-2, but this trainer belongs to the client parent site-1")
      yield* parent.kill("SIGTERM")
      const { stderr } = yield* parent.ended
      assert.include(stderr, "site-2 refuses site-1.-client_api_a")
    })
  )

  it.live("to parent: a port that is taken, a name, a scheme; a listener in clear for all is warned of", () =>
    Effect.gen(function* () {
      const port = yield* freePort
      yield* startParent(port)
      const taken = yield* runToEnd(["parent", "--site", "site-1", "--listen", `tcp://127.0.0.1:${port}`])
      assert.strictEqual(taken.code, 1)
      assert.match(taken.stderr, /^fl-attach: [^\n]*EADDRINUSE[^\n]*\n$/)
      const named = yield* runToEnd(["parent", "--site", "a..b", "--listen", "tcp://127.0.0.1:0"])
      assert.strictEqual(named.code, 2)
      const scheme = yield* runToEnd(["parent", "--site", "a", "--listen", "quic://127.0.0.1:0"])
      assert.strictEqual(scheme.code, 2)
      assert.include(scheme.stderr, 'no driver for the scheme "quic"')
      const open = yield* start(["parent", "--site", "site-1", "--listen", "tcp://0:0"])
      yield* open.printed("in clear and not on the loopback interface")
    })
  )

  it.live("one place to meet, and flags that go with it", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const both = yield* runToEnd(serveArgs(w, "tcp://127.0.0.1:1", ["a"], ["--shared-dir", w.shared]))
      assert.strictEqual(both.code, 2)
      assert.include(both.stderr, "give exactly one of --shared-dir and --parent")
      const shared = ["serve", "--site", "site-1", "--job", "job-1", "--shared-dir", w.shared, "--model", w.model]
      const useless = [...shared, "--out", w.out, "--rounds", "1", "--attach-id", "a", "--identity", "acme"]
      const named = yield* runToEnd(useless)
      assert.strictEqual(named.code, 2)
      assert.include(named.stderr, "--identity goes with --parent, not with --shared-dir")
    })
  )
})
