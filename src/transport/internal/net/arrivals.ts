/** Peers that have come to a listener and wait to be accepted. */
import { Effect, Queue, type Scope } from "effect"
import type { DriverListener, FrameLink } from "../../Drivers.ts"
import type { TransportError } from "../../TransportError.ts"
import { closed } from "../errors.ts"

/** A peer that waits: `take` makes its link, `drop` sends it away. */
export interface Arrival {
  readonly take: Effect.Effect<FrameLink, TransportError, Scope.Scope>
  readonly drop: () => void
}

export interface Arrivals {
  readonly add: (arrival: Arrival) => void
  readonly accept: DriverListener["accept"]
  /** No more come: those that wait are sent away. */
  readonly close: (target: string) => Effect.Effect<void>
}

export const make: Effect.Effect<Arrivals> = Effect.gen(function* () {
  const waiting = yield* Queue.unbounded<Arrival, TransportError>()
  return {
    add: (arrival) => {
      if (!Queue.offerUnsafe(waiting, arrival)) {
        arrival.drop()
      }
    },
    accept: Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(restore(Queue.take(waiting)), (arrival) => arrival.take)
    ),
    close: (target) =>
      Effect.gen(function* () {
        for (const arrival of yield* Effect.orElseSucceed(Queue.clear(waiting), () => [])) {
          arrival.drop()
        }
        yield* Queue.fail(waiting, closed(target, "local", `the listener ${target} was closed here`))
      })
  }
})
