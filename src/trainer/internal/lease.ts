/**
 * Heartbeats to the CJ, and the end of the session when it is silent. Source: docs/wire/attach.md, section 7.2.
 */
import { Clock, Deferred, Duration, Effect, Exit, Option, Schedule } from "effect"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import { SessionEnded, trainerError } from "../TrainerError.ts"
import type { Binding } from "./binding.ts"
import type { TrainerState } from "./state.ts"

const beat = Effect.fnUntraced(function* (state: TrainerState, binding: Binding) {
  const { cell } = state
  const reply = yield* cell
    .request(
      binding.cjFqcn,
      ClientApi.Topic.heartbeat,
      ClientApi.body({ session_id: binding.sessionId, result_source_live: state.sending }),
      { timeout: Duration.min(binding.heartbeatInterval, binding.heartbeatTimeout), secure: state.secure }
    )
    .pipe(Effect.option)
  const body = Option.flatMap(reply, ({ payload }) => ClientApi.read(ClientApi.Body.resultReply)(payload))
  const valid = Option.exists(
    body,
    ({ reply_topic, session_id }) => reply_topic === ClientApi.ReplyTopic.heartbeat && session_id === binding.sessionId
  )
  if (valid) state.heardAt = yield* Clock.monotonicTimeNanos
})

const watch = Effect.fnUntraced(function* (state: TrainerState, binding: Binding) {
  const limit = binding.heartbeatTimeout
  while (true) {
    const silent = Duration.nanos((yield* Clock.monotonicTimeNanos) - state.heardAt)
    if (Duration.isLessThanOrEqualTo(silent, limit)) {
      yield* Effect.sleep(Duration.sum(Duration.subtract(limit, silent), Duration.millis(1)))
      continue
    }
    const reason = `heartbeat_timeout is ${Duration.format(limit)}, ${binding.cjFqcn} silent for ${Duration.format(silent)}`
    Deferred.doneUnsafe(
      state.ended,
      Exit.fail(trainerError(new SessionEnded({ by: "lease", reason, message: `CJ heartbeat timed out: ${reason}` })))
    )
    return
  }
})

/**
 * Keeps the lease of a session until it has ended; forever quiet where the session has none. It beats on after a
 * SHUTDOWN, since a result may still be on its way.
 */
export const keep = (state: TrainerState, binding: Binding): Effect.Effect<void> => {
  if (Duration.isZero(binding.heartbeatTimeout)) return Effect.void
  // Each beat in a fiber of its own, so that a slow answer does not delay the next one.
  const beats = Effect.scoped(
    Effect.forkScoped(beat(state, binding)).pipe(
      Effect.delay(binding.heartbeatInterval),
      Effect.repeat(Schedule.forever)
    )
  )
  return Effect.raceFirst(
    watch(state, binding),
    Effect.raceFirst(beats, Effect.ignore(Deferred.await(state.ended)))
  ).pipe(Effect.asVoid)
}
