import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Result, Stream } from "effect"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as Analytics from "../../src/model/Analytics.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import type * as MemoryDriver from "../../src/transport/MemoryDriver.ts"
import * as support from "./support.ts"

const { layer, openBackend, pass, reasonOf, start, startTrainer, topicOf } = support
const lease = { heartbeatInterval: "1 second", heartbeatTimeout: "6 seconds" }

/** Loses the first `times` frames that hold all of these texts. */
const losing = (
  times: number,
  ...texts: ReadonlyArray<string>
): MemoryDriver.Faults & { readonly lost: () => number } => {
  let lost = 0
  return {
    lost: () => lost,
    onFrame: ({ bytes }) =>
      Effect.sync(() => {
        const frame = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
        if (lost >= times || !texts.every((text) => frame.includes(text))) return "deliver" as const
        lost += 1
        return "drop" as const
      })
  }
}

const echo = (model: FLModel) => Effect.succeed(model)

describe("what users have met", () => {
  // Replies are reliable streams: what is lost for good is lost in each of its copies.
  const lostReply = losing(1000, "client_api.result_accepted")
  it.effect("scenario 2: RESULT_ACCEPTED is lost; the trainer asks, and the result counts once", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* TestTrainer.start({ attachId: "a" }, echo)
      yield* support.untilState(backend, "Ready")
      const first = yield* start(backend, support.task(0))
      yield* support.advance(Fiber.join(first))
      yield* pass("1 minute")
      assert.isAtLeast(lostReply.lost(), 1)
      // The trainer found out by itself, and takes the next task.
      const second = yield* start(backend, support.task(1))
      yield* support.advance(Fiber.join(second))
      assert.isFalse(support.isOver(trainer))
    }).pipe(Effect.provide(layer({ faults: lostReply })))
  )

  const lostSettle = losing(1000, "client_api.result_source_settled")
  it.effect(
    "scenario 3: the settle message is lost each time; the outcome is settled all the same, both ends clean",
    () =>
      Effect.gen(function* () {
        const { backend, close } = yield* openBackend(lease)
        const trainer = yield* TestTrainer.start({ attachId: "a" }, echo)
        yield* support.untilState(backend, "Ready")
        const running = yield* start(backend)
        assert.strictEqual((yield* support.advance(Fiber.join(running))).returnCode, "OK")
        yield* support.advance(Effect.flatMap(close, Fiber.join))
        assert.isAtLeast(lostSettle.lost(), 1)
        yield* support.advance(Fiber.join(trainer))
      }).pipe(Effect.provide(layer({ faults: lostSettle })))
  )

  const lostShutdown = losing(1000, "client_api.shutdown")
  it.effect("scenario 4: the only SHUTDOWN is lost; both ends are finished within the lease", () =>
    Effect.gen(function* () {
      const { backend, close } = yield* openBackend(lease)
      const trainer = yield* TestTrainer.start({ attachId: "a" }, echo)
      yield* support.untilState(backend, "Ready")
      const begun = yield* support.now
      yield* support.advance(Effect.flatMap(close, Fiber.join))
      assert.isAtMost((yield* support.now) - begun, 2100)
      yield* support.advance(Effect.exit(Fiber.join(trainer)))
      assert.isAtMost((yield* support.now) - begun, 7200)
      assert.isAtLeast(lostShutdown.lost(), 1)
    }).pipe(Effect.provide(layer({ faults: lostShutdown })))
  )

  it.effect("scenario 5: no task for 6 h; the session lives, and the next task is done at once", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ heartbeatInterval: "1 minute", heartbeatTimeout: "3 minutes" })
      yield* TestTrainer.start({ attachId: "a" }, echo)
      yield* support.untilState(backend, "Ready")
      const { sessionId } = yield* backend.session
      yield* pass("6 hours")
      assert.deepStrictEqual(yield* Effect.map(backend.session, (state) => [state._tag, state.sessionId]), [
        "Ready",
        sessionId
      ])
      const running = yield* start(backend)
      yield* pass()
      assert.isTrue(support.isOver(running))
    }).pipe(Effect.provide(layer()))
  )

  it.effect("scenario 6: a heartbeat of the first session changes nothing once a second one is open", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ ...lease, allowReconnect: true })
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      const old = trainer.sessionId()
      yield* pass(6001)
      const beat = trainer.ask("heartbeat", ClientApi.body({ session_id: old, result_source_live: true }))
      assert.notStrictEqual(trainer.sessionId(), old)
      yield* pass(5999)
      assert.strictEqual(topicOf(yield* beat), "client_api.error")
      // Neither the lease is renewed nor the source latched: the second session ends when its own time is over.
      const second = trainer.sessionId()
      yield* pass(2)
      assert.notStrictEqual(trainer.sessionId(), second)
    }).pipe(Effect.provide(layer()))
  )

  it.effect(
    "scenario 8: 10,000 log calls a second for 3 s keep neither heartbeats nor probes from their answers, and are counted",
    () =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend(lease)
        const trainer = yield* startTrainer()
        yield* support.untilState(backend, "Ready")
        let taken = 0
        yield* Effect.forkScoped(
          Stream.runForEach(backend.analytics, () =>
            Effect.andThen(
              Effect.sync(() => (taken += 1)),
              Effect.sleep("1 millis")
            )
          ),
          { startImmediately: true }
        )
        const record = new Analytics.AnalyticsRecord({ tag: "loss", value: 1, dataType: "SCALAR" })
        const log = Result.getOrThrow(Analytics.toLog(trainer.sessionId(), record))
        const send = Effect.orDie(trainer.cell.send(support.cjFqcn, ClientApi.Topic.log, log))
        const millisecond = Effect.andThen(Effect.repeat(send, { times: 9 }), Effect.sleep("1 millis"))
        const flood = yield* Effect.forkChild(Effect.repeat(millisecond, { times: 2999 }), { startImmediately: true })
        for (let n = 0; n < 29; n += 1) {
          yield* pass(100)
          const begun = yield* support.now
          assert.strictEqual(topicOf(yield* trainer.heartbeat()), "client_api.heartbeat")
          const asked = ClientApi.body({ session_id: trainer.sessionId(), task_id: "t", result_id: "r" })
          assert.strictEqual(topicOf(yield* trainer.ask("resultStatus", asked)), "client_api.result_status")
          assert.strictEqual(yield* support.now, begun)
        }
        yield* support.advance(Fiber.join(flood))
        yield* pass("5 seconds")
        const dropped = yield* backend.analyticsDropped
        assert.isAtLeast(dropped, 20_000)
        assert.strictEqual(taken + dropped, 30_000)
      }).pipe(Effect.provide(layer()))
  )

  it.effect("scenario 9: the trainer's code throws; the task fails with its code and the session goes on", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(lease)
      let tasks = 0
      const failingOnce = (model: FLModel) =>
        Effect.suspend(() => {
          tasks += 1
          return tasks === 1 ? Effect.fail("no memory left") : Effect.succeed(model)
        })
      yield* TestTrainer.start({ attachId: "a" }, failingOnce)
      yield* support.untilState(backend, "Ready")
      const first = yield* start(backend)
      yield* pass("1 second")
      assert.strictEqual((yield* reasonOf(first, "TaskFailed")).returnCode, "EXECUTION_EXCEPTION")
      const second = yield* start(backend)
      yield* pass("1 second")
      assert.strictEqual((yield* Fiber.join(second)).returnCode, "OK")
      assert.strictEqual((yield* backend.session)._tag, "Ready")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.82 arrays of many types and shapes, metrics alone and with parameters come back as they went", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const seen: Array<FLModel> = []
      const trainer = (model: FLModel) =>
        Effect.sync(() => {
          seen.push(model)
          return model.params === undefined
            ? new FLModel({ metrics: [["accuracy", 0.75]] })
            : new FLModel({ params: model.params, metrics: [["loss", 1]] })
        })
      yield* TestTrainer.start({ attachId: "a" }, trainer)
      const params = [
        ["f4", NdArray.fromTyped(Float32Array.from([1, -0, Number.NaN]), [3])],
        ["f8", NdArray.fromTyped(Float64Array.from([Math.PI, 1e300]), [2, 1])],
        ["i8", NdArray.fromTyped(BigInt64Array.from([2n ** 62n]), [1])],
        ["u1", NdArray.fromTyped(new Uint8Array(3_000_000).fill(7), [3, 1_000_000])],
        ["empty", NdArray.fromTyped(new Float32Array(0), [0, 5])],
        ["scalar", NdArray.fromTyped(Float32Array.from([5]), [])]
      ] as const
      const ask = Effect.fnUntraced(function* (model: FLModel) {
        const running = yield* start(backend, {
          name: "train",
          data: Result.getOrThrow(ModelExchange.toShareable(model))
        })
        return Result.getOrThrow(ModelExchange.fromShareable(yield* support.advance(Fiber.join(running))))
      })
      const answer = yield* ask(new FLModel({ params, currentRound: 2, totalRounds: 5 }))
      assert.deepStrictEqual([...answer.arrays], [...params])
      assert.deepStrictEqual([...(answer.metrics ?? [])], [["loss", 1]])
      assert.strictEqual(answer.currentRound, 2)
      assert.strictEqual(seen[0]?.totalRounds, 5)
      const metricsOnly = yield* ask(new FLModel({ metrics: [["accuracy", 0.5]] }))
      assert.deepStrictEqual([...(metricsOnly.metrics ?? [])], [["accuracy", 0.75]])
      assert.isUndefined(metricsOnly.params)
    }).pipe(Effect.provide(layer()))
  )
})
