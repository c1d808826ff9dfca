/**
 * Heartbeats to the CJ, and the end of the session when it is silent. Source: docs/wire/attach.md, section 7.2.
 */
import { Clock, Deferred, Duration, Effect, Latch, Option, Random, Stream } from "effect"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import { formatDuration } from "../../platform/DurationText.ts"
import type { Binding } from "./binding.ts"
import { okBody } from "./replies.ts"
import { end, type TrainerState, touch, transferGrace } from "./state.ts"

const beat = Effect.fnUntraced(function* (state: TrainerState, binding: Binding) {
  const { cell, idle, secure } = state
  const payload = ClientApi.body({ session_id: binding.sessionId, result_source_live: !Latch.isOpen(idle) })
  // Behind a large transfer on a slow link an answer may take long, and is as good.
  const timeout = binding.heartbeatTimeout
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
  return Effect.forever(Effect.andThen(pause, Effect.forkScoped(beat(state, binding))))
}

/** Arrays that the CJ fetches, or serves, are words of the CJ. */
const listen = (state: TrainerState, { cjFqcn }: Binding) =>
  Stream.runForEach(
    Stream.filter(state.cell.transfers, ({ peer }) => peer === cjFqcn),
    () => touch(state)
  )

/** A fault of the connection a heartbeat before the silence or in it is taken for its reason. */
const faultSince = Effect.fnUntraced(function* ({ cell, heardAt }: TrainerState, binding: Binding) {
  const fault = yield* cell.linkFailure(binding.cjFqcn)
  const since = heardAt - Duration.toNanosUnsafe(binding.heartbeatInterval)
  return fault === undefined || fault.at < since ? "" : `; the connection failed before: ${fault.message}`
})

/** Sleeps until the lease would end, or something is fetched to the end, and looks again. */
const watch = Effect.fnUntraced(function* (state: TrainerState, binding: Binding) {
  while (true) {
    const pending = yield* Effect.filter(state.offers, ({ isPending }) => isPending)
    const fetched = Effect.forEach(pending, ({ outcome }) => outcome, { discard: true })
    const grace = pending.length === 0 ? Duration.zero : transferGrace
    const limit = Duration.sum(binding.heartbeatTimeout, grace)
    const silent = Duration.nanos((yield* Clock.monotonicTimeNanos) - state.heardAt)
    if (Duration.isGreaterThan(silent, limit)) {
      const reason = `${binding.cjFqcn} was silent for ${formatDuration(silent)}, and its heartbeat_timeout is ${formatDuration(binding.heartbeatTimeout)}${yield* faultSince(state, binding)}`
      const message = `the session ended with its lease: ${reason}`
      end(state, "lease", reason, message)
      return yield* Effect.logWarning(message)
    }
    const asleep = Effect.sleep(Duration.sum(Duration.subtract(limit, silent), Duration.millis(1)))
    yield* pending.length === 0 ? asleep : Effect.raceFirst(asleep, fetched)
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
  const kept = Effect.andThen(Effect.forkScoped(listen(state, binding)), beats(state, binding, jitter))
  return Effect.raceFirst(
    Effect.raceFirst(watch(state, binding), Effect.scoped(kept)),
    Effect.raceFirst(Effect.ignore(Deferred.await(state.ended)), over)
  )
}
