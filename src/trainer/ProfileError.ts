/**
 * Why a trainer profile can't be used.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * A profile breaks a rule of docs/wire/attach.md, section 11, in `field`; or its file can't be read, and then `field` is
 * `file`. `value` is what the field holds, as JSON and shortened; the message says what to write instead.
 *
 * @category errors
 * @since 0.1.0
 */
export class ProfileError extends Schema.TaggedError<ProfileError>()("ProfileError", {
  field: Schema.String,
  value: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}
