/**
 * What the CJ answers its trainer. Source: docs/wire/attach.md, sections 3.4 to 3.8, 3.11 and 6.4.
 */
import { Clock, Deferred, Effect, Exit, Option, PubSub, Result, type Scope } from "effect"
import type { Cell, CellReply, CellRequest } from "../../cell/Cell.ts"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import * as Analytics from "../../model/Analytics.ts"
import type { AttachSession, SessionContext } from "../AttachSession.ts"
import type { ActiveTask } from "../AttachTask.ts"

/** What the handlers see of their backend. Fields change synchronously, by the fibers of one backend. */
export interface BackendState {
  session: AttachSession
  active: ActiveTask | undefined
  closed: boolean
  droppedLogs: number
  readonly analytics: PubSub.PubSub<Analytics.AnalyticsRecord>
}

const closedText = "backend is closed"

/** Why the sender has no say, or `None` when it is heard; hearing it renews its lease. */
const validate = Effect.fnUntraced(function* (context: SessionContext, state: BackendState, request: CellRequest) {
  const { session } = state
  if (!session.accepted || (yield* Deferred.isDone(session.ended))) return Option.some("no active trainer session")
  if (request.origin !== context.trainer.trainerFqcn) return Option.some(`unexpected origin ${request.origin}`)
  if (ClientApi.bodyOf(request.payload)?.get("session_id") !== session.id) {
    return Option.some("stale or unknown session id")
  }
  session.touch(yield* Clock.monotonicTimeNanos)
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
const decideResult = (context: SessionContext, state: BackendState, payload: unknown): CellReply => {
  const body = ClientApi.read(ClientApi.Body.resultReady)(payload)
  if (Option.isNone(body)) return rejectResult("missing result correlation fields")
  const { attempt_id, result, result_id, task_id } = body.value
  if (state.closed) return rejectResult(closedText)
  const canonical = context.authority.canonical(task_id)
  if (canonical !== undefined) {
    return canonical.resultId === result_id
      ? acceptResult(result_id, canonical.attemptId)
      : rejectResult(`another result is canonical for task_id ${task_id}`)
  }
  const active = state.active
  if (active === undefined || active.id !== task_id) return rejectResult(`no current task matching task_id ${task_id}`)
  const shareable = ClientApi.shareableOf(result)
  if (shareable === undefined) return rejectResult("invalid result envelope: a Shareable is expected")
  if (!Deferred.doneUnsafe(active.outcome, Exit.succeed(shareable))) {
    return rejectResult(`the task with task_id ${task_id} is over`)
  }
  context.authority.accept(task_id, result_id, attempt_id)
  return acceptResult(result_id, attempt_id)
}

const onResultReady = (context: SessionContext, state: BackendState) =>
  Effect.fn("AttachBackend.onResultReady")(function* (request: CellRequest) {
    const refusal = yield* validate(context, state, request)
    if (Option.isSome(refusal)) return rejectResult(refusal.value)
    const reply = decideResult(context, state, request.payload)
    yield* Effect.logDebug(`RESULT_READY from ${request.origin}`, reply.payload)
    return reply
  })

const onResultStatus = (context: SessionContext, state: BackendState) =>
  Effect.fnUntraced(function* (request: CellRequest) {
    const refusal = yield* validate(context, state, request)
    if (Option.isSome(refusal)) return ClientApi.error(refusal.value)
    const body = ClientApi.read(ClientApi.Body.resultStatus)(request.payload)
    const accepted = Option.flatMapNullishOr(body, ({ result_id, task_id }) => {
      const canonical = context.authority.canonical(task_id)
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

const onSettled = (context: SessionContext, state: BackendState) =>
  Effect.fnUntraced(function* (request: CellRequest) {
    const refusal = yield* validate(context, state, request)
    if (Option.isSome(refusal)) return ClientApi.error(refusal.value)
    const body = ClientApi.read(ClientApi.Body.resultSourceSettled)(request.payload)
    return Option.isSome(body) && context.authority.settle(body.value.task_id)
      ? ClientApi.ok({ reply_topic: ClientApi.ReplyTopic.resultSourceSettled, task_id: body.value.task_id })
      : ClientApi.error("no result of this task waits to be settled")
  })

const onHeartbeat = (context: SessionContext, state: BackendState) =>
  Effect.fnUntraced(function* (request: CellRequest) {
    const refusal = yield* validate(context, state, request)
    if (Option.isSome(refusal)) return ClientApi.error(state.closed ? closedText : refusal.value)
    // Only true and false say something; an absent or odd value changes nothing.
    const body = ClientApi.read(ClientApi.Body.heartbeat)(request.payload)
    if (Option.isSome(body) && !(state.closed && body.value.result_source_live)) {
      context.authority.reportLive(body.value.result_source_live)
    }
    if (state.closed) return ClientApi.error(closedText)
    return ClientApi.ok({ reply_topic: ClientApi.ReplyTopic.heartbeat, session_id: state.session.id })
  })

const onLog = (context: SessionContext, state: BackendState) =>
  Effect.fnUntraced(function* (request: CellRequest) {
    const body = ClientApi.bodyOf(request.payload)
    if (body === undefined || Option.isSome(yield* validate(context, state, request)) || state.closed) return undefined
    const record = Analytics.fromLog(body)
    if (Result.isFailure(record)) {
      yield* Effect.logError(`log record of ${request.origin} dropped: ${record.failure.message}`)
    } else if (!(yield* PubSub.publish(state.analytics, record.success))) {
      state.droppedLogs += 1
    }
    return undefined
  })

/** Serves the trainer until the Scope closes. A foreign cell's message comes here, too, and is refused. */
export const serve = (
  cell: Cell["Service"],
  context: SessionContext,
  state: BackendState
): Effect.Effect<void, never, Scope.Scope> => {
  const options = { origin: context.trainer.trainerFqcn }
  const { Topic } = ClientApi
  return Effect.all(
    [
      cell.handle(Topic.resultReady, ClientApi.mapsOnly(onResultReady(context, state)), options),
      cell.handle(Topic.resultStatus, ClientApi.mapsOnly(onResultStatus(context, state)), options),
      cell.handle(Topic.resultSourceSettled, ClientApi.mapsOnly(onSettled(context, state)), options),
      cell.handle(Topic.heartbeat, ClientApi.mapsOnly(onHeartbeat(context, state)), options),
      cell.handle(Topic.log, onLog(context, state), options)
    ],
    { discard: true }
  )
}
