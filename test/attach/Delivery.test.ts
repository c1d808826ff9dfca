import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { Shareable } from "../../src/model/Shareable.ts"
import * as support from "./support.ts"

const { inTurn, isOver, layer, openBackend, pass, reasonOf, reply, silence, start, startTrainer } = support

/** An answer to TASK_STATUS. */
const status = (state: string) => (body: ReadonlyMap<unknown, unknown>) =>
  reply("taskStatus", { task_id: body.get("task_id"), task_state: state, accepted_attempt_id: null })
const accept = (body: ReadonlyMap<unknown, unknown>) => reply("taskAccepted", { task_id: body.get("task_id") })
/** The stream fails at the trainer, as where an array can't be decoded. */
const undecodable = () => Effect.die(new Error("no such dtype"))
/** Long enough for deliveries of their own length. */
const patient = { heartbeatTimeout: "1 hour" }

describe("delivery", () => {
  it.effect("16.1 the first task has number 1, and its result ends it", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      const sent = yield* trainer.next("taskReady")
      assert.strictEqual(sent.body.get("task_seq"), 1)
      assert.strictEqual(sent.body.get("task_name"), "train")
      assert.strictEqual(support.topicOf(yield* trainer.result(sent)), "client_api.result_accepted")
      yield* Fiber.join(running)
      assert.lengthOf(trainer.of("taskStatus"), 0)
    }).pipe(Effect.provide(layer()))
  )

  for (const state of ["QUEUED", "DELIVERED", "RESULT_PUBLISHING", "COMPLETE"]) {
    it.effect(`16.6 lost TASK_ACCEPTED: TASK_STATUS ${state} decides, and the task is not sent again`, () =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend({ taskWaitTimeout: "10 seconds", ...patient })
        const trainer = yield* startTrainer({ taskReady: silence, taskStatus: status(state) })
        const running = yield* start(backend)
        const sent = yield* trainer.next("taskReady")
        // The reserve is kept for the question.
        yield* pass(7999)
        assert.lengthOf(trainer.of("taskStatus"), 0)
        yield* pass(1)
        assert.lengthOf(trainer.of("taskStatus"), 1)
        yield* pass("1 minute")
        assert.isFalse(isOver(running))
        yield* trainer.result(sent)
        yield* Fiber.join(running)
        assert.lengthOf(trainer.of("taskReady"), 1)
      }).pipe(Effect.provide(layer()))
    )
  }

  it.effect("16.7 an accepted result ends the wait for TASK_ACCEPTED at once: no probe, no second delivery", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer({ taskReady: silence })
      const running = yield* start(backend)
      yield* trainer.result(yield* trainer.next("taskReady"))
      yield* pass()
      assert.isTrue(isOver(running))
      yield* pass("10 seconds")
      assert.lengthOf(trainer.of("taskReady"), 1)
      assert.lengthOf(trainer.of("taskStatus"), 0)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.8 a result accepted before the delivery is refused wins over the refusal", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      trainer.answers.taskReady = () =>
        Effect.gen(function* () {
          const sent = trainer.of("taskReady")[0]
          assert.isDefined(sent)
          yield* trainer.result(sent)
          return yield* reply("taskFailed", { reason: "changed its mind" })
        })
      const result = yield* backend.execute(support.task())
      assert.strictEqual(result.returnCode, "OK")
    }).pipe(Effect.provide(layer()))
  )

  it.effect(
    "16.9 TASK_FAILED is final: one delivery, no probe, the trainer's reason; the next task has the next number",
    () =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend()
        const trainer = yield* startTrainer({
          taskReady: inTurn(() => reply("taskFailed", { reason: "invalid task model: odd" }), accept)
        })
        const reason = yield* reasonOf(yield* start(backend), "TaskRejected")
        assert.include(reason.message, "invalid task model: odd")
        assert.lengthOf(trainer.of("taskStatus"), 0)
        yield* trainer.next("taskReady")
        const running = yield* start(backend)
        const second = yield* trainer.next("taskReady")
        assert.strictEqual(second.body.get("task_seq"), 2)
        yield* trainer.result(second)
        yield* Fiber.join(running)
      }).pipe(Effect.provide(layer()))
  )

  it.effect("16.10 a task that can't be encoded fails at once: nothing is sent, nothing is asked", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      const data = new Shareable([], [["DXO", { toBytes: () => "no value of the wire" }.toBytes]])
      const reason = yield* reasonOf(yield* start(backend, { name: "train", data }), "EncodeFailed")
      assert.include(reason.message, 'task "train"')
      assert.lengthOf(trainer.of("taskReady"), 0)
      assert.lengthOf(trainer.of("taskStatus"), 0)
      assert.strictEqual((yield* backend.session)._tag, "Ready")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.68 taskWaitTimeout bounds the delivery, its reserve included; a retry keeps id and number", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ taskWaitTimeout: "10 seconds", ...patient })
      yield* startTrainer({ taskReady: silence, taskStatus: silence })
      const running = yield* start(backend)
      yield* pass(9999)
      assert.isFalse(isOver(running))
      yield* pass(1)
      const reason = yield* reasonOf(running, "DeliveryTimeout")
      assert.strictEqual(reason.setting, "taskWaitTimeout")
      assert.include(reason.message, "taskWaitTimeout (10s)")
      assert.strictEqual((yield* backend.session)._tag, "Ready")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.68 the reserve is never more than half of what is left", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ taskWaitTimeout: "2 seconds", ...patient })
      const trainer = yield* startTrainer({ taskReady: silence, taskStatus: status("QUEUED") })
      const running = yield* start(backend)
      yield* pass(999)
      assert.lengthOf(trainer.of("taskStatus"), 0)
      yield* pass(1)
      assert.lengthOf(trainer.of("taskStatus"), 1)
      assert.isFalse(isOver(running))
      yield* Fiber.interrupt(running)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.68 retries change the attempt id only; two probes a turn, controlRetry apart", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const refuse = () => Effect.succeed({ returnCode: "comm_error", error: "later" })
      const trainer = yield* startTrainer({ taskReady: inTurn(refuse, refuse, accept) })
      const running = yield* start(backend)
      yield* pass("1 second")
      const sent = trainer.of("taskReady")
      assert.deepStrictEqual(
        sent.map(({ at }) => at),
        [0, 500, 1000]
      )
      assert.strictEqual(new Set(sent.map(({ body }) => body.get("task_id"))).size, 1)
      assert.deepStrictEqual(
        sent.map(({ body }) => body.get("task_seq")),
        [1, 1, 1]
      )
      assert.strictEqual(new Set(sent.map(({ body }) => body.get("attempt_id"))).size, 3)
      assert.deepStrictEqual(
        trainer.of("taskStatus").map(({ at }) => at),
        [0, 500, 500, 1000]
      )
      yield* Fiber.interrupt(running)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.69 TASK_STATUS UNKNOWN as the answer to TASK_READY is tried again, and accepted in the end", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer({ taskReady: inTurn(status("UNKNOWN"), status("UNKNOWN"), accept) })
      const running = yield* start(backend)
      yield* pass("1 second")
      const sent = trainer.of("taskReady")
      assert.lengthOf(sent, 3)
      assert.isDefined(sent[2])
      yield* trainer.result(sent[2])
      yield* Fiber.join(running)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.70 a malformed body and an unknown reply topic are final", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      trainer.answers.taskReady = () => Effect.succeed({ returnCode: "ok", payload: "accepted" })
      assert.include((yield* reasonOf(yield* start(backend), "TaskRejected")).message, "no task reply")
      trainer.answers.taskReady = () => reply("heartbeat")
      assert.include((yield* reasonOf(yield* start(backend), "TaskRejected")).message, "client_api.heartbeat")
      assert.lengthOf(trainer.of("taskReady"), 2)
      assert.lengthOf(trainer.of("taskStatus"), 0)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a delivery goes on when the trainer's connection comes back, without waiting for the retry", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ ...patient, controlRetry: "10 seconds" })
      const first = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      yield* support.advance(first.stop, 1)
      const running = yield* start(backend)
      yield* pass(300)
      const again = yield* startTrainer()
      const sent = yield* again.next("taskReady")
      yield* again.result({ ...sent })
      yield* Fiber.join(running)
      assert.isBelow(sent.at, 1000)
    }).pipe(Effect.provide(layer()))
  )
})

