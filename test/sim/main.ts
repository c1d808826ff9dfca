/**
 * Runs seeds of the simulation: `node test/sim/main.ts [--seeds 1..1000] [--shard 1/4] [--trace SEED]`. A failing seed is
 * printed with what it broke; `--trace` shows what happened in one. Ends with 1 when a seed failed.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Data, Effect } from "effect"
import { TestClock } from "effect/testing"
import { scenarioOf } from "./scenario.ts"
import { simulate } from "./world.ts"

class SeedsFailed extends Data.TaggedError("SeedsFailed")<{ readonly message: string }> {}

const option = (name: string): string | undefined => {
  const index = process.argv.indexOf(`--${name}`)
  return index < 0 ? undefined : process.argv[index + 1]
}

const pair = (text: string, separator: string): readonly [number, number] => {
  const [first = Number.NaN, second = Number.NaN] = text.split(separator).map(Number)
  return [first, second]
}

const run = (seed: number) => Effect.provide(simulate(scenarioOf(seed)), TestClock.layer(), { local: true })

const traceOf = Effect.fnUntraced(function* (seed: number) {
  const { counts, trace, violations } = yield* run(seed)
  yield* Console.log(JSON.stringify(scenarioOf(seed), undefined, 2))
  for (const line of trace) yield* Console.log(line)
  yield* Console.log(JSON.stringify(counts))
  for (const violation of violations) yield* Console.log(`BROKEN: ${violation}`)
})

const all = Effect.fnUntraced(function* (range: readonly [number, number], shard: readonly [number, number]) {
  const [from, to] = range
  const [part, parts] = shard
  const totals = { seeds: 0, tasks: 0, results: 0, lives: 0, frames: 0 }
  const failed: Array<number> = []
  const each = Effect.fnUntraced(function* (seed: number) {
    const { counts, violations } = yield* run(seed)
    totals.seeds += 1
    totals.tasks += counts.tasks
    totals.results += counts.results
    totals.lives += counts.lives
    totals.frames += counts.frames
    if (violations.length > 0) {
      failed.push(seed)
      yield* Console.error(`seed ${seed}: ${violations.join("; ")}`)
    }
  })
  const seeds = Array.from({ length: to - from + 1 }, (_, index) => from + index)
  yield* Effect.forEach(
    seeds.filter((seed) => seed % parts === part % parts),
    each,
    { discard: true }
  ).pipe(
    // Also when it is stopped early, by SIGINT or SIGTERM.
    Effect.ensuring(Effect.suspend(() => Console.log(JSON.stringify(totals))))
  )
  if (failed.length > 0) {
    return yield* new SeedsFailed({
      message: `${failed.length} of ${totals.seeds} seeds failed: ${failed.join(" ")}; look at one by --trace`
    })
  }
})

const main: Effect.Effect<void, SeedsFailed> = Effect.suspend(() => {
  const traced = option("trace")
  return traced === undefined
    ? all(pair(option("seeds") ?? "1..1000", ".."), pair(option("shard") ?? "1/1", "/"))
    : traceOf(Number(traced))
})

main.pipe(
  Effect.tapError(({ message }) => Console.error(message)),
  NodeRuntime.runMain({ disableErrorReporting: true })
)
