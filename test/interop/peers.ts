/**
 * Starts the peers of an interop test, ours and Python's, as processes of their own.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { inject } from "vitest"

export const python = inject("python")
/** The folder with PyTorch, or "" where there is none. */
export const torch = inject("torch")

const root = join(import.meta.dirname, "../..")
const command = ["--conditions=fl-attach-source", join(root, "src/cli/bin.ts")]

/** A process that has ended. */
interface Ended {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

export interface Peer {
  readonly process: ChildProcess
  readonly ended: Effect.Effect<Ended>
  /** Ends when a line of the output contains the text. */
  readonly says: (text: string) => Effect.Effect<void>
}

/** Starts a process; it is killed, by its own pid, when the Scope closes before it has ended. */
const start = (file: string, args: ReadonlyArray<string>, env: Record<string, string> = {}) =>
  Effect.acquireRelease(
    Effect.sync((): Peer => {
      // Standard input stays open: some peers serve until it closes.
      const child = spawn(file, args, { cwd: root, env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "pipe"] })
      let out = ""
      let err = ""
      const watchers = new Set<() => void>()
      child.stdout.on("data", (chunk) => {
        out += chunk
        for (const watcher of watchers) watcher()
      })
      child.stderr.on("data", (chunk) => {
        err += chunk
        for (const watcher of watchers) watcher()
      })
      const exit = new Promise<Ended>((resolve) => child.on("close", (code) => resolve({ code, out, err })))
      return {
        process: child,
        ended: Effect.promise(() => exit),
        says: (text) =>
          Effect.callback<void>((resume) => {
            const look = () => {
              if (!out.includes(text) && !err.includes(text)) return
              watchers.delete(look)
              resume(Effect.void)
            }
            watchers.add(look)
            look()
          })
      }
    }),
    (peer) =>
      Effect.gen(function* () {
        if (peer.process.exitCode === null && peer.process.signalCode === null) peer.process.kill("SIGKILL")
        yield* peer.ended
      })
  )

/** A port that is free, and the one behind it too. */
export const freePorts = Effect.callback<number>((resume) => {
  const look = () => {
    const first = createServer()
    first.listen(0, "127.0.0.1", () => {
      const address = first.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      const second = createServer()
      const close = (isFree: boolean) =>
        second.close(() => first.close(() => (isFree ? resume(Effect.succeed(port)) : look())))
      second.once("error", () => close(false))
      second.listen(port + 1, "127.0.0.1", () => close(true))
    })
  }
  look()
})

/** Our own command. */
export const flAttach = (...args: ReadonlyArray<string>) => start(process.execPath, [...command, ...args])

/** A script of test/interop/peers. */
export const peer = (script: string, args: ReadonlyArray<string>, env: Record<string, string> = {}) =>
  start(python, [join(import.meta.dirname, "peers", script), ...args], env)

/** The same with PyTorch on its path. */
export const peerWithTorch = (script: string, args: ReadonlyArray<string>, env: Record<string, string> = {}) =>
  peer(script, args, { ...env, PYTHONPATH: torch })

const runSnippet = (code: string, args: ReadonlyArray<string>, env: Record<string, string> = {}) =>
  Effect.scoped(
    Effect.gen(function* () {
      const { code: exit, err, out } = yield* (yield* start(python, ["-c", code, ...args], env)).ended
      return exit === 0 ? out.trim() : yield* Effect.die(new Error(`python ended with ${exit}: ${out}${err}`))
    })
  )

/** A snippet of Python; succeeds with what it prints. */
export const runPython = (code: string, ...args: ReadonlyArray<string>) => runSnippet(code, args)

/** The same with PyTorch, and the modules of test/interop/peers. */
export const runTorch = (code: string, ...args: ReadonlyArray<string>) =>
  runSnippet(code, args, { PYTHONPATH: `${torch}:${join(import.meta.dirname, "peers")}` })

/** A folder that goes with the Scope. */
export const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "fl-attach-interop-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

export const writeProfile = (path: string, attachId: string, rendezvousDir: string) =>
  Effect.sync(() =>
    writeFileSync(
      path,
      JSON.stringify({
        schema_version: 1,
        execution_mode: "attach",
        attach_id: attachId,
        site_name: "site-1",
        rendezvous_dir: rendezvousDir,
        job_wait_timeout: 60
      })
    )
  )

/** The JSON lines of a text. */
export const jsonLines = (text: string): ReadonlyArray<Record<string, unknown>> =>
  text
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line) as Record<string, unknown>)

export const readLines = (path: string) => Effect.sync(() => jsonLines(readFileSync(path, "utf8")))

/** The written model must be what numpy makes of the same additions, bit for bit. */
export const compare = `
import numpy as np, sys
a, b = np.load(sys.argv[1]), np.load(sys.argv[2])
rounds = int(sys.argv[3])
assert sorted(a.files) == sorted(b.files), (a.files, b.files)
for k in a.files:
    want = a[k]
    for _ in range(rounds):
        want = np.asarray(want + np.asarray(1, dtype=want.dtype))
    assert b[k].dtype == want.dtype, (k, b[k].dtype, want.dtype)
    assert b[k].shape == want.shape, (k, b[k].shape, want.shape)
    assert want.tobytes() == b[k].tobytes(), k
print("same")
`

/** A folder with a shared one in it, a model that a snippet of Python makes, and a trainer's profile. */
export const prepareFiles = Effect.fnUntraced(function* (makeModel: string) {
  const dir = yield* folder
  const [shared, input, output, profile, events] = ["shared", "in.npz", "out.npz", "profile.json", "events.jsonl"].map(
    (name) => join(dir, name)
  ) as [string, string, string, string, string]
  mkdirSync(shared, { mode: 0o755 })
  yield* runPython(makeModel, input)
  yield* writeProfile(profile, "trainer_a", shared)
  return { shared, input, output, profile, events }
})
