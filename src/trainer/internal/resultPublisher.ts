/**
 * Brings one result to the CJ, accepted exactly once, though answers get lost.
 *
 * Source: docs/wire/attach.md, sections 3.4 to 3.6 and 7.5.
 */
import { Deferred, Duration, Effect, Latch, Option, Schedule, Stream } from "effect"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import type { Shareable } from "../../model/Shareable.ts"
import { ResultRejected, ResultUncertain, type TrainerError, trainerError } from "../TrainerError.ts"
import type { Binding } from "./binding.ts"
import type { TrainerState, TrainerTask } from "./state.ts"

const readyTimeout = Duration.seconds(30)
const statusTimeout = Duration.seconds(2)
const settleTries = 3
const attemptLimit = 2

/**
 * A result on its way: its id stays the same however often it is sent.
 */
export interface Publication {
  readonly task: TrainerTask
  readonly resultId: string
  readonly result: Shareable
}

type Verdict =
  | { readonly _tag: "Accepted"; readonly attemptId: string }
  | { readonly _tag: "Rejected"; readonly reason: string }
  | { readonly _tag: "Uncertain"; readonly reason: string }

const rejected = (reason: string): Verdict => ({ _tag: "Rejected", reason })
const uncertain = (reason: string): Verdict => ({ _tag: "Uncertain", reason })

/** `attempts` are the ids this publication was sent under: an acceptance must name one of them. */
const accepted = (attemptId: string | null | undefined, attempts: ReadonlyArray<string>): Verdict =>
  attemptId !== null && attemptId !== undefined && attempts.includes(attemptId)
    ? { _tag: "Accepted", attemptId }
    : rejected(`it names an attempt that is not ours: ${attemptId}`)

const ask = Effect.fn("ResultPublisher.send")(function* (
  state: TrainerState,
  binding: Binding,
  publication: Publication,
  attempts: ReadonlyArray<string>
) {
  const payload = ClientApi.body({
    session_id: binding.sessionId,
    task_id: publication.task.id,
    result_id: publication.resultId,
    attempt_id: attempts.at(-1),
    result: publication.result
  })
  return yield* state.cell
    .request(binding.cjFqcn, ClientApi.Topic.resultReady, payload, { timeout: readyTimeout, secure: state.secure })
    .pipe(
      Effect.match({
        onFailure: (error): Verdict =>
          error.reason._tag === "EncodeFailed" ? rejected(error.message) : uncertain(error.message),
        onSuccess: (reply): Verdict => {
          if (reply.returnCode !== "ok")
            return uncertain(`return code ${reply.returnCode}: ${reply.error ?? "no text"}`)
          const body = ClientApi.read(ClientApi.Body.resultReply)(reply.payload)
          if (Option.isNone(body)) return rejected("its answer is no result reply")
          const { accepted_attempt_id, reason, reply_topic, result_id } = body.value
          if (reply_topic === ClientApi.ReplyTopic.resultRejected) return rejected(reason ?? "no reason given")
          if (reply_topic !== ClientApi.ReplyTopic.resultAccepted || result_id !== publication.resultId) {
            return rejected(`unknown answer ${reply_topic} for result ${result_id}`)
          }
          return accepted(accepted_attempt_id, attempts)
        }
      })
    )
})

const status = Effect.fn("ResultPublisher.status")(function* (
  state: TrainerState,
  binding: Binding,
  publication: Publication,
  attempts: ReadonlyArray<string>
) {
  const payload = ClientApi.body({
    session_id: binding.sessionId,
    task_id: publication.task.id,
    result_id: publication.resultId
  })
  const reply = yield* state.cell
    .request(binding.cjFqcn, ClientApi.Topic.resultStatus, payload, {
      timeout: statusTimeout,
      optional: true,
      secure: state.secure
    })
    .pipe(Effect.option)
  const body = Option.flatMap(reply, ({ payload }) => ClientApi.read(ClientApi.Body.resultReply)(payload))
  const state_ = Option.getOrUndefined(Option.map(body, ({ result_state }) => result_state))
  if (state_ === "REJECTED") return rejected("its status is REJECTED")
  if (state_ !== "ACCEPTED") return uncertain("its status is unknown")
  return accepted(Option.getOrThrow(body).accepted_attempt_id, attempts)
})

/**
 * Sends the result until the CJ has accepted it: twice at most, asking for its status after an answer that got lost.
 * Fails with `ResultRejected`, `ResultUncertain`, or the session's end.
 */
export const publish = Effect.fn("ResultPublisher.publish")(function* (
  state: TrainerState,
  binding: Binding,
  publication: Publication,
  newId: Effect.Effect<string>
): Effect.fn.Return<void, TrainerError> {
  const attempts: Array<string> = []
  let verdict = uncertain("not sent")
  while (verdict._tag === "Uncertain" && attempts.length < attemptLimit) {
    attempts.push(yield* newId)
    verdict = yield* Effect.raceFirst(ask(state, binding, publication, attempts), Deferred.await(state.ended))
    if (verdict._tag === "Uncertain") {
      const { reason } = verdict
      const known = yield* Effect.raceFirst(status(state, binding, publication, attempts), Deferred.await(state.ended))
      verdict = known._tag === "Uncertain" ? uncertain(reason) : known
    }
  }
  const { name } = publication.task
  if (verdict._tag === "Accepted") return
  if (verdict._tag === "Rejected") {
    return yield* trainerError(
      new ResultRejected({
        taskName: name,
        reason: verdict.reason,
        message: `${binding.cjFqcn} refused the result of task "${name}": ${verdict.reason}`
      })
    )
  }
  return yield* trainerError(
    new ResultUncertain({
      taskName: name,
      attempts: attempts.length,
      lastReason: verdict.reason,
      message: `it is not known whether ${binding.cjFqcn} has the result of task "${name}", sent ${attempts.length} times: ${verdict.reason}`
    })
  )
})

/**
 * Tells the CJ that nothing more will be asked of this result's source. Tried three times; ends earlier once SHUTDOWN
 * came and the first try is unanswered, or the CJ is gone. It never fails: the result is accepted already.
 */
export const settle = Effect.fn("ResultPublisher.settle")(function* (
  state: TrainerState,
  binding: Binding,
  taskId: string
) {
  const once = state.cell
    .request(
      binding.cjFqcn,
      ClientApi.Topic.resultSourceSettled,
      ClientApi.body({ session_id: binding.sessionId, task_id: taskId }),
      { timeout: readyTimeout, optional: true, secure: state.secure }
    )
    .pipe(
      Effect.flatMap(({ payload }) => Effect.fromOption(ClientApi.read(ClientApi.Body.resultReply)(payload))),
      Effect.filterOrFail(
        (body) => body.reply_topic === ClientApi.ReplyTopic.resultSourceSettled && body.task_id === taskId
      )
    )
  const gone = state.cell.connected(binding.cjFqcn).pipe(
    Stream.filter((up) => !up),
    Stream.runHead
  )
  const retried = once.pipe(
    Effect.retry({
      times: settleTries - 1,
      schedule: Schedule.spaced("100 millis"),
      while: () => !Latch.isOpen(state.stopped)
    }),
    Effect.asVoid,
    Effect.catch(() =>
      Effect.logWarning(`${binding.cjFqcn} did not confirm that the result of task ${taskId} is settled; going on`)
    )
  )
  // After a SHUTDOWN the CJ may close its route at any time: then there is nobody left to tell.
  yield* Effect.raceFirst(retried, state.stopped.await.pipe(Effect.andThen(gone), Effect.asVoid))
})
