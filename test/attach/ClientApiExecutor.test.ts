import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { ClientApiExecutor } from "../../src/attach/ClientApiExecutor.ts"
import { Header, Shareable } from "../../src/model/Shareable.ts"
import * as TestService from "../../src/testing/TestService.ts"
import * as support from "./support.ts"

const { isOver, pass, reply, startTrainer } = support

const layer = (options: Partial<Parameters<typeof ClientApiExecutor.layer>[0]> = {}) =>
  TestService.movingClock(ClientApiExecutor.layer({ attachId: "a", ...options })).pipe(
    Layer.provideMerge(support.layer())
  )

const run = (task = support.task(4), abort?: Effect.Effect<unknown>) =>
  Effect.flatMap(ClientApiExecutor, (executor) =>
    Effect.forkChild(executor.execute(task, abort), { startImmediately: true })
  )

describe("ClientApiExecutor", () => {
  it.effect("16.1 START_RUN, a task, END_RUN: the answer is the trainer's Shareable, with the task's round", () =>
    Effect.gen(function* () {
      const executor = yield* ClientApiExecutor
      yield* executor.startRun
      const trainer = yield* startTrainer()
      const running = yield* run()
      yield* trainer.result(yield* trainer.next("taskReady"), { result: new Shareable([["start_round", 1]]) })
      const answer = yield* Fiber.join(running)
      assert.strictEqual(answer.returnCode, "OK")
      assert.strictEqual(answer.headers.get(Header.currentRound), 4)
      yield* support.advance(executor.endRun)
      assert.lengthOf(trainer.of("shutdown"), 1)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.4 attachTimeout is an answer, EXECUTION_EXCEPTION, and no hang", () =>
    Effect.gen(function* () {
      yield* Effect.flatMap(ClientApiExecutor, ({ startRun }) => startRun)
      const running = yield* run()
      yield* pass(2999)
      assert.isFalse(isOver(running))
      yield* pass(1)
      assert.strictEqual((yield* Fiber.join(running)).returnCode, "EXECUTION_EXCEPTION")
    }).pipe(Effect.provide(layer({ attachTimeout: "3 seconds" })))
  )

  it.effect("without a backend every task is answered EXECUTION_EXCEPTION; the run may start again", () =>
    Effect.gen(function* () {
      const executor = yield* ClientApiExecutor
      const before = yield* executor.execute(support.task())
      assert.strictEqual(before.returnCode, "EXECUTION_EXCEPTION")
      yield* executor.startRun
      yield* support.advance(executor.endRun)
      yield* executor.endRun
      assert.strictEqual((yield* executor.execute(support.task())).returnCode, "EXECUTION_EXCEPTION")
      yield* executor.startRun
      const trainer = yield* startTrainer()
      const running = yield* run()
      yield* trainer.result(yield* trainer.next("taskReady"))
      assert.strictEqual((yield* Fiber.join(running)).returnCode, "OK")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a second START_RUN ends the first run", () =>
    Effect.gen(function* () {
      const executor = yield* ClientApiExecutor
      yield* executor.startRun
      const trainer = yield* startTrainer()
      const first = (yield* trainer.next("sessionOpen")).body.get("session_id")
      yield* support.advance(executor.startRun)
      assert.strictEqual((yield* trainer.next("shutdown")).body.get("session_id"), first)
      assert.notStrictEqual((yield* trainer.next("sessionOpen")).body.get("session_id"), first)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a START_RUN that fails says why, and leaves nothing", () =>
    Effect.gen(function* () {
      const executor = yield* ClientApiExecutor
      assert.strictEqual((yield* Effect.flip(executor.startRun)).reason._tag, "ConfigInvalid")
      assert.strictEqual((yield* executor.execute(support.task())).returnCode, "EXECUTION_EXCEPTION")
    }).pipe(Effect.provide(layer({ heartbeatTimeout: "0 seconds" })))
  )

  it.effect("16.67 ABORT_TASK and the abort signal: TASK_ABORTED, and one ABORT to the trainer", () =>
    Effect.gen(function* () {
      const executor = yield* ClientApiExecutor
      for (const by of ["event", "signal"]) {
        yield* executor.startRun
        const trainer = yield* startTrainer()
        const signal = yield* Deferred.make<void>()
        const running = yield* run(support.task(4), Deferred.await(signal))
        yield* trainer.next("taskReady")
        yield* by === "event" ? executor.abortTask : Deferred.succeed(signal, undefined)
        const answer = yield* Fiber.join(running)
        assert.strictEqual(answer.returnCode, "TASK_ABORTED")
        assert.strictEqual(answer.headers.get(Header.currentRound), 4)
        yield* pass()
        assert.lengthOf(trainer.of("abort"), 1)
        yield* support.advance(executor.endRun)
        yield* support.advance(trainer.stop, 1)
      }
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.66 a second task: EXECUTION_EXCEPTION, or TASK_ABORTED where its abort is there already", () =>
    Effect.gen(function* () {
      const executor = yield* ClientApiExecutor
      yield* executor.startRun
      const running = yield* run()
      assert.strictEqual((yield* executor.execute(support.task())).returnCode, "EXECUTION_EXCEPTION")
      assert.strictEqual((yield* executor.execute(support.task(), Effect.void)).returnCode, "TASK_ABORTED")
      assert.isFalse(isOver(running))
      yield* executor.abortTask
      assert.strictEqual((yield* Fiber.join(running)).returnCode, "TASK_ABORTED")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.9 16.26 a refused task, a closed backend: EXECUTION_EXCEPTION; a trainer's own code stays", () =>
    Effect.gen(function* () {
      const executor = yield* ClientApiExecutor
      yield* executor.startRun
      const trainer = yield* startTrainer({ taskReady: () => reply("taskFailed", { reason: "no" }) })
      assert.strictEqual((yield* Fiber.join(yield* run())).returnCode, "EXECUTION_EXCEPTION")
      yield* trainer.next("taskReady")
      trainer.answers.taskReady = (body) => reply("taskAccepted", { task_id: body.get("task_id") })
      const failing = yield* run()
      const sent = yield* trainer.next("taskReady")
      yield* trainer.result(sent, { result: support.failedResult("BAD_TASK_DATA") })
      assert.strictEqual((yield* Fiber.join(failing)).returnCode, "BAD_TASK_DATA")
      yield* trainer.settle(sent)
      const running = yield* run()
      yield* trainer.next("taskReady")
      yield* support.advance(executor.endRun)
      assert.strictEqual((yield* Fiber.join(running)).returnCode, "EXECUTION_EXCEPTION")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("whoever interrupts a call gets no answer", () =>
    Effect.gen(function* () {
      const executor = yield* ClientApiExecutor
      yield* executor.startRun
      const running = yield* run()
      yield* Fiber.interrupt(running)
      assert.isTrue(isOver(running))
      assert.strictEqual((yield* Effect.exit(Fiber.join(running)))._tag, "Failure")
    }).pipe(Effect.provide(layer()))
  )
})
