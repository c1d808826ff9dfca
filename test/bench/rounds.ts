/** Rounds of all sizes: ours, Python's, mixed, and the yardsticks, in turn. */
import { type ModelSize, runPair, type Side } from "./pairs.ts"
import { python } from "./processes.ts"
import { median, type Report, ratio, show, table } from "./report.ts"
import { runFile, runNet } from "./yardsticks.ts"

const mebi = 2 ** 20

const sizes: ReadonlyArray<ModelSize> = [
  { name: "1 KiB", bytes: 1024, arrays: 4, rounds: 150 },
  { name: "1 MiB", bytes: mebi, arrays: 4, rounds: 16 },
  { name: "16 MiB", bytes: 16 * mebi, arrays: 4, rounds: 8 },
  { name: "256 MiB", bytes: 256 * mebi, arrays: 4, rounds: 9 },
  { name: "10,000 arrays of 64 bytes", bytes: 640_000, arrays: 10_000, rounds: 6 }
]
/** So many times each measurement takes its turn. */
const turns = 2
/** Rounds at the start that don't count: code is compiled, buffers grow. */
const warmUp = (size: ModelSize): number => Math.ceil(size.rounds / 3)

interface Contender {
  readonly name: string
  readonly run: (size: ModelSize) => Promise<ReadonlyArray<number>>
}

const pair = (name: string, service: Side, trainer: Side): Contender => ({
  name,
  run: async (size) => (await runPair(service, trainer, size)).rounds
})

const ours = pair("ours", "ours", "ours")
const theirs = pair("Python pair", "python", "python")
const mixed = pair("our service, Python trainer", "ours", "python")
const file: Contender = { name: "file", run: ({ bytes, rounds }) => runFile(bytes, rounds) }
const net: Contender = { name: "socket", run: ({ bytes, rounds }) => runNet(bytes, rounds) }

const contenders = [file, net, ours, ...(python === undefined ? [] : [theirs, mixed])]

const measure = async (size: ModelSize): Promise<ReadonlyMap<Contender, number>> => {
  const times = new Map<Contender, Array<number>>()
  for (let turn = 0; turn < turns; turn++) {
    for (const contender of contenders) {
      const rounds = await contender.run(size)
      const counted = rounds.slice(warmUp(size))
      times.set(contender, [...(times.get(contender) ?? []), ...counted])
      console.error(`${size.name}, ${contender.name}: ${show(median(counted))} ms`)
    }
  }
  return new Map([...times].map(([contender, all]) => [contender, median(all)]))
}

/** The part of `npm run bench` about rounds. */
export const roundsBench = async (): Promise<Report> => {
  const rows: Array<ReadonlyArray<string>> = []
  for (const size of sizes) {
    const medians = await measure(size)
    const of = (contender: Contender) => medians.get(contender)
    rows.push([
      size.name,
      ...[file, net, ours, theirs, mixed].map((contender) => show(of(contender))),
      ratio(of(theirs), of(ours)),
      ratio(of(theirs), of(mixed)),
      ratio(of(ours), of(file))
    ])
  }
  const head = ["model", "file", "socket", "ours", "Python pair", "our service, Python trainer"]
  head.push("Python pair / ours", "Python pair / mixed", "ours / file")
  const skipped =
    python === undefined
      ? "\n\nSKIPPED: no Python environment, so no Python figures; `npm run test:interop` installs it."
      : ""
  return { title: "A round", text: table(head, rows) + skipped }
}
