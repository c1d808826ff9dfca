import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Option } from "effect"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { advance, bodyOf, makeJob, model, reasonOf, received, reply, settle, silence } from "./support.ts"

const { ReplyTopic, Topic } = ClientApi

const lease = { heartbeat_interval: 5, heartbeat_timeout: 30 }

describe("the lease", () => {
  it.effect("16.52 a heartbeat leaves after each interval, the first after one; it says whether a result is sent", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach(lease)
      yield* advance(4999)
      assert.deepStrictEqual(job.heard(Topic.heartbeat), [])
      yield* advance(1)
      yield* advance(5000)
      yield* job.task()
      received(yield* session.receive)
      job.answer(Topic.resultReady, () => silence)
      const sending = yield* Effect.forkChild(session.send(model(1)))
      yield* advance(5000)
      yield* Fiber.interrupt(sending)
      yield* advance(5000)
      assert.deepStrictEqual(
        job.heard(Topic.heartbeat).map(({ at, body }) => [at, Object.fromEntries(body)]),
        [false, false, true, false].map((live, index) => [
          (index + 1) * 5000,
          { session_id: "session-1", result_source_live: live }
        ])
      )
    })
  )

  it.effect("16.52 heartbeats keep the session for hours; it ends when nobody answers them, and they end with it", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach({ heartbeat_interval: 60, heartbeat_timeout: 90 })
      yield* advance("6 hours")
      assert.strictEqual(job.heard(Topic.heartbeat).length, 6 * 60)
      job.answer(Topic.heartbeat, () => silence)
      yield* advance("91 seconds")
      assert.strictEqual((yield* reasonOf(session.ended))._tag, "SessionEnded")
      const count = job.heard(Topic.heartbeat).length
      yield* advance("1 hour")
      assert.strictEqual(job.heard(Topic.heartbeat).length, count)
    })
  )

  it.effect("16.52 the lease ends one millisecond after the timeout; a blocked receive fails then", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      job.answer(Topic.heartbeat, () => silence)
      const { session } = yield* job.attach(lease)
      const waiting = yield* Effect.forkChild(reasonOf(session.receive))
      yield* advance(30_000)
      yield* settle
      assert.isUndefined(waiting.pollUnsafe())
      yield* advance(1)
      const reason = yield* Fiber.join(waiting)
      assert.deepStrictEqual(reason._tag === "SessionEnded" ? reason.by : reason._tag, "lease")
      assert.include(reason.message, "heartbeat_timeout is 30s")
      assert.isFalse(yield* session.isRunning)
    })
  )

  const invalid: ReadonlyArray<readonly [string, Effect.Effect<ReturnType<typeof ClientApi.ok>>]> = [
    ["an error", Effect.succeed(ClientApi.error("stale or unknown session id"))],
    ["another session", reply({ reply_topic: ReplyTopic.heartbeat, session_id: "session-0" })],
    ["another topic", reply({ reply_topic: ReplyTopic.resultStatus, session_id: "session-1" })],
    [
      "a return code",
      Effect.succeed({
        ...ClientApi.ok({ reply_topic: ReplyTopic.heartbeat, session_id: "session-1" }),
        returnCode: "process_exception"
      })
    ]
  ]
  it.effect.each(invalid)("16.52 a heartbeat answered with %s does not renew the lease", ([, answer]) =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      job.answer(Topic.heartbeat, () => answer)
      const { session } = yield* job.attach(lease)
      yield* advance(30_000)
      assert.isTrue(Option.isNone(yield* session.receiveWithin(0)))
      yield* advance(1)
      assert.strictEqual((yield* reasonOf(session.receive))._tag, "SessionEnded")
    })
  )

  it.effect("16.52 the last valid answer counts: silence is measured from it", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      job.answer(Topic.heartbeat, (body, index) =>
        index === 0 ? reply({ reply_topic: ReplyTopic.heartbeat, session_id: body.get("session_id") }) : silence
      )
      const { session } = yield* job.attach(lease)
      yield* advance(35_000)
      assert.isTrue(Option.isNone(yield* session.receiveWithin(0)))
      yield* advance(1)
      assert.strictEqual((yield* reasonOf(session.receive))._tag, "SessionEnded")
    })
  )

  it.effect("16.52 an accepted result renews the lease, an unanswered one does not hold it", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      job.answer(Topic.heartbeat, () => silence)
      const { session } = yield* job.attach(lease)
      yield* job.task()
      yield* job.task({ task_id: "task-2", task_seq: 2 })
      received(yield* session.receive)
      yield* advance(20_000)
      yield* session.send(model(1))
      received(yield* session.receive)
      job.answer(Topic.resultReady, () => silence)
      const sending = yield* Effect.forkChild(reasonOf(session.send(model(1))))
      yield* advance(30_000)
      yield* settle
      assert.isUndefined(sending.pollUnsafe())
      yield* advance(1)
      const reason = yield* Fiber.join(sending)
      assert.strictEqual(reason._tag === "SessionEnded" ? reason.by : reason._tag, "lease")
    })
  )

  it.effect("16.52 beats go on after a SHUTDOWN for as long as a result is sent, and no longer", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach(lease)
      yield* job.task()
      received(yield* session.receive)
      job.answer(Topic.resultReady, () => silence)
      const sending = yield* Effect.forkChild(Effect.ignore(session.send(model(1))))
      yield* settle
      assert.deepStrictEqual(bodyOf(yield* job.shutdown), { result_source_live: true })
      yield* advance(10_000)
      assert.strictEqual(job.heard(Topic.heartbeat).length, 2)
      yield* Fiber.interrupt(sending)
      yield* advance("1 minute")
      assert.strictEqual(job.heard(Topic.heartbeat).length, 2)
    })
  )

  it.effect("a slow answer does not delay the next beat", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      job.answer(Topic.heartbeat, (body) =>
        Effect.delay(reply({ reply_topic: ReplyTopic.heartbeat, session_id: body.get("session_id") }), "4900 millis")
      )
      const { session } = yield* job.attach(lease)
      yield* advance("1 minute")
      assert.deepStrictEqual(
        job.heard(Topic.heartbeat).map(({ at }) => at),
        Array.from({ length: 12 }, (_, index) => (index + 1) * 5000)
      )
      assert.isTrue(Option.isNone(yield* session.receiveWithin(0)))
    })
  )

  it.effect("with jitter a pause is shorter by chance, never longer", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      yield* job.attach(lease, { heartbeatJitter: 0.5 })
      yield* advance("10 minutes")
      const times = [0, ...job.heard(Topic.heartbeat).map(({ at }) => at)]
      const pauses = times.slice(1).map((at, index) => at - (times[index] ?? 0))
      assert.isTrue(
        pauses.every((pause) => pause >= 2499 && pause <= 5001),
        String(pauses)
      )
      assert.isTrue(new Set(pauses.map(Math.round)).size > 20, String(pauses))
    })
  )
})
