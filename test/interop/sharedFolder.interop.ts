/**
 * An unmodified Python trainer at our service, and our trainer at a Python job, over a shared folder.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { compare, flAttach, jsonLines, peer, prepareFiles, python, readLines, runPython } from "./peers.ts"

const inline = { NVFLARE_NP_DOWNLOAD_CHUNK_SIZE: "0" }

/** Arrays of the dtypes and shapes that models have. */
const makeModel = `
import numpy as np, sys
r = np.random.default_rng(7)
np.savez(sys.argv[1],
  f16=r.standard_normal((3, 5)).astype(np.float16), f32=r.standard_normal((4, 2, 3)).astype(np.float32),
  f64=r.standard_normal(7), i64=np.arange(-3, 3), u8=np.arange(250, 256, dtype=np.uint8),
  zero=np.float32(1.5).reshape(()), empty=np.zeros((2, 0), np.float64),
  fortran=np.asfortranarray(r.standard_normal((3, 4))))
`

const prepare = prepareFiles(makeModel)

const serve = ({ events, input, output, shared }: Effect.Success<typeof prepare>, ...more: ReadonlyArray<string>) =>
  flAttach(
    ...["serve", "--site", "site-1", "--job", "job-1", "--attach-id", "trainer_a", "--shared-dir", shared],
    ...["--model", input, "--rounds", "3", "--out", output, "--events", events, "--attach-timeout", "60s", ...more]
  )

describe.skipIf(python === "")("over a shared folder", () => {
  it.live("a Python trainer runs three rounds at our service, values and dtypes exact", () =>
    Effect.gen(function* () {
      const files = yield* prepare
      const service = yield* serve(files)
      const trainer = yield* peer("trainer_np.py", [files.profile, "--add", "1", "--log-metrics"], inline)
      const trained = yield* trainer.ended
      assert.strictEqual(trained.code, 0, trained.err)
      const served = yield* service.ended
      assert.strictEqual(served.code, 0, served.err)
      assert.strictEqual(yield* runPython(compare, files.input, files.output, "3"), "same")
      const sent = jsonLines(trained.out).filter(({ event }) => event === "sent")
      assert.lengthOf(sent, 3)
      const events = yield* readLines(files.events)
      assert.lengthOf(
        events.filter(({ event }) => event === "round"),
        3
      )
      assert.isAbove(events.filter(({ event }) => event === "log").length, 0)
    })
  )

  it.live("the Python trainer may come long before the service", () =>
    Effect.gen(function* () {
      const files = yield* prepare
      const trainer = yield* peer("trainer_np.py", [files.profile, "--add", "1"], inline)
      yield* Effect.sleep("3 seconds")
      const service = yield* serve(files)
      assert.strictEqual((yield* trainer.ended).code, 0)
      assert.strictEqual((yield* service.ended).code, 0)
      assert.strictEqual(yield* runPython(compare, files.input, files.output, "3"), "same")
    })
  )

  it.live("our probe runs three rounds at a Python job", () =>
    Effect.gen(function* () {
      const { profile, shared } = yield* prepare
      const job = yield* peer("cj_ref.py", ["--root-dir", shared, "--rounds", "3"], inline)
      const probe = yield* flAttach("probe", profile, "--add", "1")
      const ran = yield* job.ended
      assert.strictEqual(ran.code, 0, ran.out + ran.err)
      const probed = yield* probe.ended
      assert.strictEqual(probed.code, 0, probed.err)
      const rounds = jsonLines(ran.out).filter(({ event }) => event === "round")
      assert.deepStrictEqual(
        rounds.map(({ check, rc }) => [check, rc]),
        [1, 2, 3].map(() => [true, "OK"])
      )
    })
  )

  it.live("a Python trainer that dies in a task is a lost session, with its knob in the words", () =>
    Effect.gen(function* () {
      const files = yield* prepare
      const service = yield* serve(files, "--heartbeat-interval", "500ms", "--heartbeat-timeout", "2s")
      const trainer = yield* peer("trainer_np.py", [files.profile, "--crash-after", "2"], inline)
      assert.strictEqual((yield* trainer.ended).code, 9)
      const served = yield* service.ended
      assert.strictEqual(served.code, 1)
      assert.include(served.err, "--heartbeat-timeout is 2s")
    })
  )
})
