import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import type * as MemoryDriver from "../../src/transport/MemoryDriver.ts"
import * as support from "./support.ts"

const { isOver, layer, openBackend, pass, reasonOf, reply, silence, start, startTrainer } = support

const tag = (backend: support.Opened["backend"]) => Effect.map(backend.session, ({ _tag }) => _tag)
const patient = { heartbeatTimeout: "1 hour" }

describe("one task at a time", () => {
  it.effect("16.66 a second task is refused while one is under way, also while that one waits for the trainer", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const running = yield* start(backend)
      const reason = yield* reasonOf(yield* start(backend, support.task(0, "validate")), "BackendBusy")
      assert.include(reason.message, '"validate"')
      const trainer = yield* startTrainer()
      const sent = yield* trainer.next("taskReady")
      yield* reasonOf(yield* start(backend), "BackendBusy")
      yield* trainer.result(sent)
      yield* Fiber.join(running)
      const next = yield* start(backend)
      yield* trainer.result(yield* trainer.next("taskReady"))
      yield* Fiber.join(next)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a task that failed or was interrupted leaves room for the next", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const waiting = yield* start(backend)
      yield* Fiber.interrupt(waiting)
      const trainer = yield* startTrainer({ taskReady: () => reply("taskFailed", { reason: "no" }) })
      yield* reasonOf(yield* start(backend), "TaskRejected")
      trainer.answers.taskReady = (body) => reply("taskAccepted", { task_id: body.get("task_id") })
      yield* trainer.next("taskReady")
      const running = yield* start(backend)
      yield* trainer.result(yield* trainer.next("taskReady"))
      yield* Fiber.join(running)
    }).pipe(Effect.provide(layer()))
  )
})

describe("aborting", () => {
  it.effect("16.67 while the task waits for the session nothing is sent", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const running = yield* start(backend)
      yield* pass("1 second")
      yield* Fiber.interrupt(running)
      const trainer = yield* startTrainer()
      yield* pass("1 minute")
      assert.lengthOf(trainer.of("taskReady"), 0)
      assert.lengthOf(trainer.of("abort"), 0)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.67 during delivery and during the wait for the result one ABORT is sent, which ends the session", () =>
    Effect.gen(function* () {
      for (const taskReady of [
        silence,
        (body: ReadonlyMap<unknown, unknown>) => reply("taskAccepted", { task_id: body.get("task_id") })
      ]) {
        const { backend, close } = yield* openBackend()
        const trainer = yield* startTrainer({ taskReady })
        const running = yield* start(backend)
        yield* trainer.next("taskReady")
        yield* pass("100 millis")
        yield* Fiber.interrupt(running)
        const abort = yield* trainer.next("abort")
        assert.deepStrictEqual(Object.fromEntries(abort.body), {
          session_id: trainer.sessionId(),
          reason: "task 'train' aborted"
        })
        assert.strictEqual(yield* tag(backend), "Failed")
        yield* pass("1 minute")
        assert.lengthOf(trainer.of("abort"), 1)
        yield* support.advance(Effect.flatMap(close, Fiber.join))
        yield* support.advance(trainer.stop)
      }
    }).pipe(Effect.provide(layer()))
  )

  it.effect("none is sent for a task whose result was accepted", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      // It is interrupted by the very message that brings its result.
      const running = yield* start(backend)
      const sent = yield* trainer.next("taskReady")
      yield* trainer.result(sent)
      yield* Fiber.interrupt(running)
      yield* pass("1 minute")
      assert.lengthOf(trainer.of("abort"), 0)
    }).pipe(Effect.provide(layer()))
  )

  /** The way to the trainer takes no frame any more, from an ABORT on. */
  const stuck: MemoryDriver.Faults = {
    onFrame: ({ bytes }) =>
      Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).includes("client_api.abort")
        ? Effect.never
        : Effect.succeed("deliver" as const)
  }
  it.effect("a trainer that reads nothing holds an abort up for no longer than controlTimeout", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(patient)
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      yield* trainer.next("taskReady")
      const stopping = yield* Effect.forkChild(Fiber.interrupt(running), { startImmediately: true })
      yield* pass(1999)
      assert.isFalse(isOver(stopping))
      yield* pass(1)
      assert.isTrue(isOver(stopping))
      assert.strictEqual(yield* tag(backend), "Failed")
    }).pipe(Effect.provide(layer({ faults: stuck })))
  )

  it.effect("an aborted session is told to be over before the next one is told to open", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ allowReconnect: true })
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      yield* trainer.next("taskReady")
      const { sessionId } = yield* backend.session
      const told: Array<boolean> = []
      yield* Stream.runForEach(backend.sessionChanges, (state) =>
        Effect.sync(() => told.push(state.sessionId === sessionId))
      ).pipe(Effect.forkScoped({ startImmediately: true }))
      yield* Fiber.interrupt(running)
      yield* pass()
      assert.deepStrictEqual(told.slice(0, 3), [true, true, false])
      assert.notStrictEqual((yield* backend.session).sessionId, sessionId)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.5 the source of an aborted session is nobody's any more: a fresh one begins without it", () =>
    Effect.gen(function* () {
      const { backend, close } = yield* openBackend({ ...patient, allowReconnect: true })
      const trainer = yield* startTrainer()
      const first = yield* start(backend)
      yield* trainer.result(yield* trainer.next("taskReady"))
      yield* Fiber.join(first)
      const second = yield* start(backend)
      yield* trainer.next("taskReady")
      yield* Fiber.interrupt(second)
      yield* pass()
      assert.strictEqual(yield* tag(backend), "Ready")
      const closing = yield* close
      yield* pass()
      assert.isTrue(isOver(closing))
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.5 a session that got ABORT is offered no other task; without allowReconnect that is the end", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      yield* trainer.next("taskReady")
      yield* Fiber.interrupt(running)
      const reason = yield* reasonOf(yield* start(backend), "SessionAborted")
      assert.include(reason.message, "has to be started again")
      assert.lengthOf(trainer.of("taskReady"), 1)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.5 under allowReconnect the next task waits for a trainer that was started again", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ allowReconnect: true })
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      yield* trainer.next("taskReady")
      // The old one still holds its session for a while.
      trainer.answers.sessionOpen = () =>
        reply("sessionRejected", { session_id: null, reason: "trainer is already bound to another CJ/session" })
      yield* Fiber.interrupt(running)
      const next = yield* start(backend)
      yield* pass("10 seconds")
      assert.isFalse(isOver(next))
      assert.lengthOf(trainer.of("taskReady"), 1)
      yield* support.advance(trainer.stop, 1)
      const again = yield* startTrainer()
      yield* again.result(yield* again.next("taskReady"))
      yield* Fiber.join(next)
    }).pipe(Effect.provide(layer()))
  )
})

