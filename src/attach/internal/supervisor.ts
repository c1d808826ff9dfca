/** Keeps one session with the trainer, generation after generation. Source: docs/wire/attach.md, section 6.1. */
import { Deferred, Effect, Exit, SubscriptionRef } from "effect"
import { type AttachError, attachError, SessionAborted } from "../AttachError.ts"
import * as AttachMetrics from "../AttachMetrics.ts"
import { AttachSession } from "../AttachSession.ts"
import type { SessionState } from "../SessionState.ts"
import { watch } from "./lease.ts"
import { open } from "./opening.ts"
import type { Backend } from "./state.ts"

/** Enters a state; nothing follows `Closed`. */
export const become = Effect.fnUntraced(function* (backend: Backend, next: SessionState) {
  const before = yield* SubscriptionRef.get(backend.states)
  if (before._tag === "Closed") return
  yield* AttachMetrics.moved(before._tag, next._tag)
  yield* SubscriptionRef.set(backend.states, next)
  const log = next._tag === "Failed" ? Effect.logWarning : Effect.logInfo
  yield* log(`session ${next._tag.toLowerCase()}: ${next.why}`).pipe(
    Effect.annotateLogs({ attach_id: backend.trainer.attachId, session_id: next.sessionId })
  )
})

/** Whether a fresh session follows one that ended so. */
const recovers = ({ config }: Backend, { reason }: AttachError): boolean =>
  config.allowReconnect && (reason._tag === "SessionLost" || reason._tag === "SessionAborted")

/** Ends a session, once: its task fails first, then nobody is offered it any more. Returns when that has been told. */
const end = Effect.fnUntraced(function* (backend: Backend, session: AttachSession, error: AttachError) {
  if (!Deferred.doneUnsafe(session.ended, Exit.fail(error))) return yield* Deferred.await(session.told)
  if (backend.active?.session === session) Deferred.doneUnsafe(backend.active.outcome, Exit.fail(error))
  // A result that is being fetched comes too late, whatever it is.
  yield* backend.cell.cancelDownloads(backend.trainer.trainerFqcn, error.message)
  yield* AttachMetrics.failed(error)
  yield* become(
    backend,
    recovers(backend, error)
      ? { _tag: "Opening", sessionId: session.id, why: `${error.message}; a fresh session follows` }
      : { _tag: "Failed", sessionId: session.id, why: error.message, reason: error.reason }
  ).pipe(Effect.annotateLogs(AttachMetrics.failureAttributes(error)))
  yield* Deferred.succeed(session.told, undefined)
}, Effect.uninterruptible)

/** A trainer that got ABORT serves no further task: its session is over. */
export const endAborted = (backend: Backend, session: AttachSession, reason: string): Effect.Effect<void> =>
  end(
    backend,
    session,
    attachError(
      new SessionAborted({
        attachId: backend.trainer.attachId,
        sessionId: session.id,
        reason,
        message: `the session of trainer ${backend.trainer.trainerFqcn} ended with an abort (${reason}); the trainer has to be started again`
      })
    )
  )

const generation = Effect.fn("AttachBackend.session")(function* (backend: Backend, session: AttachSession) {
  const { attachId, trainerFqcn } = backend.trainer
  yield* Effect.annotateCurrentSpan({ attach_id: attachId, session_id: session.id })
  const lived = Effect.gen(function* () {
    yield* open(backend, session)
    yield* become(backend, { _tag: "Ready", sessionId: session.id, why: `trainer ${trainerFqcn} accepted` })
    return yield* watch(backend, session, (silent) =>
      become(
        backend,
        silent
          ? { _tag: "Silent", sessionId: session.id, why: "its lease is over, but it still serves an accepted result" }
          : { _tag: "Ready", sessionId: session.id, why: "heard again" }
      )
    )
  })
  const error = yield* Effect.flip(lived)
  yield* end(backend, session, error)
  return error
})

/** Ends when no session follows any more. */
export const supervise = Effect.fnUntraced(function* (backend: Backend) {
  while (true) {
    const error = yield* generation(backend, backend.session)
    if (!recovers(backend, error)) return
    backend.authority.abandon()
    backend.session = new AttachSession(yield* backend.newId)
    yield* become(backend, {
      _tag: "Opening",
      sessionId: backend.session.id,
      why: `waiting for a trainer again: ${error.message}`
    })
  }
})
