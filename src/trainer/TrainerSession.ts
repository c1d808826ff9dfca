/**
 * The trainer's end of a session: receive a task, send its result, log.
 *
 * `Trainer.run` drives it; a program that wants the reference's shape (`receive`, `send`, `is_running`) drives it
 * itself, from one fiber. Source: docs/wire/attach.md, sections 7.4, 7.5 and 7.7.
 *
 * @since 0.1.0
 */
import { Context, Deferred, type Duration, Effect, Exit, Latch, Option, Queue, Result, Stream } from "effect"
import type { TransferProgress } from "../cell/TransferProgress.ts"
import * as ClientApi from "../clientapi/ClientApi.ts"
import * as Analytics from "../model/Analytics.ts"
import type { FLModel } from "../model/FLModel.ts"
import { Header, Shareable } from "../model/Shareable.ts"
import type { Binding } from "./internal/binding.ts"
import { publish, settle } from "./internal/resultPublisher.ts"
import { annotated, type TrainerState, type TrainerTask } from "./internal/state.ts"
import { resultOf } from "./internal/taskModel.ts"
import { InvalidModel, NoTask, SessionEnded, type TrainerError, trainerError } from "./TrainerError.ts"

/**
 * How a result is sent.
 *
 * @category models
 * @since 0.1.0
 */
export interface SendOptions {
  /** Whether the task is over once its result is accepted. Without, `receive` gives its model again. Default true. */
  readonly clearCache?: boolean
}

/**
 * What the service told of the job when it opened the session.
 *
 * @category models
 * @since 0.1.0
 */
export interface SessionConfig {
  readonly siteName: string
  /** `""` on a rank that has no session. */
  readonly jobId: string
  /** How models are exchanged, and what tasks are called. */
  readonly exchange: ClientApi.TaskExchange
  /** Collect garbage after so many results; 0 = never. For the trainer's code to heed: this library does nothing by it. */
  readonly memoryGcRounds: number
  /** Empty the CUDA cache with each collection; heeded by the trainer's code, too. */
  readonly cudaEmptyCache: boolean
}

/**
 * Ranks other than "0" have no session: `receive` gives nothing, `send` and `log` do nothing, there is no task.
 *
 * @category services
 * @since 0.1.0
 */
export class TrainerSession extends Context.Service<
  TrainerSession,
  {
    readonly attachId: string
    readonly siteName: string
    /** `""` on a rank that has no session. */
    readonly jobId: string
    /** How the service wants models exchanged, and what it calls its tasks. */
    readonly exchange: ClientApi.TaskExchange
    readonly config: SessionConfig
    readonly systemInfo: { readonly siteName: string; readonly jobId: string }
    /**
     * The next task's model; `None` once the service has ended the session. The same model again until its result is
     * sent or {@link clear} is called. Fails with `SessionEnded` after an abort or a lost service.
     *
     * The arrays are views of the message. In a DIFF exchange don't change them in place: `send` subtracts them.
     */
    readonly receive: Effect.Effect<Option.Option<FLModel>, TrainerError>
    /** As `receive`, but `None` also when no task comes in time; the session goes on. */
    readonly receiveWithin: (limit: Duration.Input) => Effect.Effect<Option.Option<FLModel>, TrainerError>
    /** Waits for the next task and says whether there is one; `receive` then gives it. Never fails. */
    readonly isRunning: Effect.Effect<boolean>
    /** The name of the task last received. */
    readonly taskName: Effect.Effect<Option.Option<string>>
    /** Whether the task last received has the name of training tasks. */
    readonly isTrain: Effect.Effect<boolean>
    /** Whether the task last received has the name of evaluation tasks. */
    readonly isEvaluate: Effect.Effect<boolean>
    /** Whether the task last received has the name of tasks that ask for a model. */
    readonly isSubmitModel: Effect.Effect<boolean>
    /**
     * Sends the result of the task last received and waits until it is accepted. A DIFF exchange subtracts the
     * received parameters first; parameters are converted to the form that the service expects.
     *
     * Big arrays are not sent along but fetched by the service: the model must not change until this has ended.
     *
     * Fails with `NoTask` without a task, or when its result was sent already; with `InvalidModel`, `ResultRejected` or
     * `ResultUncertain`, and then the task stays and may be answered again; with `ResultNotFetched`, and then the task is
     * over; with `SessionEnded`.
     */
    readonly send: (model: FLModel, options?: SendOptions) => Effect.Effect<void, TrainerError>
    /** Sends a return code instead of a model: the task failed here, and the service should know. Fails as `send`. */
    readonly sendFailure: (returnCode: string) => Effect.Effect<void, TrainerError>
    /** Sends an analytics record, one way: arrival and order are not promised. What can't be sent is a warning. */
    readonly log: (record: Analytics.AnalyticsRecord) => Effect.Effect<void>
    /** Gives up the task last received. */
    readonly clear: Effect.Effect<void>
    /** Ends when the service has said that no further task comes. */
    readonly stopped: Effect.Effect<void>
    /** Fails when the session has ended by an abort, a lost service, or its Scope. */
    readonly ended: Effect.Effect<never, TrainerError>
    /** How far the arrays of tasks and results have come that are downloaded, from now on. A slow reader misses some. */
    readonly progress: Stream.Stream<TransferProgress>
  }
