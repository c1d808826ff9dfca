import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Result, Stream } from "effect"
import { attachError, RouteFailed } from "../../src/attach/AttachError.ts"
import { AttachRoute } from "../../src/attach/AttachRoute.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import * as Analytics from "../../src/model/Analytics.ts"
import * as support from "./support.ts"

const { bodyOf, isOver, layer, ok, openBackend, pass, reasonOf, reply, silence, start, startTrainer, topicOf } = support

const shutdownSays = (live: unknown) => () => ok({ result_source_live: live })
const lease = { heartbeatInterval: "1 second", heartbeatTimeout: "6 seconds" }

/** A backend whose trainer has a result accepted, but not settled. */
const withResult = Effect.fnUntraced(function* (options: Parameters<typeof openBackend>[0] = {}) {
  const opened = yield* openBackend(options)
  const trainer = yield* startTrainer()
  const running = yield* start(opened.backend)
  const sent = yield* trainer.next("taskReady")
  yield* trainer.result(sent)
  yield* Fiber.join(running)
  return { ...opened, trainer, sent }
})

describe("closing", () => {
  it.effect("16.1 closing sends SHUTDOWN to a trainer that serves nothing, and is done", () =>
    Effect.gen(function* () {
      const { backend, close } = yield* openBackend()
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      const closing = yield* close
      yield* pass()
      assert.isTrue(isOver(closing))
      const { body } = yield* trainer.next("shutdown")
      assert.deepStrictEqual(Object.fromEntries(body), { session_id: trainer.sessionId(), reason: "job ended" })
      assert.strictEqual((yield* backend.session)._tag, "Closed")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.26 closing fails a task that waits for its result, at once", () =>
    Effect.gen(function* () {
      const { backend, close } = yield* openBackend()
      const trainer = yield* startTrainer({ shutdown: silence })
      const running = yield* start(backend)
      yield* trainer.next("taskReady")
      yield* close
      yield* pass()
      yield* reasonOf(running, "BackendClosed")
      yield* reasonOf(yield* start(backend), "BackendClosed")
      assert.lengthOf(trainer.of("abort"), 0)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.26 closing fails a task that waits for a trainer, at once, though closing itself takes its time", () =>
    Effect.gen(function* () {
      const { backend, close } = yield* openBackend()
      const trainer = yield* startTrainer({ sessionOpen: silence, shutdown: silence })
      const running = yield* start(backend)
      yield* trainer.next("sessionOpen")
      const closing = yield* close
      yield* pass()
      yield* reasonOf(running, "BackendClosed")
      assert.isFalse(isOver(closing))
      yield* pass(2000)
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer()))
  )

  it.effect(
    "16.27 closing waits while a connected trainer serves its result, and ends the grace after it is gone",
    () =>
      Effect.gen(function* () {
        const { close, trainer } = yield* withResult()
        trainer.answers.shutdown = shutdownSays(true)
        const closing = yield* close
        yield* pass("10 minutes")
        assert.isFalse(isOver(closing))
        yield* support.advance(trainer.stop, 1)
        yield* pass(4990)
        assert.isFalse(isOver(closing))
        yield* pass(10)
        assert.isTrue(isOver(closing))
      }).pipe(Effect.provide(layer()))
  )

  it.effect("6.7 a source that stays live is left alone after finalizeTimeout and sourceGrace", () =>
    Effect.gen(function* () {
      const { close, trainer } = yield* withResult({ settleLinger: "0 seconds" })
      trainer.answers.shutdown = shutdownSays(true)
      const closing = yield* close
      yield* pass(604_999)
      assert.isFalse(isOver(closing))
      yield* pass(1)
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer()))
  )

  it.effect("6.7 true in the answer to SHUTDOWN sets no latch", () =>
    Effect.gen(function* () {
      const { backend, close } = yield* openBackend()
      yield* startTrainer({ shutdown: shutdownSays(true) })
      yield* support.untilState(backend, "Ready")
      const closing = yield* close
      yield* pass()
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.1 a heartbeat that says false before closing clears the latch", () =>
    Effect.gen(function* () {
      const { close, trainer, sent } = yield* withResult()
      trainer.answers.shutdown = shutdownSays(true)
      yield* trainer.heartbeat(false)
      yield* trainer.settle(sent)
      const closing = yield* close
      yield* pass()
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14: a heartbeat that says false during closing clears the latch, though it is told that all is over", () =>
    Effect.gen(function* () {
      const { close, trainer } = yield* withResult({ settleLinger: "0 seconds" })
      trainer.answers.shutdown = shutdownSays(true)
      const closing = yield* close
      yield* pass("1 minute")
      assert.isFalse(isOver(closing))
      assert.deepStrictEqual(bodyOf(yield* trainer.heartbeat(true)), {
        reply_topic: "client_api.error",
        reason: "backend is closed"
      })
      yield* pass()
      assert.isFalse(isOver(closing))
      assert.strictEqual(topicOf(yield* trainer.heartbeat(false)), "client_api.error")
      yield* pass()
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.62 during closing RESULT_STATUS and settling are answered, RESULT_READY and HEARTBEAT refused", () =>
    Effect.gen(function* () {
      const { close, trainer, sent } = yield* withResult()
      trainer.answers.shutdown = shutdownSays(true)
      const closing = yield* close
      yield* pass()
      const again = bodyOf(yield* trainer.result(sent))
      assert.deepStrictEqual(again, { reply_topic: "client_api.result_rejected", reason: "backend is closed" })
      assert.strictEqual(bodyOf(yield* trainer.heartbeat()).reason, "backend is closed")
      const status = yield* trainer.ask(
        "resultStatus",
        ClientApi.body({ session_id: trainer.sessionId(), task_id: sent.body.get("task_id"), result_id: "r1" })
      )
      assert.strictEqual(bodyOf(status).result_state, "ACCEPTED")
      assert.strictEqual(topicOf(yield* trainer.settle(sent)), "client_api.result_source_settled")
      yield* pass()
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.1 closing waits for a settlement under way, and until its answer was acknowledged", () =>
    Effect.gen(function* () {
      const { close, trainer, sent } = yield* withResult()
      // It clears its "send in progress" before it settles, so the answer says false.
      const closing = yield* close
      yield* pass(1999)
      assert.isFalse(isOver(closing))
      assert.strictEqual(topicOf(yield* trainer.settle(sent)), "client_api.result_source_settled")
      yield* pass()
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.1 the answer to a settlement is seen through before the route goes", () =>
    Effect.gen(function* () {
      const { backend, close } = yield* openBackend()
      const trainer = yield* startTrainer({ shutdown: shutdownSays(true) })
      const running = yield* start(backend)
      yield* pass("5 seconds")
      const sent = yield* trainer.next("taskReady")
      yield* support.advance(trainer.result(sent))
      yield* pass("5 seconds")
      yield* Fiber.join(running)
      const closing = yield* close
      yield* pass("1 second")
      const settling = yield* Effect.forkChild(trainer.settle(sent), { startImmediately: true })
      yield* pass(250)
      assert.isTrue(isOver(settling))
      // Its acknowledgement is still on the way.
      assert.isFalse(isOver(closing))
      yield* pass(50)
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer({ latency: "100 millis" })))
  )

  it.effect("16.62 a heartbeat that says true latches nothing once closing has begun", () =>
    Effect.gen(function* () {
      const { backend, close } = yield* openBackend()
      const trainer = yield* startTrainer({ shutdown: silence })
      yield* support.untilState(backend, "Ready")
      const closing = yield* close
      yield* pass(1000)
      yield* trainer.heartbeat(true)
      yield* pass(1000)
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.77 what is logged once closing has begun is dropped", () =>
    Effect.gen(function* () {
      const { backend, close } = yield* openBackend()
      const trainer = yield* startTrainer({ shutdown: silence })
      yield* support.untilState(backend, "Ready")
      let records = 0
      yield* Effect.forkScoped(
        Stream.runForEach(backend.analytics, () => Effect.sync(() => (records += 1))),
        { startImmediately: true }
      )
      const record = new Analytics.AnalyticsRecord({ tag: "loss", value: 1, dataType: "SCALAR" })
      const log = Result.getOrThrow(Analytics.toLog(trainer.sessionId(), record))
      const send = Effect.orDie(trainer.cell.send(support.cjFqcn, ClientApi.Topic.log, log))
      yield* send
      yield* pass()
      assert.strictEqual(records, 1)
      yield* close
      yield* send
      yield* pass(1000)
      assert.strictEqual(records, 1)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.1 a settlement that never comes costs settleLinger", () =>
    Effect.gen(function* () {
      const { close } = yield* withResult()
      const closing = yield* close
      yield* pass(1999)
      assert.isFalse(isOver(closing))
      yield* pass(1)
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer()))
  )

  it.effect("6.7 a lost answer to SHUTDOWN does not cut off a trainer that still serves its result", () =>
    Effect.gen(function* () {
      const { close, trainer, sent } = yield* withResult()
      trainer.answers.shutdown = silence
      const closing = yield* close
      yield* pass("5 seconds")
      assert.isFalse(isOver(closing))
      yield* trainer.settle(sent)
      yield* pass()
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer()))
  )

  it.effect(
    "14.7 closing while a SESSION_OPEN is unanswered does not wait for it, and sends SHUTDOWN for its session",
    () =>
      Effect.gen(function* () {
        const { close } = yield* openBackend()
        const trainer = yield* startTrainer({ sessionOpen: silence })
        yield* trainer.next("sessionOpen")
        const closing = yield* close
        yield* pass()
        assert.isTrue(isOver(closing))
        assert.strictEqual((yield* trainer.next("shutdown")).body.get("session_id"), trainer.sessionId())
      }).pipe(Effect.provide(layer()))
  )

  it.effect("a trainer that refused the session gets no SHUTDOWN, one that was aborted gets it", () =>
    Effect.gen(function* () {
      const refusing = yield* openBackend()
      const trainer = yield* startTrainer({ sessionOpen: () => reply("sessionRejected", { reason: "no" }) })
      yield* support.untilState(refusing.backend, "Failed")
      yield* support.advance(Effect.flatMap(refusing.close, Fiber.join))
      assert.lengthOf(trainer.of("shutdown"), 0)
      yield* support.advance(trainer.stop, 1)

      const aborted = yield* openBackend()
      const second = yield* startTrainer()
      const running = yield* start(aborted.backend)
      yield* second.next("taskReady")
      yield* Fiber.interrupt(running)
      yield* support.advance(Effect.flatMap(aborted.close, Fiber.join))
      assert.lengthOf(second.of("abort"), 1)
      assert.lengthOf(second.of("shutdown"), 1)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.79 closing without a session is done at once, and twice is once", () =>
    Effect.gen(function* () {
      const { backend, close } = yield* openBackend()
      const first = yield* close
      const second = yield* close
      yield* pass()
      assert.isTrue(isOver(first))
      assert.isTrue(isOver(second))
      assert.strictEqual((yield* backend.session)._tag, "Closed")
      const changes = yield* Stream.runCollect(backend.sessionChanges)
      assert.deepStrictEqual(
        changes.map(({ _tag }) => _tag),
        ["Closed"]
      )
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.79 a backend whose route fails leaves nothing behind", () =>
    Effect.gen(function* () {
      let released = 0
      const route = AttachRoute.of({
        open: () =>
          Effect.andThen(
            Effect.addFinalizer(() => Effect.sync(() => (released += 1))),
            Effect.fail(attachError(new RouteFailed({ attachId: "a", kind: "ClaimHeld", message: "held" })))
          )
      })
      const failing = Effect.scoped(openBackend()).pipe(Effect.provideService(AttachRoute, route))
      assert.strictEqual((yield* Effect.flip(failing)).reason._tag, "RouteFailed")
      yield* support.advance(support.closeBackends)
      assert.strictEqual(released, 1)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a lost session is told once more that it is over, and nobody waits for its source", () =>
    Effect.gen(function* () {
      const { backend, close, trainer } = yield* withResult(lease)
      trainer.answers.shutdown = shutdownSays(true)
      yield* pass(6001)
      assert.strictEqual((yield* backend.session)._tag, "Failed")
      const closing = yield* close
      yield* pass()
      assert.isTrue(isOver(closing))
      assert.lengthOf(trainer.of("shutdown"), 1)
    }).pipe(Effect.provide(layer()))
  )
})

describe("behind a client parent", () => {
  const behind = () => layer({ direct: false })

  it.effect("14.3 a live source is waited for as long as heartbeats come, and lease and grace after the last", () =>
    Effect.gen(function* () {
      const { close, trainer } = yield* withResult(lease)
      trainer.answers.shutdown = shutdownSays(true)
      const closing = yield* close
      for (let n = 0; n < 30; n += 1) {
        yield* pass(1000)
        yield* trainer.heartbeat(true)
      }
      assert.isFalse(isOver(closing))
      yield* pass(10_999)
      assert.isFalse(isOver(closing))
      yield* pass(1)
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(behind()))
  )

  it.effect("14.3 a silent session with a live source is retired after lease and grace", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ ...lease, allowReconnect: true })
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      const first = trainer.sessionId()
      yield* trainer.heartbeat(true)
      yield* pass(10_999)
      assert.strictEqual((yield* backend.session)._tag, "Silent")
      yield* pass(1)
      assert.notStrictEqual((yield* backend.session).sessionId, first)
    }).pipe(Effect.provide(behind()))
  )
})
