/**
 * Rounds of federated training over trainers that others started.
 *
 * @since 0.1.0
 */
import { Clock, Data, Deferred, Duration, Effect, Fiber, Result, Stream } from "effect"
import type { AttachBackend } from "../attach/AttachBackend.ts"
import { type AttachError, attachError, BackendClosed, EncodeFailed, TaskFailed } from "../attach/AttachError.ts"
import { FLModel } from "../model/FLModel.ts"
import * as ModelExchange from "../model/ModelExchange.ts"
import type { Shareable } from "../model/Shareable.ts"
import { collectArrays } from "../platform/Garbage.ts"
import * as FedAvg from "./FedAvg.ts"
import type { FedAvgError } from "./FedAvgError.ts"
import * as SentModel from "./internal/sentModel.ts"

type Trainer = AttachBackend["Service"]

/**
 * What happens while rounds run. `round` counts from 0, as on the wire (`current_round`); `attempt` from 1.
 *
 * @category models
 * @since 0.1.0
 */
export type RoundEvent = Data.TaggedEnum<{
  RoundStarted: { readonly round: number; readonly totalRounds: number; readonly attempt: number }
  /**
   * A trainer's result is here. Once all are, the average may be made in the memory of one of them: what is to be kept
   * beyond the handling of this event must be copied.
   */
  ResultReceived: {
    readonly round: number
    readonly attachId: string
    readonly duration: Duration.Duration
    readonly result: FLModel
  }
  /** A trainer's result holds NaN or infinities, in these parameters. It counts all the same. */
  ResultNotFinite: { readonly round: number; readonly attachId: string; readonly parameters: ReadonlyArray<string> }
  /** A trainer's task failed; the round is over for now. */
  ResultMissing: { readonly round: number; readonly attachId: string; readonly error: AttachError }
  /** The results are aggregated: `model` is the global model from now on. */
  RoundDone: {
    readonly round: number
    readonly duration: Duration.Duration
    readonly results: number
    readonly model: FLModel
  }
}>

/**
 * Constructors and matchers of events.
 *
 * @category models
 * @since 0.1.0
 */
export const RoundEvent = Data.taggedEnum<RoundEvent>()

/**
 * @category models
 * @since 0.1.0
 */
export interface RoundsOptions<R = never, E = never> {
  /** Who trains; results are aggregated in this order. */
  readonly trainers: readonly [Trainer, ...ReadonlyArray<Trainer>]
  /**
   * The first global model, or what makes it: its parameters are what counts. A large one is better made: whoever holds
   * the options holds a model that is given, in all rounds; one that is made is let go once the first round is over.
   */
  readonly model: FLModel | Effect.Effect<FLModel, E, R>
  readonly rounds: number
  /** The name of the tasks; `train` by default. */
  readonly task?: string
  /**
   * How many rounds, over all, may be run again because a task of theirs failed; 0 by default. A lost or aborted
   * session takes no further task: without `allowReconnect` another try of it fails at once.
   */
  readonly retryRounds?: number
  /**
   * Whether results may have other parameters than the model that was sent, or others' shapes and dtypes. False by
   * default: such a result fails the rounds with `WrongParameter`.
   */
  readonly acceptChangedModel?: boolean
  readonly onEvent?: (event: RoundEvent) => Effect.Effect<void, never, R>
}

/**
 * Waits until all trainers have attached; fails as soon as one of them can't any more.
 *
 * @category combinators
 * @since 0.1.0
 */
export const awaitTrainers = Effect.fn("Rounds.awaitTrainers")(function* (
  trainers: ReadonlyArray<Trainer>
): Effect.fn.Return<void, AttachError> {
  const all = Effect.forEach(trainers, attached, { concurrency: "unbounded", discard: true })
  // One that had attached may be lost while the others are waited for.
  const lost = Effect.forEach(trainers, lostFor, { concurrency: "unbounded", discard: true })
  yield* Effect.raceFirst(all, Effect.andThen(lost, Effect.never))
})

/** Fails when the trainer can't attach any more. */
const lostFor = ({ sessionChanges }: Trainer) =>
  Stream.runForEach(sessionChanges, (state) =>
    state._tag === "Failed" ? Effect.fail(attachError(state.reason)) : Effect.void
  )

