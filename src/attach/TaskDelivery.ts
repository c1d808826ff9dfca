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
import { formatDuration } from "../platform/DurationText.ts"
import { type AttachError, attachError, DeliveryTimeout, EncodeFailed, TaskRejected } from "./AttachError.ts"
import * as AttachMetrics from "./AttachMetrics.ts"
import type { SessionContext } from "./AttachSession.ts"
import type { ActiveTask } from "./AttachTask.ts"
import { faultSince, isUp, pause } from "./internal/connection.ts"

type Attempt =
  | { readonly _tag: "Delivered" }
  | { readonly _tag: "Refused"; readonly error: AttachError }
  | { readonly _tag: "Again"; readonly reason: string; readonly undecodable: boolean }

/** After a lost connection, an answer that was sent before, or a sign of work, is waited for so long. */
const lostGrace = Duration.seconds(5)
/** When nothing of a task has moved for so long, a trainer behind a client parent is asked whether it knows it. */
const stallGrace = Duration.seconds(10)

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
  const { reply_topic, reason, task_id, task_state } = body.value
  switch (reply_topic) {
    case ClientApi.ReplyTopic.taskAccepted:
      return task_id === undefined || task_id === task.id ? delivered : again(`it accepted another task, ${task_id}`)
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

/** Asks the trainer whether it has the task; `None` without an answer. */
const ask = Effect.fnUntraced(function* (context: SessionContext, task: ActiveTask, timeout: Duration.Duration) {
  if (Duration.toMillis(timeout) <= 0) return Option.none<boolean>()
  const reply = yield* context.cell
    .request(
      context.trainer.trainerFqcn,
      ClientApi.Topic.taskStatus,
      ClientApi.body({ session_id: task.session.id, task_id: task.id }),
      { timeout, optional: true, secure: context.secure }
    )
    .pipe(Effect.option)
  return Option.flatMap(reply, ({ payload }) => ClientApi.read(ClientApi.Body.taskReply)(payload)).pipe(
    Option.filter((body) => body.reply_topic === ClientApi.ReplyTopic.taskStatus),
    Option.map((body) => isKnown(body.task_state))
  )
})

/** No answer means that it is not known. */
const probe = (context: SessionContext, task: ActiveTask, timeout: Duration.Duration) =>
  Effect.map(
    ask(context, task, timeout),
    Option.getOrElse(() => false)
  )

/**
 * Ends when the task can't be on its way any more: nothing of it moves, and the trainer, whom it would reach before a
 * question that was sent later, does not know it. So it is where a client parent loses its connection to the trainer, of
 * which nobody tells this end; one's own connection that ends is seen (`whenLost`).
 */
const astray = Effect.fnUntraced(function* (context: SessionContext, task: ActiveTask, moved: Effect.Effect<number>) {
  while (true) {
    const before = yield* moved
    yield* Effect.sleep(stallGrace)
    if ((yield* moved) !== before) continue
    const known = yield* ask(context, task, context.config.controlTimeout)
    if (Option.isNone(known) || (yield* moved) !== before) continue
    if (known.value) return delivered
    return again(`the trainer does not know it, and nothing of it moved for ${formatDuration(stallGrace)}`)
  }
})

/**
 * Sends the task, its arrays on offer to the trainer alone. The first time they go inside the message as far as it takes
 * them, which is faster; what has come of arrays that are fetched outlives a connection, so that is how it is tried
 * again. The offer ends with the attempt: the trainer answers once it has fetched everything, so that a confirmation that
 * gets lost changes nothing; and another attempt makes its own.
 */
const send = Effect.fnUntraced(function* (
  context: SessionContext,
  task: ActiveTask,
  attemptId: string,
  timeout: Duration.Duration,
  isFirst: boolean
) {
  const { cell, config, secure, trainer } = context
  const inlineBytes = isFirst ? task.session.inlineBytes : 0
  const offer = yield* cell.offer({ receivers: [trainer.trainerFqcn], inlineBytes })
  let served = 0
  const hasMoved = Effect.map(offer.served, (now) => {
    const isMore = now > served
    served = now
    return isMore
  })
  let taken = 0
  const moved = Effect.map(offer.served, (fetched) => fetched + taken)
  // A connection that ends may take the task with it: unless the trainer is seen at work afterwards, it is sent again.
  const whenLost = Effect.flatMap(offer.served, (before) =>
    Effect.map(Effect.delay(offer.served, lostGrace), (now) => now > before)
  )
  const sent = cell
    .request(
      trainer.trainerFqcn,
      ClientApi.Topic.taskReady,
      ClientApi.body({
        session_id: task.session.id,
        task_id: task.id,
        task_seq: task.seq,
        attempt_id: attemptId,
        task_name: task.name,
        model: task.data
      }),
      {
        timeout,
        secure,
        // A client parent between then tells at once when the trainer is not connected there.
        optional: !context.direct,
        references: offer.references,
        whenLost,
        onTaken: (bytes) => {
          taken = bytes
        },
        ...(config.deliveryProgress ? { extend: hasMoved } : {})
      }
    )
    .pipe(
      Effect.match({
        onSuccess: (reply) => judgeReply(context, task, reply),
        onFailure: (error) => judgeError(context, task, error)
      })
    )
  return yield* context.direct ? sent : Effect.raceFirst(sent, astray(context, task, moved))
}, Effect.scoped)

/** A trainer that took the task in was heard, before it counts as idle again. */
const hear =
  (task: ActiveTask) =>
  ({ _tag }: Attempt) =>
    _tag === "Delivered" ? Effect.map(Clock.monotonicTimeNanos, (now) => task.session.touch(now)) : Effect.void

const tooSlow = (timeout: Duration.Duration) => again(`no answer within ${formatDuration(timeout)}`)

const attempt = Effect.fn("TaskDelivery.attempt")(
  function* (
    context: SessionContext,
    task: ActiveTask,
    attemptId: string,
    timeout: Duration.Duration,
    isFirst: boolean
  ) {
    yield* Effect.annotateCurrentSpan({ task_id: task.id, attempt_id: attemptId })
    const sending = task.session.during(Effect.tap(send(context, task, attemptId, timeout, isFirst), hear(task)))
    // A request's timeout bounds its stages, and bytes that move extend it: without that, the whole of it counts.
    const judged = yield* context.config.deliveryProgress
      ? sending
      : Effect.timeoutOrElse(sending, { duration: timeout, orElse: () => Effect.succeed(tooSlow(timeout)) })
    yield* Effect.annotateCurrentSpan({ outcome: judged._tag })
    yield* AttachMetrics.count(AttachMetrics.deliveryAttempts, { outcome: judged._tag })
    return judged
  },
  Effect.onInterrupt(() => AttachMetrics.count(AttachMetrics.deliveryAttempts, { outcome: "Ended" }))
)

/** What is left of a budget of time that can be given more. */
const makeBudget = Effect.fnUntraced(function* (total: Duration.Duration) {
  let deadline = (yield* Clock.monotonicTimeNanos) + Duration.toNanosUnsafe(total)
  return {
    left: Effect.map(Clock.monotonicTimeNanos, (now) => Duration.nanos(deadline > now ? deadline - now : 0n)),
    extend: (by: bigint) => {
      if (by > 0n) deadline += by
    }
  }
})

/**
 * Delivers a task; ends when the trainer has it. Fails with `TaskRejected` (also when the trainer failed
 * `decodeFailureLimit` times in a row to take it in), `EncodeFailed`, or `DeliveryTimeout` once `taskWaitTimeout` has
 * passed. An outcome of the task, whoever brings it, is to end the delivery.
 *
 * @category combinators
 * @since 0.1.0
 */
export const deliver = Effect.fn("TaskDelivery.deliver")(function* (
  context: SessionContext,
  task: ActiveTask,
  newId: Effect.Effect<string>
) {
  const { controlRetry, controlTimeout, decodeFailureLimit, deliveryProgress, taskWaitTimeout } = context.config
  const budget = yield* makeBudget(taskWaitTimeout)
  const probeNow = Effect.flatMap(budget.left, (left) => probe(context, task, Duration.min(controlTimeout, left)))

  const begun = yield* Clock.monotonicTimeNanos
  let attempts = 0
  let undecodable = 0
  let lastReason = "no attempt was made"
  while (Duration.toMillis(yield* budget.left) > 0) {
    if (attempts > 0 && (yield* probeNow)) return
    const left = yield* budget.left
    // Some time is kept back, to ask for the task's state when the answer to its delivery gets lost.
    const timeout = Duration.subtract(left, Duration.min(controlTimeout, Duration.times(left, 0.5)))
    const wasUp = yield* isUp(context)
    const started = yield* Clock.monotonicTimeNanos
    attempts += 1
    const result = yield* attempt(context, task, yield* newId, timeout, attempts === 1)
    if (result._tag === "Delivered") return
    if (result._tag === "Refused") return yield* result.error
    // What an attempt took beyond its timeout is time in which bytes moved.
    if (deliveryProgress) {
      budget.extend((yield* Clock.monotonicTimeNanos) - started - Duration.toNanosUnsafe(timeout))
    }
    lastReason = result.reason
    undecodable = result.undecodable ? undecodable + 1 : 0
    yield* Effect.logDebug(`task "${task.name}" is not delivered yet, attempt ${attempts}: ${lastReason}`)
    if (yield* probeNow) return
    if (undecodable >= decodeFailureLimit) return yield* undecodableTask(context, task, lastReason)
    yield* pause(context, Duration.min(controlRetry, yield* budget.left), wasUp)
  }
  const why = yield* faultSince(context, begun)
  return yield* attachError(
    new DeliveryTimeout({
      attachId: context.trainer.attachId,
      taskName: task.name,
      limit: taskWaitTimeout,
      attempts,
      lastReason,
      message: `task "${task.name}" did not reach trainer ${context.trainer.trainerFqcn} within taskWaitTimeout (${formatDuration(taskWaitTimeout)}), ${attempts} attempts; the last: ${lastReason}${why}`
    })
  )
})

const undecodableTask = ({ config, trainer }: SessionContext, task: ActiveTask, reason: string) =>
  attachError(
    new TaskRejected({
      attachId: trainer.attachId,
      taskName: task.name,
      reason,
      message: `trainer ${trainer.trainerFqcn} can't take task "${task.name}" in: it failed decodeFailureLimit (${config.decodeFailureLimit}) times in a row; the last: ${reason}`
    })
  )
