/**
 * Why a trainer could not attach, or could not go on.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * The service was not found, or can't be used: an unsafe folder, a wrong URL.
 *
 * @category errors
 * @since 0.1.0
 */
export class RouteFailed extends Schema.TaggedError<RouteFailed>()("RouteFailed", {
  /** The reason's own tag, for instance `RootUnsafe`. */
  kind: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * No service opened a session within the profile's `job_wait_timeout`.
 *
 * @category errors
 * @since 0.1.0
 */
export class NoSession extends Schema.TaggedError<NoSession>()("NoSession", {
  limit: Schema.Duration,
  /** Whether the wait was for the service's endpoint, or for its SESSION_OPEN. */
  stage: Schema.Literals(["rendezvous", "session"]),
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The session is over, not by an orderly SHUTDOWN: the service aborted it, or fell silent for longer than the lease.
 *
 * @category errors
 * @since 0.1.0
 */
export class SessionEnded extends Schema.TaggedError<SessionEnded>()("SessionEnded", {
  by: Schema.Literals(["abort", "lease", "shutdown", "close"]),
  reason: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * There is no task to answer: `send` without `receive`, or a second `send`.
 *
 * @category errors
 * @since 0.1.0
 */
export class NoTask extends Schema.TaggedError<NoTask>()("NoTask", { message: Schema.String }) {
  readonly isRetryable: boolean = false
}

/**
 * The model that was to be sent can't be: neither parameters nor metrics, arrays that don't fit the task's.
 *
 * @category errors
 * @since 0.1.0
 */
export class InvalidModel extends Schema.TaggedError<InvalidModel>()("InvalidModel", { message: Schema.String }) {
  readonly isRetryable: boolean = false
}

/**
 * The service refused the result. `reason` is its own text.
 *
 * @category errors
 * @since 0.1.0
 */
export class ResultRejected extends Schema.TaggedError<ResultRejected>()("ResultRejected", {
  taskName: Schema.String,
  reason: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * The result was sent `attempts` times and it could not be found out whether it was accepted.
 *
 * @category errors
 * @since 0.1.0
 */
export class ResultUncertain extends Schema.TaggedError<ResultUncertain>()("ResultUncertain", {
  taskName: Schema.String,
  attempts: Schema.Int,
  lastReason: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The service accepted the result, but did not confirm that it has fetched all its arrays. There is nothing to send
 * again: the task is over. `reason` is that of the transfer's outcome.
 *
 * @category errors
 * @since 0.1.0
 */
export class ResultNotFetched extends Schema.TaggedError<ResultNotFetched>()("ResultNotFetched", {
  taskName: Schema.String,
  reason: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * @category errors
 * @since 0.1.0
 */
export const TrainerErrorReason = Schema.Union([
  RouteFailed,
  NoSession,
  SessionEnded,
  NoTask,
  InvalidModel,
  ResultRejected,
  ResultUncertain,
  ResultNotFetched
])

/**
 * @category errors
 * @since 0.1.0
 */
export type TrainerErrorReason = typeof TrainerErrorReason.Type

/**
 * The one error of the trainer floor; `reason` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class TrainerError extends Schema.TaggedError<TrainerError>()("TrainerError", {
  reason: TrainerErrorReason
}) {
  override get message(): string {
    return this.reason.message
  }
  /** Whether the same step may succeed later. */
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
}

/**
 * Wraps a reason.
 *
 * @category constructors
 * @since 0.1.0
 */
export const trainerError = (reason: TrainerErrorReason): TrainerError => new TrainerError({ reason })
