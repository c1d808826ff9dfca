/**
 * Why results can't be averaged.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * There is nothing to average.
 *
 * @category errors
 * @since 0.1.0
 */
export class NoResults extends Schema.TaggedError<NoResults>()("NoResults", {
  message: Schema.String
}) {}

/**
 * A trainer's result is of another kind than needed: without parameters, DIFF beside FULL, DIFF without a global model.
 *
 * @category errors
 * @since 0.1.0
 */
export class WrongResult extends Schema.TaggedError<WrongResult>()("WrongResult", {
  trainer: Schema.String,
  message: Schema.String
}) {}

/**
 * The parameter `name` of a trainer does not fit the others' (or the global model's): absent, no array, another shape or dtype.
 *
 * @category errors
 * @since 0.1.0
 */
export class WrongParameter extends Schema.TaggedError<WrongParameter>()("WrongParameter", {
  trainer: Schema.String,
  name: Schema.String,
  message: Schema.String
}) {}

/**
 * @category errors
 * @since 0.1.0
 */
export const FedAvgErrorReason = Schema.Union([NoResults, WrongResult, WrongParameter])

/**
 * The one error of aggregation; `reason` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class FedAvgError extends Schema.TaggedError<FedAvgError>()("FedAvgError", {
  reason: FedAvgErrorReason
}) {
  override get message(): string {
    return this.reason.message
  }
}
