/**
 * What a trainer answers its CJ. Source: docs/wire/attach.md, sections 3.1 to 3.3, 3.9 to 3.11 and 7.3.
 */
import { Deferred, Effect, Latch, Option, Queue, Result, Schema, type Scope } from "effect"
import type { Address, CellReply, CellRequest, Handler } from "../../cell/Cell.ts"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import * as ModelExchange from "../../model/ModelExchange.ts"
import type { LedgerEntry } from "../TaskLedger.ts"
import { bind, sessionAccepted, sessionRejected } from "./binding.ts"
import { convert } from "./paramsFormat.ts"
import { annotated, end, hear, isLate, type TrainerState, touch } from "./state.ts"

const onSessionOpen = (state: TrainerState) =>
  Effect.fn("Trainer.onSessionOpen")(function* (request: CellRequest) {
    const verdict = bind(state.expected, state.binding, request)
    if (Result.isFailure(verdict)) {
      yield* Effect.logWarning(`refused a session of ${request.origin}: ${verdict.failure}`)
      return sessionRejected(request, verdict.failure)
    }
    state.binding = verdict.success
    yield* hear(state)
    yield* Deferred.succeed(state.bound, verdict.success)
    return sessionAccepted(verdict.success, state.cell.maxInlineBytes)
  })

/** Why the sender has no say. */
const validate = (state: TrainerState, request: CellRequest): string | undefined => {
  const { binding } = state
  if (binding === undefined) return "no active trainer session"
  if (request.origin !== binding.cjFqcn) return `unexpected CJ origin ${request.origin}`
  return ClientApi.bodyOf(request.payload)?.get("session_id") === binding.sessionId
    ? undefined
    : "stale or unknown session id"
}

const taskFailed = (reason: string, taskId?: string): CellReply =>
  ClientApi.ok({ reply_topic: ClientApi.ReplyTopic.taskFailed, task_id: taskId, reason })

const knownTask = (entry: LedgerEntry): CellReply =>
  entry.state === "UNKNOWN"
    ? ClientApi.ok({
        reply_topic: ClientApi.ReplyTopic.taskStatus,
        task_id: entry.taskId,
        task_seq: entry.seq,
        task_state: entry.state
      })
    : ClientApi.ok({
        reply_topic: ClientApi.ReplyTopic.taskAccepted,
        task_id: entry.taskId,
        task_seq: entry.seq,
        attempt_id: entry.attemptId,
        task_state: entry.state
      })

const Id = Schema.NonEmptyString
const Seq = Schema.Int.check(Schema.isGreaterThan(0))

const idsOf = (body: ReadonlyMap<unknown, unknown>) =>
  Result.gen(function* () {
    const field = <A, I>(schema: Schema.Codec<A, I>, name: string, reason: string) =>
      Option.match(Schema.decodeUnknownOption(schema)(body.get(name)), {
        onNone: () => Result.fail(reason),
        onSome: Result.succeed<A>
      })
    const taskId = yield* field(Id, "task_id", "TASK_READY requires task_id")
    const attemptId = yield* field(Id, "attempt_id", "TASK_READY requires attempt_id")
    const seq = yield* field(Seq, "task_seq", "TASK_READY requires a positive integer task_seq")
    return { taskId, attemptId, seq }
  })

/** Why the session takes no further task. */
const overReason = Effect.fnUntraced(function* (state: TrainerState) {
  if (Latch.isOpen(state.stopped)) return Option.some("the trainer is shutting down")
  const ended = yield* Deferred.poll(state.ended)
  return Option.isNone(ended) ? Option.none() : Option.some((yield* Effect.flip(ended.value)).message)
})

/** The model of a task in the trainer's own form, or why there is none. */
const modelOf = ({ binding }: TrainerState, body: ReadonlyMap<unknown, unknown>) =>
  Result.gen(function* () {
    const shareable = ClientApi.shareableOf(body.get("model"))
    if (shareable === undefined) return yield* Result.fail("TASK_READY model must be Shareable")
    const model = yield* Result.mapError(ModelExchange.fromShareable(shareable), ({ message }) => message)
    const { exchange_format = "raw", server_expected_format = "raw" } = binding?.exchange ?? {}
    return yield* convert(model, server_expected_format, exchange_format)
  })

