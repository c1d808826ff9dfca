/** Results whose arrays the CJ fetches; docs/wire/attach.md, section 7.5. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Option, Stream } from "effect"
import { downloadAddress } from "../../src/cell/internal/downloadWire.ts"
import type { TransferProgress } from "../../src/cell/TransferProgress.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import type { Codec } from "../../src/fobs/Fobs.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { DownloadRef } from "../../src/fobs/Values.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import { keeping } from "../cell/keeping.ts"
import {
  accept,
  advance,
  bodyOf,
  type Fields,
  type Heard,
  makeJob,
  modelOf,
  reasonOf,
  received,
  reply,
  settle,
  shareable,
  silence,
  trainerFqcn
} from "./support.ts"

const { ReplyTopic, Topic } = ClientApi

const weights = NdArray.fromTyped(new Float32Array(50_000).fill(7))
const result = new FLModel({ params: [["w", weights]] })

const answerWith =
  (first: Fields, ...rest: ReadonlyArray<Fields>) =>
  (_body: unknown, index: number) =>
    reply({ reply_topic: ReplyTopic.resultStatus, ...([first, ...rest][index] ?? rest.at(-1) ?? first) })

/** A CJ that fetches when the test says so, and a trainer that has received its first task. */
const atWork = Effect.fnUntraced(function* (overrides: Fields = {}, codec: Codec | undefined = keeping()) {
  const job = yield* makeJob(codec === undefined ? {} : { codec })
  const { close, session } = yield* job.attach(overrides)
  yield* job.task()
  received(yield* session.receive)
  const download = (request: ReadonlyMap<string, unknown>) =>
    Effect.map(
      job.cell.request(trainerFqcn, downloadAddress, request, { timeout: "5 seconds" }),
      ({ payload, returnCode }) => ({
        returnCode,
        payload: payload instanceof Map ? (payload as ReadonlyMap<unknown, unknown>) : new Map<unknown, unknown>()
      })
    )
  const refOf = ({ body }: Heard) => {
    const array = modelOf(body.get("result")).params?.get("w") as unknown
    assert.instanceOf(array, DownloadRef)
    assert.strictEqual(array.fqcn, trainerFqcn)
    return array.refId
  }
  const first = (refId: string) => download(ClientApi.body({ ref_id: refId, confirm_capable: true }))
  /** Fetches all chunks of an attempt, up to the nonce. */
  const fetch = Effect.fnUntraced(function* (refId: string) {
    let state: unknown
    while (true) {
      const { payload, returnCode } = yield* download(
        ClientApi.body({ ref_id: refId, confirm_capable: true, ...(state === undefined ? {} : { state }) })
      )
      assert.strictEqual(returnCode, "ok")
      if (payload.get("status") === "eof") return payload.get("confirm_nonce")
      state = payload.get("state")
    }
  })
  const confirm = (refId: string, nonce: unknown, status = "success") =>
    download(ClientApi.body({ ref_id: refId, confirm: status, confirm_nonce: nonce }))
  const fetchAll = (refId: string, status = "success") =>
    Effect.flatMap(fetch(refId), (nonce) => confirm(refId, nonce, status))
  /** The nth sending of the result. */
  const sent = (index = 0) => Effect.map(job.message(Topic.resultReady, index), refOf)
  const sending = Effect.forkChild(session.send(result), { startImmediately: true })
  return { job, session, close, first, fetch, confirm, fetchAll, sent, sending }
})

const isOver = (fiber: Fiber.Fiber<unknown, unknown>) => Effect.as(settle, fiber.pollUnsafe() !== undefined)
const stateOf = (job: Effect.Success<ReturnType<typeof makeJob>>) =>
  Effect.map(job.status("task-1"), (reply) => bodyOf(reply).task_state)
const uncertainly = () => Effect.succeed({ returnCode: "process_exception", error: "lost" })

