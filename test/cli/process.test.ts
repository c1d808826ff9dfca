import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as NdMath from "../../src/fobs/NdMath.ts"
import * as ModelFile from "../../src/service/ModelFile.ts"
import {
  assertModel,
  modelArrays,
  probe,
  quick,
  runToEnd,
  serve,
  serveArgs,
  stuck,
  type Workspace,
  workspace
} from "./support.ts"

/** Nothing is left in the shared folder but locks, which are never removed. */
const assertClean = (w: Workspace) => {
  const left = readdirSync(w.shared, { recursive: true, withFileTypes: true })
  const files = left.filter((entry) => !entry.isDirectory()).map(({ name }) => name)
  assert.deepStrictEqual(
    files.filter((name) => !name.endsWith(".lock")),
    []
  )
  assert.deepStrictEqual(readdirSync(w.shared), [".nvflare"])
}

const events = (w: Workspace): ReadonlyArray<{ readonly [field: string]: unknown }> =>
  readFileSync(w.events, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line))

describe("serve and probe over a shared folder", () => {
  it.live("three rounds with one trainer: its model, to the last bit", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["a"])
      yield* service.printed("waiting for 1 trainer (a) of site site-1")
      const trainer = yield* probe(w, "a", "1")
      const served = yield* service.ended
      assert.deepStrictEqual([served.code, served.stderr], [0, ""])
      const probed = yield* trainer.ended
      assert.deepStrictEqual([probed.code, probed.stderr], [0, ""])
      assert.include(probed.stdout, "task 3 (train) FULL, round 2 of 3: float32 <f4[2, 2]")
      assert.include(probed.stdout, "the service ended the session after 3 tasks")
      assert.include(served.stdout, `wrote ${w.out} (6 arrays)`)
      yield* assertModel(w, 3)
      assertClean(w)

      const told = events(w)
      const attached = told.find(({ event }) => event === "attached")
      assert.hasAllKeys(attached, ["event", "attach_id", "session_id", "seconds"])
      assert.strictEqual(attached?.attach_id, "a")
      const rounds = told.filter(({ event }) => event === "round")
      assert.deepStrictEqual(
        rounds.map(({ results, round, seconds }) => [round, results, typeof seconds]),
        [
          [0, 1, "number"],
          [1, 1, "number"],
          [2, 1, "number"]
        ]
      )
      const sessions = told.filter(({ event }) => event === "session")
      assert.deepStrictEqual(
        sessions.map(({ state }) => state),
        ["Opening", "Ready", "Closed"]
      )
      for (const { reason } of sessions) assert.isString(reason)
    })
  )

  it.live("two trainers that came before the service: the average", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const trainers = yield* Effect.forEach(["1", "3"], (add) => probe(w, `t${add}`, add))
      for (const trainer of trainers) yield* trainer.printed("attaching as")
      const served = yield* Effect.flatMap(serve(w, ["t1", "t3"]), ({ ended }) => ended)
      assert.deepStrictEqual([served.code, served.stderr], [0, ""])
      for (const trainer of trainers) assert.strictEqual((yield* trainer.ended).code, 0)
      const arrays = yield* Effect.provide(ModelFile.read(w.out), NodeFileSystem.layer)
      assert.deepStrictEqual(arrays.get("uint8")?.bytes, Uint8Array.of(6, 132))
      assert.deepStrictEqual(
        arrays.get("scalar")?.toTyped(),
        modelArrays[5]?.[1] && NdMath.addScalar(modelArrays[5][1], 6).toTyped()
      )
      assertClean(w)
    })
  )

  it.live("a round is run again with a trainer that its owner started again", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["a"], [...quick, "--allow-reconnect", "--retry-rounds", "1"])
      const first = yield* stuck(w, "a")
      yield* first.printed("busy")
      yield* first.kill("SIGKILL")
      yield* service.printed("round 1/3 runs again (attempt 2)")
      const second = yield* probe(w, "a", "1")
      const served = yield* service.ended
      assert.strictEqual(served.code, 0, served.stderr)
      assert.include(served.stdout, "no result of a: trainer site-1.-client_api_a is lost: --heartbeat-timeout is 1s")
      assert.strictEqual((yield* second.ended).code, 0)
      yield* assertModel(w, 3)
    })
  )
})

