/**
 * Why a value has no FOBS bytes, or bytes no value.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * The bytes are no FOBS message (docs/wire/fobs.md, sections 2 and 3): cut short, a wrong marker, an illegal length.
 * `offset` is the place in the message, in bytes, where it is known.
 *
 * @category errors
 * @since 0.1.0
 */
export class Malformed extends Schema.TaggedError<Malformed>()("Malformed", {
  offset: Schema.UndefinedOr(Schema.Int),
  message: Schema.String
}) {}

/**
 * A typed object of a class that is not in the table (docs/wire/fobs.md, section 3.3). Nothing was instantiated.
 *
 * @category errors
 * @since 0.1.0
 */
export class UnknownType extends Schema.TaggedError<UnknownType>()("UnknownType", {
  typeName: Schema.String,
  message: Schema.String
}) {}

/**
 * A typed object whose data its class refuses.
 *
 * @category errors
 * @since 0.1.0
 */
export class InvalidValue extends Schema.TaggedError<InvalidValue>()("InvalidValue", {
  typeName: Schema.String,
  message: Schema.String
}) {}

/**
 * A value that FOBS has no form for: a function, a lone surrogate, an integer out of range, too deep a nesting.
 *
 * @category errors
 * @since 0.1.0
 */
export class NotEncodable extends Schema.TaggedError<NotEncodable>()("NotEncodable", {
  message: Schema.String
}) {}

/**
 * A reference to an array that was not brought along, or a datum that is not there.
 *
 * @category errors
 * @since 0.1.0
 */
export class MissingReference extends Schema.TaggedError<MissingReference>()("MissingReference", {
  id: Schema.String,
  message: Schema.String
}) {}

/**
 * @category errors
 * @since 0.1.0
 */
export const FobsErrorReason = Schema.Union([Malformed, UnknownType, InvalidValue, NotEncodable, MissingReference])

/**
 * The one error of the fobs floor; `reason` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class FobsError extends Schema.TaggedError<FobsError>()("FobsError", {
  reason: FobsErrorReason
}) {
  override get message(): string {
    return this.reason.message
  }
}
