import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { TestClock } from "effect/testing"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import type { FrameInfo } from "../../src/transport/MemoryDriver.ts"
import { moveUntil, moving, startParent, startService, startTrainer, task, valuesOf } from "./support.ts"

/** A network on which a parent dies: all its connections are cut at once, without a word, when `isDead`. */
const mortal = () => {
  const state = { isDead: false, data: 0, killAt: Number.POSITIVE_INFINITY }
  const onFrame = ({ bytes }: FrameInfo) =>
    Effect.sync(() => {
      if (bytes[6] === 1) {
        state.data += 1
        state.isDead ||= state.data === state.killAt
      }
      return state.isDead ? ("close" as const) : ("deliver" as const)
    })
  return { state, faults: { onFrame } }
}

/** Data frames of a round through a parent, each counted on both of its hops. */
const frames = Array.from({ length: 28 }, (_, index) => index + 1)

describe("a parent that is killed in a round, and started again", () => {
  it.effect.each(frames)("at data frame %d of it: the round completes, and so does the next", (killAt) => {
    const { faults, state } = mortal()
    return Effect.gen(function* () {
      const first = yield* startParent()
      yield* startTrainer("a", 1)
      const { backends } = yield* startService({ job: "job-1", ids: ["a"] })
      const [backend] = backends
      if (backend === undefined) return assert.fail("no backend")
      // Attached, before frames are counted.
      yield* moving(Effect.flatMap(task(0, [1]), backend.execute))
      yield* TestClock.adjust("1 second")
      state.data = 0
      state.killAt = killAt
      const started = yield* Clock.currentTimeMillis
      const round = yield* Effect.forkChild(
        Effect.flatMap(task(1, [2]), backend.execute).pipe(Effect.flatMap(valuesOf)),
        { startImmediately: true }
      )
      // The time moves on until the frame is there: a heartbeat may be it.
      while (!state.isDead) yield* TestClock.adjust("100 millis")
      yield* first.stop
      yield* TestClock.adjust("3 seconds")
      state.isDead = false
      yield* startParent()
      const values = yield* moveUntil(round)
      assert.deepStrictEqual(values, [3])
      // No more than the time until both are connected again, and one wait for what got lost.
      assert.isAtMost((yield* Clock.currentTimeMillis) - started, 15_000)
      const next = yield* moving(Effect.flatMap(task(2, [5]), backend.execute).pipe(Effect.flatMap(valuesOf)))
      assert.deepStrictEqual(next, [6])
    }).pipe(Effect.provide(MemoryNetwork.layer({ faults })))
  })
})