>()("fl-attach/trainer/TrainerSession") {}

/** The task in hand. */
interface Current {
  readonly task: TrainerTask
  /** Whether the program has seen the model: `isRunning` alone does not entitle to `send`. */
  received: boolean
  /** One id for all sendings of the task's result. */
  resultId: string | undefined
  isAccepted: boolean
}

const noTask = (message: string) => trainerError(new NoTask({ message }))

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
  const { attachId, siteName } = state.expected
  const { cudaEmptyCache, exchange, jobId, memoryGcRounds } = binding
  let current: Current | undefined

  const stopped = state.stopped.await
  const ended = Deferred.await(state.ended)

  // Not to be interrupted between taking a task and keeping it.
  const take = Effect.uninterruptibleMask((restore) =>
    Effect.map(restore(Queue.take(state.tasks)), (task) => {
      current = { task, received: false, resultId: undefined, isAccepted: false }
      state.ledger.advance(task.id, "DELIVERED")
      return Option.some(current)
    })
  )

  /** Fails after an abort; true once there is nothing more to come. */
  const over = Effect.suspend(() =>
    Effect.flatMap(Deferred.poll(state.ended), (outcome) =>
      Option.isSome(outcome) ? outcome.value : Effect.succeed(Latch.isOpen(state.stopped))
    )
  )

  const next = Effect.fnUntraced(function* (giveUp: Effect.Effect<void>) {
    const none = Option.none<Current>()
    if (yield* over) return none
    if (current !== undefined) return Option.some(current)
    return yield* Effect.raceFirst(take, Effect.raceFirst(ended, Effect.as(Effect.raceFirst(stopped, giveUp), none)))
  })

  const receiveOr = (giveUp: Effect.Effect<void>) =>
    Effect.map(
      next(giveUp),
      Option.map((task) => {
        task.received = true
        return task.task.model
      })
    )

  const deliver = Effect.fn("TrainerSession.deliver")(
    function* (sent: Current, result: Shareable) {
      const { task } = sent
      Latch.closeUnsafe(state.idle)
      state.ledger.advance(task.id, "RESULT_PUBLISHING")
      sent.resultId ??= yield* newId
      const fetched = yield* publish(state, binding, { task, resultId: sent.resultId, result }, newId)
      sent.isAccepted = true
      yield* fetched
      state.ledger.advance(task.id, "COMPLETE")
    },
    // What was on offer goes first: until then a heartbeat says so.
    Effect.scoped,
    // Before the settlement, as the reference does: no heartbeat may claim a source that is done.
    Effect.ensuring(state.idle.open)
  )

  /** The task to answer. */
  const claim = Effect.gen(function* () {
    if (yield* over) {
      const reason = "the service ended the session"
      return yield* trainerError(
        new SessionEnded({ by: "shutdown", reason, message: `${reason}: this result is not wanted any more` })
      )
    }
    if (current === undefined || !current.received) {
      return yield* noTask("there is no task to answer: call receive before send")
    }
    const { name } = current.task
    if (current.isAccepted) {
      return yield* noTask(`a result of task "${name}" was accepted already: call clear, then receive the next one`)
    }
    if (!Latch.isOpen(state.idle)) return yield* noTask(`a result of task "${name}" is on its way already`)
    return current
  })

  const submit = Effect.fnUntraced(function* (
    build: (task: TrainerTask) => Result.Result<Shareable, string>,
    { clearCache = true }: SendOptions = {}
  ) {
    const sent = yield* claim
    const result = build(sent.task)
    if (Result.isFailure(result)) return yield* trainerError(new InvalidModel({ message: result.failure }))
    const outcome = yield* Effect.exit(deliver(sent, result.success))
    // An accepted result is not sent again, whatever became of its arrays.
    const isOver = Exit.isSuccess(outcome) ? clearCache : sent.isAccepted
    if (isOver && current === sent) current = undefined
    if (sent.isAccepted) yield* settle(state, binding, sent.task.id)
    return yield* outcome
  })

  const isNamed = (name: string) => Effect.sync(() => current?.task.name === name)

  return TrainerSession.of({
    attachId,
    siteName,
    jobId,
    exchange,
    config: { siteName, jobId, exchange, memoryGcRounds, cudaEmptyCache },
    systemInfo: { siteName, jobId },
    receive: receiveOr(Effect.never),
    receiveWithin: (limit) => receiveOr(Effect.sleep(limit)),
    isRunning: Effect.catch(Effect.map(next(Effect.never), Option.isSome), () => Effect.succeed(false)),
    taskName: Effect.sync(() => Option.fromNullishOr(current?.task.name)),
    isTrain: isNamed(exchange.train_task_name),
    isEvaluate: isNamed(exchange.eval_task_name),
    isSubmitModel: isNamed(exchange.submit_model_task_name),
    send: Effect.fn("TrainerSession.send")(function* (model: FLModel, options?: SendOptions) {
      yield* annotated(
        state,
        submit((task) => resultOf(exchange, task.model, model), options)
      )
    }),
    sendFailure: Effect.fn("TrainerSession.sendFailure")(function* (returnCode: string) {
      yield* annotated(
        state,
        submit(() => Result.succeed(new Shareable([[Header.returnCode, returnCode]])))
      )
    }),
    log: Effect.fn("TrainerSession.log")(function* (record: Analytics.AnalyticsRecord) {
      if (yield* Deferred.isDone(state.ended)) return
      const unsent = (why: string) => annotated(state, Effect.logWarning(`log record "${record.tag}" not sent: ${why}`))
      const body = Analytics.toLog(binding.sessionId, record)
      if (Result.isFailure(body)) return yield* unsent(body.failure.message)
      yield* state.cell
        .send(binding.cjFqcn, ClientApi.Topic.log, body.success, { optional: true, secure: state.secure })
        .pipe(Effect.catch(({ message }) => unsent(message)))
    }),
    clear: Effect.sync(() => {
      current = undefined
    }),
    stopped,
    ended,
    progress: Stream.filter(state.cell.transfers, ({ peer }) => peer === binding.cjFqcn)
  })
}

