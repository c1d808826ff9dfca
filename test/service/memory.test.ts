import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as NdMath from "../../src/fobs/NdMath.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import { AttachFleet } from "../../src/service/AttachFleet.ts"
import { unshared } from "../../src/service/internal/memory.ts"
import * as Rounds from "../../src/service/Rounds.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import { elements } from "../fobs/arrays.ts"
import { collectGarbage, makeWatch } from "../support/garbage.ts"
import { layerFleet } from "./fleetSupport.ts"

/** Larger than what travels within a message. */
const large = () => new FLModel({ params: [["w", NdArray.fromTyped(new Float32Array(100_000))]] })

const adding = (by: number) => (received: FLModel) =>
  Effect.succeed(
    new FLModel({ params: [...received.arrays].map(([name, array]) => [name, NdMath.addScalar(array, by)] as const) })
  )

describe("the memory of rounds", () => {
  it.effect("holds the model that was sent and the next one when a round is over, and no other", () =>
    Effect.gen(function* () {
      yield* TestTrainer.start({ attachId: "a" }, adding(1))
      yield* TestTrainer.start({ attachId: "b" }, adding(3))
      const fleet = yield* AttachFleet
      const trainers = [yield* fleet.get({ attachId: "a" }), yield* fleet.get({ attachId: "b" })] as const
      const watch = makeWatch()
      const told: Array<ReadonlyArray<string>> = []
      const running = yield* Effect.forkChild(
        Rounds.run({
          trainers,
          model: Effect.sync(() => {
            const model = large()
            watch.add("first", model)
            return model
          }),
          rounds: 4,
          onEvent: Effect.fnUntraced(function* (event) {
            if (event._tag === "ResultReceived") watch.add(`${event.attachId}${event.round}`, event.result)
            if (event._tag !== "RoundDone") return
            yield* collectGarbage
            told.push(watch.alive())
          })
        })
      )
      yield* TestClock.adjust("20 seconds")
      const model = yield* Fiber.join(running)
      assert.strictEqual(elements(model.arrays.get("w"))[0], 8)
      // The average lies in the memory of the first result.
      assert.deepStrictEqual(told, [
        ["first", "a0"],
        ["a0", "a1"],
        ["a1", "a2"],
        ["a2", "a3"]
      ])
    }).pipe(Effect.provide(layerFleet))
  )

  // In one process, too: what a trainer holds of its results is not what the service gets.
  it.effect.each([10, 30_000, 100_000])("leaves the memory of trainers alone (%s elements)", (length) =>
    Effect.gen(function* () {
      const fixed = [1, 3].map((value) => NdArray.fromTyped(new Float32Array(length).fill(value)))
      for (const [n, array] of fixed.entries()) {
        const result = new FLModel({ params: [["w", array]] })
        yield* TestTrainer.start({ attachId: `t${n}` }, () => Effect.succeed(result))
      }
      const fleet = yield* AttachFleet
      const first = NdArray.fromTyped(new Float32Array(length))
      const running = yield* Effect.forkChild(
        Rounds.run({
          trainers: [yield* fleet.get({ attachId: "t0" }), yield* fleet.get({ attachId: "t1" })],
          model: new FLModel({ params: [["w", first]] }),
          rounds: 2
        })
      )
      yield* TestClock.adjust("20 seconds")
      const model = yield* Fiber.join(running)
      const all = [model.arrays.get("w"), first, ...fixed].map((array) => new Set(elements(array)))
      assert.deepStrictEqual(all, [new Set([2]), new Set([0]), new Set([1]), new Set([3])])
    }).pipe(Effect.provide(layerFleet))
  )
})

describe("unshared memory", () => {
  const memory = new ArrayBuffer(20)
  const view = (start: number, end: number) => new Uint8Array(memory, start, end - start)

  it.each([
    ["neighbours", [view(0, 10), view(10, 20)], [0, 1]],
    ["other memory", [view(0, 10), new Uint8Array(10)], [0, 1]],
    ["views that overlap", [view(5, 15), view(0, 6), view(15, 20)], [2]],
    ["views within another", [view(0, 10), view(1, 2), view(5, 6), view(10, 12)], [3]],
    ["a chain", [view(0, 4), view(3, 8), view(7, 9), view(9, 20)], [3]]
  ])("of %s", (_, views, expected) => {
    const alone = unshared(views)
    assert.deepStrictEqual(
      views.flatMap((each, n) => (alone.has(each) ? [n] : [])),
      expected
    )
  })

  it("is none of a view that is there twice", () => {
    const twice = view(0, 4)
    assert.strictEqual(unshared([twice, twice]).size, 0)
  })
})
