/** Flags that several commands share the form of. */
import { type Duration, Schema } from "effect"
import { Flag } from "effect/cli"
import { DurationInput } from "../../clientapi/DurationInput.ts"

/** A duration with its unit: `30s`, `500ms`, `10m`, `30 seconds`. */
export const duration = (name: string, description: string): Flag.Flag<Duration.Duration> =>
  Flag.String(name).pipe(Flag.withSchema(DurationText), Flag.withMetavar("duration"), Flag.withDescription(description))

const DurationText = Schema.String.pipe(Schema.decodeTo(DurationInput))
