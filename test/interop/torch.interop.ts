/**
 * PyTorch: an unmodified Python trainer with real torch tensors at our service, and our trainer at a Python job that
 * keeps its model in tensors. Every value exact, of every dtype that both have.
 */
import { mkdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import * as Safetensors from "../../src/fobs/Safetensors.ts"
import type { Tensor } from "../../src/fobs/Tensor.ts"
import * as TensorMath from "../../src/fobs/TensorMath.ts"
import { isLong } from "../support/long.ts"
import { flAttach, folder, jsonLines, peerWithTorch, runTorch, torch, writeProfile } from "./peers.ts"

/** Written by safetensors' own library, or as numpy's arrays, which lack bfloat16. */
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
const arrays = { input: "in.npz", count: 15 } as const
const tensors = { input: "in.safetensors", output: "out.safetensors", count: 18 } as const

/** Three rounds of our `probe` at a job process. */
const probeAtPythonJob = (
  server: "numpy" | "pytorch",
  mib: number,
  env: Record<string, string> = {},
  ...more: ReadonlyArray<string>
) =>
  Effect.gen(function* () {
    const { profile, shared } = yield* prepare
    const formats = ["--exchange-format", "pytorch", "--server-format", server, "--dtype", "mixed"]
    const model = ["--rounds", "3", "--mib", String(mib)]
    const job = yield* peerWithTorch("cj_ref.py", ["--root-dir", shared, ...model, ...formats, ...more], env)
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

/** One file for each dtype that torch saves, as it does for each tensor on the wire. */
const saveEach = `
import safetensors.torch as st, sys, torch
ints = "bool uint8 int8 int16 uint16 int32 uint32 int64 uint64"
floats = "float16 bfloat16 float32 float64 complex64"
small = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"
raw = torch.arange(96, dtype=torch.uint8)
for name in f"{ints} {floats} {small}".split():
    dtype = getattr(torch, name)
    for shape in ((), (3,), (2, 3), (2, 0)):
        if name == "float4_e2m1fn_x2" and shape == (): continue
        n = 1
        for d in shape: n *= d
        data = (raw % 2).to(torch.bool)[:n] if name == "bool" else raw[:n * dtype.itemsize].view(dtype)
        st.save_file({"t": data.reshape(shape).clone()}, f"{sys.argv[1]}/{name}-{len(shape)}-{n}.safetensors")
        print(f"{name}-{len(shape)}-{n}.safetensors")
`

/** Random bits of each dtype that is computed with, and what torch makes of them. */
const compute = `
import safetensors.torch as st, sys, torch
g = torch.Generator().manual_seed(int(sys.argv[2]))
out = {}
for name in "float16 bfloat16 float32 float64 int8 uint8 int16 int32 int64".split():
    dtype = getattr(torch, name)
    raw = torch.randint(0, 256, (2, 20000 * dtype.itemsize), dtype=torch.uint8, generator=g)
    a, b = raw[0].clone().view(dtype), raw[1].clone().view(dtype)
    if dtype.is_floating_point:  # half of the pairs near each other
        b[::2] = (a * (1 + 0.1 * torch.rand(20000, generator=g).to(dtype)))[::2]
    out |= {f"{name}/a": a, f"{name}/b": b, f"{name}/add": a + b, f"{name}/sub": a - b}
    out[f"{name}/one"] = a.clone().add_(1)
    if dtype.is_floating_point: out[f"{name}/tenth"] = a.clone().add_(0.1)
st.save_file(out, sys.argv[1])
`

const bits = (tensor: TensorMath.AnyArray) => Buffer.from(tensor.bytes).toString("hex")

/** Elements where the bits differ and not both are NaN. */
const differing = (a: Tensor, b: TensorMath.AnyArray): ReadonlyArray<string> => {
  if (bits(a) === bits(b)) return []
  const width = a.byteLength / 20_000
  const [left, right] = [Result.getOrThrow(TensorMath.toFloat64(a)), Result.getOrThrow(TensorMath.toFloat64(b))]
  const differs = (i: number) =>
    a.bytes.subarray(i * width, (i + 1) * width).some((x, n) => x !== b.bytes[i * width + n])
  const lines: Array<string> = []
  for (const [i, value] of left.entries()) {
    const other = right[i] ?? 0
    if (differs(i) && !(Number.isNaN(value) && Number.isNaN(other))) lines.push(`element ${i}: ${value}, not ${other}`)
  }
  return lines
}

/** What `npm run test:interop:full` has besides. */
const full = it.live.skipIf(!isLong)

describe.skipIf(torch === "")("PyTorch over a shared folder, three rounds, values exact", () => {
  it.live("a trainer with its default settings at our service, tensors on the wire, 64 MiB", () =>
    trainAtOurService({ server: "pytorch", ...tensors, mib: 64 })
  )
  it.live("the same inline", () => trainAtOurService({ server: "pytorch", ...tensors, mib: 1, env: inline }))
  it.live("numpy's arrays on the wire, from .npz", () =>
    trainAtOurService({ server: "numpy", ...arrays, output: "out.safetensors", mib: 1 })
  )
  full("the same, 64 MiB, to .npz", () => trainAtOurService({ server: "numpy", ...arrays, output: "out.npz", mib: 64 }))
  full("the same inline", () =>
    trainAtOurService({ server: "numpy", ...arrays, output: "out.npz", mib: 1, env: inline })
  )

  it.live("our probe at a job with tensors on the wire, 64 MiB", () =>
    Effect.map(probeAtPythonJob("pytorch", 64), (out) => assert.include(out, "layer.weight F32["))
  )
  it.live("our probe at a job that wants differences, inline", () => probeAtPythonJob("pytorch", 1, inline, "--diff"))
  full("the same with whole models", () => probeAtPythonJob("pytorch", 1, inline))
  full("our probe at a job that sends numpy's arrays to a PyTorch trainer", () =>
    Effect.map(probeAtPythonJob("numpy", 16), (out) => assert.include(out, "f32 F32["))
  )
})

describe.skipIf(torch === "")("what torch makes of tensors", () => {
  it.live("a tensor of each of its dtypes is written byte for byte as we write it", () =>
    Effect.gen(function* () {
      const dir = yield* folder
      const names = (yield* runTorch(saveEach, dir)).split("\n")
      assert.lengthOf(names, 79)
      for (const name of names) {
        const file = readFileSync(join(dir, name))
        const tensors = Result.getOrThrow(Safetensors.decode(file))
        const written = Buffer.concat(Result.getOrThrow(Safetensors.encode(tensors)))
        assert.strictEqual(written.toString("hex"), file.toString("hex"), name)
      }
    })
  )

  it.live("sums and differences are the same bits", () =>
    Effect.gen(function* () {
      const dir = yield* folder
      const [path, seed] = [join(dir, "computed.safetensors"), String(Math.floor(Math.random() * 1e6))]
      yield* runTorch(compute, path, seed)
      const tensors = Result.getOrThrow(Safetensors.decode(readFileSync(path)))
      const get = (name: string): Tensor => tensors.get(name) ?? assert.fail(`${name} is missing`)
      for (const name of [...tensors.keys()].filter((key) => key.endsWith("/a")).map((key) => key.slice(0, -2))) {
        const [a, b] = [get(`${name}/a`), get(`${name}/b`)]
        const check = (what: string, ours: TensorMath.AnyArray) =>
          assert.deepStrictEqual(differing(get(`${name}/${what}`), ours), [], `${name} ${what}, seed ${seed}`)
        check("add", Result.getOrThrow(TensorMath.add(a, b)))
        check("sub", Result.getOrThrow(TensorMath.subtract(a, b)))
        check("one", TensorMath.addScalar(a, 1))
        if (tensors.has(`${name}/tenth`)) check("tenth", TensorMath.addScalar(a, 0.1))
      }
    })
  )
})