const onTaskReady = (state: TrainerState) =>
  Effect.fn("Trainer.onTaskReady")(function* (request: CellRequest) {
    const refusal = validate(state, request)
    if (refusal !== undefined) return taskFailed(refusal)
    yield* touch(state)
    const body = ClientApi.bodyOf(request.payload) ?? new Map()
    const ids = idsOf(body)
    if (Result.isFailure(ids)) {
      const taskId = Option.getOrUndefined(Schema.decodeUnknownOption(Id)(body.get("task_id")))
      return taskFailed(ids.failure, taskId)
    }
    const { attemptId, seq, taskId } = ids.success
    const reserved = state.ledger.reserve(taskId, seq, attemptId)
    if (Result.isFailure(reserved)) return taskFailed(reserved.failure, taskId)
    if (reserved.success !== undefined) return knownTask(reserved.success)

    const giveUp = (reason: string) => {
      state.ledger.forget(taskId)
      return Effect.as(Effect.logWarning(`refused a task: ${reason}`), taskFailed(reason, taskId)).pipe(
        Effect.annotateLogs("task_id", taskId)
      )
    }
    const over = yield* overReason(state)
    if (Option.isSome(over)) return yield* giveUp(over.value)
    const model = modelOf(state, body)
    if (Result.isFailure(model)) return yield* giveUp(`invalid task model: ${model.failure}`)
    const name = body.get("task_name")
    state.ledger.advance(taskId, "QUEUED")
    yield* Queue.offer(state.tasks, { id: taskId, name: typeof name === "string" ? name : "", model: model.success })
    return ClientApi.ok({ reply_topic: ClientApi.ReplyTopic.taskAccepted, task_id: taskId })
  })

const onTaskStatus = (state: TrainerState) => (request: CellRequest) => {
  const refusal = validate(state, request)
  if (refusal !== undefined) return Effect.succeed(ClientApi.error(refusal))
  // Whatever was asked for comes back: an odd id is as unknown as any other.
  const asked = ClientApi.bodyOf(request.payload)?.get("task_id") ?? null
  const entry = typeof asked === "string" ? state.ledger.get(asked) : undefined
  return Effect.succeed(
    ClientApi.ok({
      reply_topic: ClientApi.ReplyTopic.taskStatus,
      task_id: asked,
      task_state: entry?.state ?? "UNKNOWN",
      accepted_attempt_id: entry?.attemptId ?? null
    })
  )
}

const onAbort = (state: TrainerState) =>
  Effect.fn("Trainer.onAbort")(function* (request: CellRequest) {
    const refusal = validate(state, request)
    if (refusal !== undefined) return ClientApi.invalidRequest(refusal)
    yield* touch(state)
    const given = ClientApi.bodyOf(request.payload)?.get("reason")
    const reason = typeof given === "string" ? given : "no reason given"
    const message = `session aborted by ${request.origin}: ${reason}`
    end(state, "abort", reason, message)
    yield* Effect.logWarning(message)
    return { returnCode: "ok" }
  })

const onShutdown = (state: TrainerState) =>
  Effect.fn("Trainer.onShutdown")(function* (request: CellRequest) {
    const refusal = validate(state, request)
    if (refusal !== undefined) return ClientApi.invalidRequest(refusal)
    // It is no orderly end when the job has given the trainer up long before.
    if (yield* isLate(state)) return ClientApi.invalidRequest("the session's lease is over")
    yield* hear(state)
    Latch.openUnsafe(state.stopped)
    yield* Effect.logInfo(`${request.origin} has no further task`)
    return ClientApi.ok({ result_source_live: !Latch.isOpen(state.idle) })
  })

/** Serves the CJ until the Scope closes. */
export const serve = (state: TrainerState): Effect.Effect<void, never, Scope.Scope> => {
  const { Topic } = ClientApi
  const handle = (address: Address, handler: Handler) =>
    state.cell.handle(address, (request) => annotated(state, handler(request)))
  return Effect.all(
    [
      handle(Topic.sessionOpen, ClientApi.mapsOnly(onSessionOpen(state))),
      handle(Topic.taskReady, ClientApi.mapsOnly(onTaskReady(state))),
      handle(Topic.taskStatus, ClientApi.mapsOnly(onTaskStatus(state))),
      // A payload that is no map counts as an empty one here, and fails by its session.
      handle(Topic.abort, onAbort(state)),
      handle(Topic.shutdown, onShutdown(state))
    ],
    { discard: true }
  )
}
