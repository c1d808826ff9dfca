import { mkdirSync, writeFileSync } from "node:fs"
import { type AddressInfo, createServer, type Server } from "node:net"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestConsole } from "effect/testing"
import { layerLogger, Screen } from "../../src/cli/internal/Screen.ts"
import { inFlags } from "../../src/cli/internal/settingFlags.ts"
import * as Main from "../../src/cli/Main.ts"
import { probe, runToEnd, serve, start, temporaryFolder, workspace } from "./support.ts"

const screenOf = (lines: Array<string>) =>
  Layer.succeed(
    Screen,
    Screen.of({ isTerminal: false, line: () => {}, errorLine: (text) => void lines.push(text), bars: () => {} })
  )

/** A port of a server that takes connections and says nothing. */
const silentPort = Effect.acquireRelease(
  Effect.callback<Server>((resume) => {
    const server = createServer((socket) => socket.on("error", () => {}).on("end", () => socket.destroy()))
    server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
  }),
  (server) => Effect.sync(() => server.close())
).pipe(Effect.map((server) => (server.address() as AddressInfo).port))

/** What is told of a command that fails, on standard error and as JSON. */
const told = (args: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const code = yield* Main.run(args)
    const errors = (yield* TestConsole.errorLines).join("\n")
    return { code, errors, lines: (yield* TestConsole.logLines).join("\n") }
  }).pipe(Effect.provide(Layer.mergeAll(NodeServices.layer, screenOf([]), TestConsole.layer)))

describe("texts of the command", () => {
  it.live("a profile that can't be read: which, why, what to do", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const missing = yield* told(["probe", join(folder, "none.json")])
      assert.strictEqual(missing.code, 2)
      assert.strictEqual(
        missing.errors,
        `fl-attach: profile ${folder}/none.json: there is no such file: write one (docs/cli.md shows it), or check the path`
      )
      const { code, errors } = yield* told(["probe", folder])
      assert.strictEqual(code, 2)
      assert.strictEqual(errors, `fl-attach: profile ${folder}: it is a folder: name the profile's file`)
    })
  )

  it.live.each<readonly [object, string]>([
    [{}, "neither rendezvous_dir nor connect_url says where to attach: write one of them"],
    [{ rendezvous_dir: "/x", connect_url: "tcp://x:1" }, "connect_url and rendezvous_dir are both there: keep the one"]
  ])("a profile with %j", ([fields, text]: readonly [object, string]) =>
    Effect.gen(function* () {
      const path = join(yield* temporaryFolder, "p.json")
      const profile = { schema_version: 1, execution_mode: "attach", attach_id: "a", site_name: "s", ...fields }
      writeFileSync(path, JSON.stringify(profile))
      const { code, errors } = yield* told(["probe", path])
      assert.strictEqual(code, 2)
      assert.include(errors, text)
      assert.notInclude(errors, "{")
    })
  )

  it.live("a profile whose wait is infinite to JSON", () =>
    Effect.gen(function* () {
      const path = join(yield* temporaryFolder, "p.json")
      writeFileSync(
        path,
        '{"schema_version":1,"execution_mode":"attach","attach_id":"a","site_name":"s","rendezvous_dir":"/x","job_wait_timeout":1e400}'
      )
      const { code, errors } = yield* told(["probe", path])
      assert.strictEqual(code, 2)
      assert.include(errors, "or null to wait for ever")
      assert.include(errors, "Infinity")
    })
  )

  it.live("files to dump that can't be read", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      mkdirSync(join(folder, "d"))
      const { code, lines } = yield* told(["dump", "--json", join(folder, "none.bin"), join(folder, "d")])
      assert.strictEqual(code, 1)
      assert.include(lines, `cannot read ${folder}/none.bin: it is not there: check the path`)
      assert.include(lines, `cannot read ${folder}/d: it is a folder: name a file`)
    })
  )

  it.live("a warning says its cause in the same line", () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      const logged = Effect.catchCause(Effect.fail(new Error("the file system is full\nand more")), (cause) =>
        Effect.logWarning("client_api.task_ready failed", cause)
      )
      yield* Effect.provide(logged, layerLogger.pipe(Layer.provide(screenOf(lines))))
      assert.deepStrictEqual(lines, ["fl-attach: warn: client_api.task_ready failed: the file system is full"])
    })
  )

  it("settings have the names of their flags", () => {
    assert.strictEqual(
      inFlags("no trainer attached as x within attachTimeout (500ms): nobody answers"),
      "no trainer attached as x within --attach-timeout (500ms): nobody answers"
    )
    assert.strictEqual(inFlags("heartbeatTimeout: must be longer"), "--heartbeat-timeout must be longer")
  })

  it.live("a trainer that did not come in time, in flags", () =>
    Effect.gen(function* () {
      const { ended } = yield* serve(yield* workspace, ["a"], ["--attach-timeout", "300ms"])
      const { code, stderr } = yield* ended
      assert.strictEqual(code, 1)
      assert.include(stderr, "within --attach-timeout (300ms)")
    })
  )

  it.live("no service within job_wait_timeout: the bound once", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const { stderr } = yield* runToEnd(["probe", w.profile("a", { job_wait_timeout: 0.3 })])
      assert.strictEqual(stderr.split("within").length, 2, stderr)
      assert.match(stderr, /within job_wait_timeout \(300ms\)/)
    })
  )

  it.live("a port that takes connections and says nothing: what to look at, from both ends", () =>
    Effect.gen(function* () {
      const port = yield* silentPort
      const w = yield* workspace
      const path = join(w.folder, "p.json")
      const profile = {
        schema_version: 1,
        execution_mode: "attach",
        attach_id: "a",
        site_name: "s",
        job_wait_timeout: 1
      }
      const url = `tcp://127.0.0.1:${port}`
      writeFileSync(path, JSON.stringify({ ...profile, connect_url: url, connection_security: "clear" }))
      const trainer = yield* told(["probe", path])
      assert.strictEqual(trainer.code, 1)
      assert.include(
        trainer.errors,
        `nothing has answered at ${url} yet: check that a service or client parent listens`
      )
      const flags = ["--site", "s", "--job", "j", "--attach-id", "a", "--rounds", "1", "--model", w.model]
      const service = yield* told(["serve", ...flags, "--out", w.out, "--parent", url, "--connect-timeout", "1s"])
      assert.strictEqual(service.code, 1)
      assert.include(
        service.errors,
        `no connection to the client parent ${url} within 1s (--connect-timeout): nothing has`
      )
    })
  )

  it.live("a second trainer with an id that is taken: both ends say so", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["a", "b"])
      yield* probe(w, "a", "1")
      yield* service.printed("trainer a attached")
      const second = yield* start(["probe", w.profile("a", { job_wait_timeout: 6 })])
      yield* service.printed('another trainer tries to attach as "a"')
      const { code, stderr } = yield* second.ended
      assert.strictEqual(code, 1)
      assert.include(stderr, 'most likely another trainer is attached as "a"')
    })
  )
})
