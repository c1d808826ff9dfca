import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Option } from "effect"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import type { TrainerSession } from "../../src/trainer/TrainerSession.ts"
import {
  accept,
  advance,
  array,
  bodyOf,
  exchange,
  type Fields,
  makeJob,
  model,
  modelOf,
  reasonOf,
  received,
  reply,
  settle,
  shareable,
  silence
} from "./support.ts"

const { ReplyTopic, Topic } = ClientApi

/** A trainer that has received its first task. */
const atWork = Effect.fnUntraced(function* (overrides: Fields = {}) {
  const job = yield* makeJob()
  const { close, session } = yield* job.attach(overrides)
  yield* job.task()
  received(yield* session.receive)
  return { job, session, close }
})

const stateOf = (job: Effect.Success<ReturnType<typeof makeJob>>) =>
  Effect.map(job.status("task-1"), (reply) => bodyOf(reply).task_state)

const rejection = (reason: string) => () => reply({ reply_topic: ReplyTopic.resultRejected, reason })
const knownAs = (state: string, attemptId: unknown) =>
  reply({ reply_topic: ReplyTopic.resultStatus, result_state: state, accepted_attempt_id: attemptId })

/** Sends in a fiber and moves the clock until the send is over. */
const sendWithin = (session: TrainerSession["Service"], millis: number) =>
  Effect.gen(function* () {
    const sending = yield* Effect.forkChild(session.send(model(9)), { startImmediately: true })
    yield* advance(millis - 1)
    yield* settle
    assert.isUndefined(sending.pollUnsafe(), `still sending after ${millis - 1} ms`)
    yield* advance(1)
    return yield* Fiber.join(sending)
  })

