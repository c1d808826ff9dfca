import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { Float } from "../../src/fobs/Values.ts"
import * as support from "./support.ts"

const { bodyOf, isOver, layer, openBackend, pass, reasonOf, reply, silence, start, startTrainer, topicOf } = support

const tag = (backend: support.Opened["backend"]) => Effect.map(backend.session, ({ _tag }) => _tag)
const lease = { heartbeatInterval: "1 second", heartbeatTimeout: "6 seconds" }
const reconnect = { ...lease, allowReconnect: true }

describe("opening a session", () => {
  it.effect("16.3 SESSION_OPEN carries plain texts, the policy as floats, and no secrets", () =>
    Effect.gen(function* () {
      yield* openBackend({ paramsExchangeFormat: "pytorch", paramsTransferType: "DIFF" })
      const trainer = yield* startTrainer()
      const { body } = yield* trainer.next("sessionOpen")
      assert.deepStrictEqual(
        [...body.keys()],
        [
          "session_id",
          "attach_id",
          "job_id",
          "site_name",
          "trainer_fqcn",
          "protocol_version",
          "rank",
          "heartbeat_interval",
          "heartbeat_timeout",
          "task_exchange",
          "memory_gc_rounds",
          "cuda_empty_cache",
          "max_inline_bytes"
        ]
      )
      assert.strictEqual(body.get("rank"), "0")
      assert.strictEqual(body.get("heartbeat_interval"), 5)
      assert.deepStrictEqual(Object.fromEntries(body.get("task_exchange") as Map<string, unknown>), {
        train_with_eval: false,
        exchange_format: "pytorch",
        server_expected_format: "numpy",
        transfer_type: "DIFF",
        train_task_name: "train",
        eval_task_name: "validate",
        submit_model_task_name: "submit_model",
        launch_once: true
      })
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.80 memory settings, task names and train_with_eval are passed on", () =>
    Effect.gen(function* () {
      yield* openBackend({
        memoryGcRounds: 2,
        cudaEmptyCache: true,
        trainTaskName: "t",
        evaluateTaskName: "e",
        submitModelTaskName: "s",
        trainWithEvaluation: true
      })
      const trainer = yield* startTrainer()
      const { body } = yield* trainer.next("sessionOpen")
      assert.strictEqual(body.get("memory_gc_rounds"), 2)
      assert.strictEqual(body.get("cuda_empty_cache"), true)
      const exchange = body.get("task_exchange") as Map<string, unknown>
      assert.deepStrictEqual(
        ["train_task_name", "eval_task_name", "submit_model_task_name", "train_with_eval"].map((key) =>
          exchange.get(key)
        ),
        ["t", "e", "s", true]
      )
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a trainer whose connection replaces a dead one's is offered the session at once", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const dead = yield* startTrainer({ sessionOpen: silence })
      yield* dead.next("sessionOpen")
      yield* pass(100)
      const alive = yield* startTrainer()
      const { at } = yield* alive.next("sessionOpen")
      assert.strictEqual(at, 100)
      yield* pass()
      assert.strictEqual(yield* tag(backend), "Ready")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.4 attachTimeout ends a waiting task at its millisecond, not before", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ attachTimeout: "3 seconds" })
      const running = yield* start(backend)
      yield* pass(2999)
      assert.isFalse(isOver(running))
      yield* pass(1)
      const reason = yield* reasonOf(running, "AttachTimeout")
      assert.strictEqual(reason.setting, "attachTimeout")
      assert.include(reason.message, "attachTimeout (3s): nobody answers")
      assert.strictEqual(yield* tag(backend), "Failed")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.5 a failed first SESSION_OPEN is retried, at once when the trainer connects", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      yield* pass(700)
      const trainer = yield* startTrainer()
      yield* pass()
      assert.strictEqual(yield* tag(backend), "Ready")
      assert.deepStrictEqual(
        trainer.of("sessionOpen").map(({ at }) => at),
        [700]
      )
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.5 an unanswered SESSION_OPEN is repeated after controlTimeout and controlRetry, with the same id", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer({ sessionOpen: silence })
      yield* pass(2499)
      assert.lengthOf(trainer.of("sessionOpen"), 1)
      yield* pass(1)
      assert.lengthOf(trainer.of("sessionOpen"), 2)
      yield* pass(2500)
      const offers = trainer.of("sessionOpen")
      assert.deepStrictEqual(
        offers.map(({ at }) => at),
        [0, 2500, 5000]
      )
      assert.strictEqual(new Set(offers.map(({ body }) => body.get("session_id"))).size, 1)
      assert.strictEqual(yield* tag(backend), "Opening")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.72 a malformed answer, a wrong session id and a rejection end the attempt, with the reason", () =>
    Effect.gen(function* () {
      const cases: ReadonlyArray<readonly [Parameters<typeof startTrainer>[0], string]> = [
        [{ sessionOpen: () => Effect.succeed({ returnCode: "ok", payload: [1] }) }, "no session reply"],
        [{ sessionOpen: () => reply("sessionAccepted", { session_id: "other" }) }, "for session other"],
        [{ sessionOpen: () => reply("heartbeat", {}) }, "client_api.heartbeat"],
        [
          { sessionOpen: () => reply("sessionRejected", { session_id: null, reason: "attach id mismatch" }) },
          "mismatch"
        ]
      ]
      for (const [answers, text] of cases) {
        for (const allowReconnect of [false, true]) {
          const { backend, close } = yield* openBackend({ allowReconnect })
          const trainer = yield* startTrainer(answers)
          yield* pass()
          const first = yield* reasonOf(yield* start(backend), "SessionRejected")
          assert.include(first.message, text)
          yield* pass("1 minute")
          // Never cleared: later tasks fail at once, and nothing more is offered.
          yield* reasonOf(yield* start(backend), "SessionRejected")
          assert.lengthOf(trainer.of("sessionOpen"), 1)
          yield* support.advance(trainer.stop)
          yield* support.advance(Effect.flatMap(close, Fiber.join))
        }
      }
    }).pipe(Effect.provide(layer()))
  )

  it.effect(
    "14.11 an acceptance that names another protocol version ends the attempt; 1, 1.0, true and none are one",
    () =>
      Effect.gen(function* () {
        for (const version of [1, new Float(1), true, undefined]) {
          const { backend, close } = yield* openBackend()
          const trainer = yield* startTrainer({
            sessionOpen: (body) =>
              reply("sessionAccepted", { session_id: body.get("session_id"), protocol_version: version })
          })
          yield* pass()
          assert.strictEqual(yield* tag(backend), "Ready", String(version))
          yield* support.advance(Effect.flatMap(close, Fiber.join))
          yield* support.advance(trainer.stop)
        }
        const { backend } = yield* openBackend()
        yield* startTrainer({
          sessionOpen: (body) => reply("sessionAccepted", { session_id: body.get("session_id"), protocol_version: 2 })
        })
        yield* pass()
        assert.include((yield* reasonOf(yield* start(backend), "SessionRejected")).message, "protocol version 2")
      }).pipe(Effect.provide(layer()))
  )

  it.effect("16.72 a return code that isn't ok is no answer: the session is offered again", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer({
        sessionOpen: support.inTurn(
          () => Effect.succeed({ returnCode: "authentication_error", error: "no" }),
          (body) => reply("sessionAccepted", { session_id: body.get("session_id") })
        )
      })
      yield* pass(499)
      assert.strictEqual(yield* tag(backend), "Opening")
      yield* pass(1)
      assert.strictEqual(yield* tag(backend), "Ready")
      assert.lengthOf(trainer.of("sessionOpen"), 2)
    }).pipe(Effect.provide(layer()))
  )
})

describe("liveness", () => {
  it.effect("16.11 silence of exactly heartbeatTimeout is none, also where an older look at the lease ends then", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(lease)
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      yield* pass(1)
      yield* trainer.heartbeat()
      yield* pass(6000)
      assert.strictEqual(yield* tag(backend), "Ready")
      yield* pass(1)
      assert.strictEqual(yield* tag(backend), "Failed")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.11 without allowReconnect a silent trainer ends the session, one step beyond heartbeatTimeout", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(lease)
      const trainer = yield* startTrainer()
      yield* pass(2000)
      assert.strictEqual(topicOf(yield* trainer.heartbeat()), "client_api.heartbeat")
      const { sessionId } = yield* backend.session
      yield* pass(6000)
      assert.strictEqual(yield* tag(backend), "Ready")
      yield* pass(1)
      const state = yield* backend.session
      assert.strictEqual(state._tag, "Failed")
      assert.strictEqual(state.sessionId, sessionId)
      const lost = yield* reasonOf(yield* start(backend), "SessionLost")
      assert.strictEqual(lost.setting, "heartbeatTimeout")
      assert.include(lost.message, "heartbeatTimeout is 6s, silent for 6s 1ms")
      assert.strictEqual(bodyOf(yield* trainer.heartbeat()).reason, "no active trainer session")
      yield* pass("1 minute")
      assert.lengthOf(trainer.of("sessionOpen"), 1)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.12 with allowReconnect a lost session is followed by a fresh one; the old id is refused", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(reconnect)
      const trainer = yield* startTrainer()
      yield* pass()
      const old = trainer.sessionId()
      yield* pass(6001)
      assert.strictEqual(yield* tag(backend), "Ready")
      assert.notStrictEqual(trainer.sessionId(), old)
      const late = yield* trainer.ask("heartbeat", new Map<string, unknown>([["session_id", old]]))
      assert.deepStrictEqual(bodyOf(late), { reply_topic: "client_api.error", reason: "stale or unknown session id" })
      assert.strictEqual(topicOf(yield* trainer.heartbeat()), "client_api.heartbeat")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.13 a silent session with a live source is kept while the trainer is connected", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(reconnect)
      const trainer = yield* startTrainer()
      yield* pass()
      const first = trainer.sessionId()
      yield* trainer.heartbeat(true)
      yield* pass("10 minutes")
      assert.strictEqual(yield* tag(backend), "Silent")
      assert.strictEqual(trainer.sessionId(), first)
      // It says that the source is done: heard again, and lost once it is silent for another lease.
      yield* trainer.heartbeat(false)
      yield* pass()
      assert.strictEqual(yield* tag(backend), "Ready")
      yield* pass(6000)
      assert.strictEqual(trainer.sessionId(), first)
      yield* pass(1)
      assert.notStrictEqual(trainer.sessionId(), first)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.14 a confirmed disconnect retires the live source and the session", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(reconnect)
      const trainer = yield* startTrainer()
      yield* pass()
      yield* trainer.heartbeat(true)
      yield* pass(6001)
      assert.strictEqual(yield* tag(backend), "Silent")
      yield* support.advance(trainer.stop, 1)
      const gone = yield* support.now
      yield* pass(4998)
      assert.strictEqual(yield* tag(backend), "Silent")
      yield* pass(2)
      assert.isAtMost((yield* support.now) - gone, 5000)
      assert.strictEqual(yield* tag(backend), "Opening")
      const next = yield* startTrainer()
      yield* pass()
      assert.strictEqual(yield* tag(backend), "Ready")
      assert.notStrictEqual(next.sessionId(), trainer.sessionId())
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a trainer that was started anew is not taken for the one whose live source it replaced", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(reconnect)
      const dead = yield* startTrainer()
      yield* pass()
      yield* dead.heartbeat(true)
      yield* pass(1000)
      yield* support.advance(dead.stop, 1)
      const fresh = yield* startTrainer()
      yield* pass()
      const began = yield* support.now
      // The old one's lease first; the new connection then has a whole lease in which it could speak for the session.
      yield* pass(6001 - began)
      assert.strictEqual(yield* tag(backend), "Silent")
      yield* pass(began - 2)
      assert.strictEqual(yield* tag(backend), "Silent")
      yield* pass(1)
      yield* pass()
      assert.strictEqual(yield* tag(backend), "Ready")
      assert.notStrictEqual(fresh.sessionId(), dead.sessionId())
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.15 a disconnect shorter than the grace keeps session and latch", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ ...reconnect, sourceGrace: "3 seconds" })
      const trainer = yield* startTrainer()
      yield* pass()
      const first = trainer.sessionId()
      yield* trainer.heartbeat(true)
      yield* pass(6001)
      for (let i = 0; i < 3; i += 1) {
        const again = yield* startTrainer()
        yield* pass(1000)
        yield* support.advance(again.stop, 1)
        yield* pass(2900)
        assert.strictEqual(yield* tag(backend), "Silent")
      }
      assert.strictEqual((yield* backend.session).sessionId, first)
      yield* support.advance(trainer.stop, 1)
      yield* pass(3000)
      assert.strictEqual(yield* tag(backend), "Opening")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.17 a task that a lost session interrupts fails, and is not replayed on the next one", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(reconnect)
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      yield* trainer.next("taskReady")
      yield* pass(6000)
      assert.isFalse(isOver(running))
      yield* pass(1)
      yield* reasonOf(running, "SessionLost")
      yield* pass("5 seconds")
      assert.strictEqual(yield* tag(backend), "Ready")
      assert.lengthOf(trainer.of("taskReady"), 1)
      assert.lengthOf(trainer.of("abort"), 0)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.73 a fresh session numbers tasks from 1 and has the whole attachTimeout", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ ...reconnect, attachTimeout: "10 seconds" })
      const trainer = yield* startTrainer()
      for (const seq of [1, 2]) {
        const running = yield* start(backend)
        const sent = yield* trainer.next("taskReady")
        assert.strictEqual(sent.body.get("task_seq"), seq)
        yield* trainer.result(sent)
        yield* Fiber.join(running)
        yield* trainer.settle(sent)
      }
      yield* support.advance(trainer.stop, 1)
      yield* pass(6000)
      assert.strictEqual(yield* tag(backend), "Opening")
      yield* pass(9900)
      const other = yield* startTrainer()
      const running = yield* start(backend)
      assert.strictEqual((yield* other.next("taskReady")).body.get("task_seq"), 1)
      yield* support.advance(other.stop, 1)
      yield* pass(6001)
      yield* reasonOf(running, "SessionLost")
      yield* pass(9900)
      assert.strictEqual(yield* tag(backend), "Opening")
      yield* pass(200)
      assert.strictEqual(yield* tag(backend), "Failed")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.81 a trainer dies in a task: lost after the lease; a new one goes on only under allowReconnect", () =>
    Effect.gen(function* () {
      for (const allowReconnect of [false, true]) {
        const { backend, close } = yield* openBackend({ ...lease, allowReconnect })
        const trainer = yield* startTrainer()
        const running = yield* start(backend)
        yield* trainer.next("taskReady")
        yield* support.advance(trainer.stop, 1)
        yield* pass(6001)
        yield* reasonOf(running, "SessionLost")
        const another = yield* startTrainer()
        const second = yield* start(backend)
        yield* pass()
        if (allowReconnect) {
          const sent = yield* another.next("taskReady")
          yield* another.result(sent)
          assert.strictEqual((yield* Fiber.join(second)).returnCode, "OK")
        } else {
          yield* reasonOf(second, "SessionLost")
          assert.lengthOf(another.of("sessionOpen"), 0)
        }
        yield* support.advance(another.stop, 1)
        yield* support.advance(Effect.flatMap(close, Fiber.join))
      }
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a message of the trainer renews the lease, a refused one does not", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(lease)
      const trainer = yield* startTrainer()
      yield* pass(5000)
      yield* trainer.ask("resultStatus", new Map([["session_id", trainer.sessionId()]]))
      yield* pass(5000)
      yield* trainer.ask("heartbeat", new Map([["session_id", "other"]]))
      yield* pass(1000)
      assert.strictEqual(yield* tag(backend), "Ready")
      yield* pass(1)
      assert.strictEqual(yield* tag(backend), "Failed")
    }).pipe(Effect.provide(layer()))
  )
})
