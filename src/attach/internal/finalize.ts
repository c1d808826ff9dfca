/** The orderly end of a backend. Source: docs/wire/attach.md, sections 6.7 and 14.1. */
import { Deferred, Duration, Effect, Exit, Fiber, Option } from "effect"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import { formatDuration } from "../../platform/DurationText.ts"
import { sourceGrace } from "../AttachConfig.ts"
import { disconnected } from "./lease.ts"
import { type Backend, closedError } from "./state.ts"
import { become } from "./supervisor.ts"

/** Tells whoever holds the session that it is over; the reply says whether a result is still being served. */
const shutdown = Effect.fn("AttachBackend.shutdown")(function* (backend: Backend) {
  const { authority, cell, config, secure, session, trainer } = backend
  const reply = yield* cell
    .request(
      trainer.trainerFqcn,
      ClientApi.Topic.shutdown,
      ClientApi.body({ session_id: session.id, reason: "job ended" }),
      { timeout: config.controlTimeout, optional: true, secure }
    )
    .pipe(Effect.option)
  const body = Option.flatMap(reply, ({ payload }) => ClientApi.read(ClientApi.Body.shutdownReply)(payload))
  if (Option.isSome(body) && !body.value.result_source_live) authority.reportLive(false)
})

/** Whether somebody may hold the session, if only since an answer got lost; a trainer that refused it does not. */
const isOwed = Effect.fnUntraced(function* ({ session }: Backend) {
  const ended = yield* Deferred.poll(session.ended)
  if (Option.isNone(ended)) return true
  return (yield* Effect.flip(ended.value)).reason._tag !== "SessionRejected"
})

/** The time that a trainer needs to serve and settle its last accepted result: a route that vanishes costs it waits. */
const letSettle = Effect.fnUntraced(function* (backend: Backend) {
  const { authority, cell, config, session, trainer } = backend
  const grace = sourceGrace(config)
  const left = (setting: string, limit: Duration.Duration, why: string) =>
    Effect.logWarning(`the last result of trainer ${trainer.trainerFqcn} is not settled: ${why}`).pipe(
      Effect.annotateLogs({ setting, limit: formatDuration(limit) })
    )
  const served = Effect.raceFirst(Effect.as(authority.idle, true), Effect.as(disconnected(backend, session), false))
  const outcome = yield* Effect.timeoutOption(served, Duration.sum(config.finalizeTimeout, grace))
  if (Option.isNone(outcome)) {
    const { finalizeTimeout } = config
    const bounds = `finalizeTimeout (${formatDuration(finalizeTimeout)}) and sourceGrace (${formatDuration(grace)})`
    return yield* left("finalizeTimeout", finalizeTimeout, `it is still being served after ${bounds}`)
  }
  if (!outcome.value) {
    return yield* left(
      "sourceGrace",
      grace,
      `it is disconnected for longer than sourceGrace (${formatDuration(grace)})`
    )
  }
  const settled = Effect.andThen(authority.settled, cell.flush(trainer.trainerFqcn))
  yield* Effect.timeoutOption(settled, config.settleLinger)
})

/**
 * Runs as a finalizer, so it is not interruptible: every wait in it has a bound or an event that must come.
 * Pending calls fail first; then the trainer is told; then it may settle. A session that ended hears the trainer no
 * more, so there is nothing to wait for.
 */
export const finalize = Effect.fn("AttachBackend.finalize")(
  function* (backend: Backend, supervisor: Fiber.Fiber<void>) {
    const { active, session } = backend
    backend.closed = true
    if (active !== undefined) Deferred.doneUnsafe(active.outcome, Exit.fail(closedError(backend)))
    yield* backend.cell.cancelDownloads(backend.trainer.trainerFqcn, "the backend was closed")
    yield* become(backend, { _tag: "Closed", sessionId: session.id, why: "the backend was closed" })
    yield* Fiber.interrupt(supervisor)
    // The session may be another one by now.
    if (yield* isOwed(backend)) yield* shutdown(backend)
    if (backend.session.isUsable) yield* letSettle(backend)
  },
  (self, { trainer, session }) => Effect.annotateLogs(self, { attach_id: trainer.attachId, session_id: session.id })
)