describe("waiting for the result", () => {
  it.effect("16.68 resultWaitTimeout counts from the acceptance; it sends ABORT and fails", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ ...patient, resultWaitTimeout: "20 seconds" })
      const trainer = yield* startTrainer({
        taskReady: (body) => Effect.delay(reply("taskAccepted", { task_id: body.get("task_id") }), "3 seconds")
      })
      const running = yield* start(backend)
      yield* pass(22_999)
      assert.isFalse(isOver(running))
      assert.lengthOf(trainer.of("abort"), 0)
      yield* pass(1)
      const reason = yield* reasonOf(running, "ResultTimeout")
      assert.strictEqual(reason.setting, "resultWaitTimeout")
      assert.include(reason.message, "resultWaitTimeout (20s)")
      const abort = yield* trainer.next("abort")
      assert.strictEqual(abort.body.get("reason"), "task 'train' result timed out")
      assert.strictEqual(yield* tag(backend), "Failed")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.15 readyTimeout bounds the wait of one task, not the session's", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ readyTimeout: "5 seconds" })
      const running = yield* start(backend)
      yield* pass(4999)
      assert.isFalse(isOver(running))
      yield* pass(1)
      const reason = yield* reasonOf(running, "AttachTimeout")
      assert.strictEqual(reason.setting, "readyTimeout")
      assert.strictEqual(yield* tag(backend), "Opening")
      const trainer = yield* startTrainer()
      const next = yield* start(backend)
      yield* trainer.result(yield* trainer.next("taskReady"))
      yield* Fiber.join(next)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("readyTimeout 0 takes a trainer that is there, and waits for none", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ readyTimeout: "0 seconds" })
      const impatient = yield* start(backend)
      yield* pass()
      yield* reasonOf(impatient, "AttachTimeout")
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      const next = yield* start(backend)
      yield* trainer.result(yield* trainer.next("taskReady"))
      yield* Fiber.join(next)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.2 a task of the moment in which a session is lost waits for the next session", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ heartbeatTimeout: "6 seconds", allowReconnect: true })
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      yield* support.advance(trainer.stop, 1)
      yield* pass(6001)
      const running = yield* start(backend)
      yield* pass("1 hour")
      assert.isFalse(isOver(running))
      const again = yield* startTrainer()
      yield* again.result(yield* again.next("taskReady"))
      yield* Fiber.join(running)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.4 a trainer that still holds its old session is asked until it lets go, under allowReconnect", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({
        heartbeatTimeout: "6 seconds",
        allowReconnect: true,
        attachTimeout: "30 seconds"
      })
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      const bound = () => reply("sessionRejected", { reason: "trainer is already bound to another CJ/session" })
      const welcome = trainer.answers.sessionOpen
      trainer.answers.sessionOpen = bound
      yield* pass(6001 + 20_000)
      assert.strictEqual(yield* tag(backend), "Opening")
      trainer.answers.sessionOpen = welcome
      yield* pass(500)
      assert.strictEqual(yield* tag(backend), "Ready")
      trainer.answers.sessionOpen = bound
      yield* pass(6001 + 30_000)
      yield* reasonOf(yield* start(backend), "AttachTimeout")
    }).pipe(Effect.provide(layer()))
  )
})
