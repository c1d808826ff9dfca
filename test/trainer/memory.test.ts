import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as NdMath from "../../src/fobs/NdMath.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import { AttachFleet } from "../../src/service/AttachFleet.ts"
import * as Rounds from "../../src/service/Rounds.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import { layerFleet } from "../service/fleetSupport.ts"
import { collectGarbage, makeWatch } from "../support/garbage.ts"

describe("the memory of a trainer", () => {
  it.effect("holds nothing of the tasks before the one in hand", () =>
    Effect.gen(function* () {
      const watch = makeWatch()
      const told: Array<ReadonlyArray<string>> = []
      yield* TestTrainer.start({ attachId: "a" }, (received) =>
        Effect.gen(function* () {
          yield* collectGarbage
          told.push(watch.alive())
          watch.add(`task ${received.currentRound}`, received)
          const trained = new FLModel({
            params: [...received.arrays].map(([name, array]) => [name, NdMath.addScalar(array, 1)] as const)
          })
          watch.add(`result ${received.currentRound}`, trained)
          return trained
        })
      )
      const fleet = yield* AttachFleet
      const running = yield* Effect.forkChild(
        Rounds.run({
          trainers: [yield* fleet.get({ attachId: "a" })],
          // Larger than what travels within a message.
          model: new FLModel({ params: [["w", NdArray.fromTyped(new Float32Array(100_000))]] }),
          rounds: 4
        })
      )
      yield* TestClock.adjust("20 seconds")
      yield* Fiber.join(running)
      assert.deepStrictEqual(told, [[], [], [], []])
    }).pipe(Effect.provide(layerFleet))
  )
})
