/**
 * A trainer written in TypeScript: attach to a service, train what it sends, send back what came of it.
 *
 * Source: docs/wire/attach.md, section 7.
 *
 * @since 0.1.0
 */
import { Cause, Config, Deferred, Effect, Exit, Option, type Scope } from "effect"
import { SecureRandom } from "effect/crypto"
import type { FLModel } from "../model/FLModel.ts"
import type { FileLock } from "../platform/FileLock.ts"
import { collectArrays } from "../platform/Garbage.ts"
import type { PrivateFiles } from "../platform/PrivateFiles.ts"
import type { Drivers } from "../transport/Drivers.ts"
import { connect } from "./internal/connect.ts"
import { keep } from "./internal/lease.ts"
import { annotated, end } from "./internal/state.ts"
import type { TrainerError } from "./TrainerError.ts"
import type { TrainerProfile } from "./TrainerProfile.ts"
import * as Session from "./TrainerSession.ts"

/**
 * What a trainer needs from its surroundings.
 *
 * @category models
 * @since 0.1.0
 */
export type Requirements = Drivers | FileLock | PrivateFiles | SecureRandom.SecureRandom

/**
 * @category models
 * @since 0.1.0
 */
export interface TrainerOptions {
  /**
   * This process's rank in a distributed training. Only rank "0" attaches; the others get their model from the training
   * framework. Default: the environment variable RANK (by Effect's ConfigProvider), or "0".
   */
  readonly rank?: string | number
  /**
   * The part of the heartbeat interval, from 0 to 1, by which a pause may be shorter, by chance: so that many trainers
   * don't beat at once. Default 0.
   */
  readonly heartbeatJitter?: number
}

const controlRank = "0"

const rankOf = (options: TrainerOptions) =>
  options.rank === undefined
    ? Effect.orElseSucceed(Config.withDefault(Config.String("RANK"), controlRank), () => controlRank)
    : Effect.succeed(String(options.rank))

/**
 * Attaches to the service that the profile names and waits for its session; the session lives as long as the Scope.
 * On a rank other than "0" there is nothing to wait for: see {@link Session.TrainerSession}.
 *
 * Fails with `RouteFailed` or `NoSession`. Nothing is left of an attach that fails or is interrupted, so that the next one
 * may follow in the same Scope; the failure waits until the peer has heard of it, half a second at most.
 *
 * @category constructors
 * @since 0.1.0
 */
export const attach = Effect.fn("Trainer.attach")(function* (
  profile: TrainerProfile,
  options: TrainerOptions = {}
): Effect.fn.Return<Session.TrainerSession["Service"], TrainerError, Requirements | Scope.Scope> {
  const rank = yield* rankOf(options)
  if (rank !== controlRank) {
    yield* Effect.logInfo(`rank ${rank} does not attach: rank ${controlRank} does`)
    return Session.makePassive(profile.attachId, profile.siteName)
  }
  const random = yield* SecureRandom.SecureRandom
  const newId = Effect.map(random.uuidV4(), (uuid) => uuid.replaceAll("-", ""))
  const { binding, state } = yield* connect(profile)
  yield* annotated(state, Effect.logInfo(`attached to ${binding.cjFqcn}`))
  yield* Effect.forkScoped(annotated(state, keep(state, binding, options.heartbeatJitter ?? 0)))
  // A call that outlives the Scope fails, rather than waiting for ever.
  yield* Effect.addFinalizer(() =>
    Effect.sync(() =>
      end(state, "close", "the trainer closed", `this trainer closed its session with ${binding.cjFqcn}`)
    )
  )
  // What is being fetched for a further task is not wanted any more.
  const over = Effect.raceFirst(Effect.ignore(Deferred.await(state.ended)), state.stopped.await)
  yield* Effect.forkScoped(Effect.andThen(over, state.cell.cancelDownloads(binding.cjFqcn, "the session is over")))
  return Session.make(state, binding, newId)
})

/**
 * Attaches, answers each task with what `train` makes of its model, and ends when the service ends the session. On a
 * rank other than "0" it ends at once.
 *
 * `train` may use {@link Session.TrainerSession}, to log or to look at the task. An abort or a lost service interrupts
 * it; an orderly end of the service does, too, but never a send. When it fails, by an error or a defect, the failure is
 * logged, the service is told (return code `EXECUTION_EXCEPTION`), and the next task is waited for; so it is when the
 * service refuses a result. Fails with `SessionEnded`, `ResultUncertain`, and as {@link attach}.
 *
 * @category constructors
 * @since 0.1.0
 */
