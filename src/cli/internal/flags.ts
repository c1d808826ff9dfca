/** Flags that several commands share the form of. */
import { type Duration, Effect, Schema } from "effect"
import { CliError, Flag } from "effect/cli"
import { DurationInput } from "../../clientapi/DurationInput.ts"

const expected = 'a duration with its unit, such as 30s, 500ms, 10m or "30 seconds"'
const decode = Schema.decodeUnknownEffect(DurationInput)

/** A duration with its unit: `30s`, `500ms`, `10m`, `30 seconds`. */
export const duration = (name: string, description: string): Flag.Flag<Duration.Duration> =>
  Flag.String(name).pipe(
    Flag.mapEffect((value) =>
      Effect.mapError(decode(value), () => new CliError.InvalidValue({ option: name, value, expected, kind: "flag" }))
    ),
    Flag.withMetavar("duration"),
    Flag.withDescription(description)
  )
