/**
 * Jobs over connections that are delayed, throttled, cut, half open or swallow all: each finishes with the right model, or
 * fails typed; none hangs; no task is trained and no result counted twice. A job whose connections end is resumed; only
 * one that is silent for longer than its lease may be lost. Ten here, two hundred in `npm run test:long`.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { Fault } from "../support/faultProxy.ts"
import { isLong, times, within } from "../support/long.ts"
import { silently } from "../transport/support.ts"
import { type Outcome, runJob } from "./job.ts"

const count = times(10, 20)
const together = isLong ? 8 : 10
const seed = Number(process.env.FAULT_SEED ?? crypto.getRandomValues(new Uint32Array(1))[0])

/** Jobs that once failed: the parent lost a task that it had passed on to a connection just cut. */
const kept = [2238854135]

const tally = (names: ReadonlyArray<string>): string =>
  [...new Set(names)].map((name) => `${names.filter((other) => other === name).length} ${name}`).join(", ")

/** A connection that carries nothing any more and of whose end its dialer is not told: silence, until the lease ends. */
const isSilent = (fault: Fault): boolean =>
  fault.kind === "blackHole" || (fault.kind === "halfOpen" && fault.stays === "dialer")

const hold = (outcome: Outcome): void => {
  const { counted, defects, exact, faults, service, trained, trainer } = outcome
  const told = JSON.stringify(outcome, (_, value) => (value instanceof Error ? value.stack : value))
  assert.deepStrictEqual(defects, [], told)
  assert.notInclude([service, trainer], "no typed error", told)
  assert.deepStrictEqual(trained, [...new Set(trained)], told)
  assert.deepStrictEqual(counted, [0, 1, 2].slice(0, counted.length), told)
  assert.deepStrictEqual(trained.slice(0, counted.length), counted, told)
  if (!faults.some(isSilent)) assert.deepStrictEqual([service, trainer], ["finished", "finished"], told)
  if (service === "finished") assert.isTrue(exact, told)
}

describe("jobs of three rounds that once failed", () => {
  it.live.each(kept)("seed %i", (seed) => Effect.map(silently(runJob(seed)), hold), within(120_000))
})

describe(`jobs of three rounds behind faulty connections, seeds from ${seed} (FAULT_SEED)`, () => {
  it.live(
    `${count} of them`,
    () =>
      Effect.gen(function* () {
        const seeds = Array.from({ length: count }, (_, index) => (seed + index) >>> 0)
        const outcomes = yield* Effect.forEach(seeds, runJob, { concurrency: together }).pipe(silently)
        for (const outcome of outcomes) hold(outcome)
        const struck = outcomes.reduce((sum, outcome) => sum + outcome.struck, 0)
        console.log(
          `seeds ${seed} to ${seeds.at(-1)}: service ${tally(outcomes.map(({ service }) => service))}; ` +
            `trainer ${tally(outcomes.map(({ trainer }) => trainer))}; ${struck} faults struck`
        )
        // Faults do strike.
        assert.isAbove(struck, 0)
      }),
    within(120_000)
  )
})
