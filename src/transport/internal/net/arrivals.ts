/** Peers that have come to a listener and wait to be accepted. */
import { Effect, Queue, type Scope } from "effect"
import type { DriverListener, FrameLink } from "../../Drivers.ts"
import type { TransportError } from "../../TransportError.ts"
import * as Complaints from "../complaints.ts"
import { closed } from "../errors.ts"

/** A peer that waits: `take` makes its link, `drop` sends it away. */
export interface Arrival {
  readonly take: Effect.Effect<FrameLink, TransportError, Scope.Scope>
  readonly drop: () => void
}

export interface Arrivals {
  readonly add: (arrival: Arrival) => void
  readonly accept: DriverListener["accept"]
  /** Logs what is wrong with a client that was not let in. */
  readonly complain: (text: string) => void
  /** No more come: those that wait are sent away. */
  readonly close: (target: string) => Effect.Effect<void>
}

const maxComplaints = 64

/** `name` is the listener's, for the log. */
export const make = Effect.fnUntraced(function* (name: string): Effect.fn.Return<Arrivals, never, Scope.Scope> {
  const waiting = yield* Queue.unbounded<Arrival, TransportError>()
  const complaints = yield* Queue.dropping<string>(maxComplaints)
  const complain = Complaints.make(name)
  yield* Effect.forkScoped(Effect.forever(Effect.flatMap(Queue.take(complaints), complain)))
  return {
    complain: (text) => {
      Queue.offerUnsafe(complaints, text)
    },
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