describe("a result that is fetched", () => {
  it.effect("arrives whole, and send ends after the confirmation", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      yield* job.task()
      received(yield* session.receive)
      yield* session.send(result)
      const { body } = yield* job.message(Topic.resultReady)
      const got = modelOf(body.get("result")).arrays.get("w")
      assert.deepStrictEqual(got?.shape, [50_000])
      assert.deepStrictEqual(got?.toTyped(), weights.toTyped())
    })
  )

  it.effect("16.48 send waits for the accepted attempt to be fetched and confirmed, through a SHUTDOWN", () =>
    Effect.gen(function* () {
      const { confirm, fetch, job, sending, sent, session } = yield* atWork()
      const fiber = yield* sending
      const refId = yield* sent()
      const nonce = yield* fetch(refId)
      assert.isFalse(yield* isOver(fiber))
      assert.strictEqual(yield* stateOf(job), "RESULT_PUBLISHING")
      assert.deepStrictEqual(bodyOf(yield* job.shutdown), { result_source_live: true })
      yield* advance("5 seconds")
      assert.isFalse(yield* isOver(fiber))
      assert.strictEqual(job.heard(Topic.heartbeat).at(-1)?.body.get("result_source_live"), true)
      assert.lengthOf(job.heard(Topic.resultSourceSettled), 0)
      // Settled, but not acknowledged: the source is not live any more.
      job.answer(Topic.resultSourceSettled, () => silence)
      yield* confirm(refId, nonce)
      yield* job.message(Topic.resultSourceSettled)
      assert.deepStrictEqual(bodyOf(yield* job.shutdown), { result_source_live: false })
      yield* advance("2 seconds")
      yield* Fiber.join(fiber)
      assert.isTrue(Option.isNone(yield* session.receive))
    })
  )

  it.effect("an unanswered RESULT_READY has more time while its arrays may be fetched: it is not sent again", () =>
    Effect.gen(function* () {
      const { fetchAll, job, sending, sent } = yield* atWork({ heartbeat_timeout: 1000 })
      let decoded = false
      job.answer(Topic.resultReady, (body) => (decoded ? accept(body) : silence))
      const fiber = yield* sending
      const refId = yield* sent()
      yield* advance("90 seconds")
      assert.lengthOf(job.heard(Topic.resultReady), 1)
      assert.lengthOf(job.heard(Topic.resultStatus), 0)
      yield* fetchAll(refId)
      decoded = true
      // All is fetched, the answer got lost: 30 seconds, a question, the second attempt.
      yield* advance("30 seconds")
      assert.lengthOf(job.heard(Topic.resultStatus), 1)
      const second = yield* sent(1)
      assert.notStrictEqual(second, refId)
      yield* fetchAll(second)
      yield* Fiber.join(fiber)
    })
  )

  it.effect(
    "16.40 two uncertain attempts, the CJ names the first: the second is taken back, the first waited for",
    () =>
      Effect.gen(function* () {
        const { fetchAll, first, job, sending, sent, session } = yield* atWork()
        job.answer(Topic.resultReady, uncertainly)
        job.answer(Topic.resultStatus, (body, index) =>
          answerWith(
            { result_state: "UNKNOWN" },
            { result_state: "ACCEPTED", accepted_attempt_id: job.heard(Topic.resultReady)[0]?.body.get("attempt_id") }
          )(body, index)
        )
        const fiber = yield* sending
        const [one, two] = [yield* sent(0), yield* sent(1)]
        yield* settle
        assert.strictEqual((yield* first(two)).returnCode, "invalid_request")
        assert.isFalse(yield* isOver(fiber))
        yield* fetchAll(one)
        yield* Fiber.join(fiber)
        assert.strictEqual(yield* stateOf(job), "COMPLETE")
        assert.lengthOf(job.heard(Topic.resultReady), 2)
        assert.strictEqual((yield* reasonOf(session.send(result)))._tag, "NoTask")
      })
  )

  it.effect(
    "16.41 all control replies lost: the sources stay until one is fetched whole, which is then the result",
    () =>
      Effect.gen(function* () {
        const { fetchAll, first, job, sending, sent } = yield* atWork({ heartbeat_timeout: 1000 })
        job.answer(Topic.resultReady, uncertainly)
        job.answer(Topic.resultStatus, () => silence)
        const fiber = yield* sending
        const one = yield* sent(0)
        yield* advance("2 seconds")
        const two = yield* sent(1)
        yield* advance("60 seconds")
        assert.isFalse(yield* isOver(fiber))
        assert.deepStrictEqual([(yield* first(one)).returnCode, (yield* first(two)).returnCode], ["ok", "ok"])
        assert.lengthOf(job.heard(Topic.resultReady), 2)
        yield* fetchAll(two)
        yield* Fiber.join(fiber)
        assert.strictEqual((yield* first(one)).returnCode, "invalid_request")
        assert.strictEqual(yield* stateOf(job), "COMPLETE")
        assert.lengthOf(job.heard(Topic.resultSourceSettled), 1)
      })
  )

  it.effect("16.41 the CJ is asked on, each 250 ms after its last word, and believed as soon as it knows", () =>
    Effect.gen(function* () {
      const { fetchAll, job, sending, sent } = yield* atWork()
      job.answer(Topic.resultReady, uncertainly)
      const fiber = yield* sending
      const two = yield* sent(1)
      yield* advance("1 second")
      assert.deepStrictEqual(
        job.heard(Topic.resultStatus).map(({ at }) => at),
        [0, 0, 0, 250, 500, 750, 1000]
      )
      job.answer(
        Topic.resultStatus,
        answerWith({
          result_state: "ACCEPTED",
          accepted_attempt_id: job.heard(Topic.resultReady)[1]?.body.get("attempt_id")
        })
      )
      yield* advance("250 millis")
      yield* fetchAll(two)
      yield* Fiber.join(fiber)
    })
  )

  it.effect("16.51 all control replies lost, and all transfers over without success: uncertain, the task stays", () =>
    Effect.gen(function* () {
      const { fetchAll, job, sending, sent, session } = yield* atWork()
      job.answer(Topic.resultReady, uncertainly)
      const fiber = yield* sending
      yield* fetchAll(yield* sent(0), "failed")
      assert.isFalse(yield* isOver(fiber))
      yield* fetchAll(yield* sent(1), "failed")
      assert.strictEqual((yield* reasonOf(Fiber.join(fiber)))._tag, "ResultUncertain")
      assert.lengthOf(job.heard(Topic.resultSourceSettled), 0)
      job.answer(Topic.resultReady, (body) =>
        reply({ reply_topic: ReplyTopic.resultRejected, reason: String(body.size) })
      )
      assert.strictEqual((yield* reasonOf(session.send(result)))._tag, "ResultRejected")
    })
  )

  it.effect("16.50 an accepted result whose transfer fails makes send fail; the task is over and settled", () =>
    Effect.gen(function* () {
      const { fetchAll, job, sending, sent, session } = yield* atWork()
      const fiber = yield* sending
      yield* fetchAll(yield* sent(), "failed")
      const reason = yield* reasonOf(Fiber.join(fiber))
      assert.deepInclude({ ...reason }, { _tag: "ResultNotFetched", reason: "receiver_failed" })
      assert.lengthOf(job.heard(Topic.resultSourceSettled), 1)
      assert.strictEqual((yield* reasonOf(session.send(result)))._tag, "NoTask")
    })
  )

  it.effect(
    "16.50 a lost confirmation costs 10 s without a question, not the 600 s of the offer: what is accepted was fetched",
    () =>
      Effect.gen(function* () {
        const { fetch, job, sending, sent } = yield* atWork({ heartbeat_timeout: 10_000 })
        const fiber = yield* sending
        const refId = yield* sent()
        yield* advance("9 seconds")
        yield* fetch(refId)
        yield* advance("10999 millis")
        assert.isFalse(yield* isOver(fiber))
        yield* advance("1 millis")
        yield* Fiber.join(fiber)
        assert.strictEqual(yield* stateOf(job), "COMPLETE")
        assert.lengthOf(job.heard(Topic.resultSourceSettled), 1)
      })
  )

  it.effect("a rejected result is taken back at once", () =>
    Effect.gen(function* () {
      const { first, job, sending, sent } = yield* atWork()
      job.answer(Topic.resultReady, () => reply({ reply_topic: ReplyTopic.resultRejected, reason: "not that one" }))
      const fiber = yield* sending
      const refId = yield* sent()
      assert.strictEqual((yield* reasonOf(Fiber.join(fiber)))._tag, "ResultRejected")
      assert.strictEqual((yield* first(refId)).returnCode, "invalid_request")
    })
  )

  it.effect("16.52 a transfer that moves holds the lease; when it is over the silence counts again", () =>
    Effect.gen(function* () {
      const { fetchAll, first, job, sending, sent, session } = yield* atWork()
      const taken = yield* Deferred.make<void>()
      job.answer(Topic.resultReady, (body) => Effect.andThen(Deferred.await(taken), accept(body)))
      const fiber = yield* sending
      const refId = yield* sent()
      job.answer(Topic.heartbeat, () => silence)
      for (const _ of Array.from({ length: 10 })) {
        yield* advance("50 seconds")
        yield* first(refId)
      }
      assert.isFalse(yield* isOver(fiber))
      yield* fetchAll(refId)
      yield* Deferred.succeed(taken, undefined)
      yield* Fiber.join(fiber)
      yield* advance("30 seconds")
      assert.isTrue(Option.isNone(yield* session.receiveWithin(0)))
      yield* advance("1 millis")
      const reason = yield* reasonOf(session.receive)
      assert.deepInclude({ ...reason }, { _tag: "SessionEnded", by: "lease" })
    })
  )

  it.effect("16.52 a transfer that stands holds the lease for 30 s more, and no longer", () =>
    Effect.gen(function* () {
      const { job, sending, sent } = yield* atWork()
      job.answer(Topic.resultReady, () => silence)
      const fiber = yield* sending
      yield* sent()
      job.answer(Topic.heartbeat, () => silence)
      yield* advance("60 seconds")
      assert.isFalse(yield* isOver(fiber))
      yield* advance("1 millis")
      const reason = yield* reasonOf(Fiber.join(fiber))
      assert.deepInclude({ ...reason }, { _tag: "SessionEnded", by: "lease" })
    })
  )

  it.effect("an abort while the result is being fetched ends send, and the offer", () =>
    Effect.gen(function* () {
      const { first, job, sending, sent } = yield* atWork()
      const fiber = yield* sending
      const refId = yield* sent()
      yield* job.abort("enough")
      assert.deepInclude({ ...(yield* reasonOf(Fiber.join(fiber))) }, { _tag: "SessionEnded", by: "abort" })
      assert.strictEqual((yield* first(refId)).returnCode, "invalid_request")
    })
  )
})

