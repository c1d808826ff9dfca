/**
 * Brings one task to the trainer, once, however often it takes.
 *
 * A delivery counts as done by the strongest evidence there is: an accepted result, TASK_ACCEPTED, or a task state
 * other than UNKNOWN. The trainer's ledger makes repeats harmless. Source: docs/wire/attach.md, section 6.3.
 *
 * @since 0.1.0
 */
import { Clock, Duration, Effect, Option, Predicate } from "effect"
import type { CellReply } from "../cell/Cell.ts"
import type { CellError } from "../cell/CellError.ts"
import * as ClientApi from "../clientapi/ClientApi.ts"
import { type AttachError, attachError, DeliveryTimeout, EncodeFailed, TaskRejected } from "./AttachError.ts"
import type { SessionContext } from "./AttachSession.ts"
import type { ActiveTask } from "./AttachTask.ts"

type Attempt =
  | { readonly _tag: "Delivered" }
  | { readonly _tag: "Refused"; readonly error: AttachError }
  | { readonly _tag: "Again"; readonly reason: string; readonly undecodable: boolean }

const delivered: Attempt = { _tag: "Delivered" }
const again = (reason: string, undecodable = false): Attempt => ({ _tag: "Again", reason, undecodable })

const refused = (context: SessionContext, task: ActiveTask, reason: string): Attempt => ({
  _tag: "Refused",
  error: attachError(
    new TaskRejected({
      attachId: context.trainer.attachId,
      taskName: task.name,
      reason,
      message: `trainer ${context.trainer.trainerFqcn} refused task "${task.name}": ${reason}`
    })
  )
})

const judgeReply = (context: SessionContext, task: ActiveTask, reply: CellReply): Attempt => {
  if (reply.returnCode !== "ok") return again(`return code ${reply.returnCode}: ${reply.error ?? "no text"}`)
  const body = ClientApi.read(ClientApi.Body.taskReply)(reply.payload)
  if (Option.isNone(body)) return refused(context, task, "its answer is no task reply")
  const { reply_topic, reason, task_state } = body.value
  switch (reply_topic) {
    case ClientApi.ReplyTopic.taskAccepted:
      return delivered
    case ClientApi.ReplyTopic.taskStatus:
      return isKnown(task_state) ? delivered : again("the trainer is still preparing it")
    case ClientApi.ReplyTopic.taskFailed:
      return refused(context, task, reason ?? "no reason given")
    default:
      return refused(context, task, `unknown answer ${reply_topic}`)
  }
}

const judgeError = (context: SessionContext, task: ActiveTask, error: CellError): Attempt => {
  if (error.reason._tag !== "EncodeFailed") {
    return again(error.message, error.reason._tag === "PeerFailed" && error.message.includes("blob_cb threw"))
  }
  return {
    _tag: "Refused",
    error: attachError(
      new EncodeFailed({
        attachId: context.trainer.attachId,
        taskName: task.name,
        message: `task "${task.name}" can't be encoded: ${error.message}`
      })
    )
  }
}

const isKnown = (state: string | undefined): boolean =>
  Predicate.isNotUndefined(state) && !["UNKNOWN", ""].includes(state)

/** Asks the trainer whether it has the task; no answer means that it is not known. */
const probe = Effect.fnUntraced(function* (context: SessionContext, task: ActiveTask, timeout: Duration.Duration) {
  const reply = yield* context.cell
    .request(
      context.trainer.trainerFqcn,
      ClientApi.Topic.taskStatus,
      ClientApi.body({ session_id: task.session.id, task_id: task.id }),
      { timeout, optional: true, secure: context.secure }
    )
    .pipe(Effect.option)
  return Option.exists(
    Option.flatMap(reply, ({ payload }) => ClientApi.read(ClientApi.Body.taskReply)(payload)),
    (body) => body.reply_topic === ClientApi.ReplyTopic.taskStatus && isKnown(body.task_state)
  )
})

const attempt = Effect.fn("TaskDelivery.attempt")(function* (
  context: SessionContext,
  task: ActiveTask,
  attemptId: string,
  timeout: Duration.Duration
) {
  return yield* context.cell
    .request(
      context.trainer.trainerFqcn,
      ClientApi.Topic.taskReady,
      ClientApi.body({
        session_id: task.session.id,
        task_id: task.id,
        task_seq: task.seq,
        attempt_id: attemptId,
        task_name: task.name,
        model: task.data
      }),
      { timeout, secure: context.secure }
    )
    .pipe(
      Effect.match({
        onSuccess: (reply) => judgeReply(context, task, reply),
        onFailure: (error) => judgeError(context, task, error)
      })
    )
})

/**
 * Delivers a task; ends when the trainer has it. Fails with `TaskRejected`, `EncodeFailed`, or `DeliveryTimeout` once
 * `taskWaitTimeout` has passed or the trainer failed `decodeFailureLimit` times to decode it. An outcome of the task,
 * whoever brings it, ends the delivery.
 *
 * @category combinators
 * @since 0.1.0
 */
export const deliver = Effect.fn("TaskDelivery.deliver")(function* (
  context: SessionContext,
  task: ActiveTask,
  newId: Effect.Effect<string>
) {
  const { controlRetry, controlTimeout, decodeFailureLimit, taskWaitTimeout } = context.config
  const deadline = (yield* Clock.monotonicTimeNanos) + Duration.toNanosUnsafe(taskWaitTimeout)
  const remaining = Effect.map(Clock.monotonicTimeNanos, (now) => Duration.nanos(deadline > now ? deadline - now : 0n))
  const probeNow = Effect.flatMap(remaining, (left) => probe(context, task, Duration.min(controlTimeout, left)))

  let attempts = 0
  let undecodable = 0
  let lastReason = "no attempt was made"
  while (undecodable < decodeFailureLimit && Duration.toMillis(yield* remaining) > 0) {
    if (attempts > 0 && (yield* probeNow)) return
    const left = yield* remaining
    // Some time is kept back, to ask for the task's state when the answer to its delivery gets lost.
    const reserve = Duration.min(controlTimeout, Duration.times(left, 0.5))
    attempts += 1
    const result = yield* attempt(context, task, yield* newId, Duration.subtract(left, reserve))
    if (result._tag === "Delivered") return
    if (result._tag === "Refused") return yield* result.error
    lastReason = result.reason
    undecodable = result.undecodable ? undecodable + 1 : 0
    yield* Effect.logDebug(`task "${task.name}" is not delivered yet, attempt ${attempts}: ${lastReason}`)
    if (yield* probeNow) return
    yield* Effect.sleep(Duration.min(controlRetry, yield* remaining))
  }
  const bound =
    undecodable >= decodeFailureLimit
      ? `decodeFailureLimit (${decodeFailureLimit})`
      : `taskWaitTimeout (${Duration.format(taskWaitTimeout)})`
  return yield* attachError(
    new DeliveryTimeout({
      attachId: context.trainer.attachId,
      taskName: task.name,
      limit: taskWaitTimeout,
      attempts,
      lastReason,
      message: `task "${task.name}" did not reach trainer ${context.trainer.trainerFqcn} within ${bound}, ${attempts} attempts; the last: ${lastReason}`
    })
  )
})
