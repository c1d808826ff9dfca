/**
 * The contract of the reference's executor, over a backend: a job's events start and end the run, and every task has a
 * Shareable as its answer, errors as reply codes.
 *
 * For services that keep to NVFlare's shape. Others use {@link AttachBackend}, whose errors say more than a code.
 * Source: docs/wire/attach.md, sections 6.2 and 12.
 *
 * @since 0.1.0
 */
import { Cause, Context, Deferred, Effect, Exit, Layer, Scope } from "effect"
import type { SecureRandom } from "effect/crypto"
import type { Cell } from "../cell/Cell.ts"
import { Header, Shareable } from "../model/Shareable.ts"
import { type AttachBackend, make as makeBackend } from "./AttachBackend.ts"
import type { AttachOptions } from "./AttachConfig.ts"
import type { AttachError } from "./AttachError.ts"
import type { AttachRoute } from "./AttachRoute.ts"
import type { AttachTask } from "./AttachTask.ts"

/**
 * @category services
 * @since 0.1.0
 */
export class ClientApiExecutor extends Context.Service<
  ClientApiExecutor,
  {
    /** START_RUN: opens the backend, in place of one that is open. Its failure is what the reference calls a panic. */
    readonly startRun: Effect.Effect<void, AttachError>
    /**
     * Does a task. The answer's return code is the trainer's own, `TASK_ABORTED` after an abort, and
     * `EXECUTION_EXCEPTION` for all else that went wrong, also before START_RUN and after END_RUN; the log tells what.
     * `abortSignal` ends when this task is to be aborted.
     */
    readonly execute: (task: AttachTask, abortSignal?: Effect.Effect<unknown>) => Effect.Effect<Shareable>
    /** ABORT_TASK: aborts the task under way, if there is one; its trainer takes no other after that. */
    readonly abortTask: Effect.Effect<void>
    /** END_RUN: closes the backend in order. */
    readonly endRun: Effect.Effect<void>
  }
>()("fl-attach/attach/ClientApiExecutor") {
  /**
   * An executor for one trainer. A run that is not ended ends with the layer.
   *
   * @since 0.1.0
   */
  static readonly layer = (
    options: AttachOptions
  ): Layer.Layer<ClientApiExecutor, never, Cell | AttachRoute | SecureRandom.SecureRandom> =>
    Layer.effect(ClientApiExecutor, makeExecutor(options))
}

interface Run {
  readonly backend: AttachBackend["Service"]
  readonly scope: Scope.Closeable
}

/** An answer that is nothing but a return code (docs/wire/fobs.md, section 5.1). */
const codeOnly = (task: AttachTask, returnCode: string): Shareable => {
  const round = task.data.headers.get(Header.currentRound)
  return new Shareable([
    [Header.returnCode, returnCode],
    ...(round === undefined ? [] : [[Header.currentRound, round] as const])
  ])
}

const exception = "EXECUTION_EXCEPTION"

const toReply = (task: AttachTask, cause: Cause.Cause<AttachError>): Effect.Effect<Shareable> => {
  // Whoever interrupts the call wants no answer.
  if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(Cause.interrupt())
  const error = Cause.squash(cause)
  const reason = Cause.hasDies(cause) ? undefined : (error as AttachError).reason
  return Effect.as(
    Effect.logError(`task "${task.name}" has no result`, cause),
    codeOnly(task, reason?._tag === "TaskFailed" ? reason.returnCode : exception)
  )
}

const makeExecutor = Effect.fn("ClientApiExecutor.make")(function* (options: AttachOptions) {
  const services = yield* Effect.context<Cell | AttachRoute | SecureRandom.SecureRandom>()
  const home = yield* Effect.scope
  let run: Run | undefined
  let aborted = Deferred.makeUnsafe<void>()

  const endRun = Effect.suspend(() => {
    const ending = run
    run = undefined
    return ending === undefined ? Effect.void : Scope.close(ending.scope, Exit.void)
  })

  const startRun = Effect.fn("ClientApiExecutor.startRun")(function* () {
    yield* endRun
    const scope = yield* Scope.fork(home)
    const backend = yield* makeBackend(options).pipe(
      Scope.provide(scope),
      Effect.provide(services),
      Effect.tapError((error) => Effect.logError(`the executor can't start: ${error.message}`)),
      Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause)))
    )
    run = { backend, scope }
  })

  const execute = Effect.fn("ClientApiExecutor.execute")(function* (
    task: AttachTask,
    abortSignal: Effect.Effect<unknown> = Effect.never
  ) {
    if (run === undefined) {
      yield* Effect.logError(`task "${task.name}" has no backend: START_RUN failed or did not come, or END_RUN came`)
      return codeOnly(task, exception)
    }
    const abort = Effect.as(Effect.raceFirst(abortSignal, Deferred.await(aborted)), codeOnly(task, "TASK_ABORTED"))
    // An abort that is there already wins before anything is tried.
    return yield* Effect.raceFirst(abort, run.backend.execute(task)).pipe(
      Effect.catchCause((cause) => toReply(task, cause))
    )
  })

  return ClientApiExecutor.of({
    startRun: startRun(),
    execute,
    abortTask: Effect.sync(() => {
      Deferred.doneUnsafe(aborted, Exit.void)
      aborted = Deferred.makeUnsafe()
    }),
    endRun
  })
})