const attached = ({ attachId, sessionChanges }: Trainer) =>
  sessionChanges.pipe(
    Stream.mapEffect((state) => {
      if (state._tag === "Failed") return Effect.fail(attachError(state.reason))
      if (state._tag !== "Closed") return Effect.succeed(state._tag === "Ready")
      const message = `the backend of trainer "${attachId}" was closed before the trainer attached`
      return Effect.fail(attachError(new BackendClosed({ attachId, message })))
    }),
    Stream.takeUntil((isReady) => isReady),
    Stream.runDrain
  )

/**
 * Federated averaging: each round sends the global model to all trainers at the same time and makes the next one of
 * what they answer. The answer is the last global model; with one trainer it is that trainer's, to the last bit (but in
 * the byte order that the model was sent in).
 *
 * It fails with the first task that fails for good, which names the trainer; a return code other than `OK` is
 * `TaskFailed`. A result that does not fit the model that was sent is `WrongParameter` of a `FedAvgError`, which no
 * retry mends; NaN and infinities are told by a warning and an event. The tasks of the other trainers are then left to end by themselves or, with SHUTDOWN, when their backends
 * close: their sessions are sound. Interrupting it does abort all tasks, and with them the sessions.
 *
 * @category combinators
 * @since 0.1.0
 */
export const run = Effect.fn("Rounds.run")(function* <R = never, E = never>(
  options: RoundsOptions<R, E>
): Effect.fn.Return<FLModel, AttachError | FedAvgError | E, R> {
  const settings: Settings<R> = {
    trainers: options.trainers,
    task: options.task ?? "train",
    totalRounds: options.rounds,
    acceptChangedModel: options.acceptChangedModel ?? false,
    emit: options.onEvent ?? (() => Effect.void)
  }
  let retries = options.retryRounds ?? 0
  let model = yield* firstModel(options.model)
  for (let round = 0; round < options.rounds; round++) {
    let attempt = 1
    let done = yield* runRound(settings, { round, attempt, model, failFast: retries === 0 })
    while (Result.isFailure(done) && retries > 0) {
      retries--
      attempt++
      done = yield* runRound(settings, { round, attempt, model, failFast: retries === 0 })
    }
    model = yield* Effect.fromResult(done)
  }
  return model
})

const firstModel = <R, E>(given: FLModel | Effect.Effect<FLModel, E, R>): Effect.Effect<FLModel, E, R> =>
  Effect.map(
    given instanceof FLModel ? Effect.succeed(given) : given,
    ({ params }) => new FLModel({ params: params ?? [] })
  )

interface Settings<R> {
  readonly trainers: ReadonlyArray<Trainer>
  readonly task: string
  readonly totalRounds: number
  readonly acceptChangedModel: boolean
  readonly emit: (event: RoundEvent) => Effect.Effect<void, never, R>
}

interface Round {
  readonly round: number
  readonly attempt: number
  readonly model: FLModel
  /** Whether the first failure ends the round; a round that may run again waits for all, to find their sessions free. */
  readonly failFast: boolean
}

/** One round; a failed task is a failure value, since the round may run again, and a failed aggregation an error. */
const runRound = Effect.fnUntraced(function* <R>(settings: Settings<R>, { attempt, failFast, model, round }: Round) {
  const { emit, totalRounds } = settings
  yield* emit(RoundEvent.RoundStarted({ round, totalRounds, attempt }))
  const global = new FLModel({ params: model.params ?? [], startRound: 0, currentRound: round, totalRounds })
  // Of the round before, the model that it sent and all results but one.
  if (round > 0 || attempt > 1) yield* collectArrays(settings.trainers.length * model.byteLength)
  const started = yield* Clock.monotonicTimeNanos
  const next = yield* Effect.flatMap(gather(settings, global, round, failFast), (results) =>
    aggregate(settings, global, results)
  )
  if (Result.isFailure(next)) return next
  const duration = yield* since(started)
  yield* emit(RoundEvent.RoundDone({ round, duration, results: settings.trainers.length, model: next.success }))
  return next
})

/**
 * The next global model, if there are results; they are not to be used any more. Each is held against the model that was
 * sent, so that the trainer is named which changed it.
 */
