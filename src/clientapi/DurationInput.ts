/**
 * Durations as people write them in options, flags and configuration.
 *
 * @since 0.1.0
 */
import { Duration, Effect, Option, Schema, SchemaIssue, SchemaTransformation } from "effect"

const units: ReadonlyMap<string, number> = new Map([
  ["ms", 1],
  ["milli", 1],
  ["millis", 1],
  ["s", 1000],
  ["sec", 1000],
  ["second", 1000],
  ["seconds", 1000],
  ["m", 60_000],
  ["min", 60_000],
  ["minute", 60_000],
  ["minutes", 60_000],
  ["h", 3_600_000],
  ["hour", 3_600_000],
  ["hours", 3_600_000]
])

const expected = 'a duration such as "30 seconds", "30s", "500ms" or "10m" (a number needs its unit)'

const parse = (text: string): Option.Option<Duration.Duration> => {
  const match = /^(\d+(?:\.\d+)?)\s*([a-z]+)$/.exec(text.trim())
  const unit = units.get(match?.[2] ?? "")
  return unit === undefined ? Option.none() : Option.some(Duration.millis(Number(match?.[1]) * unit))
}

const DurationFromText = Schema.String.annotate({ expected }).pipe(
  Schema.decodeTo(
    Schema.Duration,
    SchemaTransformation.transformEffect({
      decode: (text: string, options) =>
        Option.match(parse(text), {
          onNone: () => Effect.fail(new SchemaIssue.InvalidValue({ expected }, text, options)),
          onSome: Effect.succeed
        }),
      encode: (duration: Duration.Duration) => Effect.succeed(`${Duration.toMillis(duration)}ms`)
    })
  )
)

/**
 * A `Duration`, or its text: `"30 seconds"`, `"30s"`, `"500ms"`, `"10m"`. A bare number is refused, since it would
 * mean milliseconds to Effect and seconds to NVFlare.
 *
 * @category models
 * @since 0.1.0
 */
export const DurationInput = Schema.Union([Schema.Duration.annotate({ expected }), DurationFromText])

/**
 * @category models
 * @since 0.1.0
 */
export type DurationInput = Duration.Duration | string
