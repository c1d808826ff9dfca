/**
 * Brings one result to the CJ, accepted exactly once, though answers get lost.
 *
 * Source: docs/wire/attach.md, sections 3.4 to 3.6 and 7.5.
 */
import { Deferred, Duration, Effect, Exit, Option, Schedule, Scope, Stream } from "effect"
import type { CellReply } from "../../cell/Cell.ts"
import type { CellError } from "../../cell/CellError.ts"
import type { Offer } from "../../cell/DownloadService.ts"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import type { Shareable } from "../../model/Shareable.ts"
import {
  InvalidModel,
  ResultNotFetched,
  ResultRejected,
  ResultUncertain,
  type TrainerError,
  trainerError
} from "../TrainerError.ts"
import type { Binding } from "./binding.ts"
import { okBody } from "./replies.ts"
import { linked, type TrainerState, type TrainerTask, touch } from "./state.ts"

const readyTimeout = Duration.seconds(30)
const statusTimeout = Duration.seconds(2)
const attemptLimit = 2
/** After a lost connection, an answer that was sent before, or a sign of work, is waited for so long. */
const lostGrace = Duration.seconds(5)
/** A CJ that can't be reached is tried again so often, with such a pause. */
const unreachedLimit = 120
const unreachedPause = Duration.millis(500)
/** How often the CJ is asked about a result that it may be fetching. */
const ambiguousPause = Duration.millis(250)
/** An accepted result that nobody asks about for so long is fetched, though its confirmation got lost. */
const confirmGrace = Duration.seconds(10)
const settleTimeout = Duration.seconds(30)
const settleTries = 3
const settlePause = Duration.millis(100)
/** After a SHUTDOWN the CJ may go at any time: no more than this is waited for its word. */
const settleAfterShutdown = Duration.seconds(2)

/**
 * A result on its way: its id stays the same however often it is sent.
 */
export interface Publication {
  readonly task: TrainerTask
  readonly resultId: string
  readonly result: Shareable
}

/** One sending of a result: its arrays are on offer to the CJ until `remove`. */
interface Attempt {
  readonly id: string
  readonly offer: Offer
  readonly remove: Effect.Effect<void>
}

/** What is known of a result after a question; `Invalid`: it can't be put into bytes, and never left. */
type Verdict =
  | { readonly _tag: "Accepted"; readonly attempt: Attempt }
  | { readonly _tag: "Rejected" | "Uncertain" | "Invalid"; readonly reason: string; readonly isUnreached?: boolean }

const rejected = (reason: string): Verdict => ({ _tag: "Rejected", reason })
const uncertain = (reason: string): Verdict => ({ _tag: "Uncertain", reason })

/** `attempts` are the ids this publication was sent under: an acceptance must name one of them. */
const accepted = (attemptId: string | null | undefined, attempts: ReadonlyArray<Attempt>): Verdict => {
  const attempt = attempts.find(({ id }) => id === attemptId)
  return attempt === undefined
    ? rejected(`it names an attempt that is not ours: ${attemptId}`)
    : { _tag: "Accepted", attempt }
}

const readyVerdict = (reply: CellReply, resultId: string, attempts: ReadonlyArray<Attempt>): Verdict => {
  if (reply.returnCode !== "ok") return uncertain(`return code ${reply.returnCode}: ${reply.error ?? "no text"}`)
  const body = Option.getOrUndefined(okBody(reply))
  if (body === undefined) return rejected("its answer is no result reply")
  if (body.reply_topic === ClientApi.ReplyTopic.resultRejected) return rejected(body.reason ?? "no reason given")
  return body.reply_topic === ClientApi.ReplyTopic.resultAccepted && body.result_id === resultId
    ? accepted(body.accepted_attempt_id, attempts)
    : rejected(`it answers ${body.reply_topic} for result ${body.result_id}`)
}

const statusVerdict = (reply: CellReply, attempts: ReadonlyArray<Attempt>): Verdict => {
  const body = Option.getOrUndefined(okBody(reply))
  if (body?.reply_topic !== ClientApi.ReplyTopic.resultStatus) return uncertain("its status can't be had")
  if (body.result_state === "REJECTED") return rejected(body.reason ?? "its status is REJECTED")
  return body.result_state === "ACCEPTED"
    ? accepted(body.accepted_attempt_id, attempts)
    : uncertain("its status is unknown")
}

const failedVerdict = ({ message, reason }: CellError): Verdict =>
  reason._tag === "EncodeFailed"
    ? { _tag: "Invalid", reason: message }
    : { _tag: "Uncertain", reason: message, isUnreached: reason._tag === "TargetUnreachable" }

