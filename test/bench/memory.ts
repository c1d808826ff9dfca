/** Peak memory of each process over many rounds of a large model. */
import { type ModelSize, runPair } from "./pairs.ts"
import { type Report, table } from "./report.ts"

const mebi = 2 ** 20
const size: ModelSize = { name: "256 MiB", bytes: 256 * mebi, arrays: 4, rounds: 20 }
/** The round from which on memory must not grow. */
const settled = 5

const inMebi = (bytes: number | undefined): string => ((bytes ?? 0) / mebi).toFixed(0)

const rowsOf = async (trainers: number, factor: number): Promise<ReadonlyArray<ReadonlyArray<string>>> => {
  const bound = factor * size.bytes + 256 * mebi
  const { peaks } = await runPair("ours", "ours", size, trainers, 2 * bound)
  const isWhole = peaks.length === size.rounds
  return ["service", ...Array.from({ length: trainers }, (_, n) => `trainer ${n + 1}`)].map((name, n) => [
    trainers === 1 ? "echo" : "FedAvg, two trainers",
    name,
    inMebi(peaks[settled - 1]?.[n]),
    isWhole ? inMebi(peaks.at(-1)?.[n]) : `${inMebi(peaks.at(-1)?.[n])} (stopped after round ${peaks.length})`,
    inMebi(bound)
  ])
}

/** The part of `npm run bench` about memory. */
export const memoryBench = async (): Promise<Report> => {
  const rows = [...(await rowsOf(1, 2)), ...(await rowsOf(2, 3))]
  const head = ["256 MiB, 20 rounds", "process", `peak after round ${settled}`, `peak after round ${size.rounds}`]
  return { title: "Memory (MiB)", text: table([...head, "bound"], rows) }
}