describe("send", () => {
  it.effect("16.34 the result goes to the CJ with its ids, and no header of credentials", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      yield* session.send(model(9))
      const { body } = yield* job.message(Topic.resultReady)
      assert.deepStrictEqual([...body.keys()], ["session_id", "task_id", "result_id", "attempt_id", "result"])
      assert.strictEqual(body.get("task_id"), "task-1")
      assert.match(String(body.get("result_id")), /^[0-9a-f]{32}$/)
      assert.match(String(body.get("attempt_id")), /^[0-9a-f]{32}$/)
      assert.deepStrictEqual(modelOf(body.get("result")).arrays.get("w"), array(9))
      const result = ClientApi.shareableOf(body.get("result"))
      assert.deepStrictEqual([...(result?.headers.keys() ?? [])], ["__content_type__", "start_round"])
      const notice = yield* job.message(Topic.resultSourceSettled)
      assert.deepStrictEqual(Object.fromEntries(notice.body), { session_id: "session-1", task_id: "task-1" })
    })
  )

  it.effect("16.39 a lost RESULT_ACCEPTED is recovered by RESULT_STATUS: no second RESULT_READY, state COMPLETE", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork({ heartbeat_timeout: 100 })
      job.answer(Topic.resultReady, () => silence)
      job.answer(Topic.resultStatus, () => knownAs("ACCEPTED", job.heard(Topic.resultReady)[0]?.body.get("attempt_id")))
      yield* sendWithin(session, 30_000)
      assert.strictEqual(job.heard(Topic.resultReady).length, 1)
      assert.strictEqual(yield* stateOf(job), "COMPLETE")
      assert.strictEqual(job.heard(Topic.resultSourceSettled).length, 1)
    })
  )

  it.effect("16.39 a SHUTDOWN while the result is uncertain does not stop the recovery", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork({ heartbeat_timeout: 100 })
      job.answer(Topic.resultReady, () => silence)
      job.answer(Topic.resultStatus, () => knownAs("ACCEPTED", job.heard(Topic.resultReady)[0]?.body.get("attempt_id")))
      const sending = yield* Effect.forkChild(session.send(model(9)), { startImmediately: true })
      yield* advance("10 seconds")
      assert.deepStrictEqual(bodyOf(yield* job.shutdown), { result_source_live: true })
      yield* advance("20 seconds")
      yield* Fiber.join(sending)
      assert.isTrue(Option.isNone(yield* session.receive))
    })
  )

  it.effect("16.39 without a status the result is sent once more: same result id, new attempt id", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork({ heartbeat_timeout: 100 })
      job.answer(Topic.resultReady, (body, index) => (index === 0 ? silence : accept(body)))
      job.answer(Topic.resultStatus, () => silence)
      yield* sendWithin(session, 32_000)
      const [first, second, ...more] = job.heard(Topic.resultReady)
      assert.deepStrictEqual(more, [])
      assert.strictEqual(second?.body.get("result_id"), first?.body.get("result_id"))
      assert.notStrictEqual(second?.body.get("attempt_id"), first?.body.get("attempt_id"))
      assert.strictEqual(second?.at, 32_000)
    })
  )

  it.effect("16.39 an answer whose code is not ok is uncertain, too", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      job.answer(Topic.resultReady, (body, index) =>
        index === 0 ? Effect.succeed({ returnCode: "process_exception", error: "x" }) : accept(body)
      )
      yield* session.send(model(9))
      assert.strictEqual(job.heard(Topic.resultStatus).length, 1)
      assert.strictEqual(job.heard(Topic.resultReady).length, 2)
    })
  )

  it.effect("16.42 a second send of a task that is over fails; RESULT_READY is sent once", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      yield* session.send(model(9))
      assert.strictEqual((yield* reasonOf(session.send(model(9))))._tag, "NoTask")
      assert.strictEqual(job.heard(Topic.resultReady).length, 1)
    })
  )

  it.effect("16.42 with clearCache false the task and its model stay, but a second result is refused", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      yield* session.send(model(9), { clearCache: false })
      assert.deepStrictEqual(received(yield* session.receive).arrays.get("w"), array(1, 2))
      assert.strictEqual((yield* reasonOf(session.send(model(9))))._tag, "NoTask")
      yield* session.clear
      yield* job.task({ task_id: "task-2", task_seq: 2 })
      received(yield* session.receive)
      yield* session.send(model(8))
      assert.strictEqual(job.heard(Topic.resultReady).length, 2)
    })
  )

  it.effect("16.42 a send beside another one is refused and disturbs nothing", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      job.answer(Topic.resultReady, (body) => Effect.delay(accept(body), "1 second"))
      const first = yield* Effect.forkChild(session.send(model(9)), { startImmediately: true })
      assert.strictEqual((yield* reasonOf(session.send(model(8))))._tag, "NoTask")
      yield* advance("1 second")
      yield* Fiber.join(first)
      assert.strictEqual(job.heard(Topic.resultReady).length, 1)
    })
  )

  it.effect("16.48 SHUTDOWN during a send: it says so, waits for the acceptance, then ends the session", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      job.answer(Topic.resultReady, (body) => Effect.delay(accept(body), "3 seconds"))
      const sending = yield* Effect.forkChild(session.send(model(9)), { startImmediately: true })
      assert.deepStrictEqual(bodyOf(yield* job.shutdown), { result_source_live: true })
      yield* advance("3 seconds")
      yield* Fiber.join(sending)
      assert.strictEqual(job.heard(Topic.resultSourceSettled).length, 1)
      assert.isTrue(Option.isNone(yield* session.receive))
    })
  )

  it.effect("16.48 SHUTDOWN while the settlement is unanswered: the source is not live any more", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      job.answer(Topic.resultSourceSettled, () => silence)
      const sending = yield* Effect.forkChild(session.send(model(9)))
      yield* job.message(Topic.resultSourceSettled)
      assert.deepStrictEqual(bodyOf(yield* job.shutdown), { result_source_live: false })
      yield* advance(1999)
      yield* settle
      assert.isUndefined(sending.pollUnsafe())
      yield* advance(1)
      yield* Fiber.join(sending)
      assert.strictEqual(job.heard(Topic.resultSourceSettled).length, 1)
    })
  )

  it.effect("16.49 RESULT_SOURCE_SETTLED is repeated until the answer names the task", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      job.answer(Topic.resultSourceSettled, (body, index) =>
        reply({ reply_topic: ReplyTopic.resultSourceSettled, task_id: index === 0 ? "other" : body.get("task_id") })
      )
      yield* sendWithin(session, 100)
      assert.deepStrictEqual(
        job.heard(Topic.resultSourceSettled).map(({ at }) => at),
        [0, 100]
      )
    })
  )

  it.effect("16.49 after three tries of 30 s, 0.1 s apart, the trainer goes on without the answer", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork({ heartbeat_timeout: 1000 })
      job.answer(Topic.resultSourceSettled, () => silence)
      yield* sendWithin(session, 90_200)
      assert.deepStrictEqual(
        job.heard(Topic.resultSourceSettled).map(({ at }) => at),
        [0, 30_100, 60_200]
      )
      assert.strictEqual(yield* stateOf(job), "COMPLETE")
    })
  )

  it.effect("16.49 an error for an answer is none; three of them take 0.2 s", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      job.answer(Topic.resultSourceSettled, () => Effect.succeed(ClientApi.error("not yours")))
      yield* sendWithin(session, 200)
    })
  )

  it.effect(
    "16.49 the settlement ends with the session and with the connection: a service that is gone holds nobody",
    () =>
      Effect.gen(function* () {
        const { job, session } = yield* atWork()
        job.answer(Topic.resultSourceSettled, () => silence)
        const sending = yield* Effect.forkChild(session.send(model(9)))
        yield* job.message(Topic.resultSourceSettled)
        yield* job.abort("gone")
        yield* Fiber.join(sending)
        assert.strictEqual((yield* reasonOf(session.receive))._tag, "SessionEnded")
      })
  )

  it.effect("16.51 a refused result fails with the CJ's reason; task and model stay, and may be answered again", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      job.answer(Topic.resultReady, rejection("too late"))
      const reason = yield* reasonOf(session.send(model(9)))
      assert.deepStrictEqual(reason._tag === "ResultRejected" ? reason.reason : reason._tag, "too late")
      assert.strictEqual(job.heard(Topic.resultStatus).length, 0, "a refusal is final")
      assert.deepStrictEqual(received(yield* session.receive).arrays.get("w"), array(1, 2))
      job.answer(Topic.resultReady, accept)
      yield* session.send(model(9))
      const [first, second] = job.heard(Topic.resultReady)
      assert.strictEqual(second?.body.get("result_id"), first?.body.get("result_id"))
    })
  )

  const finalAnswers: ReadonlyArray<readonly [string, (body: ReadonlyMap<unknown, unknown>) => Fields]> = [
    ["another topic", () => ({ reply_topic: ReplyTopic.error, reason: "x" })],
    [
      "another result",
      (body) => ({
        reply_topic: ReplyTopic.resultAccepted,
        result_id: "x",
        accepted_attempt_id: body.get("attempt_id")
      })
    ],
    [
      "an attempt that is not ours",
      (body) => ({ reply_topic: ReplyTopic.resultAccepted, result_id: body.get("result_id"), accepted_attempt_id: "x" })
    ],
    ["no attempt", (body) => ({ reply_topic: ReplyTopic.resultAccepted, result_id: body.get("result_id") })]
  ]
  it.effect.each(finalAnswers)("16.51 an answer with %s is final: no status is asked", ([, answer]) =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      job.answer(Topic.resultReady, (body) => reply(answer(body)))
      assert.strictEqual((yield* reasonOf(session.send(model(9))))._tag, "ResultRejected")
      assert.strictEqual(job.heard(Topic.resultStatus).length, 0)
    })
  )

  it.effect("16.51 an answer that is no map is final", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      job.answer(Topic.resultReady, () => Effect.succeed({ returnCode: "ok", payload: "yes" }))
      assert.strictEqual((yield* reasonOf(session.send(model(9))))._tag, "ResultRejected")
    })
  )

  it.effect("16.51 a status REJECTED is final", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      job.answer(Topic.resultReady, () => Effect.succeed({ returnCode: "comm_error" }))
      job.answer(Topic.resultStatus, () => knownAs("REJECTED", null))
      assert.strictEqual((yield* reasonOf(session.send(model(9))))._tag, "ResultRejected")
    })
  )

  it.effect("16.51 unanswered twice, status unknown: ResultUncertain after 2 x 32 s, the task stays", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork({ heartbeat_timeout: 1000 })
      job.answer(Topic.resultReady, () => silence)
      job.answer(Topic.resultStatus, () => silence)
      const sending = yield* Effect.forkChild(reasonOf(session.send(model(9))), { startImmediately: true })
      yield* advance(63_999)
      yield* settle
      assert.isUndefined(sending.pollUnsafe())
      yield* advance(1)
      const reason = yield* Fiber.join(sending)
      assert.deepStrictEqual(reason._tag === "ResultUncertain" ? reason.attempts : reason._tag, 2)
      assert.strictEqual(yield* stateOf(job), "RESULT_PUBLISHING")
      assert.strictEqual(job.heard(Topic.resultSourceSettled).length, 0, "nothing was accepted, nothing is settled")
      received(yield* session.receive)
    })
  )

  it.effect(
    "16.44 a trainer that is closed while it sends fails the send at once: to wait for it is its owner's choice",
    () =>
      Effect.gen(function* () {
        const { close, job, session } = yield* atWork()
        job.answer(Topic.resultReady, () => silence)
        const sending = yield* Effect.forkChild(reasonOf(session.send(model(9))))
        yield* job.message(Topic.resultReady)
        yield* close
        const reason = yield* Fiber.join(sending)
        assert.strictEqual(reason._tag === "SessionEnded" ? reason.by : reason._tag, "close")
      })
  )

  it.effect("16.51 ABORT interrupts a send at once, wherever it waits", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      job.answer(Topic.resultReady, () => silence)
      const sending = yield* Effect.forkChild(reasonOf(session.send(model(9))))
      yield* job.message(Topic.resultReady)
      yield* job.abort("stop it")
      const reason = yield* Fiber.join(sending)
      assert.strictEqual(reason._tag === "SessionEnded" ? reason.reason : reason._tag, "stop it")
    })
  )

  it.effect(
    "a model with neither parameters nor metrics, or one that can't be encoded, is refused before it is sent",
    () =>
      Effect.gen(function* () {
        const { job, session } = yield* atWork()
        const empty = yield* reasonOf(session.send(new FLModel({})))
        const strange = yield* reasonOf(session.send(new FLModel({ params: [["f", Symbol("no value")]] })))
        assert.deepStrictEqual([empty._tag, strange._tag], ["InvalidModel", "InvalidModel"])
        assert.deepStrictEqual(job.heard(Topic.resultReady), [])
        assert.deepStrictEqual(job.heard(Topic.resultStatus), [])
        yield* session.send(model(9))
      })
  )

  it.effect("a return code can be sent instead of a model", () =>
    Effect.gen(function* () {
      const { job, session } = yield* atWork()
      yield* session.sendFailure("EMPTY_RESULT")
      const { body } = yield* job.message(Topic.resultReady)
      assert.deepStrictEqual(ClientApi.shareableOf(body.get("result"))?.headers.get("__rc__"), "EMPTY_RESULT")
    })
  )
})

