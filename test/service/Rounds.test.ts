import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber } from "effect"
import { TestClock } from "effect/testing"
import type { FLModel } from "../../src/model/FLModel.ts"
import { AttachFleet } from "../../src/service/AttachFleet.ts"
import * as Rounds from "../../src/service/Rounds.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import { adding, layerFleet, model, valuesOf } from "./fleetSupport.ts"

const two = Effect.gen(function* () {
  const fleet = yield* AttachFleet
  return [yield* fleet.get({ attachId: "a" }), yield* fleet.get({ attachId: "b" })] as const
})

/** An event as one text. */
const tell = (event: Rounds.RoundEvent): string => {
  switch (event._tag) {
    case "RoundStarted":
      return `${event.round}/${event.totalRounds} attempt ${event.attempt}`
    case "ResultReceived":
      return `${event.round} ${event.attachId} [${valuesOf(event.result)}]`
    case "ResultNotFinite":
      return `${event.round} ${event.attachId} not finite: ${event.parameters}`
    case "ResultMissing":
      return `${event.round} ${event.attachId} ${event.error.reason._tag}`
    case "RoundDone":
      return `${event.round} done: ${event.results} results [${valuesOf(event.model)}]`
  }
}

const recorder = () => {
  const told: Array<string> = []
  return { told, onEvent: (event: Rounds.RoundEvent) => Effect.sync(() => void told.push(tell(event))) }
}

describe("rounds of federated averaging", () => {
  it.effect("sends the global model to all, averages what they answer, and tells each step", () =>
    Effect.gen(function* () {
      const rounds: Array<string> = []
      const watched = (by: number, steps: number) => (received: FLModel) => {
        rounds.push(`${by}: ${received.startRound} ${received.currentRound} ${received.totalRounds}`)
        return Effect.delay(adding(by, steps)(received), Duration.seconds(by))
      }
      yield* TestTrainer.start({ attachId: "a" }, watched(1, 30))
      yield* TestTrainer.start({ attachId: "b" }, watched(5, 10))
      const { told, onEvent } = recorder()
      const running = yield* Effect.forkChild(
        Rounds.run({ trainers: yield* two, model: model([0, 10]), rounds: 2, onEvent })
      )
      yield* TestClock.adjust("20 seconds")
      // (30 x 1 + 10 x 5) / 40 = 2 a round
      assert.deepStrictEqual(valuesOf(yield* Fiber.join(running)), [4, 14])
      assert.deepStrictEqual(told, [
        "0/2 attempt 1",
        "0 a [1,11]",
        "0 b [5,15]",
        "0 done: 2 results [2,12]",
        "1/2 attempt 1",
        "1 a [3,13]",
        "1 b [7,17]",
        "1 done: 2 results [4,14]"
      ])
      assert.deepStrictEqual(rounds.toSorted(), ["1: 0 0 2", "1: 0 1 2", "5: 0 0 2", "5: 0 1 2"])
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("names the trainer whose task failed, and leaves the others' sessions sound", () =>
    Effect.gen(function* () {
      const busy = yield* Deferred.make<void>()
      yield* TestTrainer.start({ attachId: "a" }, () => Effect.fail("no memory left" as const))
      const slow = yield* TestTrainer.start({ attachId: "b" }, (received) =>
        Deferred.succeed(busy, undefined).pipe(
          Effect.andThen(Effect.sleep("1 hour")),
          Effect.andThen(adding(1)(received))
        )
      )
      const { told, onEvent } = recorder()
      const run = yield* Effect.forkChild(
        Effect.flip(Rounds.run({ trainers: yield* two, model: model([0]), rounds: 3, onEvent }))
      )
      yield* TestClock.adjust("5 seconds")
      yield* Deferred.await(busy)
      const error = yield* Fiber.join(run)
      assert.include(error.message, 'trainer "a" answered task "train" with EXECUTION_EXCEPTION')
      assert.deepStrictEqual(told, ["0/3 attempt 1", "0 a TaskFailed"])
      const fleet = yield* AttachFleet
      const other = yield* fleet.get({ attachId: "b" })
      assert.strictEqual((yield* other.session)._tag, "Ready")
      // Closing ends the busy trainer in order: SHUTDOWN, not ABORT.
      const closing = yield* Effect.forkChild(fleet.release("b"))
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.join(closing)
      assert.isTrue(Exit.isSuccess(yield* Fiber.await(slow)))
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("runs a round again when a task failed, as often as it may", () =>
    Effect.gen(function* () {
      let tasks = 0
      // Its first task of each round fails.
      const flaky = (received: FLModel) => (tasks++ % 2 === 0 ? Effect.fail("out of luck") : adding(1)(received))
      yield* TestTrainer.start({ attachId: "a" }, flaky)
      yield* TestTrainer.start({ attachId: "b" }, adding(3))
      const { told, onEvent } = recorder()
      const run = yield* Effect.forkChild(
        Effect.flip(Rounds.run({ trainers: yield* two, model: model([0]), rounds: 3, retryRounds: 2, onEvent }))
      )
      yield* TestClock.adjust("10 seconds")
      const error = yield* Fiber.join(run)
      assert.strictEqual(error._tag === "AttachError" && error.reason._tag, "TaskFailed")
      // What arrives first within a round is not the point here.
      const steps = told.filter((text) => !/^\d [ab] \[/.test(text))
      assert.deepStrictEqual(steps, [
        "0/3 attempt 1",
        "0 a TaskFailed",
        "0/3 attempt 2",
        "0 done: 2 results [2]",
        "1/3 attempt 1",
        "1 a TaskFailed",
        "1/3 attempt 2",
        "1 done: 2 results [4]",
        "2/3 attempt 1",
        "2 a TaskFailed"
      ])
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("aborts all tasks when it is interrupted", () =>
    Effect.gen(function* () {
      const trainers = yield* Effect.forEach(["a", "b"], (attachId) =>
        TestTrainer.start({ attachId }, () => Effect.never)
      )
      const run = yield* Effect.forkChild(Rounds.run({ trainers: yield* two, model: model([0]), rounds: 1 }))
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.interrupt(run)
      yield* TestClock.adjust("1 second")
      for (const trainer of trainers) {
        const error = yield* Effect.flip(Fiber.join(trainer))
        assert.include(String(error), "session aborted by site-1.job-1: task 'train' aborted")
      }
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("waits for the trainers, and fails when one does not come in time", () =>
    Effect.gen(function* () {
      yield* TestTrainer.start({ attachId: "a" }, adding(1))
      const fleet = yield* AttachFleet
      const a = yield* fleet.get({ attachId: "a" })
      const b = yield* fleet.get({ attachId: "b", attachTimeout: "10 seconds" })
      const here = yield* Effect.forkChild(Rounds.awaitTrainers([a]))
      const late = yield* Effect.forkChild(Effect.flip(Rounds.awaitTrainers([a, b])))
      yield* TestClock.adjust("9 seconds")
      yield* Fiber.join(here)
      assert.isUndefined(late.pollUnsafe())
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual((yield* Fiber.join(late)).reason._tag, "AttachTimeout")
    }).pipe(Effect.provide(layerFleet))
  )
})
