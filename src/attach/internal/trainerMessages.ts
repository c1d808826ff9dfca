/**
 * What the CJ answers its trainer. Source: docs/wire/attach.md, sections 3.4 to 3.8, 3.11 and 6.4.
 */
import { Clock, Deferred, Duration, Effect, Exit, Option, PubSub, Result, type Scope } from "effect"
import type { CellReply, CellRequest, Handler } from "../../cell/Cell.ts"
import type { CellError } from "../../cell/CellError.ts"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import * as Analytics from "../../model/Analytics.ts"
import * as AttachMetrics from "../AttachMetrics.ts"
import type { Backend } from "./state.ts"

const closedText = "backend is closed"

const refused = Effect.fnUntraced(function* (kind: string, reason: string) {
  yield* AttachMetrics.count(AttachMetrics.refusals, { reason: kind })
  return Option.some(reason)
})

/** Counts the heartbeats that were due since the trainer was last heard. */
const countMissed = ({ config, session }: Backend, now: bigint) => {
  const due = (now - session.heardAt) / Duration.toNanosUnsafe(config.heartbeatInterval)
  return due > 1n ? AttachMetrics.count(AttachMetrics.heartbeatsMissed, {}, Number(due - 1n)) : Effect.void
}

/** Why the sender has no say, or `None` when it is heard; hearing it renews its lease. */
const validate = Effect.fnUntraced(function* (backend: Backend, request: CellRequest) {
  const { session, trainer } = backend
  if (!session.isUsable) return yield* refused("no_session", "no active trainer session")
  if (request.origin !== trainer.trainerFqcn) return yield* refused("origin", `unexpected origin ${request.origin}`)
  if (ClientApi.bodyOf(request.payload)?.get("session_id") !== session.id) {
    return yield* refused("session", "stale or unknown session id")
  }
  const now = yield* Clock.monotonicTimeNanos
  yield* countMissed(backend, now)
  session.touch(now)
  return Option.none<string>()
})

const rejectResult = (reason: string): CellReply =>
  ClientApi.ok({ reply_topic: ClientApi.ReplyTopic.resultRejected, reason })

const acceptResult = (resultId: string, attemptId: string): CellReply =>
  ClientApi.ok({
    reply_topic: ClientApi.ReplyTopic.resultAccepted,
    result_id: resultId,
    accepted_attempt_id: attemptId
  })

/** Synchronous from the first look at the ledger to the record, so that a result is accepted exactly once. */
const decideResult = (backend: Backend, payload: unknown): CellReply => {
  const body = ClientApi.read(ClientApi.Body.resultReady)(payload)
  if (Option.isNone(body)) return rejectResult("missing result correlation fields")
  const { attempt_id, result, result_id, task_id } = body.value
  if (backend.closed) return rejectResult(closedText)
  const canonical = backend.authority.canonical(task_id)
  if (canonical !== undefined) {
    return canonical.resultId === result_id
      ? acceptResult(result_id, canonical.attemptId)
      : rejectResult(`another result is canonical for task_id ${task_id}`)
  }
  const active = backend.active
  if (active === undefined || active.id !== task_id) return rejectResult(`no current task matching task_id ${task_id}`)
  const shareable = ClientApi.shareableOf(result)
  if (shareable === undefined) return rejectResult("invalid result envelope: a Shareable is expected")
  if (!Deferred.doneUnsafe(active.outcome, Exit.succeed(shareable))) {
    return rejectResult(`the task with task_id ${task_id} is over`)
  }
  backend.authority.accept(task_id, result_id, attempt_id)
  return acceptResult(result_id, attempt_id)
}

type Serve = (backend: Backend) => Handler

const onResultReady: Serve = (backend) =>
  Effect.fn("AttachBackend.onResultReady")(function* (request) {
    const refusal = yield* validate(backend, request)
    if (Option.isSome(refusal)) return rejectResult(backend.closed ? closedText : refusal.value)
    const reply = decideResult(backend, request.payload)
    yield* Effect.logDebug(`RESULT_READY from ${request.origin}`, reply.payload)
    return reply
  })

