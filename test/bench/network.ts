/** Rounds through a client parent: ours and Python's, in clear and in secure mode; and many trainers at once. */
import { chmodSync } from "node:fs"
import { join } from "node:path"
import { unpackPki } from "../pki.ts"
import { cipherTable } from "./cipher.ts"
import { crowdTable } from "./crowd.ts"
import type { ModelSize, Side } from "./pairs.ts"
import { python } from "./processes.ts"
import { median, type Report, ratio, show, table } from "./report.ts"
import { runTrio, type TrioRun } from "./trios.ts"
import { runNet } from "./yardsticks.ts"

const mebi = 2 ** 20
const small: ModelSize = { name: "1 KiB", bytes: 1024, arrays: 4, rounds: 150 }
const large: ModelSize = { name: "256 MiB", bytes: 256 * mebi, arrays: 4, rounds: 6 }
/** So many times each measurement takes its turn. */
const turns = 2
/** Rounds at the start that don't count: code is compiled, buffers grow. */
const warmUp = (size: ModelSize): number => Math.ceil(size.rounds / 3)

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

const contenders = ["net", "ours", "python", "inline"] as const
type Contender = (typeof contenders)[number]

/** Python's arrays within the messages, as ours are; its default are references, which are fetched. */
const inline = { NVFLARE_NP_DOWNLOAD_CHUNK_SIZE: "0" }

interface Measured {
  readonly medians: Readonly<Record<Contender, number>>
  readonly last: TrioRun
}

const measure = async ({ certs, name, size }: Row): Promise<Measured> => {
  const times: Record<Contender, Array<number>> = { net: [], ours: [], python: [], inline: [] }
  let last: TrioRun = { rounds: [], cpu: [], peaks: [] }
  for (let turn = 0; turn < turns; turn++) {
    for (const contender of python === undefined ? contenders.slice(0, 2) : contenders) {
      if (contender === "net") {
        times.net.push(...(await runNet(size.bytes, size.rounds, true)).slice(warmUp(size)))
        continue
      }
      const side: Side = contender === "ours" ? "ours" : "python"
      const run = await runTrio(side, size, certs, contender === "inline" ? inline : {})
      if (contender === "ours") last = run
      const counted = run.rounds.slice(warmUp(size))
      times[contender].push(...counted)
      console.error(`${name}, ${contender}: ${show(median(counted))} ms`)
    }
  }
  const { inline: inlined, net, ours, python: fetched } = times
  return { medians: { net: median(net), ours: median(ours), python: median(fetched), inline: median(inlined) }, last }
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
    const { last, medians } = await measure(row)
    const { inline: inlined, net, ours, python: fetched } = medians
    const ratios = [ratio(fetched, ours), ratio(inlined, ours)]
    cells.push([row.name, ...[net, ours, fetched, inlined].map(show), ...ratios, ...perRound(last)])
  }
  const head = ["model", "forwarder", "ours", "Python trio", "the same, arrays inline", "Python trio / ours"]
  head.push("inline / ours", "CPU seconds a round: parent / service / trainer", "peak MiB: the same")
  return {
    title: "A round through a client parent",
    text: `${table(head, cells)}\n\n${cipherTable()}\n\n${await crowdTable()}`
  }
}