describe("better than the reference", () => {
  it.effect("14.11 an answer that accepts another task is no acceptance", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer({
        taskReady: inTurn(() => reply("taskAccepted", { task_id: "another" }), accept)
      })
      const running = yield* start(backend)
      yield* pass(500)
      assert.lengthOf(trainer.of("taskReady"), 2)
      yield* Fiber.interrupt(running)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.13 a trainer that fails decodeFailureLimit times in a row to take the task in ends the delivery", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ decodeFailureLimit: 2 })
      const trainer = yield* startTrainer({ taskReady: undecodable })
      const running = yield* start(backend)
      yield* pass(499)
      assert.isFalse(isOver(running))
      yield* pass(1)
      const reason = yield* reasonOf(running, "TaskRejected")
      assert.include(reason.message, "decodeFailureLimit (2)")
      assert.include(reason.message, "no such dtype")
      assert.lengthOf(trainer.of("taskReady"), 2)
      assert.strictEqual((yield* backend.session)._tag, "Ready")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.13 a failure of another kind in between starts the count again", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ decodeFailureLimit: 2 })
      const trainer = yield* startTrainer({ taskReady: inTurn(undecodable, status("UNKNOWN"), undecodable, accept) })
      const running = yield* start(backend)
      yield* pass(1500)
      const sent = trainer.of("taskReady")[3]
      assert.isDefined(sent)
      yield* trainer.result(sent)
      yield* Fiber.join(running)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.14 a session that dies before the answer ends the task at once, without a probe", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ heartbeatTimeout: "6 seconds", decodeGrace: "0 seconds" })
      const trainer = yield* startTrainer({ taskReady: silence })
      const running = yield* start(backend)
      yield* pass(6001)
      assert.isTrue(isOver(running))
      yield* reasonOf(running, "SessionLost")
      assert.lengthOf(trainer.of("taskStatus"), 0)
    }).pipe(Effect.provide(layer()))
  )

  const lease = { heartbeatInterval: "1 second", heartbeatTimeout: "6 seconds", decodeGrace: "4 seconds" }

  it.effect("time in which a connected trainer takes a task in is no silence, as long as decodeGrace", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(lease)
      const trainer = yield* startTrainer({ taskReady: (body) => Effect.delay(accept(body), "9990 millis") })
      const running = yield* start(backend)
      const sent = yield* trainer.next("taskReady")
      yield* pass(9990)
      // Its answer renews the lease.
      yield* pass(6000)
      assert.strictEqual((yield* backend.session)._tag, "Ready")
      yield* trainer.result(sent)
      yield* Fiber.join(running)
      trainer.answers.taskReady = silence
      const second = yield* start(backend)
      yield* pass(10_000)
      assert.isFalse(isOver(second))
      yield* pass(1)
      const { message } = yield* reasonOf(second, "SessionLost")
      assert.include(message, "heartbeatTimeout is 6s and decodeGrace 4s, for it was taking a task in, silent for 10s")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a TASK_READY that fails while its trainer is silent beyond the lease ends the session then", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(lease)
      yield* startTrainer({ taskReady: () => Effect.delay(Effect.succeed({ returnCode: "comm_error" }), "8 seconds") })
      const running = yield* start(backend)
      yield* pass(7999)
      assert.isFalse(isOver(running))
      yield* pass(1)
      yield* reasonOf(running, "SessionLost")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a trainer that disconnected within its lease while it took a task in has no more than that", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(lease)
      const trainer = yield* startTrainer({ taskReady: silence })
      const running = yield* start(backend)
      yield* trainer.next("taskReady")
      yield* pass(5000)
      yield* support.advance(trainer.stop, 1)
      yield* pass(1010)
      const { message } = yield* reasonOf(running, "SessionLost")
      assert.notInclude(message, "decodeGrace")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a trainer that disconnects while it takes a task in has no more than the lease", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(lease)
      const trainer = yield* startTrainer({ taskReady: silence })
      const running = yield* start(backend)
      yield* trainer.next("taskReady")
      yield* pass(7000)
      assert.isFalse(isOver(running))
      yield* support.advance(trainer.stop, 1)
      yield* pass()
      yield* reasonOf(running, "SessionLost")
    }).pipe(Effect.provide(layer()))
  )

  describe("a task that a client parent loses", () => {
    const place = layer({ direct: false })
    const sentAt = (trainer: support.ScriptedTrainer) => trainer.of("taskReady").map(({ at }) => at)

    it.effect("is sent again when nothing moved for 10 s and the trainer does not know it", () =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend(patient)
        const trainer = yield* startTrainer({ taskReady: inTurn(silence, accept) })
        const running = yield* start(backend)
        yield* pass(9999)
        assert.lengthOf(trainer.of("taskStatus"), 0)
        yield* pass(501)
        assert.deepStrictEqual(sentAt(trainer), [0, 10_500])
        const again = trainer.of("taskReady")[1]
        assert.isDefined(again)
        yield* trainer.result(again)
        yield* Fiber.join(running)
      }).pipe(Effect.provide(place))
    )

    it.effect("is not when the trainer knows it: its acceptance was lost", () =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend(patient)
        const trainer = yield* startTrainer({ taskReady: silence, taskStatus: status("QUEUED") })
        const running = yield* start(backend)
        const sent = yield* trainer.next("taskReady")
        yield* pass("5 minutes")
        assert.lengthOf(trainer.of("taskStatus"), 1)
        yield* trainer.result(sent)
        yield* Fiber.join(running)
        assert.deepStrictEqual(sentAt(trainer), [0])
      }).pipe(Effect.provide(place))
    )

    it.effect("is not while the trainer does not answer: it may be taking it in", () =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend(patient)
        const trainer = yield* startTrainer({ taskReady: silence, taskStatus: silence })
        const running = yield* start(backend)
        yield* pass("1 minute")
        assert.deepStrictEqual(sentAt(trainer), [0])
        assert.isAbove(trainer.of("taskStatus").length, 1)
        yield* Fiber.interrupt(running)
      }).pipe(Effect.provide(place))
    )

    it.effect("is not while its bytes move", () =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend(patient)
        const trainer = yield* startTrainer()
        yield* support.untilState(backend, "Ready")
        const running = yield* start(backend, support.bigTask)
        yield* pass("1 minute")
        assert.lengthOf(trainer.of("taskReady"), 1)
        assert.isAtLeast(sentAt(trainer)[0] ?? 0, 10_000)
        yield* Fiber.interrupt(running)
      }).pipe(Effect.provide(layer({ direct: false, faults: support.slowFrames("1 second") })))
    )
  })

  it.effect("deliveryProgress false: taskWaitTimeout counts the time of moving bytes, too", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ taskWaitTimeout: "10 seconds", deliveryProgress: false, ...patient })
      yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      const running = yield* start(backend, support.bigTask)
      yield* pass(9999)
      assert.isFalse(isOver(running))
      yield* pass(1)
      yield* reasonOf(running, "DeliveryTimeout")
    }).pipe(Effect.provide(layer({ faults: support.slowFrames("1 second") })))
  )

  it.effect("deliveryProgress (default): a slow model that moves is not cut, and what is left is what was", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ taskWaitTimeout: "10 seconds", ...patient })
      const trainer = yield* startTrainer({ taskReady: silence, taskStatus: status("QUEUED") })
      yield* support.untilState(backend, "Ready")
      const running = yield* start(backend, support.bigTask)
      yield* pass("1 minute")
      // The answer is lost after all that time, and there still is time to ask.
      assert.isAtLeast(trainer.of("taskReady")[0]?.at ?? 0, 10_000)
      assert.lengthOf(trainer.of("taskStatus"), 1)
      assert.isFalse(isOver(running))
      yield* Fiber.interrupt(running)
    }).pipe(Effect.provide(layer({ faults: support.slowFrames("1 second") })))
  )
})