/** Asks the CJ about one result, over and over with the same fields. */
const asking = (state: TrainerState, binding: Binding, { resultId, result, task }: Publication) => {
  const { cell, secure } = state
  const { Topic } = ClientApi
  const ids = { session_id: binding.sessionId, task_id: task.id, result_id: resultId }

  const ready = Effect.fn("ResultPublisher.ready")(function* (attempt: Attempt, attempts: ReadonlyArray<Attempt>) {
    const payload = ClientApi.body({ ...ids, attempt_id: attempt.id, result })
    const { isPending, references, served } = attempt.offer
    // A connection that ends may take the result with it: unless the CJ is seen at work afterwards, it is sent again.
    const whenLost = Effect.flatMap(served, (before) =>
      Effect.map(Effect.delay(served, lostGrace), (now) => now > before)
    )
    // While the connection is being made anew a request would fail at once, and soon too often.
    yield* linked(state, binding).pipe(
      Stream.filter((up) => up),
      Stream.runHead,
      Effect.timeoutOption(readyTimeout)
    )
    // The CJ answers when it has fetched the arrays, so it has more time while it may be at that. Optional, so that a
    // client parent tells at once when the CJ is not connected there.
    const options = { timeout: readyTimeout, extend: isPending, whenLost, references, optional: true, secure }
    const reply = cell.request(binding.cjFqcn, Topic.resultReady, payload, options)
    return yield* Effect.match(reply, {
      onFailure: failedVerdict,
      onSuccess: (reply) => readyVerdict(reply, resultId, attempts)
    })
  })

  const status = Effect.fn("ResultPublisher.status")(function* (attempts: ReadonlyArray<Attempt>) {
    const options = { timeout: statusTimeout, optional: true, secure }
    const reply = cell.request(binding.cjFqcn, Topic.resultStatus, ClientApi.body(ids), options)
    return yield* Effect.match(reply, {
      onFailure: failedVerdict,
      onSuccess: (reply) => statusVerdict(reply, attempts)
    })
  })

  return { ready, status }
}

const verdictError = (verdict: Exclude<Verdict, { _tag: "Accepted" }>, taskName: string, cj: string, sent: number) => {
  const { _tag, reason } = verdict
  switch (_tag) {
    case "Invalid":
      return new InvalidModel({ message: `the result of task "${taskName}" can't be sent: ${reason}` })
    case "Rejected":
      return new ResultRejected({
        taskName,
        reason,
        message: `${cj} refused the result of task "${taskName}": ${reason}`
      })
    case "Uncertain":
      return new ResultUncertain({
        taskName,
        attempts: sent,
        lastReason: reason,
        message: `it is not known whether ${cj} has the result of task "${taskName}", sent ${sent} times: ${reason}`
      })
  }
}

/**
 * An attempt with its arrays on offer, to the CJ alone, until it is removed or the Scope closes; `inlineBytes` of them go
 * inside the message.
 */
const makeAttempt = Effect.fnUntraced(function* (
  { cell, offers }: TrainerState,
  { cjFqcn }: Binding,
  inlineBytes: number,
  newId: Effect.Effect<string>
): Effect.fn.Return<Attempt, never, Scope.Scope> {
  const scope = yield* Scope.fork(yield* Effect.scope)
  const offer = yield* Effect.acquireRelease(
    Effect.tap(cell.offer({ receivers: [cjFqcn], inlineBytes }), (made) => Effect.sync(() => offers.add(made))),
    (made) => Effect.sync(() => offers.delete(made))
  ).pipe(Scope.provide(scope))
  return { id: yield* newId, offer, remove: Scope.close(scope, Exit.void) }
})

/** Ends with the first attempt that the CJ has fetched whole, or `None` when all transfers are over without. */
const fetched = (attempts: ReadonlyArray<Attempt>): Effect.Effect<Option.Option<Attempt>> =>
  Effect.forEach(
    attempts,
    (attempt) =>
      Effect.flatMap(attempt.offer.outcome, ({ status }) =>
        status === "completed" ? Effect.fail(attempt) : Effect.void
      ),
    { concurrency: "unbounded", discard: true }
  ).pipe(
    Effect.as(Option.none<Attempt>()),
    Effect.catch((attempt) => Effect.succeed(Option.some(attempt)))
  )

/**
 * What becomes of a result that was sent often enough: while the CJ may still fetch one of its attempts it is asked on,
 * and an attempt that it has fetched whole is taken for the accepted one.
 */
const resolve = Effect.fnUntraced(function* (
  attempts: ReadonlyArray<Attempt>,
  status: Effect.Effect<Verdict>,
  last: Verdict
) {
  const offering = yield* Effect.filter(attempts, ({ offer }) => offer.hasTransfers)
  if (offering.length === 0) return last
  const known = Effect.repeat(status, {
    schedule: Schedule.spaced(ambiguousPause),
    while: ({ _tag }) => _tag === "Uncertain"
  })
  const found = Effect.map(
    fetched(offering),
    Option.match({ onNone: () => last, onSome: (attempt): Verdict => ({ _tag: "Accepted", attempt }) })
  )
  return yield* Effect.raceFirst(found, known)
})

/**
 * What became of an accepted attempt, or `None` when nothing was asked for a while: the confirmation is one message
 * without an answer, and a CJ accepts what it has fetched (section 1).
 */
