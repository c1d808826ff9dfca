/**
 * A setting or a field that can't be used.
 *
 * @since 0.1.0
 */
import { Result, Schema } from "effect"

const longest = 120

/**
 * A value as people read it in a message: JSON, shortened.
 *
 * @category combinators
 * @since 0.1.0
 */
export const show = (value: unknown): string => {
  // A cycle, a bigint or lists nested by the thousand have no JSON, and a peer may send the last.
  const text = Result.getOrElse(
    Result.try(() => JSON.stringify(value) ?? String(value)),
    () => `a value of type ${typeof value}`
  )
  return text.length > longest ? `${text.slice(0, longest)}...` : text
}

/**
 * A name, a URL or another setting that doesn't keep to the rules. `field` is its name on the wire, `value` what came,
 * as JSON and shortened; the message says what to write instead.
 *
 * @category errors
 * @since 0.1.0
 */
export class FieldError extends Schema.TaggedError<FieldError>()("FieldError", {
  field: Schema.String,
  value: Schema.String,
  message: Schema.String
}) {}

/**
 * The failure of one field: "`field` is `value`: `rule`", or "`field` is missing: `rule`".
 *
 * @category constructors
 * @since 0.1.0
 */
export const refuse = (field: string, value: unknown, rule: string): Result.Result<never, FieldError> => {
  const shown = show(value)
  const found = value === undefined ? "is missing" : `is ${shown}`
  return Result.fail(new FieldError({ field, value: shown, message: `${field} ${found}: ${rule}` }))
}
