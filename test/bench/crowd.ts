/** Two hundred trainers at one parent and one service, all with a task at once. */
import { cpuSeconds, memory, type Running, startOurs } from "./processes.ts"
import { median, show, table } from "./report.ts"
import { startParent } from "./trios.ts"

const mebi = 2 ** 20
const trainers = 200
const rounds = 6
/** Rounds at the start that don't count. */
const warmUp = 1

interface CrowdRun {
  readonly attached: number
  /** Milliseconds of each task, a round each. */
  readonly rounds: ReadonlyArray<ReadonlyArray<number>>
  /** Of parent, service and trainers: seconds of CPU a round, and the most memory in bytes. */
  readonly cpu: ReadonlyArray<number>
  readonly peaks: ReadonlyArray<number>
}

const run = async (): Promise<CrowdRun> => {
  const parent = await startParent("ours")
  let all: ReadonlyArray<Running> = [parent]
  let attached = Number.NaN
  const seen: Array<ReadonlyArray<number>> = []
  let before: ReadonlyArray<number> = []
  let cpu: ReadonlyArray<number> = []
  let peaks: ReadonlyArray<number> = []
  const onLine = (event: Record<string, unknown>) => {
    if (event.event === "attached") attached = Number(event.ms)
    if (event.event !== "round") return
    seen.push(event.times as ReadonlyArray<number>)
    const now = all.map(cpuSeconds)
    if (seen.length === warmUp) before = now
    cpu = now.map((seconds, n) => (seconds - (before[n] ?? 0)) / (seen.length - warmUp))
    peaks = all.map((running) => memory(running, "VmHWM"))
  }
  const service = startOurs("crowdService.ts", [parent.url, ...[trainers, mebi, rounds].map(String)], onLine)
  const crowd = startOurs("crowdTrainers.ts", [parent.url, String(trainers)])
  all = [parent, service, crowd]
  try {
    await Promise.race([service.ended, ...all.map(({ ended }) => ended.then(() => service.ended))])
  } finally {
    for (const { process } of all) if (process.exitCode === null) process.kill("SIGKILL")
  }
  if (seen.length !== rounds) throw new Error(`${seen.length} of ${rounds} rounds ran`)
  return { attached, rounds: seen, cpu, peaks }
}

/** The value below which so many of a hundred are. */
const percentile = (values: ReadonlyArray<number>, percent: number): number =>
  values.toSorted((a, b) => a - b)[Math.ceil((values.length * percent) / 100) - 1] ?? Number.NaN

/** A table of what the crowd took. */
export const crowdTable = async (): Promise<string> => {
  const { attached, cpu, peaks, rounds: all } = await run()
  const counted = all.slice(warmUp)
  const whole = median(counted.map((times) => Math.max(...times)))
  const times = counted.flat()
  const processes = ["parent", "service", "trainers (one process)"].map((name, n) => [
    name,
    (cpu[n] ?? Number.NaN).toFixed(2),
    ((peaks[n] ?? Number.NaN) / mebi).toFixed(0)
  ])
  return [
    `${trainers} trainers attach within ${show(attached / 1000)} s (their start included). A round of 1 MiB each way for all at once takes ${show(whole)} ms; a task of it ${show(percentile(times, 50))} ms (median), ${show(percentile(times, 99))} ms (99 of 100).`,
    table(["process", "CPU seconds a round", "peak memory (MiB)"], processes)
  ].join("\n\n")
}
