import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Option } from "effect"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import { Shareable } from "../../src/model/Shareable.ts"
import {
  advance,
  array,
  bodyOf,
  exchange,
  makeJob,
  model,
  modelOf,
  reasonOf,
  received,
  settle,
  shareable
} from "./support.ts"

const { ReplyTopic, Topic } = ClientApi

describe("tasks", () => {
  it.effect("16.37 duplicate TASK_READY is queued once; TASK_STATUS is QUEUED, then DELIVERED after receive", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      assert.deepStrictEqual(bodyOf(yield* job.task()), {
        reply_topic: ReplyTopic.taskAccepted,
        task_id: "task-1"
      })
      assert.deepStrictEqual(bodyOf(yield* job.task({ attempt_id: "attempt-2" })), {
        reply_topic: ReplyTopic.taskAccepted,
        task_id: "task-1",
        task_seq: 1,
        attempt_id: "attempt-1",
        task_state: "QUEUED"
      })
      const status = (state: string) => ({
        reply_topic: ReplyTopic.taskStatus,
        task_id: "task-1",
        task_state: state,
        accepted_attempt_id: "attempt-1"
      })
      assert.deepStrictEqual(bodyOf(yield* job.status("task-1")), status("QUEUED"))
      received(yield* session.receive)
      assert.deepStrictEqual(bodyOf(yield* job.status("task-1")), status("DELIVERED"))
      yield* session.send(model(2))
      assert.deepStrictEqual(bodyOf(yield* job.status("task-1")), status("COMPLETE"))
      assert.isTrue(Option.isNone(yield* session.receiveWithin(0)), "there is no second task")
    })
  )

  it.effect("16.37 a duplicate TASK_READY counts as activity of the CJ, TASK_STATUS does not", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      job.answer(Topic.heartbeat, () => Effect.never)
      const { session } = yield* job.attach()
      yield* job.task()
      yield* advance("20 seconds")
      yield* job.task()
      yield* advance("20 seconds")
      yield* job.status("task-1")
      yield* advance(10_000)
      received(yield* session.receive)
      yield* advance(1)
      assert.strictEqual((yield* reasonOf(session.receive))._tag, "SessionEnded")
    })
  )

  it.effect("16.38 a refused model leaves the task UNKNOWN and the queue empty; the same task may come again", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      const refused = bodyOf(yield* job.task({ model: new Shareable() }))
      assert.deepStrictEqual([refused.reply_topic, refused.task_id], [ReplyTopic.taskFailed, "task-1"])
      assert.include(String(refused.reason), "invalid task model")
      assert.strictEqual(bodyOf(yield* job.status("task-1")).task_state, "UNKNOWN")
      assert.isTrue(Option.isNone(yield* session.receiveWithin(0)))
      assert.deepStrictEqual(bodyOf(yield* job.task({ attempt_id: "attempt-2" })), {
        reply_topic: ReplyTopic.taskAccepted,
        task_id: "task-1"
      })
      assert.strictEqual(bodyOf(yield* job.status("task-1")).accepted_attempt_id, "attempt-2")
    })
  )

  it.effect("16.38 a model that the exchange's format can't hold is TASK_FAILED", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      yield* job.attach({ task_exchange: ClientApi.body({ ...exchange, exchange_format: "keras_layer_weights" }) })
      const refused = bodyOf(yield* job.task())
      assert.strictEqual(refused.reply_topic, ReplyTopic.taskFailed)
      assert.include(String(refused.reason), '"w"')
    })
  )

  it.effect("16.46 send before receive fails; isRunning does not count as receive", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      assert.strictEqual((yield* reasonOf(session.send(model(1))))._tag, "NoTask")
      yield* job.task()
      assert.isTrue(yield* session.isRunning)
      assert.strictEqual((yield* reasonOf(session.send(model(1))))._tag, "NoTask")
      assert.deepStrictEqual(received(yield* session.receive).arrays.get("w"), array(1, 2))
      yield* session.send(model(1))
    })
  )

  it.effect("16.46 receive gives the same model until its result is sent; clear drops the task", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      assert.deepStrictEqual(yield* session.taskName, Option.none())
      yield* job.task()
      yield* job.task({ task_id: "task-2", task_seq: 2, task_name: "validate" })
      const first = received(yield* session.receive)
      assert.strictEqual(received(yield* session.receive), first)
      assert.deepStrictEqual(yield* session.taskName, Option.some("train"))
      yield* session.clear
      assert.deepStrictEqual(yield* session.taskName, Option.none())
      assert.strictEqual((yield* reasonOf(session.send(model(1))))._tag, "NoTask")
      received(yield* session.receive)
      assert.deepStrictEqual(yield* session.taskName, Option.some("validate"))
    })
  )

  it.effect("16.46 receive with a limit gives nothing at the limit, and a task that comes just before", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      const waiting = yield* Effect.forkChild(session.receiveWithin("3 seconds"))
      yield* advance(2999)
      yield* settle
      assert.isUndefined(waiting.pollUnsafe())
      yield* advance(1)
      assert.isTrue(Option.isNone(yield* Fiber.join(waiting)))
      const again = yield* Effect.forkChild(session.receiveWithin("3 seconds"))
      yield* advance(2999)
      yield* job.task()
      received(yield* Fiber.join(again))
    })
  )

  it.effect("16.47 SHUTDOWN ends the loop: receive gives nothing, isRunning is false, a queued task is not given", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      const waiting = yield* Effect.forkChild(session.receive, { startImmediately: true })
      assert.deepStrictEqual(bodyOf(yield* job.shutdown), { result_source_live: false })
      assert.isTrue(Option.isNone(yield* Fiber.join(waiting)))
      assert.isTrue(Option.isNone(yield* session.receive))
      assert.isFalse(yield* session.isRunning)
      yield* session.stopped
      const refused = bodyOf(yield* job.task())
      assert.deepStrictEqual([refused.reply_topic, refused.task_id], [ReplyTopic.taskFailed, "task-1"])
    })
  )

  it.effect("16.47 SHUTDOWN outranks the task in hand and the tasks that wait", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      yield* job.task()
      yield* job.task({ task_id: "task-2", task_seq: 2 })
      received(yield* session.receive)
      yield* job.shutdown
      assert.isTrue(Option.isNone(yield* session.receive))
      const reason = yield* reasonOf(session.send(model(1)))
      assert.strictEqual(reason._tag === "SessionEnded" ? reason.by : reason._tag, "shutdown")
      assert.deepStrictEqual(job.heard(Topic.resultReady), [])
    })
  )

  it.effect("16.47 after a SHUTDOWN the end of the lease is no error", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      yield* job.shutdown
      yield* advance("1 hour")
      assert.isTrue(Option.isNone(yield* session.receive))
      assert.deepStrictEqual(job.heard(Topic.heartbeat), [], "nothing keeps a session that is over")
    })
  )

  it.effect("16.47 ABORT fails a blocked receive at once; isRunning is then false", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      const waiting = yield* Effect.forkChild(reasonOf(session.receive), { startImmediately: true })
      assert.strictEqual((yield* job.abort("no more")).returnCode, "ok")
      const reason = yield* Fiber.join(waiting)
      assert.deepStrictEqual(reason._tag === "SessionEnded" ? [reason.by, reason.reason] : reason._tag, [
        "abort",
        "no more"
      ])
      assert.isFalse(yield* session.isRunning)
      assert.strictEqual((yield* reasonOf(session.send(model(1))))._tag, "SessionEnded")
    })
  )

  it.effect("16.53 TASK_READY after ABORT is TASK_FAILED with the abort's reason; its number is burnt", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      yield* job.attach()
      yield* job.abort("no more")
      const refused = bodyOf(yield* job.task())
      assert.deepStrictEqual([refused.reply_topic, refused.task_id], [ReplyTopic.taskFailed, "task-1"])
      assert.include(String(refused.reason), "no more")
      assert.strictEqual(bodyOf(yield* job.status("task-1")).task_state, "UNKNOWN")
      assert.include(String(bodyOf(yield* job.task({ task_id: "task-2" })).reason), "stale task_seq 1")
    })
  )

  it.effect("16.53 messages of another session change nothing", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      const foreign = { session_id: "session-0" }
      assert.deepStrictEqual(bodyOf(yield* job.task(foreign)), {
        reply_topic: ReplyTopic.taskFailed,
        reason: "stale or unknown session id"
      })
      for (const topic of [Topic.abort, Topic.shutdown]) {
        const refused = yield* job.ask(topic, ClientApi.body({ ...foreign, reason: "x" }))
        assert.deepStrictEqual([refused.returnCode, refused.error], ["invalid_request", "stale or unknown session id"])
      }
      yield* job.task()
      received(yield* session.receive)
    })
  )

  it.effect("16.60 a payload that is no map: invalid_request; ABORT and SHUTDOWN fail by their session", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      yield* job.attach()
      for (const topic of [Topic.sessionOpen, Topic.taskReady, Topic.taskStatus, Topic.abort, Topic.shutdown]) {
        for (const payload of ["x", 7, ["x"], null]) {
          const { payload: body, returnCode } = yield* job.ask(topic, payload)
          assert.deepStrictEqual([returnCode, body ?? null], ["invalid_request", null], topic.topic)
        }
      }
    })
  )

  it.effect("16.74 a number may jump up, never down; a known task keeps its own", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      yield* job.attach()
      const outcome = (task: { readonly [key: string]: unknown }) =>
        Effect.map(job.task(task), (reply) => bodyOf(reply).reply_topic)
      assert.strictEqual(yield* outcome({ task_id: "a", task_seq: 5 }), ReplyTopic.taskAccepted)
      assert.strictEqual(yield* outcome({ task_id: "b", task_seq: 4 }), ReplyTopic.taskFailed)
      assert.strictEqual(yield* outcome({ task_id: "b", task_seq: 5 }), ReplyTopic.taskFailed)
      assert.strictEqual(yield* outcome({ task_id: "a", task_seq: 6 }), ReplyTopic.taskFailed)
      assert.strictEqual(yield* outcome({ task_id: "b", task_seq: 6 }), ReplyTopic.taskAccepted)
    })
  )

  it.effect("16.80 task names are the service's: custom ones are told apart; settings of memory are passed on", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const names = { train_task_name: "fit", eval_task_name: "score", submit_model_task_name: "hand_in" }
      const { session } = yield* job.attach({
        task_exchange: ClientApi.body({ ...exchange, ...names, train_with_eval: true }),
        memory_gc_rounds: 3,
        cuda_empty_cache: true
      })
      const kinds = Effect.all([session.isTrain, session.isEvaluate, session.isSubmitModel])
      assert.deepStrictEqual(yield* kinds, [false, false, false])
      const expected = {
        fit: [true, false, false],
        score: [false, true, false],
        hand_in: [false, false, true],
        train: [false, false, false]
      }
      for (const [index, [name, kind]] of Object.entries(expected).entries()) {
        yield* job.task({ task_id: name, task_seq: index + 1, task_name: name })
        received(yield* session.receive)
        assert.deepStrictEqual(yield* kinds, kind, name)
        yield* session.clear
      }
      assert.deepStrictEqual(
        [session.config.memoryGcRounds, session.config.cudaEmptyCache, session.exchange.train_with_eval],
        [3, true, true]
      )
      assert.deepStrictEqual(session.systemInfo, { siteName: "site-1", jobId: "job-1" })
    })
  )

  it.effect("16.82 empty arrays, arrays without dimensions and metrics alone arrive as they were sent, both ways", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      const params = [
        ["empty", NdArray.fromTyped(new Float32Array(), [0, 3])],
        ["scalar", NdArray.fromTyped(Float64Array.of(1.5), [])]
      ] as const
      for (const [index, sent] of [new FLModel({ params }), new FLModel({ metrics: [["loss", 2]] })].entries()) {
        yield* job.task({ task_id: `task-${index}`, task_seq: index + 1, model: shareable(sent) })
        const got = received(yield* session.receive)
        yield* session.send(got)
        const { body } = yield* job.message(Topic.resultReady, index)
        for (const model of [got, modelOf(body.get("result"))]) {
          assert.deepStrictEqual(model.params, sent.params)
          assert.deepStrictEqual(model.metrics, sent.metrics)
        }
      }
    })
  )
})
