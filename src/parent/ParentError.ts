/**
 * Why a client parent could not open.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * A setting can't be used: nothing was opened.
 *
 * @category errors
 * @since 0.1.0
 */
export class ConfigInvalid extends Schema.TaggedError<ConfigInvalid>()("ConfigInvalid", {
  setting: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * A listener could not be opened: its port is in use, its URL or its certificates can't be used.
 *
 * @category errors
 * @since 0.1.0
 */
export class ListenFailed extends Schema.TaggedError<ListenFailed>()("ListenFailed", {
  url: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The URL of the cell above can't be dialed: its scheme, or its certificates, can't be used. A cell that is merely not
 * there yet is no error; it is dialed again.
 *
 * @category errors
 * @since 0.1.0
 */
export class UpstreamInvalid extends Schema.TaggedError<UpstreamInvalid>()("UpstreamInvalid", {
  url: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * @category errors
 * @since 0.1.0
 */
export const ParentErrorReason = Schema.Union([ConfigInvalid, ListenFailed, UpstreamInvalid])

/**
 * The one error of a client parent; `reason` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class ParentError extends Schema.TaggedError<ParentError>()("ParentError", { reason: ParentErrorReason }) {
  override get message(): string {
    return this.reason.message
  }
  /** Whether the same may succeed later. */
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
}
