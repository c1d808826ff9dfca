/**
 * Arrays as downloads, both ways: an unmodified Python trainer with its default settings, which sends every array so, at
 * our service; and our trainer at such a job.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { compare, flAttach, jsonLines, peer, prepareFiles, python, runPython } from "./peers.ts"

/** 64 MiB in arrays of many dtypes, shapes and orders. */
const makeModel = `
import numpy as np, sys
r = np.random.default_rng(7)
np.savez(sys.argv[1],
  f16=r.standard_normal((2048, 1024)).astype(np.float16), f32=r.standard_normal((3000, 2048)).astype(np.float32),
  f64=r.standard_normal((1024, 1536)), i64=np.arange(-(1 << 20), 1 << 20), boolean=r.random(1000) < 0.5,
  zero=np.float32(1.5).reshape(()), empty=np.zeros((2, 0), np.float64), one=np.arange(3, dtype=np.int32),
  fortran=np.asfortranarray(r.standard_normal((512, 1024))))
`

const prepare = prepareFiles(makeModel)

/** Three rounds with an ordinary trainer process at `serve`. */
const trainAtOurService = (env: Record<string, string>) =>
  Effect.gen(function* () {
    const { input, output, profile, shared } = yield* prepare
    const service = yield* flAttach(
      ...["serve", "--site", "site-1", "--job", "job-1", "--attach-id", "trainer_a", "--shared-dir", shared],
      ...["--model", input, "--rounds", "3", "--out", output, "--attach-timeout", "60s"]
    )
    const trainer = yield* peer("trainer_np.py", [profile, "--add", "1"], env)
    const trained = yield* trainer.ended
    assert.strictEqual(trained.code, 0, trained.err)
    const served = yield* service.ended
    assert.strictEqual(served.code, 0, served.err)
    assert.strictEqual(yield* runPython(compare, input, output, "3"), "same")
    const sent = jsonLines(trained.out).filter(({ event }) => event === "sent")
    assert.lengthOf(sent, 3)
    // Without a confirmation of ours it blocks for 600 seconds.
    for (const { secs } of sent) assert.isBelow(Number(secs), 60)
  })

/** Three rounds of our `probe` at a job process. */
const probeAtPythonJob = (env: Record<string, string>) =>
  Effect.gen(function* () {
    const { profile, shared } = yield* prepare
    const job = yield* peer(
      "cj_ref.py",
      ["--root-dir", shared, "--rounds", "3", "--mib", "64", "--dtype", "mixed"],
      env
    )
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

describe.skipIf(python === "")("64 MiB of many dtypes over a shared folder, three rounds, values exact", () => {
  it.live("a Python trainer with its default settings at our service", () => trainAtOurService({}))
  it.live("a Python trainer that neither gives nor expects confirmations at our service", () =>
    trainAtOurService({ NVFLARE_STREAMING_RECEIVER_CONFIRM_ENABLED: "false" })
  )
  it.live("our probe at a Python job with its default settings", () => probeAtPythonJob({}))
  it.live("our probe at a Python job that neither gives nor expects confirmations", () =>
    probeAtPythonJob({ NVFLARE_STREAMING_RECEIVER_CONFIRM_ENABLED: "false" })
  )
})