describe("serve that fails", () => {
  it.live("a trainer that is lost: it is named, the others get SHUTDOWN, nothing is left", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["a", "b"], quick)
      const [dying, other] = [yield* stuck(w, "a"), yield* stuck(w, "b")]
      yield* dying.printed("busy")
      yield* other.printed("busy")
      yield* dying.kill("SIGKILL")
      const served = yield* service.ended
      assert.strictEqual(served.code, 1)
      assert.match(
        served.stderr,
        /^fl-attach: trainer site-1\.-client_api_a is lost: --heartbeat-timeout is 1s[^\n]*\n$/
      )
      const ended = yield* other.ended
      assert.deepStrictEqual([ended.code, ended.stderr], [0, ""])
      assert.isFalse(existsSync(w.out))
    })
  )

  it.live("an attach id that another service holds; that one goes on", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const holder = yield* serve(w, ["a"])
      yield* holder.printed("waiting for")
      const second = yield* runToEnd(serveArgs(w, ["--attach-id", "a", "--attach-id", "b"]))
      assert.strictEqual(second.code, 1)
      assert.match(second.stderr, /^fl-attach: attach id "a" of site "site-1" is claimed by a live process[^\n]*\n$/)
      const trainer = yield* probe(w, "a", "1")
      assert.strictEqual((yield* holder.ended).code, 0)
      assert.strictEqual((yield* trainer.ended).code, 0)
      assertClean(w)
    })
  )

  it.live("a trainer that does not come in time", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const served = yield* runToEnd(serveArgs(w, ["--attach-id", "a", "--attach-timeout", "300ms"]))
      assert.strictEqual(served.code, 1)
      assert.match(served.stderr, /^fl-attach: [^\n]*--attach-timeout[^\n]*\n$/)
      assertClean(w)
    })
  )
})

describe("signals", () => {
  it.live.each([
    ["SIGINT", 130],
    ["SIGTERM", 143]
  ] as const)("%s while serve waits ends it in order with %i", ([signal, code]) =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["a", "b"])
      yield* service.printed("waiting for 2 trainers")
      yield* service.kill(signal)
      const { code: ended, stderr } = yield* service.ended
      assert.strictEqual(ended, code)
      assert.strictEqual(stderr, "fl-attach: closing; a second signal ends at once\n")
      assertClean(w)
    })
  )

  it.live("SIGINT in a round: a busy trainer gets ABORT, an idle one SHUTDOWN", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["busy", "idle"])
      const [busy, idle] = [yield* stuck(w, "busy"), yield* probe(w, "idle", "1")]
      yield* busy.printed("busy")
      yield* service.printed("round 1/3: result of idle")
      yield* service.kill("SIGINT")
      assert.strictEqual((yield* service.ended).code, 130)
      const aborted = yield* busy.ended
      assert.strictEqual(aborted.code, 1)
      assert.include(aborted.stderr, "session aborted by site-1.job-1")
      assert.strictEqual((yield* idle.ended).code, 0)
      assert.isFalse(existsSync(w.out))
    })
  )

  it.live("a second signal ends serve at once", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["a", "b"])
      const trainer = yield* probe(w, "a", "1")
      yield* service.printed("trainer a attached")
      // It can't answer SHUTDOWN now, and closing waits for that.
      yield* trainer.kill("SIGSTOP")
      yield* service.kill("SIGINT")
      yield* service.printed("closing; a second signal ends at once")
      yield* service.kill("SIGINT")
      assert.strictEqual((yield* service.ended).code, 130)
      const claims = join(w.shared, ".nvflare/client_api_attach/site-1")
      assert.isTrue(existsSync(join(claims, "a.claim/endpoint.json")), "it was closed in order")
    })
  )

  it.live("SIGTERM ends probe with 143", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const trainer = yield* probe(w, "a", "1")
      yield* trainer.printed("attaching as")
      yield* trainer.kill("SIGTERM")
      assert.strictEqual((yield* trainer.ended).code, 143)
    })
  )
})

describe("probe that fails", () => {
  it.live("a service that died: the lease tells", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["a", "b"], quick)
      const trainer = yield* probe(w, "a", "1")
      yield* service.printed("trainer a attached")
      yield* service.kill("SIGKILL")
      const { code, stderr } = yield* trainer.ended
      assert.strictEqual(code, 1)
      assert.match(stderr, /^fl-attach: [^\n]+\n$/)
    })
  )

  it.live("no service within job_wait_timeout", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const { code, stderr } = yield* runToEnd(["probe", w.profile("a", { job_wait_timeout: 0.3 })])
      assert.strictEqual(code, 1)
      assert.match(stderr, /^fl-attach: [^\n]*job_wait_timeout \(300ms\)[^\n]*\n$/)
    })
  )
})
