/** Rounds through a client parent: ours and Python's, in clear and in secure mode; and many trainers at once. */
import { chmodSync } from "node:fs"
import { join } from "node:path"
import { unpackPki } from "../pki.ts"
import { crowdTable } from "./crowd.ts"
import type { ModelSize, Side } from "./pairs.ts"
import { python } from "./processes.ts"
import { median, type Report, ratio, show, table } from "./report.ts"
import { runTrio, type TrioRun } from "./trios.ts"
import { runNet } from "./yardsticks.ts"

const mebi = 2 ** 20
const small: ModelSize = { name: "1 KiB", bytes: 1024, arrays: 4, rounds: 24 }
const large: ModelSize = { name: "256 MiB", bytes: 256 * mebi, arrays: 4, rounds: 5 }
/** So many times each measurement takes its turn. */
const turns = 2
/** Rounds at the start that don't count. */
const warmUp = 2

const certificates = (): string => {
  const folder = join(unpackPki(), "pki/site-1")
  chmodSync(join(folder, "client.key"), 0o600)
  return folder
}

interface Row {
  readonly name: string
  readonly size: ModelSize
  readonly certs?: string
}

interface Measured {
  readonly net: number
  readonly ours: number
  readonly theirs: number | undefined
  readonly last: TrioRun
}

const measure = async ({ certs, name, size }: Row): Promise<Measured> => {
  const times: Record<Side | "net", Array<number>> = { ours: [], python: [], net: [] }
  let last: TrioRun = { rounds: [], cpu: [], peaks: [] }
  const sides: ReadonlyArray<Side> = python === undefined ? ["ours"] : ["ours", "python"]
  for (let turn = 0; turn < turns; turn++) {
    times.net.push(...(await runNet(size.bytes, size.rounds, true)).slice(warmUp))
    for (const side of sides) {
      const run = await runTrio(side, size, certs)
      if (side === "ours") last = run
      times[side].push(...run.rounds.slice(warmUp))
      console.error(`${name}, ${side}: ${show(median(run.rounds.slice(warmUp)))} ms`)
    }
  }
  const theirs = times.python.length === 0 ? undefined : median(times.python)
  return { net: median(times.net), ours: median(times.ours), theirs, last }
}

const perRound = ({ cpu, peaks, rounds }: TrioRun): ReadonlyArray<string> => [
  cpu.map((seconds) => (seconds / (rounds.length - 1)).toFixed(2)).join(" / "),
  peaks.map((bytes) => (bytes / mebi).toFixed(0)).join(" / ")
]

/** The part of `npm run bench` about networks. */
export const networkBench = async (): Promise<Report> => {
  const certs = certificates()
  const rows: ReadonlyArray<Row> = [
    { name: "1 KiB, tcp", size: small },
    { name: "256 MiB, tcp", size: large },
    { name: "1 KiB, stcp and secure mode", size: small, certs },
    { name: "256 MiB, stcp and secure mode", size: large, certs }
  ]
  const cells: Array<ReadonlyArray<string>> = []
  for (const row of rows) {
    const { last, net, ours, theirs } = await measure(row)
    const speed = row.size === large ? show(512 / (ours / 1000)) : "-"
    cells.push([row.name, show(net), show(ours), show(theirs), ratio(theirs, ours), speed, ...perRound(last)])
  }
  const head = ["model", "forwarder", "ours", "Python trio", "Python trio / ours", "ours, MiB/s both ways"]
  head.push("CPU seconds a round: parent / service / trainer", "peak MiB: the same")
  return {
    title: "A round through a client parent",
    text: `${table(head, cells)}\n\n${await crowdTable()}`
  }
}