const aggregate = <R, E>(
  { acceptChangedModel }: Settings<R>,
  global: FLModel,
  gathered: Result.Result<ReadonlyArray<FedAvg.TrainerResult>, E>
): Effect.Effect<Result.Result<FLModel, E>, FedAvgError> => {
  if (Result.isFailure(gathered)) return Effect.succeed(Result.fail(gathered.failure))
  const results = gathered.success
  const next = Result.gen(function* () {
    // What a backend gives is its caller's own.
    const options = { global, inPlace: true }
    if (acceptChangedModel) return yield* FedAvg.aggregate(results, options)
    for (const result of results) yield* SentModel.check(global, result)
    return SentModel.inByteOrderOf(global, yield* FedAvg.aggregate(results, options))
  })
  return Effect.map(Effect.fromResult(next), Result.succeed)
}

const since = (started: bigint) => Effect.map(Clock.monotonicTimeNanos, (now) => Duration.nanos(now - started))

/**
 * The results of all trainers in their order, or the first failure. The tasks have fibers of their own: a failed round
 * leaves the others at work, and only an interruption aborts them.
 */
const gather = <R>(settings: Settings<R>, global: FLModel, round: number, failFast: boolean) =>
  Effect.uninterruptibleMask(
    Effect.fnUntraced(function* (restore) {
      const failed = yield* Deferred.make<never, AttachError>()
      const state = { isOver: false }
      // Nobody wants to hear of the tasks that a failed round left behind.
      const emit = (event: RoundEvent) => Effect.suspend(() => (state.isOver ? Effect.void : settings.emit(event)))
      const fibers = yield* Effect.forEach(settings.trainers, (trainer) =>
        Effect.forkDetach(
          restore(ask({ ...settings, emit }, trainer, global, round)).pipe(
            Effect.tapError((error) => Deferred.fail(failed, error))
          )
        )
      )
      const all = Effect.flatMap(Fiber.awaitAll(fibers), (exits) => Effect.all(exits))
      const outcome = failFast ? Effect.raceFirst(all, Deferred.await(failed)) : all
      const results = yield* Effect.result(restore(outcome)).pipe(Effect.onInterrupt(() => Fiber.interruptAll(fibers)))
      state.isOver = true
      return results
    })
  )

/** One trainer's part of a round. */
const ask = Effect.fnUntraced(
  function* <R>({ emit, task }: Settings<R>, trainer: Trainer, global: FLModel, round: number) {
    const started = yield* Clock.monotonicTimeNanos
    const data = yield* Effect.mapError(Effect.fromResult(ModelExchange.toShareable(global)), ({ message }) =>
      attachError(new EncodeFailed({ attachId: trainer.attachId, taskName: task, message }))
    )
    const model = yield* Effect.flatMap(trainer.execute({ name: task, data }), (result) =>
      Effect.fromResult(readResult(trainer.attachId, task, result))
    )
    const duration = yield* since(started)
    yield* emit(RoundEvent.ResultReceived({ round, attachId: trainer.attachId, duration, result: model }))
    yield* tellNotFinite(emit, round, trainer.attachId, model)
    return { trainer: trainer.attachId, model } satisfies FedAvg.TrainerResult
  },
  (self, { emit }, { attachId }, _global, round) =>
    Effect.tapError(self, (error) => emit(RoundEvent.ResultMissing({ round, attachId, error })))
)

const namesShown = 5

/** Training may get over it; whoever watches is to know. */
const tellNotFinite = Effect.fnUntraced(function* <R>(
  emit: Settings<R>["emit"],
  round: number,
  attachId: string,
  model: FLModel
) {
  const parameters = SentModel.notFinite(model)
  if (parameters.length === 0) return
  const names = parameters.slice(0, namesShown).map((name) => JSON.stringify(name))
  const more = parameters.length > namesShown ? ` and ${parameters.length - namesShown} more` : ""
  yield* Effect.logWarning(
    `result of trainer "${attachId}" in round ${round + 1}: NaN or infinity in ${names.join(", ")}${more}`
  )
  yield* emit(RoundEvent.ResultNotFinite({ round, attachId, parameters }))
})

const readResult = (attachId: string, taskName: string, result: Shareable): Result.Result<FLModel, AttachError> => {
  const { returnCode } = result
  return Result.mapError(ModelExchange.fromShareable(result), (error) => {
    const message = `trainer "${attachId}" answered task "${taskName}" with something that is no model: ${error.message}`
    return attachError(new TaskFailed({ attachId, taskName, returnCode, message }))
  })
}
