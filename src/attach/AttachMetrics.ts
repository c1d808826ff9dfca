/**
 * What a fleet of backends does, in numbers. All backends of a program share these metrics; labels are few, so that
 * their number does not grow with sessions or tasks.
 *
 * The cells below them count, too: `fl_attach_transfer_bytes` the bytes of arrays by `direction` and `state` (see
 * `DownloadService.transferBytes`); `fl_attach_cell_refused` what a cell's guard refused, before anything of it was
 * decoded, by `cell`, `origin`, `channel` and `topic` as claimed (at most 256 combinations, the rest as `other`);
 * `fl_attach_cell_refusals` the same and all else that a cell refused for its safety, by `cell` and `reason`.
 *
 * @since 0.1.0
 */
import { Duration, Effect, Metric } from "effect"
import type { AttachError } from "./AttachError.ts"
import type { SessionState } from "./SessionState.ts"

/**
 * Sessions by `state` (`Opening`, `Ready`, `Silent`, `Failed`); a closed backend counts no more.
 *
 * @category metrics
 * @since 0.1.0
 */
export const sessions = Metric.gauge("fl_attach_sessions", { description: "Sessions with trainers, by state" })

/**
 * Seconds from a task's start at a ready session to its end, by `outcome`: `ok` or the tag of the error's reason.
 *
 * @category metrics
 * @since 0.1.0
 */
export const taskSeconds = Metric.histogram("fl_attach_task_seconds", {
  description: "Seconds that tasks took, by outcome",
  boundaries: Metric.exponentialBoundaries({ start: 0.1, factor: 4, count: 10 })
})

/**
 * Deliveries tried, by `outcome`: `Delivered`, `Refused`, `Again`, or `Ended` when the task was over meanwhile.
 *
 * @category metrics
 * @since 0.1.0
 */
export const deliveryAttempts = Metric.counter("fl_attach_delivery_attempts", {
  description: "TASK_READY messages sent, by outcome",
  incremental: true
})

/**
 * Heartbeats that were due and did not come, counted when the trainer is heard again or lost.
 *
 * @category metrics
 * @since 0.1.0
 */
export const heartbeatsMissed = Metric.counter("fl_attach_heartbeats_missed", {
  description: "Heartbeats of trainers that did not come",
  incremental: true
})

/**
 * Log records that no subscriber had room for.
 *
 * @category metrics
 * @since 0.1.0
 */
export const analyticsDropped = Metric.counter("fl_attach_analytics_dropped", {
  description: "Log records of trainers that were dropped, since subscribers were slow",
  incremental: true
})

/**
 * Messages refused since their sender had no say, by `reason`: `no_session`, `origin`, `session`. What the cell's guard
 * refused before that is counted there: see the head of this module.
 *
 * @category metrics
 * @since 0.1.0
 */
export const refusals = Metric.counter("fl_attach_refusals", {
  description: "Messages to a backend that were refused, by reason",
  incremental: true
})

/**
 * Sessions and tasks that failed, by `reason` (the tag) and, where a setting bounds it, `setting` and `limit`.
 *
 * @category metrics
 * @since 0.1.0
 */
export const failures = Metric.counter("fl_attach_failures", {
  description: "Sessions and tasks that failed, by reason and the setting behind it",
  incremental: true
})

/**
 * What names a failure in metrics, spans and logs: the reason's tag, and the setting and its value where one bounds it.
 *
 * @category combinators
 * @since 0.1.0
 */
export const failureAttributes = ({ reason }: AttachError): { readonly [name: string]: string } => ({
  reason: reason._tag,
  ...("setting" in reason ? { setting: reason.setting } : {}),
  ...("limit" in reason ? { limit: Duration.format(reason.limit) } : {})
})

/** Counts one more of a metric's series. */
export const count = (
  metric: Metric.Counter<number>,
  attributes: { readonly [name: string]: string } = {},
  by = 1
): Effect.Effect<void> => Metric.update(Metric.withAttributes(metric, attributes), by)

/** A failure, in the metric and in the current span. */
export const failed = (error: AttachError): Effect.Effect<void> => {
  const attributes = failureAttributes(error)
  return Effect.andThen(count(failures, attributes), Effect.annotateCurrentSpan(attributes))
}

/** A session moved from one state to another. */
export const moved = (from: SessionState["_tag"] | undefined, to: SessionState["_tag"]): Effect.Effect<void> => {
  const add = (state: SessionState["_tag"], by: number) => Metric.modify(Metric.withAttributes(sessions, { state }), by)
  const leave = from === undefined || from === "Closed" ? Effect.void : add(from, -1)
  return to === "Closed" ? leave : Effect.andThen(leave, add(to, 1))
}

/** A task is over after so long. */
export const taskOver = (outcome: string, duration: Duration.Duration): Effect.Effect<void> =>
  Metric.update(Metric.withAttributes(taskSeconds, { outcome }), Duration.toSeconds(duration))
