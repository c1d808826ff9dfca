/** Big models over slow links, and peers that don't read: what moves must not hold up what has to be in time. */
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Latch, Result, Stream } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import type * as MemoryDriver from "../../src/transport/MemoryDriver.ts"
import * as support from "./support.ts"

const { layer, openBackend, pass, start } = support
const lease = { heartbeatInterval: "1 second", heartbeatTimeout: "3 seconds" } as const
const mib = 1024 * 1024

/** A model of 64 MiB. */
const big = new FLModel({ params: [["w", NdArray.fromTyped(new Float32Array(16 * mib))]] })
const bigTask = { name: "train", data: Result.getOrThrow(ModelExchange.toShareable(big)) }

/** A link on which 64 MiB take 30 seconds each way, and on which everything waits for what went before it. */
const makeThrottle = () => {
  let isStopped = false
  let passed = 0
  const faults: MemoryDriver.Faults = {
    onFrame: ({ bytes }) =>
      isStopped
        ? Effect.succeed("drop" as const)
        : Effect.delay(
            Effect.sync(() => {
              passed += bytes.byteLength
              return isStopped ? ("drop" as const) : ("deliver" as const)
            }),
            Duration.millis((bytes.byteLength / (64 * mib)) * 30_000)
          )
  }
  const stop = () => {
    isStopped = true
  }
  return { faults, passed: () => passed, stop }
}

describe("a slow link", () => {
  const whole = makeThrottle()
  it.effect("scenario 1: 64 MiB each way, ten leases long each; the session lives, and the model comes whole", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(lease)
      yield* TestTrainer.start({ attachId: "a" }, (model) => Effect.succeed(model))
      yield* support.advance(support.untilState(backend, "Ready"))
      const states: Array<string> = []
      yield* Stream.runForEach(backend.sessionChanges, ({ _tag }) => Effect.sync(() => states.push(_tag))).pipe(
        Effect.forkScoped({ startImmediately: true })
      )
      const begun = yield* support.now
      const running = yield* start(backend, bigTask)
      const result = yield* support.advance(Fiber.join(running), 250)
      assert.isAtLeast((yield* support.now) - begun, 60_000)
      assert.strictEqual(result.returnCode, "OK")
      const came = Result.getOrThrow(ModelExchange.fromShareable(result)).arrays.get("w")
      assert.strictEqual(came?.bytes.byteLength, 64 * mib)
      assert.deepStrictEqual(states, ["Ready"])
    }).pipe(Effect.provide(layer({ faults: whole.faults })))
  )

  const dying = makeThrottle()
  it.effect("scenario 1: when the bytes stop the session ends with its lease", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(lease)
      yield* TestTrainer.start({ attachId: "a" }, (model) => Effect.succeed(model))
      yield* support.advance(support.untilState(backend, "Ready"))
      const running = yield* start(backend, bigTask)
      yield* pass("15 seconds")
      assert.isAtLeast(dying.passed(), 16 * mib)
      dying.stop()
      // The last heartbeat came up to a second before.
      yield* pass(1900)
      assert.isFalse(support.isOver(running))
      // A trainer that takes a task in has more time while it is connected: until its own lease ends.
      yield* pass(2101)
      assert.include((yield* support.reasonOf(running, "SessionLost")).message, "heartbeatTimeout is 3s")
    }).pipe(Effect.provide(layer({ faults: dying.faults })))
  )
})

describe("a peer that doesn't read", () => {
  const reading = Latch.makeUnsafe(true)
  // The first connection is that of trainer a. Who sends to it waits, as for a socket whose buffers are full.
  const faults: MemoryDriver.Faults = {
    onFrame: ({ from, link }) =>
      link === 0 && from === "passive"
        ? Effect.as(reading.await, "deliver" as const)
        : Effect.succeed("deliver" as const)
  }
  it.effect("scenario 7: for 10 s with 64 MiB on their way to it: another session answers as quickly as ever", () =>
    Effect.gen(function* () {
      const a = yield* openBackend()
      yield* TestTrainer.start({ attachId: "a" }, (model) => Effect.succeed(model))
      yield* support.untilState(a.backend, "Ready")
      const b = yield* openBackend({ ...lease, attachId: "b" })
      yield* TestTrainer.start({ attachId: "b" }, (model) => Effect.succeed(model))
      yield* support.untilState(b.backend, "Ready")
      yield* reading.close
      const held = yield* start(a.backend, bigTask)
      for (let n = 0; n < 100; n += 1) {
        yield* pass(100)
        const begun = yield* support.now
        assert.strictEqual((yield* b.backend.execute(support.task(n))).returnCode, "OK")
        assert.strictEqual(yield* support.now, begun)
      }
      assert.isFalse(support.isOver(held))
      yield* reading.open
      assert.strictEqual((yield* support.advance(Fiber.join(held))).returnCode, "OK")
      assert.strictEqual((yield* b.backend.session)._tag, "Ready")
    }).pipe(Effect.provide(layer({ faults })))
  )
})
