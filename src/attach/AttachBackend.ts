/**
 * A trainer that others started, as a service: give it tasks, get results, each exactly once.
 *
 * A supervised fiber keeps one session with the trainer; `execute` borrows it for one task. What is held is acquired in
 * the layer's Scope and released in the reverse order: the session is shut down (and the trainer given time to settle
 * its last result) while its handlers still answer, then the handlers go, then the route's claim.
 *
 * Source: docs/wire/attach.md, sections 5 and 6.
 *
 * @since 0.1.0
 */
import {
  Context,
  Deferred,
  Duration,
  Effect,
  Exit,
  Layer,
  Option,
  PubSub,
  type Scope,
  Stream,
  SubscriptionRef
} from "effect"
import { SecureRandom } from "effect/crypto"
import { Cell } from "../cell/Cell.ts"
import * as ClientApi from "../clientapi/ClientApi.ts"
import { type TrainerName, trainerName } from "../clientapi/TrainerName.ts"
import type { AnalyticsRecord } from "../model/Analytics.ts"
import { Header, type Shareable } from "../model/Shareable.ts"
import { type AttachConfig, type AttachOptions, decodeAttachConfig } from "./AttachConfig.ts"
import {
  type AttachError,
  AttachTimeout,
  attachError,
  BackendBusy,
  BackendClosed,
  ConfigInvalid,
  ResultTimeout,
  SessionAborted
} from "./AttachError.ts"
import { AttachRoute } from "./AttachRoute.ts"
import { AttachSession, open, type SessionContext, watch } from "./AttachSession.ts"
import type { ActiveTask, AttachTask } from "./AttachTask.ts"
import { finalize } from "./internal/finalize.ts"
import { type BackendState, serve } from "./internal/trainerMessages.ts"
import { ResultAuthority } from "./ResultAuthority.ts"
import type { SessionState } from "./SessionState.ts"
import { deliver } from "./TaskDelivery.ts"

/**
 * @category services
 * @since 0.1.0
 */
export class AttachBackend extends Context.Service<
  AttachBackend,
  {
    readonly attachId: string
    /**
     * Has the trainer do a task and waits for its result, whatever its return code; waits for the trainer, too. One
     * task at a time. Interrupting it tells the trainer to abort, which ends the session.
     */
    readonly execute: (task: AttachTask) => Effect.Effect<Shareable, AttachError>
    readonly session: Effect.Effect<SessionState>
    /** The present state, then each change. */
    readonly sessionChanges: Stream.Stream<SessionState>
    /** What the trainer logs, from the time of subscription on; what a slow reader leaves behind is dropped. */
    readonly analytics: Stream.Stream<AnalyticsRecord>
  }
>()("fl-attach/attach/AttachBackend") {
  /**
   * A backend for one trainer. The layer is ready at once; whether the trainer is, `session` tells.
   *
   * @since 0.1.0
   */
  static readonly layer = (
    options: AttachOptions
  ): Layer.Layer<AttachBackend, AttachError, Cell | AttachRoute | SecureRandom.SecureRandom> =>
    Layer.effect(AttachBackend, make(options))
}

/** Room for log records that no subscriber has taken yet; beyond it records are dropped and counted. */
const analyticsCapacity = 1024

