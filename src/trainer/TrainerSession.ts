/**
 * The trainer's end of a session: receive a task, send its result, log.
 *
 * `Trainer.run` drives it; a program that wants the reference's shape (`receive`, `send`, `is_running`) drives it
 * itself. Source: docs/wire/attach.md, sections 7.4, 7.5 and 7.7.
 *
 * @since 0.1.0
 */
import { Context, Deferred, type Duration, Effect, Latch, Option, Queue, Result } from "effect"
import * as ClientApi from "../clientapi/ClientApi.ts"
import * as Analytics from "../model/Analytics.ts"
import type { FLModel } from "../model/FLModel.ts"
import * as ModelExchange from "../model/ModelExchange.ts"
import { Header, Shareable } from "../model/Shareable.ts"
import type { Binding } from "./internal/binding.ts"
import { publish, settle } from "./internal/resultPublisher.ts"
import type { TrainerState, TrainerTask } from "./internal/state.ts"
import { InvalidModel, NoTask, SessionEnded, type TrainerError, trainerError } from "./TrainerError.ts"

/**
 * @category services
 * @since 0.1.0
 */
export class TrainerSession extends Context.Service<
  TrainerSession,
  {
    readonly attachId: string
    readonly siteName: string
    readonly jobId: string
    /** How the service wants models exchanged, and what it calls its tasks. */
    readonly exchange: ClientApi.TaskExchange
    /**
     * The next task's model; `None` once the service has ended the session. The same model again until its result is
     * sent or {@link clear} is called. Fails with `SessionEnded` after an abort or a lost service.
     */
    readonly receive: Effect.Effect<Option.Option<FLModel>, TrainerError>
    /** As `receive`, but `None` also when no task comes in time; the session goes on. */
    readonly receiveWithin: (limit: Duration.Input) => Effect.Effect<Option.Option<FLModel>, TrainerError>
    /** The name of the task last received. */
    readonly taskName: Effect.Effect<Option.Option<string>>
    /**
     * Sends the result of the task last received and waits until it is accepted. A DIFF exchange subtracts the
     * received parameters first.
     */
    readonly send: (model: FLModel) => Effect.Effect<void, TrainerError>
    /** Sends a return code instead of a model: the task failed here, and the service should know. */
    readonly sendFailure: (returnCode: string) => Effect.Effect<void, TrainerError>
    /** Sends an analytics record, one way: arrival and order are not promised. */
    readonly log: (record: Analytics.AnalyticsRecord) => Effect.Effect<void>
    /** Gives up the task last received. */
    readonly clear: Effect.Effect<void>
    /** Waits for the next task and says whether there is one. */
    readonly isRunning: Effect.Effect<boolean>
    /** Ends when the service has said that no further task comes. */
    readonly stopped: Effect.Effect<void>
    /** Fails when the session has ended by an abort or a lost service. */
    readonly ended: Effect.Effect<never, TrainerError>
  }
>()("fl-attach/trainer/TrainerSession") {}

const noTask = (message: string) => trainerError(new NoTask({ message }))
const invalid = (message: string) => trainerError(new InvalidModel({ message }))

/** The model in the form that the service wants. */
const prepare = (exchange: ClientApi.TaskExchange, task: TrainerTask, model: FLModel) =>
  Result.gen(function* () {
    const diff =
      exchange.transfer_type === "DIFF" &&
      model.paramsType === "FULL" &&
      model.params !== undefined &&
      task.model.params
        ? yield* ModelExchange.difference(model, task.model)
        : model
    return yield* ModelExchange.toShareable(diff)
  })

/**
 * The session over a trainer's state.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (
  state: TrainerState,
  binding: Binding,
  newId: Effect.Effect<string>
): TrainerSession["Service"] => {
  let current: TrainerTask | undefined
  /** One id for all sendings of a task's result. */
  let resultId: string | undefined

  const stopped = state.stopped.await
  const ended = Deferred.await(state.ended)

  // Not to be interrupted between taking a task and keeping it.
  const take = Effect.uninterruptibleMask((restore) =>
    Effect.map(restore(Queue.take(state.tasks)), (task) => {
      current = task
      resultId = undefined
      state.ledger.advance(task.id, "DELIVERED")
      return Option.some(task.model)
    })
  )

  /** Fails after an abort; true once there is nothing more to come. */
  const over = Effect.suspend(() =>
    Effect.flatMap(Deferred.poll(state.ended), (outcome) =>
      Option.isSome(outcome) ? outcome.value : Effect.succeed(Latch.isOpen(state.stopped))
    )
  )

  const receiveOr = Effect.fnUntraced(function* (giveUp: Effect.Effect<void>) {
    const none = Option.none<FLModel>()
    if (yield* over) return none
    if (current !== undefined) return Option.some(current.model)
    return yield* Effect.raceFirst(take, Effect.raceFirst(ended, Effect.as(Effect.raceFirst(stopped, giveUp), none)))
  })
  const receive = receiveOr(Effect.never)

  const deliver = Effect.fn("TrainerSession.deliver")(
    function* (task: TrainerTask, result: Shareable) {
      state.ledger.advance(task.id, "RESULT_PUBLISHING")
      state.sending = true
      resultId ??= yield* newId
      yield* publish(state, binding, { task, resultId, result }, newId)
      state.ledger.advance(task.id, "COMPLETE")
      current = undefined
    },
    // Cleared before the settlement, as the reference does: the heartbeat must not claim a source that is done.
    Effect.ensuring(
      Effect.sync(() => {
        state.sending = false
      })
    )
  )

  const submit = Effect.fnUntraced(function* (
    build: (task: TrainerTask) => Result.Result<Shareable, { message: string }>
  ) {
    if (yield* over) {
      const reason = "the service ended the session"
      return yield* trainerError(
        new SessionEnded({ by: "shutdown", reason, message: `${reason}: this result is not wanted any more` })
      )
    }
    const pending = current
    if (pending === undefined) return yield* noTask("there is no task to answer: call receive before send")
    const result = build(pending)
    if (Result.isFailure(result)) return yield* invalid(result.failure.message)
    yield* deliver(pending, result.success)
    yield* settle(state, binding, pending.id)
  })

  return TrainerSession.of({
    attachId: state.expected.attachId,
    siteName: state.expected.siteName,
    jobId: binding.jobId,
    exchange: binding.exchange,
    receive,
    receiveWithin: (limit) => receiveOr(Effect.sleep(limit)),
    taskName: Effect.sync(() => Option.fromNullishOr(current?.name)),
    send: Effect.fn("TrainerSession.send")(function* (model: FLModel) {
      yield* submit((task) => prepare(binding.exchange, task, model))
    }),
    sendFailure: Effect.fn("TrainerSession.sendFailure")(function* (returnCode: string) {
      yield* submit(() => Result.succeed(new Shareable([[Header.returnCode, returnCode]])))
    }),
    log: Effect.fn("TrainerSession.log")(function* (record: Analytics.AnalyticsRecord) {
      const body = Analytics.toLog(binding.sessionId, record)
      yield* Result.isFailure(body)
        ? Effect.logWarning(`log record "${record.tag}" not sent: ${body.failure.message}`)
        : state.cell
            .send(binding.cjFqcn, ClientApi.Topic.log, body.success, { optional: true, secure: state.secure })
            .pipe(Effect.catch((error) => Effect.logWarning(`log record "${record.tag}" not sent: ${error.message}`)))
    }),
    clear: Effect.sync(() => {
      current = undefined
    }),
    isRunning: receive.pipe(
      Effect.map(Option.isSome),
      Effect.catch(() => Effect.succeed(false))
    ),
    stopped,
    ended
  })
}