export const run = <E, R>(
  profile: TrainerProfile,
  train: (model: FLModel) => Effect.Effect<FLModel, E, R>,
  options?: TrainerOptions
): Effect.Effect<void, TrainerError, Exclude<R, Session.TrainerSession> | Requirements> =>
  Effect.scoped(Effect.flatMap(attach(profile, options), (session) => serveTasks(session, train)))

/** The reference's code for a task that its trainer could not do (docs/wire/fobs.md, section 5.1). */
const executionException = "EXECUTION_EXCEPTION"

/**
 * Answers the tasks of an attached session; see {@link run}.
 *
 * @category combinators
 * @since 0.1.0
 */
export const serveTasks = Effect.fn("Trainer.serveTasks")(function* <E, R>(
  session: Session.TrainerSession["Service"],
  train: (model: FLModel) => Effect.Effect<FLModel, E, R>
): Effect.fn.Return<void, TrainerError, Exclude<R, Session.TrainerSession>> {
  while (true) {
    const held = yield* serveTask(session, train)
    if (Option.isNone(held)) return
    yield* collectArrays(held.value)
  }
})

/**
 * Serves one task and says how many bytes it held, or `None` when there is no further task. It has a frame of its own,
 * so that its models are gone with it.
 */
const serveTask = Effect.fnUntraced(function* <E, R>(
  session: Session.TrainerSession["Service"],
  train: (model: FLModel) => Effect.Effect<FLModel, E, R>
): Effect.fn.Return<Option.Option<number>, TrainerError, Exclude<R, Session.TrainerSession>> {
  const over = Effect.raceFirst(session.ended, Effect.as(session.stopped, Option.none<Exit.Exit<FLModel, E>>()))
  const model = yield* session.receive
  if (Option.isNone(model)) return Option.none()
  // Suspended, so that a `train` that throws outright fails like one whose effect does.
  const training = Effect.suspend(() => train(model.value)).pipe(
    Effect.provideService(Session.TrainerSession, session),
    Effect.exit
  )
  const outcome = yield* Effect.raceFirst(Effect.asSome(training), over)
  if (Option.isNone(outcome)) return Option.none()
  yield* Effect.catch(answer(session, outcome.value), (error) => goOn(session, error))
  return Option.some(2 * model.value.byteLength)
})

/** Sends what came of a task. A model that can't be sent is a failure of the training as any other. */
const answer = Effect.fnUntraced(function* <E>(
  session: Session.TrainerSession["Service"],
  outcome: Exit.Exit<FLModel, E>
): Effect.fn.Return<void, TrainerError> {
  if (Exit.isFailure(outcome)) {
    if (Cause.hasInterruptsOnly(outcome.cause)) return yield* Effect.interrupt
    return yield* failTask(session, outcome.cause)
  }
  yield* Effect.catchReason(session.send(outcome.value), "TrainerError", "InvalidModel", (reason) =>
    failTask(session, Cause.fail(reason))
  )
})

const failTask = Effect.fnUntraced(function* (session: Session.TrainerSession["Service"], cause: Cause.Cause<unknown>) {
  const name = Option.getOrElse(yield* session.taskName, () => "")
  yield* Effect.annotateLogs(
    Effect.logError(`task "${name}" failed here; the service is told`, cause),
    "attach_id",
    session.attachId
  )
  yield* session.sendFailure(executionException)
})

/**
 * Ends the trainer, or not: a service that refuses a result, or did not fetch what it accepted, waits for it no more, and
 * the next task comes; after a SHUTDOWN nothing is an error. A result that may be lost is one: the service would wait for
 * it for ever, were it not for the end of this session.
 */
const goOn = Effect.fnUntraced(function* (session: Session.TrainerSession["Service"], error: TrainerError) {
  const stopped = yield* Effect.raceFirst(Effect.as(session.stopped, true), Effect.succeed(false))
  const { _tag } = error.reason
  if (!stopped && _tag !== "ResultRejected" && _tag !== "ResultNotFetched") return yield* error
  yield* Effect.annotateLogs(Effect.logWarning(`going on: ${error.message}`), "attach_id", session.attachId)
  yield* session.clear
})
