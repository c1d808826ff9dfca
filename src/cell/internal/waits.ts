import { Clock, Duration, Effect } from "effect"

/** Milliseconds of the monotonic clock. */
const nowMillis: Effect.Effect<number> = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6)

interface Patience<E> {
  readonly timeout: Duration.Duration
  readonly extend: Effect.Effect<boolean> | undefined
  readonly lastProgress?: () => number
  readonly onTimeout: (millis: number) => E
}

/**
 * Fails when `timeout` passes without progress, unless `extend` then allows another `timeout`. `lastProgress` is in
 * milliseconds of the monotonic clock; the time of the start counts as progress.
 */
export const stalled = Effect.fnUntraced(function* <E>(options: Patience<E>): Effect.fn.Return<never, E> {
  const timeout = Duration.toMillis(options.timeout)
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

/** An effect that must make progress; it fails as `stalled`. */
export const within = <A, E, E2>(effect: Effect.Effect<A, E>, options: Patience<E2>): Effect.Effect<A, E | E2> =>
  Effect.raceFirst(effect, stalled(options))
