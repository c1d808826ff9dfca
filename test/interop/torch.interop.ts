/**
 * PyTorch: an unmodified Python trainer with real torch tensors at our service, and our trainer at a Python job that
 * keeps its model in tensors. Every value exact, of every dtype that both have.
 */
import { mkdirSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { flAttach, folder, jsonLines, peerWithTorch, runTorch, torch, writeProfile } from "./peers.ts"

/** Tensors without NaN go to the file as safetensors' own library writes them; numpy's lack bfloat16. */
const makeModel = `
from refcommon import make_tensors
import numpy as np, safetensors.torch as st, sys, torch
path, mib = sys.argv[1], float(sys.argv[2])
params = make_tensors(mib)
if path.endswith(".npz"):
    np.savez(path, **{k: v.numpy() for k, v in params.items() if v.dtype != torch.bfloat16})
else:
    st.save_file(params, path, metadata={"format": "pt"})
`

/** The written model is what torch makes of the same additions; it is read by safetensors' own library, or numpy. */
const compare = `
from refcommon import add_to_tensors, same_tensors
import numpy as np, safetensors.torch as st, sys, torch
def read(path):
    if path.endswith(".npz"):
        return {k: torch.as_tensor(v) for k, v in np.load(path).items()}
    return st.load_file(path)
want, got = read(sys.argv[1]), read(sys.argv[2])
for _ in range(3):
    want = add_to_tensors(want, 1)
assert same_tensors({k: want[k] for k in sorted(want)}, {k: got[k] for k in sorted(got)})
if sys.argv[2].endswith(".safetensors"):
    with __import__("safetensors").safe_open(sys.argv[2], "pt") as f:
        print(f.metadata())
print("same", len(got))
`

interface Case {
  readonly server: "numpy" | "pytorch"
  readonly input: string
  readonly output: string
  /** How many parameters there are. */
  readonly count: number
  readonly mib: number
  readonly env?: Record<string, string>
  readonly serve?: ReadonlyArray<string>
}

const prepare = Effect.gen(function* () {
  const dir = yield* folder
  const shared = join(dir, "shared")
  mkdirSync(shared, { mode: 0o755 })
  const profile = join(dir, "profile.json")
  yield* writeProfile(profile, "trainer_a", shared)
  return { dir, shared, profile }
})

/** Three rounds with a PyTorch trainer at `serve`. */
const trainAtOurService = ({ count, env, input, mib, output, server }: Case) =>
  Effect.gen(function* () {
    const { dir, profile, shared } = yield* prepare
    const [start, end] = [join(dir, input), join(dir, output)]
    yield* runTorch(makeModel, start, String(mib))
    const service = yield* flAttach(
      ...["serve", "--site", "site-1", "--job", "job-1", "--attach-id", "trainer_a", "--shared-dir", shared],
      ...["--exchange-format", "pytorch", "--server-format", server],
      ...["--model", start, "--rounds", "3", "--out", end, "--attach-timeout", "60s"]
    )
    const trainer = yield* peerWithTorch("trainer_pt.py", [profile, "--add", "1"], env)
    const trained = yield* trainer.ended
    assert.strictEqual(trained.code, 0, trained.out + trained.err)
    const served = yield* service.ended
    assert.strictEqual(served.code, 0, served.err)
    const told = yield* runTorch(compare, start, end)
    assert.include(told, `same ${count}`)
    if (input.endsWith(".safetensors") && output.endsWith(".safetensors")) assert.include(told, "{'format': 'pt'}")
    const sent = jsonLines(trained.out).filter(({ event }) => event === "sent")
    assert.lengthOf(sent, 3)
    // Without a confirmation of ours it blocks for 600 seconds.
    for (const { secs } of sent) assert.isBelow(Number(secs), 60)
  })

const inline = { NVFLARE_NP_DOWNLOAD_CHUNK_SIZE: "0", NVFLARE_TENSOR_DOWNLOAD_CHUNK_SIZE: "0" }
const tensors = { input: "in.safetensors", output: "out.safetensors", count: 18 } as const

/** Three rounds of our `probe` at a job process. */
const probeAtPythonJob = (server: "numpy" | "pytorch", mib: number, env: Record<string, string> = {}) =>
  Effect.gen(function* () {
    const { profile, shared } = yield* prepare
    const job = yield* peerWithTorch(
      "cj_ref.py",
      [
        "--root-dir",
        shared,
        "--rounds",
        "3",
        "--mib",
        String(mib),
        "--dtype",
        "mixed",
        "--exchange-format",
        "pytorch"
      ].concat(["--server-format", server]),
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
    return probed.out
  })

describe.skipIf(torch === "")("PyTorch over a shared folder, three rounds, values exact", () => {
  it.live("a trainer with its default settings at our service, tensors on the wire, 64 MiB", () =>
    trainAtOurService({ server: "pytorch", ...tensors, mib: 64 })
  )
  it.live("the same inline", () => trainAtOurService({ server: "pytorch", ...tensors, mib: 1, env: inline }))
  it.live("numpy's arrays on the wire, from and to .npz", () =>
    trainAtOurService({ server: "numpy", input: "in.npz", output: "out.npz", count: 15, mib: 64 })
  )
  it.live("the same inline, to .safetensors", () =>
    trainAtOurService({ server: "numpy", input: "in.npz", output: "out.safetensors", count: 15, mib: 1, env: inline })
  )

  it.live("our probe at a job with tensors on the wire, 64 MiB", () =>
    Effect.map(probeAtPythonJob("pytorch", 64), (out) => assert.include(out, "layer.weight F32["))
  )
  it.live("the same inline", () => probeAtPythonJob("pytorch", 1, inline))
  it.live("our probe at a job that sends numpy's arrays to a PyTorch trainer", () =>
    Effect.map(probeAtPythonJob("numpy", 16), (out) => assert.include(out, "f32 F32["))
  )
})
