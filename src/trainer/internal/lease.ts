/**
 * Heartbeats to the CJ, and the end of the session when it is silent. Source: docs/wire/attach.md, section 7.2.
 */
import { Clock, Deferred, Duration, Effect, Latch, Option, Random } from "effect"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import type { Binding } from "./binding.ts"
import { okBody } from "./replies.ts"
import { end, type TrainerState, touch } from "./state.ts"

const beat = Effect.fnUntraced(function* (state: TrainerState, binding: Binding) {
  const { cell, idle, secure } = state
  const payload = ClientApi.body({ session_id: binding.sessionId, result_source_live: !Latch.isOpen(idle) })
  const timeout = Duration.min(binding.heartbeatInterval, binding.heartbeatTimeout)
  const reply = yield* Effect.option(
    cell.request(binding.cjFqcn, ClientApi.Topic.heartbeat, payload, { timeout, secure })
  )
  const body = Option.flatMap(reply, okBody)
  const isValid = Option.exists(
    body,
    ({ reply_topic, session_id }) => reply_topic === ClientApi.ReplyTopic.heartbeat && session_id === binding.sessionId
  )
  if (isValid) yield* touch(state)
})

const beats = (state: TrainerState, binding: Binding, jitter: number) => {
  const { heartbeatInterval } = binding
  const pause = Effect.flatMap(Random.next, (draw) =>
    Effect.sleep(Duration.millis(Duration.toMillis(heartbeatInterval) * (1 - jitter * draw)))
  )
  // Each beat in a fiber of its own, so that a slow answer does not delay the next one.
  return Effect.scoped(Effect.forever(Effect.andThen(pause, Effect.forkScoped(beat(state, binding)))))
}

/** Ends when no transfer is under way; `false` when none was. */
const transfersOver = Effect.fnUntraced(function* ({ offers }: TrainerState) {
  const pending = yield* Effect.filter(offers, ({ isPending }) => isPending)
  yield* Effect.forEach(pending, ({ outcome }) => outcome, { discard: true })
  return pending.length > 0
})

/** Sleeps until the lease would end, and looks again. A CJ that may yet fetch a result holds it, however silent. */
const watch = Effect.fnUntraced(function* (state: TrainerState, binding: Binding) {
  const limit = binding.heartbeatTimeout
  while (true) {
    const silent = Duration.nanos((yield* Clock.monotonicTimeNanos) - state.heardAt)
    if (Duration.isGreaterThan(silent, limit)) {
      if (yield* transfersOver(state)) continue
      const reason = `${binding.cjFqcn} was silent for ${Duration.format(silent)}, and its heartbeat_timeout is ${Duration.format(limit)}`
      return end(state, "lease", reason, `the session ended with its lease: ${reason}`)
    }
    yield* Effect.sleep(Duration.sum(Duration.subtract(limit, silent), Duration.millis(1)))
  }
})

/**
 * Keeps the lease of a session until it is over; there is nothing to keep where the timeout is 0. After a SHUTDOWN it
 * goes on for as long as a result is being sent. `jitter` is the part of the interval, from 0 to 1, by which a pause
 * may be shorter.
 */
export const keep = (state: TrainerState, binding: Binding, jitter: number): Effect.Effect<void> => {
  if (Duration.isZero(binding.heartbeatTimeout)) return Effect.void
  const over = Effect.andThen(state.stopped.await, state.idle.await)
  return Effect.raceFirst(
    Effect.raceFirst(watch(state, binding), beats(state, binding, jitter)),
    Effect.raceFirst(Effect.ignore(Deferred.await(state.ended)), over)
  )
}