const onResultStatus: Serve = (backend) =>
  Effect.fnUntraced(function* (request) {
    const refusal = yield* validate(backend, request)
    if (Option.isSome(refusal)) return ClientApi.error(refusal.value)
    const body = ClientApi.read(ClientApi.Body.resultStatus)(request.payload)
    const accepted = Option.flatMapNullishOr(body, ({ result_id, task_id }) => {
      const canonical = backend.authority.canonical(task_id)
      return canonical?.resultId === result_id ? canonical : undefined
    })
    return Option.match(accepted, {
      onNone: () => ClientApi.ok({ reply_topic: ClientApi.ReplyTopic.resultStatus, result_state: "UNKNOWN" }),
      onSome: ({ attemptId }) =>
        ClientApi.ok({
          reply_topic: ClientApi.ReplyTopic.resultStatus,
          result_state: "ACCEPTED",
          accepted_attempt_id: attemptId
        })
    })
  })

const onSettled: Serve = (backend) =>
  Effect.fnUntraced(function* (request) {
    const refusal = yield* validate(backend, request)
    if (Option.isSome(refusal)) return ClientApi.error(refusal.value)
    const body = ClientApi.read(ClientApi.Body.resultSourceSettled)(request.payload)
    return Option.isSome(body) && backend.authority.settle(body.value.task_id)
      ? ClientApi.ok({ reply_topic: ClientApi.ReplyTopic.resultSourceSettled, task_id: body.value.task_id })
      : ClientApi.error("no result of this task waits to be settled")
  })

/** During closing, too, a trainer that serves no result any more is believed, though it is told that all is over. */
const onHeartbeat: Serve = (backend) =>
  Effect.fnUntraced(function* (request) {
    const refusal = yield* validate(backend, request)
    if (Option.isSome(refusal)) return ClientApi.error(backend.closed ? closedText : refusal.value)
    // Only true and false say something; an absent or odd value changes nothing.
    const isLive = ClientApi.bodyOf(request.payload)?.get("result_source_live")
    if (isLive === false || (isLive === true && !backend.closed)) backend.authority.reportLive(isLive)
    if (backend.closed) return ClientApi.error(closedText)
    return ClientApi.ok({ reply_topic: ClientApi.ReplyTopic.heartbeat, session_id: backend.session.id })
  })

const onLog: Serve = (backend) =>
  Effect.fnUntraced(function* (request) {
    const body = ClientApi.bodyOf(request.payload)
    if (body === undefined || Option.isSome(yield* validate(backend, request)) || backend.closed) return undefined
    const record = Analytics.fromLog(body)
    if (Result.isFailure(record)) {
      yield* Effect.logError(`log record of ${request.origin} dropped: ${record.failure.message}`)
    } else if (!(yield* PubSub.publish(backend.analytics, record.success))) {
      backend.droppedLogs += 1
      yield* AttachMetrics.count(AttachMetrics.analyticsDropped)
    }
    return undefined
  })

/** Serves the trainer until the Scope closes. A foreign cell's message comes here, too, and is refused. */
export const serve = (backend: Backend): Effect.Effect<void, never, Scope.Scope> => {
  const { cell, trainer } = backend
  const { mapsOnly, Topic } = ClientApi
  const options = { origin: trainer.trainerFqcn }
  // The trainer may send it again; where it does not, this is why there is no result.
  const onUnreadable = ({ message }: CellError) =>
    Effect.sync(() => {
      backend.unreadable = message
    })
  return Effect.all(
    [
      cell.handle(Topic.resultReady, mapsOnly(onResultReady(backend)), { ...options, onUnreadable }),
      cell.handle(Topic.resultStatus, mapsOnly(onResultStatus(backend)), options),
      cell.handle(Topic.resultSourceSettled, mapsOnly(onSettled(backend)), options),
      cell.handle(Topic.heartbeat, mapsOnly(onHeartbeat(backend)), options),
      cell.handle(Topic.log, onLog(backend), options)
    ],
    { discard: true }
  )
}
