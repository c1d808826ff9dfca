import { Clock, Duration, Effect } from "effect"

/** Milliseconds of the monotonic clock. */
const nowMillis: Effect.Effect<number> = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6)

/**
 * An effect that must make progress: fails when `timeout` passes without any, unless `extend` then allows another
 * `timeout`. `lastProgress` is in milliseconds of the monotonic clock; the time of the start counts as progress.
 */
export const within = <A, E, E2>(
  effect: Effect.Effect<A, E>,
  options: {
    readonly timeout: Duration.Duration
    readonly extend: Effect.Effect<boolean> | undefined
    readonly lastProgress?: () => number
    readonly onTimeout: (millis: number) => E2
  }
): Effect.Effect<A, E | E2> => {
  const timeout = Duration.toMillis(options.timeout)
  const watch = Effect.gen(function* () {
    let start = yield* nowMillis
    while (true) {
      const now = yield* nowMillis
      const due = Math.max(start, options.lastProgress?.() ?? 0) + timeout
      if (now < due) {
        yield* Effect.sleep(Duration.millis(due - now))
      } else if (options.extend !== undefined && (yield* options.extend)) {
        start = now
      } else {
        return yield* Effect.fail(options.onTimeout(timeout))
      }
    }
  })
  return Effect.raceFirst(effect, watch)
}
