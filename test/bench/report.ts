/** Medians, tables, and the file that they go to. */
import { readFileSync, writeFileSync } from "node:fs"
import { cpus, loadavg, release, totalmem } from "node:os"
import { join } from "node:path"

export interface Report {
  readonly title: string
  /** Markdown. */
  readonly text: string
}

export const median = (values: ReadonlyArray<number>): number => {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  const upper = sorted[middle] ?? Number.NaN
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? Number.NaN)) / 2
}

/** Three digits. */
export const show = (value: number | undefined): string => {
  if (value === undefined || Number.isNaN(value)) return "-"
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3)
}

export const ratio = (above: number | undefined, below: number | undefined): string =>
  above === undefined || below === undefined ? "-" : (above / below).toFixed(2)

export const table = (head: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = head.map((title, n) => Math.max(title.length, ...rows.map((row) => row[n]?.length ?? 0)))
  const line = (cells: ReadonlyArray<string>) =>
    `| ${widths.map((width, n) => (n === 0 ? (cells[n] ?? "").padEnd(width) : (cells[n] ?? "").padStart(width))).join(" | ")} |`
  const rule = `| ${widths.map((width, n) => (n === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`)).join(" | ")} |`
  return [line(head), rule, ...rows.map(line)].join("\n")
}

const path = join(import.meta.dirname, "../../docs/benchmarks.md")
const begin = "<!-- measured: what stands between these marks is written by `npm run bench` -->"
const end = "<!-- measured: end -->"

const machine = (): string => {
  const [cpu] = cpus()
  const memory = Math.round(totalmem() / 2 ** 30)
  return `${cpus().length} x ${cpu?.model.trim() || "unknown CPU"}, ${memory} GiB, Linux ${release()}, Node ${process.versions.node}`
}

/** What stands between the marks of docs/benchmarks.md is rewritten; what is said around them stays. */
const rewrite = (change: (measured: string) => string): void => {
  const text = readFileSync(path, "utf8")
  const [before, rest] = text.split(begin)
  const [measured, after] = rest?.split(end) ?? []
  if (before === undefined || measured === undefined || after === undefined) {
    throw new Error(`${path} has lost its marks: ${begin} ... ${end}`)
  }
  writeFileSync(path, [`${before}${begin}`, change(measured.trim()), `${end}${after}`].join("\n\n"))
}

const factsOf = (seconds: number): string => {
  const load = loadavg().map((value) => value.toFixed(1))
  return `Measured on ${machine()}, in ${seconds} s; load at the end ${load[0]}, over fifteen minutes ${load[2]}.`
}

const sectionOf = ({ text, title }: Report): string => `### ${title}\n\n${text}`

/** Puts all reports into docs/benchmarks.md. */
export const writeReport = (reports: ReadonlyArray<Report>, seconds: number): void =>
  rewrite(() => [factsOf(seconds), ...reports.map(sectionOf)].join("\n\n"))

/** Puts reports that were measured by themselves in the place of those of the same title, each with its own facts. */
export const replaceReports = (reports: ReadonlyArray<Report>, seconds: number): void =>
  rewrite((measured) => {
    const sections = measured.split(/\n\n(?=### )/)
    for (const { text, title } of reports) {
      const section = sectionOf({ title, text: `${factsOf(seconds)}\n\n${text}` })
      const at = sections.findIndex((other) => other.startsWith(`### ${title}\n`))
      sections.splice(at === -1 ? sections.length : at, at === -1 ? 0 : 1, section)
    }
    return sections.join("\n\n")
  })
