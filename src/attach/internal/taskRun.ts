/** One task from its request to its outcome. Source: docs/wire/attach.md, section 6.2. */
import { Clock, Deferred, Duration, Effect, Exit, Option, Stream, SubscriptionRef } from "effect"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import { Header, type Shareable } from "../../model/Shareable.ts"
import { formatDuration } from "../../platform/DurationText.ts"
import { AttachTimeout, attachError, ResultTimeout, TaskFailed } from "../AttachError.ts"
import * as AttachMetrics from "../AttachMetrics.ts"
import type { AttachSession } from "../AttachSession.ts"
import type { ActiveTask, AttachTask } from "../AttachTask.ts"
import type { SessionState } from "../SessionState.ts"
import { deliver } from "../TaskDelivery.ts"
import { type Backend, closedError, usableSession } from "./state.ts"
import { endAborted } from "./supervisor.ts"

/** Ends when a session takes tasks, or fails with the reason for which none will. */
const ready = (backend: Backend) =>
  SubscriptionRef.changes(backend.states).pipe(
    Stream.mapEffect((state: SessionState) => {
      if (backend.closed) return Effect.fail(closedError(backend))
      return state._tag === "Failed" ? Effect.fail(attachError(state.reason)) : Effect.succeed(usableSession(backend))
    }),
    Stream.filter(Option.isSome),
    Stream.runHead
  )

/**
 * The active task on the present session, if that takes one. Synchronous, so that no session ends between the look at
 * it and the registration; and before TASK_READY leaves, since a fast result overtakes the answer to its delivery.
 */
const register = (backend: Backend, request: AttachTask, id: string): Option.Option<ActiveTask> =>
  Option.map(usableSession(backend), (session: AttachSession) => {
    const { jobId, siteName } = backend.trainer
    const task: ActiveTask = {
      id,
      seq: session.nextSeq(),
      name: request.name,
      data: request.data.withHeaders([
        [Header.jobId, jobId],
        [Header.siteName, siteName]
      ]),
      session,
      outcome: Deferred.makeUnsafe()
    }
    backend.active = task
    backend.unreadable = undefined
    return task
  })

const begin = Effect.fnUntraced(function* (backend: Backend, request: AttachTask) {
  const id = yield* backend.newId
  const registered = Effect.gen(function* () {
    while (true) {
      const task = register(backend, request, id)
      if (Option.isSome(task)) return task.value
      yield* ready(backend)
    }
  })
  const limit = backend.config.readyTimeout
  if (limit === undefined) return yield* registered
  const { attachId, trainerFqcn } = backend.trainer
  const message = `trainer ${trainerFqcn} was not ready for the task within readyTimeout (${formatDuration(limit)})`
  return yield* Effect.timeoutOrElse(registered, {
    duration: limit,
    orElse: () => Effect.fail(attachError(new AttachTimeout({ attachId, setting: "readyTimeout", limit, message })))
  })
})

/** Tells the trainer to give the task up; it serves no other after that. A trainer that doesn't read is not waited for. */
const abort = Effect.fn("AttachBackend.abort")(function* (backend: Backend, task: ActiveTask, reason: string) {
  const { cell, config, secure, trainer } = backend
  const payload = ClientApi.body({ session_id: task.session.id, reason })
  yield* cell
    .send(trainer.trainerFqcn, ClientApi.Topic.abort, payload, { optional: true, secure })
    .pipe(Effect.timeoutOption(config.controlTimeout), Effect.ignore)
  yield* endAborted(backend, task.session, reason)
})

/** Not interruptible, since the outcome that it sets ends the fiber that it runs in. */
const giveUp = Effect.fnUntraced(function* (backend: Backend, task: ActiveTask, limit: Duration.Duration) {
  const { attachId, trainerFqcn } = backend.trainer
  const why = backend.unreadable === undefined ? "" : `; one came, but could not be read: ${backend.unreadable}`
  const timeout = attachError(
    new ResultTimeout({
      attachId,
      taskName: task.name,
      limit,
      message: `trainer ${trainerFqcn} brought no result of task "${task.name}" within resultWaitTimeout (${formatDuration(limit)})${why}`
    })
  )
  if (Deferred.doneUnsafe(task.outcome, Exit.fail(timeout))) {
    yield* abort(backend, task, `task '${task.name}' result timed out`)
  }
}, Effect.uninterruptible)

/** Delivers the task and bounds the wait for its result; whatever goes wrong becomes the task's outcome. */
const work = Effect.fnUntraced(function* (backend: Backend, task: ActiveTask) {
  const over = Effect.as(Effect.exit(Deferred.await(task.outcome)), Exit.void)
  const delivery = yield* Effect.raceFirst(Effect.exit(deliver(backend, task, backend.newId)), over)
  if (Exit.isFailure(delivery)) return void Deferred.doneUnsafe(task.outcome, Exit.failCause(delivery.cause))
  const limit = backend.config.resultWaitTimeout
  if (limit === undefined) return
  yield* Effect.sleep(limit)
  yield* giveUp(backend, task, limit)
})

/** An accepted result is a failure in one case only: the trainer says so itself, by a return code. */
const judge = (backend: Backend, request: AttachTask, result: Shareable) => {
  if (result.returnCode === "OK") {
    const round = request.data.headers.get(Header.currentRound)
    return Effect.succeed(round === undefined ? result : result.withHeaders([[Header.currentRound, round]]))
  }
  const { attachId } = backend.trainer
  const { returnCode } = result
  const message = `trainer "${attachId}" answered task "${request.name}" with ${returnCode}: its own log tells why`
  return Effect.fail(attachError(new TaskFailed({ attachId, taskName: request.name, returnCode, message })))
}

const measured = Effect.fnUntraced(function* (backend: Backend, request: AttachTask, task: ActiveTask) {
  const started = yield* Clock.monotonicTimeNanos
  yield* Effect.forkScoped(work(backend, task))
  return yield* Deferred.await(task.outcome).pipe(
    Effect.onInterrupt(() =>
      Deferred.doneUnsafe(task.outcome, Exit.fail(closedError(backend)))
        ? abort(backend, task, `task '${task.name}' aborted`)
        : Effect.void
    ),
    Effect.flatMap((result) => judge(backend, request, result)),
    Effect.tapError((error) => Effect.logWarning(`task "${task.name}" failed: ${error.message}`)),
    Effect.onExit((exit) =>
      Effect.flatMap(Clock.monotonicTimeNanos, (now) =>
        AttachMetrics.taskOver(outcomeOf(exit), Duration.nanos(now - started))
      )
    ),
    Effect.annotateLogs({ session_id: task.session.id, task_id: task.id })
  )
})

const outcomeOf = (exit: Exit.Exit<unknown, { readonly reason: { readonly _tag: string } }>): string =>
  Exit.isSuccess(exit)
    ? "ok"
    : Option.match(Exit.findErrorOption(exit), {
        onNone: () => "interrupted",
        onSome: ({ reason }) => reason._tag
      })

/** Runs a task on the next session that takes it. There must be no other one under way. */
export const runTask = Effect.fnUntraced(
  function* (backend: Backend, request: AttachTask) {
    yield* Effect.annotateCurrentSpan({ attach_id: backend.trainer.attachId, task_name: request.name })
    const task = yield* begin(backend, request)
    yield* Effect.annotateCurrentSpan({ session_id: task.session.id, task_id: task.id, task_seq: task.seq })
    return yield* measured(backend, request, task)
  },
  Effect.scoped,
  Effect.tapError(AttachMetrics.failed),
  (self, backend) => Effect.annotateLogs(self, { attach_id: backend.trainer.attachId })
)
