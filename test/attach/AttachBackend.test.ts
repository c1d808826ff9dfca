import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { AttachBackend } from "../../src/attach/AttachBackend.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import * as TestService from "../../src/testing/TestService.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"

const floats = (array: NdArray | undefined): Effect.Effect<ReadonlyArray<number>> =>
  Effect.orDie(Effect.fromResult(array?.toTyped() ?? Result.succeed(new Float32Array()))).pipe(
    Effect.map((typed) => Array.from(typed as Float32Array))
  )

const model = (values: ReadonlyArray<number>, currentRound?: number) =>
  new FLModel({
    params: [["w", NdArray.fromTyped(Float32Array.from(values), [values.length])]],
    ...(currentRound === undefined ? {} : { currentRound })
  })

const task = (round: number, ...values: ReadonlyArray<number>) =>
  Effect.map(Effect.fromResult(ModelExchange.toShareable(model(values, round))), (data) => ({ name: "train", data }))

const addOne = (received: FLModel) =>
  Effect.map(floats(received.arrays.get("w")), (values) => model(values.map((x) => x + 1)))

describe("a backend and a trainer on a memory network", () => {
  it.effect("runs a task, and ends without the test moving the clock for the release", () =>
    Effect.gen(function* () {
      const fiber = yield* TestTrainer.start({ attachId: "a" }, addOne)
      const backend = yield* AttachBackend
      const result = yield* backend.execute(yield* task(0, 1, 2))
      const got = yield* Effect.fromResult(ModelExchange.fromShareable(result))
      assert.deepStrictEqual(yield* floats(got.arrays.get("w")), [2, 3])
      assert.strictEqual(got.currentRound, 0)
      assert.strictEqual((yield* backend.session)._tag, "Ready")
      assert.isUndefined(fiber.pollUnsafe())
      return fiber
    }).pipe(Effect.provide(TestService.layer({ attachId: "a" })))
  )
})
