/**
 * A trainer written in TypeScript: attach to a service, train what it sends, send back what came of it.
 *
 * Source: docs/wire/attach.md, section 7.
 *
 * @since 0.1.0
 */
import { Clock, Deferred, Duration, Effect, Latch, Option, Queue, type Scope } from "effect"
import { SecureRandom } from "effect/crypto"
import * as Cell from "../cell/Cell.ts"
import * as Rendezvous from "../clientapi/Rendezvous.ts"
import { trainerPrefix } from "../clientapi/TrainerName.ts"
import * as Fqcn from "../identity/Fqcn.ts"
import type { FLModel } from "../model/FLModel.ts"
import type { FileLock } from "../platform/FileLock.ts"
import type { PrivateFiles } from "../platform/PrivateFiles.ts"
import type { Drivers } from "../transport/Drivers.ts"
import type { Binding, Expected } from "./internal/binding.ts"
import { serve } from "./internal/jobMessages.ts"
import { keep } from "./internal/lease.ts"
import type { TrainerState, TrainerTask } from "./internal/state.ts"
import { TaskLedger } from "./TaskLedger.ts"
import { NoSession, RouteFailed, SessionEnded, type TrainerError, trainerError } from "./TrainerError.ts"
import * as TrainerGuard from "./TrainerGuard.ts"
import type { TrainerProfile } from "./TrainerProfile.ts"
import * as Session from "./TrainerSession.ts"

/**
 * What a trainer needs from its surroundings.
 *
 * @category models
 * @since 0.1.0
 */
export type Requirements = Drivers | FileLock | PrivateFiles | SecureRandom.SecureRandom

/** Time that is left of a bound; `undefined` = no bound. */
type Remaining = Effect.Effect<Duration.Duration | undefined>

interface Found {
  readonly connectUrl: string
  readonly cpFqcn: string
  readonly cjFqcn: string | undefined
}

const noSession = (limit: Duration.Duration | undefined, stage: NoSession["stage"], why: string) =>
  trainerError(
    new NoSession({
      limit: limit ?? Duration.infinity,
      stage,
      message: `no service opened a session within job_wait_timeout (${Duration.format(limit ?? Duration.infinity)}): ${why}`
    })
  )

const find = Effect.fnUntraced(function* (profile: TrainerProfile, remaining: Remaining) {
  const { source } = profile
  if (source._tag === "Url") {
    return { connectUrl: source.connectUrl, cpFqcn: source.cpFqcn, cjFqcn: source.cjFqcn } satisfies Found
  }
  const record = yield* Rendezvous.wait({
    root: source.root,
    siteName: profile.siteName,
    attachId: profile.attachId,
    timeout: yield* remaining
  }).pipe(
    Effect.mapError(({ message, reason }) =>
      reason._tag === "NotPublished"
        ? noSession(profile.jobWaitTimeout, "rendezvous", message)
        : trainerError(new RouteFailed({ kind: reason._tag, message }))
    )
  )
  return { connectUrl: record.connectUrl, cpFqcn: Fqcn.parent(record.cjFqcn), cjFqcn: record.cjFqcn } satisfies Found
})

const makeState = Effect.fnUntraced(function* (profile: TrainerProfile, found: Found, expected: Expected) {
  const cell = yield* Cell.make({ fqcn: expected.trainerFqcn }).pipe(
    Effect.mapError(({ message, reason }) => trainerError(new RouteFailed({ kind: reason._tag, message })))
  )
  const state: TrainerState = {
    cell,
    expected,
    secure: profile.isProtected,
    ledger: new TaskLedger(),
    tasks: yield* Queue.unbounded<TrainerTask>(),
    bound: Deferred.makeUnsafe(),
    ended: Deferred.makeUnsafe(),
    stopped: Latch.makeUnsafe(false),
    binding: undefined,
    heardAt: 0n,
    sending: false
  }
  // The guard stands before the first connection does.
  yield* cell.guard(
    TrainerGuard.rule({
      cpFqcn: found.cpFqcn,
      secure: state.secure,
      boundCj: () => state.binding?.cjFqcn ?? expected.cjFqcn
    })
  )
  yield* serve(state)
  return state
})

const awaitSession = (state: TrainerState, profile: TrainerProfile, url: string, remaining: Remaining) =>
  Effect.gen(function* () {
    const left = yield* remaining
    const bound = Deferred.await(state.bound)
    if (left === undefined) return yield* bound
    return yield* Effect.timeoutOrElse(bound, {
      duration: left,
      orElse: () => Effect.fail(noSession(profile.jobWaitTimeout, "session", `no SESSION_OPEN came by ${url}`))
    })
  })

