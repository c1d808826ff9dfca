/**
 * A site whose service and trainer are children of a client parent: who is what, ours or the unmodified Python one; over
 * which scheme; and whether the values come out exactly.
 */
import { chmodSync, cpSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import { unpackPki } from "../pki.ts"
import { flAttach, folder, freePorts, jsonLines, type Peer, peer, runPython } from "./peers.ts"

export type Side = "ours" | "Python"

export const schemes = ["tcp", "stcp", "http", "grpc"] as const
/** `stcp` stands for secure mode, too: a trainer with mTLS takes and sends protected messages only. */
export type Scheme = (typeof schemes)[number]

/** Arrays within the messages; Python's default are references, which are fetched. */
export const inline = { NVFLARE_NP_DOWNLOAD_CHUNK_SIZE: "0" }

const makeModel = `
import numpy as np, sys
r = np.random.default_rng(7)
big = int(float(sys.argv[2]) * 1024 * 1024 / 4)
np.savez(sys.argv[1], big=r.standard_normal(big).astype(np.float32), f16=r.standard_normal((3, 5)).astype(np.float16),
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

const pki = unpackPki()

/** A site's folder of certificates, its keys for its owner alone. */
export const startup = Effect.map(folder, (dir) => {
  cpSync(join(pki, "pki", "site-1"), dir, { recursive: true })
  chmodSync(join(dir, "client.key"), 0o600)
  return dir
})

export interface Site {
  readonly url: string
  readonly dir: string
  readonly profile: string
  /** The folder of certificates, where the scheme asks for them. */
  readonly certs: string | undefined
  /** Starts the parent, again and again at the same port, and waits until it listens. */
  readonly startParent: Effect.Effect<Parent, never, Scope.Scope>
}

interface Parent extends Peer {
  /** Ends when the parent has told that this child is connected. */
  readonly connected: (child: string) => Effect.Effect<void>
}

const profileOf = (url: string, certs: string | undefined) => ({
  schema_version: 1,
  execution_mode: "attach",
  attach_id: "trainer_a",
  site_name: "site-1",
  connect_url: url,
  job_wait_timeout: 90,
  ...(certs === undefined
    ? { connection_security: "clear" }
    : { connection_security: "mtls", secure_mode: true, ca_cert: join(certs, "rootCA.pem") })
})

/** A folder, a port, a profile, and what starts a parent there. */
export const makeSite = Effect.fnUntraced(function* (parent: Side, scheme: Scheme) {
  const dir = yield* folder
  const port = yield* freePorts
  const certs = scheme === "stcp" ? yield* startup : undefined
  const listen = `${scheme}://127.0.0.1:${port}`
  const url = certs === undefined ? `${scheme}://localhost:${port}` : listen
  const profile = join(dir, "profile.json")
  writeFileSync(profile, JSON.stringify(profileOf(url, certs)))
  const identity = ["--fqcn", "site-1", "--identity", "site-1.job-1=site-1"]
  const start =
    parent === "ours"
      ? flAttach("parent", "--site", "site-1", "--listen", listen, ...(certs === undefined ? [] : ["--certs", certs]))
      : certs === undefined
        ? peer("cp_ref.py", ["--scheme", scheme, "--port", `${port}`])
        : peer("secure_pair.py", ["--role", "cp", "--url", listen, "--certs", certs, ...identity])
  const ready = parent === "ours" ? "listens at" : certs === undefined ? "cp_ready" : "listening"
  const startParent = Effect.gen(function* () {
    const peer = yield* start
    yield* peer.says(ready)
    const connected = (child: string) => peer.says(parent === "ours" ? `${child} connected` : `"fqcn": "${child}"`)
    return { ...peer, connected } satisfies Parent
  })
  const site: Site = { url, dir, profile, certs, startParent }
  return site
})

export interface Work {
  readonly rounds: number
  readonly mib: number
  readonly env: Record<string, string>
}

/** A service that runs rounds; `check` ends when it has ended well, and with the right values. */
export const startService = Effect.fnUntraced(function* (
  side: Side,
  { certs, dir, url }: Site,
  { env, mib, rounds }: Work
) {
  if (side === "Python") {
    const secure = certs === undefined ? [] : ["--connection-security", "mtls", "--startup", certs, "--secure"]
    const size = ["--rounds", `${rounds}`, "--mib", `${mib}`, "--attach-timeout", "90"]
    const job = yield* peer("cj_ref.py", ["--connect-url", url, ...size, ...secure], env)
    const check = Effect.gen(function* () {
      const ran = yield* job.ended
      assert.strictEqual(ran.code, 0, ran.out + ran.err)
      const checks = jsonLines(ran.out).flatMap(({ check, event, rc }) => (event === "round" ? [[check, rc]] : []))
      assert.deepStrictEqual(checks, Array(rounds).fill([true, "OK"]))
    })
    return { process: job, check }
  }
  const [input, output] = [join(dir, "in.npz"), join(dir, "out.npz")]
  yield* runPython(makeModel, input, `${mib}`)
  const service = yield* flAttach(
    ...["serve", "--site", "site-1", "--job", "job-1", "--attach-id", "trainer_a", "--parent", url],
    ...["--model", input, "--rounds", `${rounds}`, "--out", output, "--attach-timeout", "90s"],
    ...(certs === undefined ? [] : ["--certs", certs, "--secure"])
  )
  const check = Effect.gen(function* () {
    const served = yield* service.ended
    assert.strictEqual(served.code, 0, served.out + served.err)
    assert.strictEqual(yield* runPython(compare, input, output, `${rounds}`), "same")
  })
  return { process: service, check }
})

export const startTrainer = (side: Side, { profile }: Site, { env }: Work, ...more: ReadonlyArray<string>) =>
  side === "ours"
    ? flAttach("probe", profile, "--add", "1")
    : peer("trainer_np.py", [profile, "--add", "1", ...more], env)

/** Parent, service and trainer run all rounds, and end well. */
export const runSite = Effect.fnUntraced(function* (
  scheme: Scheme,
  parent: Side,
  service: Side,
  trainer: Side,
  work: Work
) {
  const site = yield* makeSite(parent, scheme)
  yield* site.startParent
  const { check } = yield* startService(service, site, work)
  const trained = yield* Effect.flatMap(startTrainer(trainer, site, work), ({ ended }) => ended)
  assert.strictEqual(trained.code, 0, trained.out + trained.err)
  yield* check
})
