import { Clock, Effect, Metric } from "effect"

/** What a cell refuses for its safety: counted by reason, and told at a bounded rate. */
export interface Refusals {
  readonly count: (reason: string, why: string) => Effect.Effect<void>
}

const refusals = Metric.counter("fl_attach_cell_refusals", {
  description: "Messages that a cell refused for its safety, by reason",
  incremental: true
})

/** Between two lines of one reason, in milliseconds. */
const quietMillis = 10_000
/** Reasons are few; should a guard make up more, they share one. */
const maxReasons = 64

interface Tally {
  lastLine: number
  unsaid: number
}

export const makeRefusals = (cell: string): Refusals => {
  const tallies = new Map<string, Tally>()

  const tallyOf = (reason: string): Tally => {
    const name = tallies.has(reason) || tallies.size < maxReasons ? reason : "other"
    const tally = tallies.get(name) ?? { lastLine: Number.NEGATIVE_INFINITY, unsaid: 0 }
    tallies.set(name, tally)
    return tally
  }

  const count: Refusals["count"] = Effect.fnUntraced(function* (reason, why) {
    yield* Metric.update(Metric.withAttributes(refusals, { cell, reason }), 1)
    const tally = tallyOf(reason)
    const now = Number(yield* Clock.monotonicTimeNanos) / 1e6
    if (now - tally.lastLine < quietMillis) {
      tally.unsaid += 1
      return
    }
    const more = tally.unsaid === 0 ? "" : ` (and ${tally.unsaid} more of this kind since)`
    tally.lastLine = now
    tally.unsaid = 0
    yield* Effect.logWarning(`${cell}: refused (${reason}): ${why}${more}`)
  })

  return { count }
}