/**
 * Builds a backend in the present Scope; {@link AttachBackend.layer} is the usual way.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fn("AttachBackend.make")(function* (
  options: AttachOptions
): Effect.fn.Return<
  AttachBackend["Service"],
  AttachError,
  Cell | AttachRoute | SecureRandom.SecureRandom | Scope.Scope
> {
  const config = yield* decodeAttachConfig(options)
  const cell = yield* Cell
  const route = yield* AttachRoute
  const random = yield* SecureRandom.SecureRandom
  const newId = Effect.map(random.uuidV4(), (uuid) => uuid.replaceAll("-", ""))

  const trainer = yield* Effect.mapError(Effect.fromResult(trainerName(cell.fqcn, config.attachId)), (error) =>
    attachError(new ConfigInvalid({ setting: "fqcn", message: `the cell can't host a backend: ${error.message}` }))
  )
  const { direct, secure } = yield* route.open(trainer)
  const authority = new ResultAuthority()
  const context: SessionContext = { cell, config, trainer, authority, secure, direct }

  const first = new AttachSession(yield* newId)
  const state: BackendState = {
    session: first,
    active: undefined,
    closed: false,
    droppedLogs: 0,
    analytics: yield* Effect.acquireRelease(PubSub.dropping<AnalyticsRecord>(analyticsCapacity), PubSub.shutdown)
  }
  yield* serve(cell, context, state)

  const states = yield* SubscriptionRef.make<SessionState>({
    _tag: "Opening",
    sessionId: first.id,
    why: `waiting for trainer ${trainer.trainerFqcn}`
  })
  const become = (next: SessionState) =>
    Effect.andThen(
      SubscriptionRef.set(states, next),
      Effect.logInfo(`session ${next._tag.toLowerCase()}: ${next.why}`).pipe(
        Effect.annotateLogs({ attach_id: trainer.attachId, session_id: next.sessionId })
      )
    )

  /** Whether a fresh session follows one that ended so. */
  const recovers = (error: AttachError) =>
    config.allowReconnect && (error.reason._tag === "SessionLost" || error.reason._tag === "SessionAborted")

  /** Ends the present session: its task fails first, then nobody is offered it any more. */
  const end = Effect.fnUntraced(function* (session: AttachSession, error: AttachError) {
    if (!Deferred.doneUnsafe(session.ended, Exit.fail(error))) return
    if (state.active?.session === session) Deferred.doneUnsafe(state.active.outcome, Exit.fail(error))
    yield* recovers(error)
      ? become({ _tag: "Opening", sessionId: session.id, why: `${error.message}; a fresh session follows` })
      : become({ _tag: "Failed", sessionId: session.id, why: error.message, reason: error.reason })
  })

  const generation = Effect.fn("AttachBackend.session")(function* (session: AttachSession) {
    yield* open(context, session)
    yield* become({ _tag: "Ready", sessionId: session.id, why: `trainer ${trainer.trainerFqcn} accepted` })
    return yield* watch(context, session, (silent) =>
      become(
        silent
          ? { _tag: "Silent", sessionId: session.id, why: "its lease is over, but it still serves an accepted result" }
          : { _tag: "Ready", sessionId: session.id, why: "heard again" }
      )
    )
  })

  const supervise = Effect.gen(function* () {
    while (true) {
      const error = yield* Effect.flip(generation(state.session))
      yield* end(state.session, error)
      if (!recovers(error)) return
      authority.abandon()
      state.session = new AttachSession(yield* newId)
      yield* become({
        _tag: "Opening",
        sessionId: state.session.id,
        why: `waiting for a trainer again: ${error.message}`
      })
    }
  })

  const closedError = attachError(
    new BackendClosed({
      attachId: trainer.attachId,
      message: `the backend of trainer ${trainer.trainerFqcn} is closed`
    })
  )

  /** The session that takes a task now, or the reason for which none will. */
  const usable = Effect.fnUntraced(function* () {
    const { session } = state
    const now = yield* SubscriptionRef.get(states)
    if (state.closed) return yield* closedError
    if (now._tag === "Failed") return yield* attachError(now.reason)
    const ready = session.accepted && (now._tag === "Ready" || now._tag === "Silent")
    return ready && now.sessionId === session.id && !(yield* Deferred.isDone(session.ended))
      ? Option.some(session)
      : Option.none()
  })

  const readySession = Effect.fn("AttachBackend.readySession")(function* () {
    const wait = SubscriptionRef.changes(states).pipe(
      Stream.mapEffect(usable),
      Stream.filter(Option.isSome),
      Stream.runHead
    )
    const found = yield* boundReady(config, trainer, wait)
    return yield* Option.match(Option.flatten(found), { onNone: () => closedError, onSome: Effect.succeed })
  })

  /** Tells the trainer to give the task up; it serves no other after that. */
  const abort = Effect.fn("AttachBackend.abort")(function* (task: ActiveTask, reason: string) {
    const payload = ClientApi.body({ session_id: task.session.id, reason })
    yield* Effect.ignore(cell.send(trainer.trainerFqcn, ClientApi.Topic.abort, payload, { optional: true, secure }))
    yield* end(
      task.session,
      attachError(
        new SessionAborted({
          attachId: trainer.attachId,
          sessionId: task.session.id,
          reason,
          message: `the session of trainer ${trainer.trainerFqcn} ended with an abort (${reason}); the trainer has to be started again`
        })
      )
    )
  })

  /** Not interruptible, since the outcome that it sets ends the fiber that it runs in. */
  const giveUp = Effect.fnUntraced(function* (task: ActiveTask, limit: Duration.Duration) {
    const timeout = attachError(
      new ResultTimeout({
        attachId: trainer.attachId,
        taskName: task.name,
        limit,
        message: `trainer ${trainer.trainerFqcn} brought no result of task "${task.name}" within resultWaitTimeout (${Duration.format(limit)})`
      })
    )
    if (Deferred.doneUnsafe(task.outcome, Exit.fail(timeout))) {
      yield* abort(task, `task "${task.name}" result timed out`)
    }
  }, Effect.uninterruptible)

  /** Delivers the task and bounds the wait for its result; whatever goes wrong becomes the task's outcome. */
  const work = Effect.fnUntraced(function* (task: ActiveTask) {
    const failure = yield* Effect.raceFirst(
      Effect.flip(deliver(context, task, newId)).pipe(
        Effect.map(Option.some),
        Effect.catch(() => Effect.succeed(Option.none<AttachError>()))
      ),
      Effect.as(Effect.exit(Deferred.await(task.outcome)), Option.none<AttachError>())
    )
    if (Option.isSome(failure)) return void Deferred.doneUnsafe(task.outcome, Exit.fail(failure.value))
    if (config.resultWaitTimeout !== undefined) {
      yield* Effect.sleep(config.resultWaitTimeout)
      yield* giveUp(task, config.resultWaitTimeout)
    }
  })

  const run = Effect.fnUntraced(function* (request: AttachTask) {
    const session = yield* readySession()
    const round = request.data.headers.get(Header.currentRound)
    const task: ActiveTask = {
      id: yield* newId,
      seq: session.nextSeq(),
      name: request.name,
      data: request.data.withHeaders([
        [Header.jobId, trainer.jobId],
        [Header.siteName, trainer.siteName]
      ]),
      session,
      outcome: Deferred.makeUnsafe()
    }
    // Registered before TASK_READY leaves: a fast trainer's result overtakes the answer to its delivery.
    state.active = task
    yield* Effect.forkScoped(work(task))
    const result = yield* Deferred.await(task.outcome).pipe(
      Effect.onInterrupt(() =>
        Deferred.doneUnsafe(task.outcome, Exit.fail(closedError))
          ? abort(task, `task "${task.name}" aborted`)
          : Effect.void
      )
    )
    return round === undefined ? result : result.withHeaders([[Header.currentRound, round]])
  }, Effect.scoped)

  let busy = false
  const execute = Effect.fn("AttachBackend.execute")(function* (request: AttachTask) {
    if (state.closed) return yield* closedError
    if (busy) {
      return yield* attachError(
        new BackendBusy({
          attachId: trainer.attachId,
          taskName: request.name,
          message: `a task of trainer ${trainer.trainerFqcn} is under way; it takes "${request.name}" when that one is over`
        })
      )
    }
    busy = true
    return yield* Effect.ensuring(
      run(request),
      Effect.sync(() => {
        busy = false
        state.active = undefined
      })
    )
  })

  const supervisor = yield* Effect.forkDetach(supervise)
  yield* Effect.addFinalizer(() =>
    finalize(
      context,
      state,
      supervisor,
      Effect.suspend(() => become({ _tag: "Closed", sessionId: state.session.id, why: "the backend was closed" })),
      closedError
    )
  )

  return AttachBackend.of({
    attachId: trainer.attachId,
    execute,
    session: SubscriptionRef.get(states),
    sessionChanges: SubscriptionRef.changes(states),
    analytics: Stream.fromPubSub(state.analytics)
  })
})

const boundReady = <A>(
  config: AttachConfig,
  trainer: TrainerName,
  wait: Effect.Effect<A, AttachError>
): Effect.Effect<A, AttachError> => {
  const limit = config.readyTimeout
  if (limit === undefined) return wait
  return Effect.timeoutOrElse(wait, {
    duration: limit,
    orElse: () =>
      Effect.fail(
        attachError(
          new AttachTimeout({
            attachId: trainer.attachId,
            setting: "readyTimeout",
            limit,
            message: `trainer ${trainer.trainerFqcn} was not ready for the task within readyTimeout (${Duration.format(limit)})`
          })
        )
      )
  })
}
