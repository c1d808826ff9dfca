import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { AttachBackend, FLModel, ModelExchange, NdArray } from "fl-attach"
import { MemoryNetwork, TestService, TestTrainer } from "fl-attach/testing"

const model = (...values: ReadonlyArray<number>) =>
  new FLModel({ params: [["w", NdArray.fromTyped(Float32Array.from(values))]] })

/** The code under test: one task, one model back. */
const trainOnce = Effect.fn("trainOnce")(function* (start: FLModel) {
  const trainer = yield* AttachBackend
  const data = yield* Effect.fromResult(ModelExchange.toShareable(start))
  const result = yield* trainer.execute({ name: "train", data })
  return yield* Effect.fromResult(ModelExchange.fromShareable(result))
})

describe("a service under test", () => {
  it.effect("gets the model that an hour of training made", () =>
    Effect.gen(function* () {
      yield* TestTrainer.start({ attachId: "gpu-1" }, () => Effect.delay(Effect.succeed(model(2, 3)), "1 hour"))
      const round = yield* Effect.forkChild(trainOnce(model(1, 2)))
      yield* MemoryNetwork.advance("59 minutes")
      assert.isUndefined(round.pollUnsafe())
      yield* MemoryNetwork.advance("1 minute")
      const trained = yield* Fiber.join(round)
      assert.deepStrictEqual(trained.arrays, model(2, 3).arrays)
    }).pipe(Effect.provide(TestService.layer({ attachId: "gpu-1" })))
  )

  const outages = MemoryNetwork.makeOutages()
  it.effect("notices a trainer that is not heard any more when its lease ends, and not before", () =>
    Effect.gen(function* () {
      yield* TestTrainer.start({ attachId: "gpu-1" }, () => Effect.never)
      const failure = yield* Effect.forkChild(Effect.flip(trainOnce(model(1))))
      yield* MemoryNetwork.advance("10 seconds")
      yield* outages.lose("memory://service")
      yield* MemoryNetwork.advance("30 seconds")
      assert.isUndefined(failure.pollUnsafe())
      yield* MemoryNetwork.advance("1 milli")
      const error = yield* Fiber.join(failure)
      assert.strictEqual(error._tag === "AttachError" ? error.reason._tag : error._tag, "SessionLost")
    }).pipe(
      Effect.provide(
        TestService.layer({ attachId: "gpu-1", heartbeatTimeout: "30 seconds", network: { faults: outages.faults } })
      )
    )
  )
})
