/** A clock that runs faster than the real one, so that backoff and leases pass soon. For tests with real sockets. */
import { Clock, Duration, Effect } from "effect"

/** Every second of it takes `1 / factor` of a real one. */
const makeFastClock = (real: Clock.Clock, factor: number): Clock.Clock => {
  const start = real.currentTimeMillisUnsafe()
  const wall = real.currentTimeNanosUnsafe()
  const monotonic = real.monotonicTimeNanosUnsafe()
  const faster = (now: bigint, since: bigint): bigint => since + (now - since) * BigInt(factor)
  const currentTimeMillisUnsafe = () => start + (real.currentTimeMillisUnsafe() - start) * factor
  const currentTimeNanosUnsafe = () => faster(real.currentTimeNanosUnsafe(), wall)
  const monotonicTimeNanosUnsafe = () => faster(real.monotonicTimeNanosUnsafe(), monotonic)
  return {
    currentTimeMillisUnsafe,
    currentTimeNanosUnsafe,
    monotonicTimeNanosUnsafe,
    currentTimeMillis: Effect.sync(currentTimeMillisUnsafe),
    currentTimeNanos: Effect.sync(currentTimeNanosUnsafe),
    monotonicTimeNanos: Effect.sync(monotonicTimeNanosUnsafe),
    sleep: (duration) => real.sleep(Duration.divideUnsafe(duration, factor))
  }
}

/** Runs an effect so many times faster, as far as it waits for time. */
export const faster =
  (factor: number) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(Clock.Clock, (real) => Effect.provideService(self, Clock.Clock, makeFastClock(real, factor)))
