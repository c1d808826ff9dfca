/** A service and its trainers as processes of their own over a shared folder: how long rounds take, and how much memory. */
import { mkdirSync } from "node:fs"
import { join } from "node:path"
import { inFolder, memory, python, type Running, start, startOurs, withFolder, writeProfile } from "./processes.ts"

/** A model of float32 arrays that are all of one length. */
export interface ModelSize {
  readonly name: string
  readonly bytes: number
  readonly arrays: number
  readonly rounds: number
}

export interface RoundRun {
  /** Milliseconds of each round, in order. */
  readonly rounds: ReadonlyArray<number>
  /** The most memory until the end of each round, in bytes: of the service, then of each trainer. */
  readonly peaks: ReadonlyArray<ReadonlyArray<number>>
}

export type Side = "ours" | "python"

const peers = join(import.meta.dirname, "../interop/peers")

const startService = (
  side: Side,
  folder: string,
  { arrays, bytes, rounds }: ModelSize,
  trainers: number,
  onLine: (event: Record<string, unknown>) => void
): Running => {
  if (side === "ours") {
    return startOurs("service.ts", [folder, ...[bytes, arrays, rounds, trainers].map(String)], onLine)
  }
  const args = ["--root-dir", folder, "--attach-id", "trainer_0", "--mib", String(bytes / 2 ** 20)]
  args.push("--arrays", String(arrays), "--rounds", String(rounds), "--add", "0")
  return start(python ?? "", [join(peers, "cj_ref.py"), ...args], onLine)
}

export const startTrainer = (
  side: Side,
  profile: string,
  addend: number,
  env: Readonly<Record<string, string>> = {}
): Running =>
  side === "ours"
    ? startOurs("trainer.ts", [profile, String(addend)])
    : start(python ?? "", [join(import.meta.dirname, "peers/echo_np.py"), profile], undefined, env)

/** Milliseconds of a round, as either service tells it. */
export const duration = (event: Record<string, unknown>): number => {
  if (event.ok === false || event.check === false) throw new Error(`a wrong result: ${JSON.stringify(event)}`)
  return typeof event.ms === "number" ? event.ms : Number(event.secs) * 1000
}

/**
 * Runs all rounds of a model size between one service and its trainers, which echo (or add, when there are more). A
 * process that takes more than `maxBytes` of memory ends the run early.
 */
export const runPair = (
  service: Side,
  trainer: Side,
  size: ModelSize,
  trainers = 1,
  maxBytes = Number.POSITIVE_INFINITY
): Promise<RoundRun> =>
  withFolder(async (folder) => {
    const shared = join(folder, "shared")
    mkdirSync(shared, { mode: 0o700 })
    const rounds: Array<number> = []
    const peaks: Array<ReadonlyArray<number>> = []
    const all: Array<Running> = []
    let isTooLarge = false
    const onLine = (event: Record<string, unknown>) => {
      if (event.event !== "round" || isTooLarge) return
      rounds.push(duration(event))
      const now = all.map((running) => memory(running, "VmHWM"))
      peaks.push(now)
      isTooLarge = Math.max(...now) > maxBytes
      if (isTooLarge) for (const { process } of all) process.kill("SIGKILL")
    }
    all.push(startService(service, shared, size, trainers, onLine))
    for (let n = 0; n < trainers; n++) {
      const profile = join(folder, `profile_${n}.json`)
      writeProfile(profile, `trainer_${n}`, inFolder(shared))
      all.push(startTrainer(trainer, profile, trainers === 1 ? 0 : n + 1))
    }
    try {
      const [first, ...others] = all.map(({ ended }) => ended)
      // The service ends when its rounds are over; a trainer only by a fault, or told to.
      await Promise.race([first, ...others.map((ended) => ended.then(() => first))])
    } finally {
      for (const { process } of all) if (process.exitCode === null) process.kill("SIGKILL")
    }
    if (rounds.length !== size.rounds && !isTooLarge) throw new Error(`${rounds.length} of ${size.rounds} rounds ran`)
    return { rounds, peaks }
  })