const defaultExchange: ClientApi.TaskExchange = {
  train_with_eval: false,
  exchange_format: "raw",
  server_expected_format: "numpy",
  transfer_type: "FULL",
  train_task_name: "train",
  eval_task_name: "validate",
  submit_model_task_name: "submit_model",
  launch_once: true
}

/**
 * The session of a rank other than "0", which has none.
 *
 * @category constructors
 * @since 0.1.0
 */
export const makePassive = (attachId: string, siteName: string): TrainerSession["Service"] => {
  const nothing = Effect.succeedNone
  const no = Effect.succeed(false)
  return TrainerSession.of({
    attachId,
    siteName,
    jobId: "",
    exchange: defaultExchange,
    config: { siteName, jobId: "", exchange: defaultExchange, memoryGcRounds: 0, cudaEmptyCache: false },
    systemInfo: { siteName, jobId: "" },
    receive: nothing,
    receiveWithin: () => nothing,
    isRunning: no,
    taskName: nothing,
    isTrain: no,
    isEvaluate: no,
    isSubmitModel: no,
    send: () => Effect.void,
    sendFailure: () => Effect.void,
    log: (record) => Effect.logWarning(`log record "${record.tag}" not sent: only rank 0 has a session`),
    clear: Effect.void,
    stopped: Effect.void,
    ended: Effect.never,
    progress: Stream.never
  })
}
