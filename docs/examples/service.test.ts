/**
 * The same service under test: no socket, no folder, and time stands still until the test moves it.
 */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { AttachBackend, FLModel, NdArray, Rounds } from "fl-attach"
import { TestService, TestTrainer } from "fl-attach/testing"

const modelOf = (...w: ReadonlyArray<number>) =>
  new FLModel({ params: [["w", NdArray.fromTyped(Float32Array.from(w))]] })

it.effect("a trainer may work for an hour, while it is alive", () =>
  Effect.gen(function* () {
    const begun = yield* Deferred.make<void>()
    yield* TestTrainer.start({ attachId: "gpu-1" }, () =>
      Deferred.succeed(begun, undefined).pipe(Effect.andThen(Effect.sleep("1 hour")), Effect.as(modelOf(2, 3)))
    )
    const trainer = yield* AttachBackend
    const round = yield* Effect.forkChild(Rounds.run({ trainers: [trainer], model: modelOf(1, 2), rounds: 1 }))
    yield* Deferred.await(begun)
    yield* TestClock.adjust("1 hour")
    assert.deepStrictEqual((yield* Fiber.join(round)).arrays.get("w"), modelOf(2, 3).arrays.get("w"))
  }).pipe(Effect.provide(TestService.layer({ attachId: "gpu-1", heartbeatTimeout: "30 seconds" })))
)
