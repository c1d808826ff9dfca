import { type ChildProcess, spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { assert } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as NdMath from "../../src/fobs/NdMath.ts"
import * as ModelFile from "../../src/service/ModelFile.ts"

const bin = join(import.meta.dirname, "../../src/cli/bin.ts")

/** A folder that goes with the Scope. */
export const temporaryFolder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "fl-attach-cli-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

export interface Workspace {
  readonly folder: string
  readonly shared: string
  readonly model: string
  readonly out: string
  readonly events: string
  /** Writes a profile for an attach id of site-1 and answers its path. */
  readonly profile: (attachId: string, more?: { readonly [field: string]: unknown }) => string
}

/** A shared folder, a model of several dtypes, and profiles. */
export const workspace = Effect.gen(function* () {
  const folder = yield* temporaryFolder
  const shared = join(folder, "shared")
  mkdirSync(shared, { mode: 0o770 })
  const model = join(folder, "in.npz")
  yield* ModelFile.write(model, modelArrays)
  const profile: Workspace["profile"] = (attachId, more) => {
    const path = join(folder, `${attachId}.json`)
    const fields = {
      schema_version: 1,
      execution_mode: "attach",
      attach_id: attachId,
      site_name: "site-1",
      rendezvous_dir: shared
    }
    writeFileSync(path, JSON.stringify({ ...fields, ...more }))
    return path
  }
  const made: Workspace = {
    folder,
    shared,
    model,
    out: join(folder, "out.npz"),
    events: join(folder, "events.jsonl"),
    profile
  }
  return made
}).pipe(Effect.provide(NodeFileSystem.layer), Effect.orDie)

/** Values whose bits show whether a dtype was kept: 2^62 is no double, 0.1 no float32 without rounding. */
export const modelArrays: ReadonlyArray<readonly [string, NdArray]> = [
  ["float32", NdArray.fromTyped(Float32Array.of(0.1, -2.5, 3e38, 0), [2, 2])],
  ["float64", NdArray.fromTyped(Float64Array.of(0.1))],
  ["int64", NdArray.fromTyped(BigInt64Array.of(2n ** 62n + 1n, -7n))],
  ["uint8", NdArray.fromTyped(Uint8Array.of(0, 254))],
  ["bool", new NdArray("|b1", [2], Uint8Array.of(1, 0))],
  ["scalar", NdArray.fromTyped(Float32Array.of(7), [])]
]

/** The flags of `serve` that a workspace stands for, without attach ids. */
export const serveArgs = (w: Workspace, more: ReadonlyArray<string> = []): ReadonlyArray<string> => [
  "serve",
  ...["--site", "site-1", "--job", "job-1", "--shared-dir", w.shared, "--model", w.model],
  ...["--out", w.out, "--rounds", "3", "--events", w.events],
  ...more
]

export interface Ended {
  /** The exit code; the signal's name where one ended the process. */
  readonly code: number | string | null
  readonly stdout: string
  readonly stderr: string
}

interface Running {
  readonly kill: (signal: NodeJS.Signals) => Effect.Effect<void>
  /** Waits until the text has been printed; fails when the process ends without it. */
  readonly printed: (text: string) => Effect.Effect<void, string>
  readonly ended: Effect.Effect<Ended>
}

/** The command as a process; it ends with the Scope at the latest. */
export const start = Effect.fn("start")(function* (
  args: ReadonlyArray<string>,
  program = bin,
  env: { readonly [name: string]: string } = {}
) {
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, ["--conditions=fl-attach-source", program, ...args], {
        stdio: ["ignore", "pipe", "pipe"],
        env: { ...process.env, ...env }
      })
    ),
    (running) => Effect.sync(() => void (isOver(running) || running.kill("SIGKILL")))
  )
  const text = { stdout: "", stderr: "" }
  const waiting = new Map<string, Deferred.Deferred<void, string>>()
  const ended = Deferred.makeUnsafe<Ended>()
  for (const stream of ["stdout", "stderr"] as const) {
    child[stream].setEncoding("utf8").on("data", (chunk: string) => {
      text[stream] += chunk
      for (const [wanted, found] of waiting) {
        if (text[stream].includes(wanted)) Deferred.doneUnsafe(found, Effect.void)
      }
    })
  }
  child.on("close", (code, signal) => {
    Deferred.doneUnsafe(ended, Effect.succeed({ code: code ?? signal, ...text }))
    for (const [wanted, found] of waiting) {
      Deferred.doneUnsafe(found, Effect.fail(`ended without "${wanted}": ${text.stdout}${text.stderr}`))
    }
  })
  const running: Running = {
    kill: (signal) => Effect.sync(() => void child.kill(signal)),
    printed: (wanted) =>
      Effect.suspend(() => {
        if (`${text.stdout}\n${text.stderr}`.includes(wanted)) return Effect.void
        const found = waiting.get(wanted) ?? Deferred.makeUnsafe<void, string>()
        waiting.set(wanted, found)
        return Deferred.await(found)
      }),
    ended: Deferred.await(ended)
  }
  return running
})

const isOver = (child: ChildProcess): boolean => child.exitCode !== null || child.signalCode !== null

export const runToEnd = (args: ReadonlyArray<string>): Effect.Effect<Ended> =>
  Effect.scoped(Effect.flatMap(start(args), ({ ended }) => ended))

const trainerProgram = join(import.meta.dirname, "stuckTrainer.ts")
/** Short leases: a second. */
export const quick = ["--heartbeat-interval", "200ms", "--heartbeat-timeout", "1s"]

export const probe = (w: Workspace, attachId: string, add: string) =>
  start(["probe", w.profile(attachId), `--add=${add}`])
/** A trainer that takes a task and never answers it; with `millis`, it does, after so long. */
export const stuck = (w: Workspace, attachId: string, millis?: number) =>
  start([w.profile(attachId), ...(millis === undefined ? [] : [String(millis)])], trainerProgram)
export const serve = (w: Workspace, ids: ReadonlyArray<string>, more: ReadonlyArray<string> = []) =>
  start(serveArgs(w, [...ids.flatMap((id) => ["--attach-id", id]), ...more]))

/** The written model has exactly these arrays: every numeric one higher by `added`. */
export const assertModel = Effect.fnUntraced(function* (w: Workspace, added: number) {
  const arrays = yield* ModelFile.read(w.out)
  assert.deepStrictEqual(
    [...arrays.keys()],
    modelArrays.map(([name]) => name)
  )
  for (const [name, before] of modelArrays) {
    // One step at a time, as the trainers went: float32 rounds in between.
    let expected = before
    for (let step = 0; step < added; step++) expected = NdMath.addScalar(expected, 1)
    const after = arrays.get(name)
    assert.deepStrictEqual([after?.dtype, after?.shape], [expected.dtype, expected.shape], name)
    assert.deepStrictEqual(Buffer.from(after?.bytes ?? []), Buffer.from(expected.bytes), name)
  }
}, Effect.provide(NodeFileSystem.layer))
