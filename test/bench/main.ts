/**
 * `npm run bench`: what a round costs, beside the Python pair and what the machine does at best. Writes
 * docs/benchmarks.md. With names of parts (`rounds`, `network`, `sessions`, `memory`, `codec`), it prints those and writes nothing;
 * with `--write`, it puts them in the place of what was measured before.
 */
import { codecBench } from "./codec.ts"
import { memoryBench } from "./memory.ts"
import { networkBench } from "./network.ts"
import { type Report, replaceReports, writeReport } from "./report.ts"
import { roundsBench } from "./rounds.ts"
import { sessionsBench } from "./sessions.ts"

const parts: ReadonlyArray<readonly [string, () => Promise<Report>]> = [
  ["rounds", roundsBench],
  ["network", networkBench],
  ["sessions", sessionsBench],
  ["memory", memoryBench],
  ["codec", codecBench]
]

const wanted = process.argv.slice(2).filter((word) => word !== "--write")
const started = performance.now()
const reports: Array<Report> = []
for (const [name, run] of parts) {
  if (wanted.length > 0 && !wanted.includes(name)) continue
  const report = await run()
  console.log(`\n${report.text}`)
  reports.push(report)
}
const seconds = Math.round((performance.now() - started) / 1000)
if (wanted.length === 0) writeReport(reports, seconds)
else if (process.argv.includes("--write")) replaceReports(reports, seconds)
console.log(`\n${seconds} s`)
