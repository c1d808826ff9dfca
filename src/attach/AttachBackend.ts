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
import { type Config, Context, Effect, Layer, PubSub, type Scope, Stream, SubscriptionRef } from "effect"
import { SecureRandom } from "effect/crypto"
import { Cell } from "../cell/Cell.ts"
import type { TransferProgress } from "../cell/TransferProgress.ts"
import { trainerName } from "../clientapi/TrainerName.ts"
import type { AnalyticsRecord } from "../model/Analytics.ts"
import type { Shareable } from "../model/Shareable.ts"
import { type AttachOptions, attachConfig, decodeAttachConfig } from "./AttachConfig.ts"
import { type AttachError, attachError, BackendBusy, ConfigInvalid } from "./AttachError.ts"
import * as AttachMetrics from "./AttachMetrics.ts"
import { AttachRoute } from "./AttachRoute.ts"
import { AttachSession } from "./AttachSession.ts"
import type { AttachTask } from "./AttachTask.ts"
import * as Doubles from "./internal/doubles.ts"
import { finalize } from "./internal/finalize.ts"
import { requireCredentials } from "./internal/protection.ts"
import { type Backend, closedError } from "./internal/state.ts"
import { supervise } from "./internal/supervisor.ts"
import { runTask } from "./internal/taskRun.ts"
import { serve } from "./internal/trainerMessages.ts"
import { ResultAuthority } from "./ResultAuthority.ts"
import type { SessionState } from "./SessionState.ts"

/**
 * @category services
 * @since 0.1.0
 */
export class AttachBackend extends Context.Service<
  AttachBackend,
  {
    readonly attachId: string
    /**
     * Has the trainer do a task and waits for its result; waits for the trainer, too, and through a reconnect. One task
     * at a time. Interrupting it tells the trainer to abort, which ends the session.
     *
     * No task fails whose result was accepted, but for one case: a result whose return code is not `OK` is the trainer's
     * own word that it failed (`TaskFailed`), and the session goes on.
     *
     * The result's memory is the caller's own: nobody else reads it or writes to it.
     */
    readonly execute: (task: AttachTask) => Effect.Effect<Shareable, AttachError>
    readonly session: Effect.Effect<SessionState>
    /** The present state, then each change; `Closed` is the last. */
    readonly sessionChanges: Stream.Stream<SessionState>
    /** What the trainer logs, from the time of subscription on; what a slow reader leaves behind is dropped. */
    readonly analytics: Stream.Stream<AnalyticsRecord>
    /** How many log records were dropped since readers were slow. */
    readonly analyticsDropped: Effect.Effect<number>
    /** How far the arrays of tasks and results have come that are downloaded, from now on. A slow reader misses some. */
    readonly progress: Stream.Stream<TransferProgress>
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

  /**
   * As `layer`, with the settings of {@link attachConfig}, from the program's ConfigProvider.
   *
   * @since 0.1.0
   */
  static readonly layerConfig = (
    name?: string
  ): Layer.Layer<AttachBackend, AttachError | Config.ConfigError, Cell | AttachRoute | SecureRandom.SecureRandom> =>
    Layer.effect(AttachBackend, Effect.flatMap(attachConfig(name), make))
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
  if (secure) yield* requireCredentials(cell)
  const session = new AttachSession(yield* newId)
  const why = `waiting for trainer ${trainer.trainerFqcn}`
  const backend: Backend = {
    cell,
    config,
    trainer,
    authority: new ResultAuthority(),
    secure,
    direct,
    newId,
    states: yield* SubscriptionRef.make<SessionState>({ _tag: "Opening", sessionId: session.id, why }),
    analytics: yield* Effect.acquireRelease(PubSub.dropping<AnalyticsRecord>(analyticsCapacity), PubSub.shutdown),
    session,
    active: undefined,
    unreadable: undefined,
    closed: false,
    droppedLogs: 0
  }
  yield* serve(backend)
  yield* Effect.forkScoped(Doubles.watch(backend), { startImmediately: true })
  yield* AttachMetrics.moved(undefined, "Opening")
  yield* Effect.acquireRelease(Effect.forkDetach(supervise(backend)), (supervisor) => finalize(backend, supervisor))

  let isBusy = false
  const execute = Effect.fn("AttachBackend.execute")(function* (request: AttachTask) {
    if (backend.closed) return yield* closedError(backend)
    if (isBusy) {
      return yield* attachError(
        new BackendBusy({
          attachId: trainer.attachId,
          taskName: request.name,
          message: `a task of trainer ${trainer.trainerFqcn} is under way; it takes "${request.name}" when that one is over`
        })
      )
    }
    isBusy = true
    return yield* Effect.ensuring(
      runTask(backend, request),
      Effect.sync(() => {
        isBusy = false
        backend.active = undefined
      })
    )
  })

  return AttachBackend.of({
    attachId: trainer.attachId,
    execute,
    session: SubscriptionRef.get(backend.states),
    sessionChanges: Stream.takeUntil(SubscriptionRef.changes(backend.states), ({ _tag }) => _tag === "Closed"),
    analytics: Stream.fromPubSub(backend.analytics),
    analyticsDropped: Effect.sync(() => backend.droppedLogs),
    progress: Stream.filter(cell.transfers, ({ peer }) => peer === trainer.trainerFqcn)
  })
})
