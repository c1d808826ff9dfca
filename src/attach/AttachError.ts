/**
 * Why a trainer could not be had, or a task has no result.
 *
 * Each reason has fields for a program and a message for a person: what happened, to which trainer, which setting
 * bounds it, and what to do next. All are Schemas, so that they can cross an Rpc or be kept by an Entity.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * A setting, or a combination of settings, that can't work. Nothing was opened or sent.
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
 * The route to the trainer could not be opened: an unsafe folder, a claim that another service holds, a listener that
 * does not start.
 *
 * @category errors
 * @since 0.1.0
 */
export class RouteFailed extends Schema.TaggedError<RouteFailed>()("RouteFailed", {
  attachId: Schema.String,
  /** The reason's own tag, for instance `ClaimHeld` or `RootUnsafe`. */
  kind: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The trainer refused the session. `reason` is its own text.
 *
 * @category errors
 * @since 0.1.0
 */
export class SessionRejected extends Schema.TaggedError<SessionRejected>()("SessionRejected", {
  attachId: Schema.String,
  reason: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * No trainer attached in time (`attachTimeout`, or `readyTimeout` for one task).
 *
 * @category errors
 * @since 0.1.0
 */
export class AttachTimeout extends Schema.TaggedError<AttachTimeout>()("AttachTimeout", {
  attachId: Schema.String,
  setting: Schema.Literals(["attachTimeout", "readyTimeout"]),
  limit: Schema.Duration,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The trainer fell silent for longer than its lease (`heartbeatTimeout`).
 *
 * @category errors
 * @since 0.1.0
 */
export class SessionLost extends Schema.TaggedError<SessionLost>()("SessionLost", {
  attachId: Schema.String,
  sessionId: Schema.String,
  limit: Schema.Duration,
  silent: Schema.Duration,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
  readonly setting: string = "heartbeatTimeout"
}

/**
 * The session ended because a task of it was aborted: a trainer that got ABORT takes no further task.
 *
 * @category errors
 * @since 0.1.0
 */
export class SessionAborted extends Schema.TaggedError<SessionAborted>()("SessionAborted", {
  attachId: Schema.String,
  sessionId: Schema.String,
  reason: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The trainer refused the task: a model it can't take, a session it no longer serves. `reason` is its own text. A
 * trainer that failed `decodeFailureLimit` times in a row to take the task in counts as refusing it.
 *
 * @category errors
 * @since 0.1.0
 */
export class TaskRejected extends Schema.TaggedError<TaskRejected>()("TaskRejected", {
  attachId: Schema.String,
  taskName: Schema.String,
  reason: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * The trainer answered the task with a return code other than `OK`. Its answer counts as the task's result, and the
 * session goes on.
 *
 * @category errors
 * @since 0.1.0
 */
export class TaskFailed extends Schema.TaggedError<TaskFailed>()("TaskFailed", {
  attachId: Schema.String,
  taskName: Schema.String,
  returnCode: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The task did not reach the trainer within `taskWaitTimeout`; `attempts` deliveries were tried.
 *
 * @category errors
 * @since 0.1.0
 */
export class DeliveryTimeout extends Schema.TaggedError<DeliveryTimeout>()("DeliveryTimeout", {
  attachId: Schema.String,
  taskName: Schema.String,
  limit: Schema.Duration,
  attempts: Schema.Int,
  /** Why the last attempt failed. */
  lastReason: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
  readonly setting: string = "taskWaitTimeout"
}

/**
 * The trainer has the task but brought no result within `resultWaitTimeout`. It was told to abort.
 *
 * @category errors
 * @since 0.1.0
 */
export class ResultTimeout extends Schema.TaggedError<ResultTimeout>()("ResultTimeout", {
  attachId: Schema.String,
  taskName: Schema.String,
  limit: Schema.Duration,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
  readonly setting: string = "resultWaitTimeout"
}

/**
 * The backend serves one task at a time, and one is under way.
 *
 * @category errors
 * @since 0.1.0
 */
export class BackendBusy extends Schema.TaggedError<BackendBusy>()("BackendBusy", {
  attachId: Schema.String,
  taskName: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The backend is closing or closed.
 *
 * @category errors
 * @since 0.1.0
 */
export class BackendClosed extends Schema.TaggedError<BackendClosed>()("BackendClosed", {
  attachId: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * The task's model could not be turned into bytes. Nothing was sent.
 *
 * @category errors
 * @since 0.1.0
 */
export class EncodeFailed extends Schema.TaggedError<EncodeFailed>()("EncodeFailed", {
  attachId: Schema.String,
  taskName: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * @category errors
 * @since 0.1.0
 */
export const AttachErrorReason = Schema.Union([
  ConfigInvalid,
  RouteFailed,
  SessionRejected,
  AttachTimeout,
  SessionLost,
  SessionAborted,
  TaskRejected,
  TaskFailed,
  DeliveryTimeout,
  ResultTimeout,
  BackendBusy,
  BackendClosed,
  EncodeFailed
])

/**
 * @category errors
 * @since 0.1.0
 */
export type AttachErrorReason = typeof AttachErrorReason.Type

/**
 * The one error of the attach floor; `reason` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class AttachError extends Schema.TaggedError<AttachError>()("AttachError", {
  reason: AttachErrorReason
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
export const attachError = (reason: AttachErrorReason): AttachError => new AttachError({ reason })
