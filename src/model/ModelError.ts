/**
 * Why a value is no model, record or Shareable of one.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * A Shareable whose content is no DXO: another content type, or an entry that is missing or has another form
 * (docs/wire/fobs.md, section 5.2).
 *
 * @category errors
 * @since 0.1.0
 */
export class NotADxo extends Schema.TaggedError<NotADxo>()("NotADxo", {
  message: Schema.String
}) {}

/**
 * A model that breaks a rule of its fields; `field` is the name on the wire.
 *
 * @category errors
 * @since 0.1.0
 */
export class InvalidModel extends Schema.TaggedError<InvalidModel>()("InvalidModel", {
  field: Schema.String,
  message: Schema.String
}) {}

/**
 * Two models that can't be compared: the parameter `name` differs in shape or dtype, or can't be subtracted.
 *
 * @category errors
 * @since 0.1.0
 */
export class ParamsMismatch extends Schema.TaggedError<ParamsMismatch>()("ParamsMismatch", {
  name: Schema.String,
  message: Schema.String
}) {}

/**
 * An analytics record that the reference would drop (docs/wire/attach.md, section 8); `field` is the name on the wire.
 *
 * @category errors
 * @since 0.1.0
 */
export class InvalidAnalytics extends Schema.TaggedError<InvalidAnalytics>()("InvalidAnalytics", {
  field: Schema.String,
  message: Schema.String
}) {}

/**
 * @category errors
 * @since 0.1.0
 */
export const ModelErrorReason = Schema.Union([NotADxo, InvalidModel, ParamsMismatch, InvalidAnalytics])

/**
 * The one error of the model floor; `reason` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class ModelError extends Schema.TaggedError<ModelError>()("ModelError", {
  reason: ModelErrorReason
}) {
  override get message(): string {
    return this.reason.message
  }
}