describe("DIFF", () => {
  const diff = { task_exchange: ClientApi.body({ ...exchange, transfer_type: "DIFF" }) }

  it.effect("16.55 the difference to the received parameters is computed at send, round after round", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach(diff)
      for (const round of [0, 1, 2]) {
        const sent = new FLModel({ params: [["w", array(round, 10)]], currentRound: round })
        yield* job.task({ task_id: `task-${round}`, task_seq: round + 1, model: shareable(sent) })
        received(yield* session.receive)
        yield* session.send(new FLModel({ params: [["w", array(round + 1, 12)]], metrics: [["loss", 1]] }))
        const result = modelOf((yield* job.message(Topic.resultReady, round)).body.get("result"))
        assert.deepStrictEqual([result.paramsType, result.arrays.get("w")], ["DIFF", array(1, 2)])
        assert.deepStrictEqual(result.metrics, new Map([["loss", 1]]))
      }
    })
  )

  it.effect("16.55 what is a difference already, and what has no parameters, is sent as it is", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach(diff)
      const own = [
        new FLModel({ params: [["w", array(5)]], paramsType: "DIFF" }),
        new FLModel({ metrics: [["loss", 1]] })
      ]
      for (const [index, sent] of own.entries()) {
        yield* job.task({ task_id: `task-${index}`, task_seq: index + 1 })
        received(yield* session.receive)
        yield* session.send(sent)
        const result = modelOf((yield* job.message(Topic.resultReady, index)).body.get("result"))
        assert.deepStrictEqual([result.params, result.metrics], [sent.params, sent.metrics])
      }
    })
  )

  it.effect("16.55 parameters that don't fit are InvalidModel, and the task stays", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach(diff)
      yield* job.task()
      received(yield* session.receive)
      const wrong = new FLModel({ params: [["w", NdArray.fromTyped(Float64Array.of(1, 2))]] })
      const reason = yield* reasonOf(session.send(wrong))
      assert.strictEqual(reason._tag, "InvalidModel")
      assert.include(reason.message, '"w"')
      yield* session.send(model(1, 2))
    })
  )
})
