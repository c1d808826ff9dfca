/** Parent, service and trainer as processes of their own, over a local network. */
import { createServer } from "node:net"
import { join } from "node:path"
import { duration, type ModelSize, type Side, startTrainer } from "./pairs.ts"
import {
  atParent,
  cpuSeconds,
  memory,
  python,
  type Running,
  start,
  startOurs,
  withFolder,
  writeProfile
} from "./processes.ts"

const peers = join(import.meta.dirname, "../interop/peers")
const bin = join(import.meta.dirname, "../../dist/cli/bin.js")

/** A port that is free, and the one behind it too, which the reference's parent takes. */
const freePort = (): Promise<number> =>
  new Promise((resolve, reject) => {
    const server = createServer().on("error", reject)
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0))
    })
  })

export interface Parent extends Running {
  readonly url: string
}

/** Fails when a process ends that should go on. */
const endedTooSoon = ({ ended, process }: Running): Promise<never> =>
  ended.then(() => Promise.reject(new Error(`${process.spawnargs.join(" ")} has ended`)))

/** Starts a client parent, and waits until it listens: over `stcp` with a folder of certificates, else over `tcp`. */
export const startParent = async (side: Side, certs?: string): Promise<Parent> => {
  const port = await freePort()
  const url = `${certs === undefined ? "tcp" : "stcp"}://127.0.0.1:${port}`
  const identity = ["--fqcn", "site-1", "--identity", "site-1.job-1=site-1"]
  const theirs =
    certs === undefined
      ? ["cp_ref.py", "--port", String(port)]
      : ["secure_pair.py", "--role", "cp", "--url", url, "--certs", certs, ...identity]
  const [script = "", ...args] = theirs
  const ready = Promise.withResolvers<void>()
  const running =
    side === "ours"
      ? start(process.execPath, [
          bin,
          "parent",
          "--site",
          "site-1",
          "--listen",
          url,
          ...(certs === undefined ? [] : ["--certs", certs])
        ])
      : start(python ?? "", [join(peers, script), ...args])
  running.process.stdout?.on("data", (chunk) => {
    if (/listens at|cp_ready|listening/.test(String(chunk))) ready.resolve()
  })
  await Promise.race([ready.promise, endedTooSoon(running)])
  return { ...running, url }
}

const startService = (
  side: Side,
  url: string,
  certs: string | undefined,
  { arrays, bytes, rounds }: ModelSize,
  onLine: (event: Record<string, unknown>) => void,
  env: Readonly<Record<string, string>>
): Running => {
  const secured = certs === undefined ? [] : [certs]
  if (side === "ours") {
    return startOurs("service.ts", [url, ...[bytes, arrays, rounds, 1].map(String), ...secured], onLine)
  }
  const args = ["--connect-url", url, "--attach-id", "trainer_0", "--mib", String(bytes / 2 ** 20)]
  args.push("--arrays", String(arrays), "--rounds", String(rounds), "--add", "0", "--attach-timeout", "120")
  if (certs !== undefined) args.push("--connection-security", "mtls", "--startup", certs, "--secure")
  return start(python ?? "", [join(peers, "cj_ref.py"), ...args], onLine, env)
}

/** What a run took of the three processes, in this order: parent, service, trainer. */
export interface TrioRun {
  /** Milliseconds of each round, in order. */
  readonly rounds: ReadonlyArray<number>
  /** Seconds of CPU, from the end of the first round to that of the last. */
  readonly cpu: ReadonlyArray<number>
  /** The most memory, in bytes. */
  readonly peaks: ReadonlyArray<number>
}

const kill = ({ process }: Running): void => {
  if (process.exitCode === null) process.kill("SIGKILL")
}

/** Runs all rounds of a model size between a service and a trainer that echoes, through a parent. */
export const runTrio = (
  side: Side,
  size: ModelSize,
  certs: string | undefined,
  env: Readonly<Record<string, string>> = {}
): Promise<TrioRun> =>
  withFolder(async (folder) => {
    const parent = await startParent(side, certs)
    const profile = join(folder, "profile.json")
    writeProfile(profile, "trainer_0", atParent(parent.url, certs))
    const rounds: Array<number> = []
    let all: ReadonlyArray<Running> = [parent]
    let before: ReadonlyArray<number> = []
    let cpu: ReadonlyArray<number> = []
    let peaks: ReadonlyArray<number> = []
    const onLine = (event: Record<string, unknown>) => {
      if (event.event !== "round") return
      rounds.push(duration(event))
      const now = all.map(cpuSeconds)
      if (rounds.length === 1) before = now
      cpu = now.map((seconds, n) => seconds - (before[n] ?? 0))
      peaks = all.map((running) => memory(running, "VmHWM"))
    }
    const service = startService(side, parent.url, certs, size, onLine, env)
    all = [parent, service, startTrainer(side, profile, 0, env)]
    try {
      // The trainer ends by a fault, or when it is told to.
      await Promise.race([service.ended, endedTooSoon(parent), all[2]?.ended.then(() => service.ended)])
    } finally {
      for (const running of all) kill(running)
    }
    if (rounds.length !== size.rounds) throw new Error(`${rounds.length} of ${size.rounds} rounds ran`)
    return { rounds, cpu, peaks }
  })
