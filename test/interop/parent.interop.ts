/**
 * Service and trainer as children of a client parent, in clear: who is what, in all combinations of ours and the
 * unmodified Python ones; and again with the parent killed in a round and started anew.
 */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import { flAttach, folder, freePorts, jsonLines, type Peer, peer, python, runPython } from "./peers.ts"

type Side = "ours" | "Python"
const sides: ReadonlyArray<Side> = ["ours", "Python"]

/** Who is parent, service and trainer: all of it over tcp, the rest where each end is once ours and once Python's. */
const combinations: ReadonlyArray<readonly [string, Side, Side, Side]> = [
  ...sides.flatMap((parent) =>
    sides.flatMap((service) => sides.map((trainer) => ["tcp", parent, service, trainer] as const))
  ),
  ...["http", "grpc"].flatMap(
    (scheme) =>
      [
        [scheme, "ours", "Python", "ours"],
        [scheme, "Python", "ours", "Python"]
      ] as const
  )
]

/** Arrays within the messages; Python's default are references, which are fetched. */
const inline = { NVFLARE_NP_DOWNLOAD_CHUNK_SIZE: "0" }

const makeModel = `
import numpy as np, sys
r = np.random.default_rng(7)
np.savez(sys.argv[1], big=r.standard_normal((700, 1024)).astype(np.float32), f16=r.standard_normal((3, 5)).astype(np.float16),
  f64=r.standard_normal(7), i64=np.arange(-3, 3), zero=np.float32(1.5).reshape(()), empty=np.zeros((2, 0), np.float64))
`

/** The written model must be what numpy makes of the same additions, bit for bit. */
const compare = `
import numpy as np, sys
a, b = np.load(sys.argv[1]), np.load(sys.argv[2])
assert sorted(a.files) == sorted(b.files), (a.files, b.files)
for k in a.files:
    want = a[k]
    for _ in range(int(sys.argv[3])):
        want = np.asarray(want + np.asarray(1, dtype=want.dtype))
    assert want.dtype == b[k].dtype and want.shape == b[k].shape and want.tobytes() == b[k].tobytes(), k
print("same")
`

interface Site {
  readonly url: string
  readonly dir: string
  readonly profile: string
  readonly startParent: Effect.Effect<Peer, never, Scope.Scope>
}

/** A folder, a port, and what starts a parent there, again and again. */
const makeSite = Effect.fnUntraced(function* (side: Side, scheme: string) {
  const dir = yield* folder
  const port = yield* freePorts
  const url = `${scheme}://localhost:${port}`
  const profile = join(dir, "profile.json")
  writeFileSync(
    profile,
    JSON.stringify({
      schema_version: 1,
      execution_mode: "attach",
      attach_id: "trainer_a",
      site_name: "site-1",
      connect_url: url,
      connection_security: "clear",
      job_wait_timeout: 60
    })
  )
  const startParent = Effect.gen(function* () {
    const parent: Peer = yield* side === "ours"
      ? flAttach("parent", "--site", "site-1", "--listen", `${scheme}://127.0.0.1:${port}`)
      : peer("cp_ref.py", ["--scheme", scheme, "--port", `${port}`])
    yield* parent.says(side === "ours" ? "listens at" : "cp_ready")
    return parent
  })
  return { url, dir, profile, startParent } satisfies Site
})

/** A service that runs rounds; `check` ends when it has ended well, and with the right values. */
const startService = Effect.fnUntraced(function* (
  side: Side,
  { dir, url }: Site,
  rounds: number,
  env: Record<string, string>
) {
  const [input, output] = [join(dir, "in.npz"), join(dir, "out.npz")]
  if (side === "Python") {
    const job = yield* peer("cj_ref.py", ["--connect-url", url, "--rounds", `${rounds}`, "--mib", "3"], env)
    const check = Effect.gen(function* () {
      const ran = yield* job.ended
      assert.strictEqual(ran.code, 0, ran.out + ran.err)
      const checks = jsonLines(ran.out).flatMap(({ check, event, rc }) => (event === "round" ? [[check, rc]] : []))
      assert.deepStrictEqual(checks, Array(rounds).fill([true, "OK"]))
    })
    return { process: job, check }
  }
  yield* runPython(makeModel, input)
  const service = yield* flAttach(
    ...["serve", "--site", "site-1", "--job", "job-1", "--attach-id", "trainer_a", "--parent", url],
    ...["--model", input, "--rounds", `${rounds}`, "--out", output, "--attach-timeout", "60s"]
  )
  const check = Effect.gen(function* () {
    const served = yield* service.ended
    assert.strictEqual(served.code, 0, served.out + served.err)
    assert.strictEqual(yield* runPython(compare, input, output, `${rounds}`), "same")
  })
  return { process: service, check }
})

const startTrainer = (side: Side, { profile }: Site, env: Record<string, string>, ...more: ReadonlyArray<string>) =>
  side === "ours"
    ? flAttach("probe", profile, "--add", "1")
    : peer("trainer_np.py", [profile, "--add", "1", ...more], env)

describe.skipIf(python === "")("through a client parent in clear", () => {
  for (const [scheme, parent, service, trainer] of combinations) {
    // The two ways of arrays take turns, which is enough: the parent tells them apart by nothing.
    const env = (parent === "ours") === (service === "ours") ? inline : {}
    const way = env === inline ? "inline" : "fetched"
    it.live(`${scheme}: parent ${parent}, service ${service}, trainer ${trainer}; arrays ${way}`, () =>
      Effect.gen(function* () {
        const site = yield* makeSite(parent, scheme)
        yield* site.startParent
        const { check } = yield* startService(service, site, 2, env)
        const trained = yield* Effect.flatMap(startTrainer(trainer, site, env), ({ ended }) => ended)
        assert.strictEqual(trained.code, 0, trained.out + trained.err)
        yield* check
      })
    )
  }
})

describe.skipIf(python === "")("through a client parent that is killed in a round", () => {
  const cases = [
    ["ours", "ours"],
    ["ours", "Python"],
    ["Python", "ours"]
  ] as const
  for (const [parent, service] of cases) {
    it.live(`tcp: parent ${parent}, service ${service}, a Python trainer at work; the round completes`, () =>
      Effect.gen(function* () {
        const site = yield* makeSite(parent, "tcp")
        const first = yield* site.startParent
        const { check } = yield* startService(service, site, 1, inline)
        // It sends its result once all are connected again: a Python trainer tries twice, and gives up.
        const trainer = yield* startTrainer("Python", site, inline, "--sleep", "7")
        yield* trainer.says('"event": "received"')
        first.process.kill("SIGKILL")
        yield* first.ended
        yield* site.startParent
        const trained = yield* trainer.ended
        assert.strictEqual(trained.code, 0, trained.out + trained.err)
        yield* check
      })
    )
  }
})