/**
 * Attaches to the service that the profile names and waits for its session; the session lives as long as the Scope.
 * Fails with `RouteFailed` or `NoSession`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const attach = Effect.fn("Trainer.attach")(function* (
  profile: TrainerProfile
): Effect.fn.Return<Session.TrainerSession["Service"], TrainerError, Requirements | Scope.Scope> {
  if (profile.isProtected) {
    const message =
      "the profile asks for protected messages, which this version does not speak: it will not attach in clear"
    return yield* trainerError(new RouteFailed({ kind: "ProtectionUnsupported", message }))
  }
  const random = yield* SecureRandom.SecureRandom
  const newId = Effect.map(random.uuidV4(), (uuid) => uuid.replaceAll("-", ""))
  const started = yield* Clock.monotonicTimeNanos
  const limit = profile.jobWaitTimeout
  const remaining: Remaining = Effect.map(Clock.monotonicTimeNanos, (now) =>
    limit === undefined
      ? undefined
      : Duration.max(Duration.zero, Duration.subtract(limit, Duration.nanos(now - started)))
  )

  const found = yield* find(profile, remaining)
  const expected: Expected = {
    attachId: profile.attachId,
    siteName: profile.siteName,
    cpFqcn: found.cpFqcn,
    trainerFqcn: Fqcn.join(found.cpFqcn, `${trainerPrefix}${profile.attachId}`),
    rank: "0",
    cjFqcn: found.cjFqcn
  }
  const state = yield* makeState(profile, found, expected)
  yield* state.cell
    .connect(found.connectUrl)
    .pipe(Effect.mapError(({ message, reason }) => trainerError(new RouteFailed({ kind: reason._tag, message }))))
  const binding = yield* awaitSession(state, profile, found.connectUrl, remaining)
  yield* Effect.logInfo(`attached to ${binding.cjFqcn}`).pipe(
    Effect.annotateLogs({ attach_id: profile.attachId, session_id: binding.sessionId })
  )
  yield* Effect.forkScoped(keep(state, binding))
  yield* Effect.addFinalizer(() => close(state, binding))
  return Session.make(state, binding, newId)
})

/** A call that outlives the trainer's Scope fails, rather than waiting for ever. */
const close = (state: TrainerState, binding: Binding) =>
  Deferred.fail(
    state.ended,
    trainerError(
      new SessionEnded({
        by: "close",
        reason: "the trainer closed",
        message: `the session with ${binding.cjFqcn} was closed by this trainer`
      })
    )
  )

/** The reference's code for a task that its trainer could not do (docs/wire/fobs.md, section 5.1). */
const executionException = "EXECUTION_EXCEPTION"

/**
 * Attaches, answers each task with what `train` makes of its model, and ends when the service ends the session.
 *
 * `train` may use {@link Session.TrainerSession}, to log or to look at the task. An abort or a lost service interrupts
 * it, an orderly end of the service, too, but never a send. When it fails, the service is told (`EXECUTION_EXCEPTION`)
 * and `run` fails with the same error.
 *
 * @category constructors
 * @since 0.1.0
 */
export const run = <E, R>(
  profile: TrainerProfile,
  train: (model: FLModel) => Effect.Effect<FLModel, E, R>
): Effect.Effect<void, E | TrainerError, Exclude<R, Session.TrainerSession> | Requirements> =>
  Effect.scoped(
    Effect.gen(function* () {
      const session = yield* attach(profile)
      yield* serveTasks(session, train)
    })
  )

/**
 * Answers the tasks of an attached session; see {@link run}.
 *
 * @category combinators
 * @since 0.1.0
 */
export const serveTasks = Effect.fn("Trainer.serveTasks")(function* <E, R>(
  session: Session.TrainerSession["Service"],
  train: (model: FLModel) => Effect.Effect<FLModel, E, R>
): Effect.fn.Return<void, E | TrainerError, Exclude<R, Session.TrainerSession>> {
  const over = Effect.raceFirst(session.ended, Effect.as(session.stopped, Option.none<FLModel>()))
  while (true) {
    const model = yield* session.receive
    if (Option.isNone(model)) return
    const training = train(model.value).pipe(
      Effect.provideService(Session.TrainerSession, session),
      Effect.tapError(() => Effect.ignore(session.sendFailure(executionException)))
    )
    const result = yield* Effect.raceFirst(Effect.asSome(training), over)
    if (Option.isNone(result)) return
    yield* session.send(result.value)
  }
})
