/**
 * The orderly end of a backend. Source: docs/wire/attach.md, sections 6.7 and 14.1.
 */
import { Deferred, Duration, Effect, Exit, Fiber, Option } from "effect"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import type { AttachError } from "../AttachError.ts"
import { disconnected, type SessionContext } from "../AttachSession.ts"
import type { BackendState } from "./trainerMessages.ts"

/** Tells whoever holds the session that it is over; the reply says whether a result is still being served. */
const shutdown = Effect.fn("AttachBackend.shutdown")(function* (context: SessionContext, state: BackendState) {
  const reply = yield* context.cell
    .request(
      context.trainer.trainerFqcn,
      ClientApi.Topic.shutdown,
      ClientApi.body({ session_id: state.session.id, reason: "job ended" }),
      { timeout: context.config.controlTimeout, optional: true, secure: context.secure }
    )
    .pipe(Effect.option)
  const body = Option.flatMap(reply, ({ payload }) => ClientApi.read(ClientApi.Body.shutdownReply)(payload))
  if (Option.isSome(body) && !body.value.result_source_live) context.authority.reportLive(false)
  return Option.isSome(reply)
})

/**
 * Runs as a finalizer, so it is not interruptible: every wait in it has a bound or an event that must come.
 * A pending task fails first; then the trainer is told; then it gets the time it needs to serve and settle its last
 * accepted result, since a route that vanishes under it costs it long waits.
 */
export const finalize = Effect.fn("AttachBackend.finalize")(function* (
  context: SessionContext,
  state: BackendState,
  supervisor: Fiber.Fiber<void>,
  closed: Effect.Effect<void>,
  closedError: AttachError
) {
  state.closed = true
  if (state.active !== undefined) Deferred.doneUnsafe(state.active.outcome, Exit.fail(closedError))
  yield* Fiber.interrupt(supervisor)
  const { config, authority } = context
  const over = yield* Deferred.isDone(state.session.ended)
  if (state.session.offered && !over && (yield* shutdown(context, state)) && state.session.accepted) {
    const gone = disconnected(context, state.session)
    const served = Effect.timeoutOption(authority.idle, config.finalizeTimeout)
    const outcome = yield* Effect.raceFirst(served, Effect.asSome(gone))
    if (Option.isNone(outcome)) {
      yield* Effect.logWarning(
        `trainer ${context.trainer.trainerFqcn} still serves its last result after finalizeTimeout (${Duration.format(config.finalizeTimeout)}); it is left alone`
      )
    }
    const settled = Effect.andThen(authority.settled, context.cell.flush(context.trainer.trainerFqcn))
    yield* Effect.timeoutOption(Effect.raceFirst(settled, gone), config.settleLinger)
  }
  yield* closed
})
