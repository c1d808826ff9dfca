/** PING and PONG. Source: docs/wire/transport.md, section 3. */
import { Duration, Effect, Queue, type Scope } from "effect"
import * as Frame from "../Frame.ts"
import type { FrameSender } from "./frameSender.ts"

/** So many answers may wait for a peer that takes nothing; further PINGs go unanswered. */
const maxWaiting = 16

/** Answers PINGs from a fiber of its own, so that a peer that takes nothing doesn't stop the reading. */
export const makeAnswering = Effect.fnUntraced(function* (
  sender: FrameSender
): Effect.fn.Return<() => void, never, Scope.Scope> {
  const waiting = yield* Queue.dropping<void>(maxWaiting)
  yield* Queue.take(waiting).pipe(
    Effect.flatMap(() => sender.signal(Frame.types.pong)),
    Effect.forever,
    Effect.ignore,
    Effect.forkScoped
  )
  return () => {
    Queue.offerUnsafe(waiting, undefined)
  }
})

/** Sends a PING after each `interval` of silence; times are monotonic milliseconds. */
export const startHeartbeat = Effect.fnUntraced(function* (
  sender: FrameSender,
  interval: number,
  now: () => number,
  lastReceived: () => number
) {
  yield* Effect.gen(function* () {
    let lastPing = 0
    while (true) {
      const due = Math.max(lastReceived(), lastPing) + interval
      const wait = due - now()
      if (wait > 0) {
        yield* Effect.sleep(Duration.millis(wait))
      } else {
        lastPing = now()
        yield* sender.signal(Frame.types.ping)
      }
    }
  }).pipe(Effect.ignore, Effect.forkScoped)
})