const confirmed = Effect.fnUntraced(function* (offer: Offer) {
  while (true) {
    const served = yield* offer.served
    const outcome = yield* Effect.timeoutOption(offer.outcome, confirmGrace)
    if (Option.isSome(outcome) || (yield* offer.served) === served) return outcome
  }
})

const notFetched = (taskName: string, cj: string, reason: string) =>
  trainerError(
    new ResultNotFetched({
      taskName,
      reason,
      message: `${cj} accepted the result of task "${taskName}", but did not confirm that it has its arrays: ${reason}`
    })
  )

/**
 * Sends the result until the CJ has accepted it: twice at most, asking for its status after an answer that got lost.
 * Then answers an effect that waits until the CJ has confirmed the arrays of the accepted attempt, or asks for nothing more,
 * and fails with `ResultNotFetched`, or the session's end; the other attempt is taken back. What is on offer is so until the Scope closes.
 *
 * Fails with `ResultRejected`, `ResultUncertain`, `InvalidModel`, or the session's end.
 */
export const publish = Effect.fn("ResultPublisher.publish")(function* (
  state: TrainerState,
  binding: Binding,
  publication: Publication,
  newId: Effect.Effect<string>
): Effect.fn.Return<Effect.Effect<void, TrainerError>, TrainerError, Scope.Scope> {
  const { ready, status } = asking(state, binding, publication)
  const taskName = publication.task.name
  const ended = Deferred.await(state.ended)
  const attempts: Array<Attempt> = []
  const sending = Effect.gen(function* () {
    let verdict = uncertain("not sent")
    let unreached = 0
    while (verdict._tag === "Uncertain" && attempts.length < attemptLimit + unreached) {
      // What has come of arrays that are fetched outlives a connection: inside the message only the first time.
      const inlineBytes = attempts.length === 0 ? binding.inlineBytes : 0
      const attempt = yield* makeAttempt(state, binding, inlineBytes, newId)
      attempts.push(attempt)
      verdict = yield* ready(attempt, attempts)
      if (verdict._tag !== "Uncertain") break
      // Connections are made anew after a while: what could not reach the CJ is no attempt. The lease bounds it, too.
      if (verdict.isUnreached === true && unreached < unreachedLimit) {
        unreached += 1
        yield* Effect.sleep(unreachedPause)
      }
      const known = yield* status(attempts)
      if (known._tag !== "Uncertain") verdict = known
    }
    return verdict._tag === "Uncertain" ? yield* resolve(attempts, status(attempts), verdict) : verdict
  })
  const verdict = yield* Effect.raceFirst(sending, ended)
  if (verdict._tag !== "Accepted") {
    return yield* trainerError(verdictError(verdict, taskName, binding.cjFqcn, attempts.length))
  }
  const { attempt } = verdict
  yield* Effect.forEach(attempts, (each) => (each === attempt ? Effect.void : each.remove), { discard: true })
  yield* touch(state)
  if (!(yield* attempt.offer.hasTransfers)) return Effect.void
  return Effect.flatMap(
    Effect.raceFirst(confirmed(attempt.offer), ended),
    Option.match({
      onNone: () => Effect.logDebug(`${binding.cjFqcn} did not confirm the arrays of a result that it accepted`),
      onSome: ({ reason, status }) =>
        status === "completed" ? Effect.void : Effect.fail(notFetched(taskName, binding.cjFqcn, reason))
    })
  )
})

/**
 * Tells the CJ that nothing more will be asked of this result's source. Tried three times, but no longer than the
 * connection and the session last, and not for long after a SHUTDOWN: the result is accepted already, so it never fails.
 */
export const settle = Effect.fn("ResultPublisher.settle")(function* (
  state: TrainerState,
  binding: Binding,
  taskId: string
) {
  const payload = ClientApi.body({ session_id: binding.sessionId, task_id: taskId })
  const options = { timeout: settleTimeout, optional: true, secure: state.secure }
  const once = state.cell.request(binding.cjFqcn, ClientApi.Topic.resultSourceSettled, payload, options).pipe(
    Effect.flatMap((reply) => Effect.fromOption(okBody(reply))),
    Effect.filterOrFail(
      (body) => body.reply_topic === ClientApi.ReplyTopic.resultSourceSettled && body.task_id === taskId
    )
  )
  const settled = Effect.retry(once, { times: settleTries - 1, schedule: Schedule.spaced(settlePause) }).pipe(
    Effect.as(true),
    Effect.catch(() => Effect.succeed(false))
  )
  const unlinked = linked(state, binding).pipe(
    Stream.filter((up) => !up),
    Stream.runHead
  )
  const givenUp = Effect.raceFirst(
    Effect.raceFirst(unlinked, Effect.ignore(Deferred.await(state.ended))),
    Effect.andThen(state.stopped.await, Effect.sleep(settleAfterShutdown))
  )
  if (yield* Effect.raceFirst(settled, Effect.as(givenUp, false))) return
  yield* Effect.logWarning(
    `${binding.cjFqcn} did not confirm that the result is settled; it is accepted, so this goes on`
  ).pipe(Effect.annotateLogs("task_id", taskId))
})
