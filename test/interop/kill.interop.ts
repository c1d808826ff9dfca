/** Python trainers at our service, and ours at a Python job, when one of them is killed or stopped. */
import { mkdirSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { flAttach, folder, jsonLines, type Peer, peer, python, readLines, runPython, writeProfile } from "./peers.ts"

const inline = { NVFLARE_NP_DOWNLOAD_CHUNK_SIZE: "0" }
const quick = ["--heartbeat-interval", "500ms", "--heartbeat-timeout", "2s"]
const patient = ["--heartbeat-interval", "500ms", "--heartbeat-timeout", "10s"]

const place = Effect.gen(function* () {
  const dir = yield* folder
  const shared = join(dir, "shared")
  mkdirSync(shared, { mode: 0o755 })
  const files = {
    shared,
    input: join(dir, "in.npz"),
    output: join(dir, "out.npz"),
    profile: join(dir, "profile.json"),
    events: join(dir, "events.jsonl")
  }
  yield* runPython("import numpy as np, sys; np.savez(sys.argv[1], w=np.zeros((3, 5), np.float32))", files.input)
  yield* writeProfile(files.profile, "trainer_a", shared)
  return files
})

type Place = Effect.Success<typeof place>

const serve = ({ events, input, output, shared }: Place, ...more: ReadonlyArray<string>) =>
  flAttach(
    ...["serve", "--site", "site-1", "--job", "job-1", "--attach-id", "trainer_a", "--shared-dir", shared],
    ...["--model", input, "--rounds", "3", "--out", output, "--events", events, "--attach-timeout", "60s", ...more]
  )

/** A Python trainer that takes so many seconds for a task. */
const trainer = ({ profile }: Place, sleep = 0) =>
  peer("trainer_np.py", [profile, "--add", "1", "--sleep", String(sleep)], inline)

const kill = ({ process }: Peer, signal: NodeJS.Signals) => Effect.sync(() => void process.kill(signal))
const inTask = ({ says }: Peer) => says('"event": "received"')

const assertTrained = Effect.fnUntraced(function* ({ output }: Place) {
  const check = "import numpy as np, sys; print((np.load(sys.argv[1])['w'] == 3).all())"
  assert.strictEqual(yield* runPython(check, output), "True")
})

const states = ({ events }: Place) =>
  Effect.map(readLines(events), (lines) => lines.filter(({ event }) => event === "session").map(({ state }) => state))

describe.skipIf(python === "")("kill -9", () => {
  it.live("of a Python trainer in a task: another one does the round again", () =>
    Effect.gen(function* () {
      const files = yield* place
      const service = yield* serve(files, ...quick, "--allow-reconnect", "--retry-rounds", "1")
      const first = yield* trainer(files, 60)
      yield* inTask(first)
      yield* kill(first, "SIGKILL")
      const second = yield* trainer(files)
      const served = yield* service.ended
      assert.strictEqual(served.code, 0, served.err)
      assert.include(served.out, "round 1/3 runs again (attempt 2)")
      assert.strictEqual((yield* second.ended).code, 0)
      yield* assertTrained(files)
    })
  )

  it.live("of our service in a task: the Python trainer ends by itself", () =>
    Effect.gen(function* () {
      const files = yield* place
      const service = yield* serve(files, ...quick)
      const python = yield* trainer(files, 1)
      yield* inTask(python)
      yield* kill(service, "SIGKILL")
      const { code, out } = yield* python.ended
      assert.strictEqual(code, 3, out)
      assert.lengthOf(
        jsonLines(out).filter(({ event }) => event === "error"),
        1
      )
    })
  )

  it.live("of a Python job in a task: our trainer ends by itself with its lease", () =>
    Effect.gen(function* () {
      const { profile, shared } = yield* place
      const lease = ["--heartbeat-interval", "0.5", "--heartbeat-timeout", "2", "--gap", "60", "--rounds", "2"]
      const job = yield* peer("cj_ref.py", ["--root-dir", shared, ...lease], inline)
      const probe = yield* flAttach("probe", profile, "--add", "1")
      yield* job.says('"event": "round"')
      yield* kill(job, "SIGKILL")
      const { code, err } = yield* probe.ended
      assert.strictEqual(code, 1)
      assert.match(err, /heartbeat_timeout[^\n]*2s/)
    })
  )
})

describe.skipIf(python === "")("SIGSTOP of a Python trainer", () => {
  it.live("for less than the lease: nobody minds", () =>
    Effect.gen(function* () {
      const files = yield* place
      const service = yield* serve(files, ...patient)
      const python = yield* trainer(files, 0.3)
      yield* inTask(python)
      yield* kill(python, "SIGSTOP")
      yield* Effect.sleep("2 seconds")
      yield* kill(python, "SIGCONT")
      assert.strictEqual((yield* service.ended).code, 0)
      assert.strictEqual((yield* python.ended).code, 0)
      assert.deepStrictEqual(yield* states(files), ["Opening", "Ready", "Closed"])
      yield* assertTrained(files)
    })
  )

  it.live("for more than the lease: woken up, it ends; another one takes its place", () =>
    Effect.gen(function* () {
      const files = yield* place
      const service = yield* serve(files, ...quick, "--allow-reconnect", "--retry-rounds", "1")
      const first = yield* trainer(files, 1)
      yield* inTask(first)
      yield* kill(first, "SIGSTOP")
      yield* service.says("round 1/3 runs again (attempt 2)")
      yield* kill(first, "SIGCONT")
      assert.strictEqual((yield* first.ended).code, 3)
      const second = yield* trainer(files)
      const served = yield* service.ended
      assert.strictEqual(served.code, 0, served.err)
      assert.strictEqual((yield* second.ended).code, 0)
      yield* assertTrained(files)
    })
  )
})

describe.skipIf(python === "")("SIGINT of our service in a task", () => {
  it.live("aborts the Python trainer", () =>
    Effect.gen(function* () {
      const files = yield* place
      const service = yield* serve(files)
      const python = yield* trainer(files, 1)
      yield* inTask(python)
      yield* Effect.sleep("300 millis")
      yield* kill(service, "SIGINT")
      assert.strictEqual((yield* service.ended).code, 130)
      const { code, out } = yield* python.ended
      assert.strictEqual(code, 3, out)
    })
  )
})
