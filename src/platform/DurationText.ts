/**
 * Durations as people read them.
 *
 * @since 0.1.0
 */
import { Duration } from "effect"

/**
 * A duration in words, to the millisecond: `3s 801ms`; nobody needs nanoseconds. `"no limit"` for an infinite one.
 *
 * @category converting
 * @since 0.1.0
 */
export const formatDuration = (duration: Duration.Duration): string => {
  const millis = Duration.toMillis(duration)
  if (millis === Number.POSITIVE_INFINITY) return "no limit"
  return millis > 0 && millis < 1 ? "less than 1ms" : Duration.format(Duration.millis(Math.round(millis)))
}