describe("a task that is fetched", () => {
  const big = new FLModel({ params: [["w", weights]] })

  it.effect("SHUTDOWN gives it up", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const heard: Array<unknown> = []
      yield* job.cell.handle(downloadAddress, ({ payload }) => {
        heard.push(payload instanceof Map ? (payload.get("cancel") ?? payload.has("state")) : payload)
        return silence
      })
      yield* job.attach()
      const task = yield* job.cell
        .request(
          trainerFqcn,
          Topic.taskReady,
          ClientApi.body({
            session_id: "session-1",
            task_id: "task-1",
            task_seq: 1,
            attempt_id: "attempt-1",
            task_name: "train",
            model: shareable(big)
          }),
          {
            timeout: "10 hours",
            references: { add: () => "T0", downloads: () => [{ dot: 3, fqcn: "site-1.job-1", refId: "ref" }] }
          }
        )
        .pipe(Effect.flip, Effect.forkChild({ startImmediately: true }))
      yield* settle
      assert.deepStrictEqual(heard, [false])
      yield* job.shutdown
      assert.match((yield* Fiber.join(task)).message, /failed to download from site-1.job-1: the session is over/)
    })
  )

  it.effect("its progress, and that of its result, is told", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      const events: Array<TransferProgress> = []
      yield* Stream.runForEach(session.progress, (event) => Effect.sync(() => events.push(event))).pipe(
        Effect.forkScoped({ startImmediately: true })
      )
      yield* settle
      const offer = yield* job.cell.offer({ receivers: [trainerFqcn] })
      yield* job.cell.request(
        trainerFqcn,
        Topic.taskReady,
        ClientApi.body({
          session_id: "session-1",
          task_id: "task-1",
          task_seq: 1,
          attempt_id: "attempt-1",
          task_name: "train",
          model: shareable(big)
        }),
        { timeout: "5 seconds", references: offer.references }
      )
      assert.strictEqual((yield* offer.outcome).status, "completed")
      received(yield* session.receive)
      yield* session.send(result)
      yield* settle
      assert.deepStrictEqual(
        events.map(({ bytes, direction, peer, state }) => [direction, peer, bytes, state]),
        [
          ["receive", "site-1.job-1", 200_000, "active"],
          ["receive", "site-1.job-1", 200_000, "completed"],
          ["send", "site-1.job-1", 200_000, "active"],
          ["send", "site-1.job-1", 200_000, "completed"]
        ]
      )
    })
  )
})
