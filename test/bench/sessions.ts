/** A thousand sessions that have nothing to do but to heartbeat: what each costs. */
import { setTimeout } from "node:timers/promises"
import { cpuSeconds, memory, type Running, startOurs } from "./processes.ts"
import { type Report, show, table } from "./report.ts"
import { startParent } from "./trios.ts"

const sessions = 1000
/** Heartbeats come every 5 s: four of each session are in the measured time. */
const seconds = 20
/** What follows the start: collections, caches that fill. */
const settling = 10

/** Of parent, service and trainers: CPU in seconds a second, and bytes of memory, while nothing happens. */
interface Idle {
  readonly cpu: number
  readonly memory: number
}

const run = async (count: number): Promise<ReadonlyArray<Idle>> => {
  const parent = await startParent("ours")
  const attached = Promise.withResolvers<void>()
  const hold = String(seconds + settling + 60)
  const service = startOurs("crowdService.ts", [parent.url, String(count), "0", "0", hold], ({ event }) => {
    if (event === "attached") attached.resolve()
  })
  const trainers = startOurs("crowdTrainers.ts", [parent.url, String(count)])
  const all: ReadonlyArray<Running> = [parent, service, trainers]
  try {
    await Promise.race([attached.promise, ...all.map(({ ended }) => ended.then(() => Promise.reject("ended early")))])
    await setTimeout(settling * 1000)
    const before = all.map(cpuSeconds)
    await setTimeout(seconds * 1000)
    return all.map((running, n) => ({
      cpu: (cpuSeconds(running) - (before[n] ?? 0)) / seconds,
      memory: memory(running, "VmRSS")
    }))
  } finally {
    for (const { process } of all) if (process.exitCode === null) process.kill("SIGKILL")
  }
}

export const sessionsBench = async (): Promise<Report> => {
  const one = await run(1)
  const many = await run(sessions)
  const rows = ["parent", "service", "trainers (one process)"].map((name, n) => {
    const [less, more] = [one[n], many[n]]
    if (less === undefined || more === undefined) throw new Error(`${name} was not measured`)
    const each = (more.memory - less.memory) / (sessions - 1)
    const micros = ((more.cpu - less.cpu) / (sessions - 1)) * 1e6
    return [name, (more.cpu * 100).toFixed(0), show(micros), (more.memory / 2 ** 20).toFixed(0), show(each / 1024)]
  })
  const head = ["process", "CPU (% of one)", "µs of CPU a second and session", "memory (MiB)", "KiB a session"]
  const text = `${sessions} idle sessions at one service in one process, by one client parent over TCP; a heartbeat of each every 5 s. What a session costs is the difference to the same processes with one session.`
  return { title: "Idle sessions", text: `${text}\n\n${table(head, rows)}` }
}
