import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import * as Cell from "../../src/cell/Cell.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import {
  advance,
  bodyOf,
  cjFqcn,
  exchange,
  type Fields,
  makeJob,
  openBody,
  reasonOf,
  sessionId,
  settle,
  trainerFqcn
} from "./support.ts"

const { ReplyTopic, Topic } = ClientApi

const exchangeWith = (fields: Fields) => ({ task_exchange: ClientApi.body({ ...exchange, ...fields }) })

const invalid: ReadonlyArray<readonly [what: string, overrides: Fields]> = [
  ["session id missing", { session_id: null }],
  ["session id empty", { session_id: "" }],
  ["session id no text", { session_id: 7 }],
  ["attach id", { attach_id: "other" }],
  ["site name", { site_name: "site-2" }],
  ["job id of another cell", { job_id: "job-9" }],
  ["job id dotted", { job_id: "job.1" }],
  ["job id empty", { job_id: "" }],
  ["job id with a space", { job_id: "job 1" }],
  ["job id no text", { job_id: 1 }],
  ["trainer FQCN", { trainer_fqcn: "site-1.-client_api_other" }],
  ["version 2", { protocol_version: 2 }],
  ["version as text", { protocol_version: "1" }],
  ["rank 1", { rank: "1" }],
  ["rank in a list", { rank: ["0"] }],
  ["rank missing", { rank: null }],
  ["interval 0", { heartbeat_interval: 0 }],
  ["interval a bool", { heartbeat_interval: true }],
  ["interval infinite", { heartbeat_interval: Number.POSITIVE_INFINITY }],
  ["timeout negative", { heartbeat_timeout: -1 }],
  ["timeout not a number", { heartbeat_timeout: Number.NaN }],
  ["timeout equal to the interval", { heartbeat_timeout: 5 }],
  ["exchange no map", { task_exchange: "x" }],
  ["exchange of an unknown format", exchangeWith({ exchange_format: "nope" })],
  ["expected format unknown", exchangeWith({ server_expected_format: "nope" })],
  ["gc rounds negative", { memory_gc_rounds: -1 }],
  ["gc rounds a bool", { memory_gc_rounds: true }],
  ["gc rounds null", { memory_gc_rounds: null }]
]

describe("SESSION_OPEN", () => {
  it.effect("16.28 the CJ and its job are learned from SESSION_OPEN; closing the trainer takes its cell down", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { close, session } = yield* job.attach()
      assert.deepStrictEqual([session.jobId, session.siteName, session.attachId], ["job-1", "site-1", "gpu-1"])
      yield* close
      const gone = yield* Effect.flip(job.status("task-1"))
      assert.strictEqual(gone.reason._tag, "TargetUnreachable")
      const reason = yield* reasonOf(session.receive)
      assert.strictEqual(reason._tag === "SessionEnded" ? reason.by : reason._tag, "close")
    })
  )

  it.effect("16.32 the same SESSION_OPEN is accepted again; another session is refused, and the binding stays", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      yield* job.attach()
      const again = yield* job.ask(Topic.sessionOpen, openBody())
      assert.deepStrictEqual(bodyOf(again), {
        reply_topic: ReplyTopic.sessionAccepted,
        session_id: sessionId,
        protocol_version: 1
      })
      const other = bodyOf(yield* job.open({ session_id: "session-2" }))
      assert.deepStrictEqual([other.reply_topic, other.session_id], [ReplyTopic.sessionRejected, "session-2"])
      assert.strictEqual(bodyOf(yield* job.task()).reply_topic, ReplyTopic.taskAccepted)
    })
  )

  it.effect(
    "16.33 each wrong field is refused with a reason and poisons nothing: a right SESSION_OPEN binds after all",
    () =>
      Effect.gen(function* () {
        const job = yield* makeJob()
        const trainer = yield* job.attaching()
        for (const [what, overrides] of invalid) {
          const refused = bodyOf(yield* job.open(overrides))
          assert.strictEqual(refused.reply_topic, ReplyTopic.sessionRejected, what)
          assert.isNotEmpty(refused.reason, what)
          assert.deepStrictEqual(refused.session_id, "session_id" in overrides ? overrides.session_id : sessionId, what)
        }
        assert.isUndefined(trainer.session.pollUnsafe())
        assert.strictEqual(bodyOf(yield* job.open()).reply_topic, ReplyTopic.sessionAccepted)
        yield* Fiber.join(trainer.session)
      })
  )

  it.effect("16.35 a format that can't be served refuses the session and leaves nothing bound", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const trainer = yield* job.attaching()
      const refused = bodyOf(yield* job.open(exchangeWith({ exchange_format: "jax" })))
      assert.strictEqual(refused.reply_topic, ReplyTopic.sessionRejected)
      // A guard that knew a CJ would let TASK_READY pass; it does not, so there is no answer.
      const early = yield* Effect.forkChild(Effect.flip(job.task()))
      yield* advance(2000)
      assert.strictEqual((yield* Fiber.join(early)).reason._tag, "RequestTimeout")
      yield* job.open({ session_id: "session-2" })
      yield* Fiber.join(trainer.session)
    })
  )

  it.effect("16.53 TASK_READY before a session is not heard at all", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      yield* job.attaching()
      yield* job.connected
      const early = yield* Effect.forkChild(Effect.flip(job.task()))
      yield* advance(1999)
      yield* settle
      assert.isUndefined(early.pollUnsafe())
      yield* advance(1)
      assert.strictEqual((yield* Fiber.join(early)).reason._tag, "RequestTimeout")
    })
  )

  it.effect("16.75 SESSION_OPEN is served on the plain and the streamed path", () =>
    Effect.gen(function* () {
      for (const mode of ["plain", "stream"] as const) {
        const job = yield* makeJob()
        const trainer = yield* job.attaching()
        yield* job.connected
        const answer = yield* job.ask(Topic.sessionOpen, openBody(), { mode })
        assert.strictEqual(bodyOf(answer).reply_topic, ReplyTopic.sessionAccepted, mode)
        yield* Fiber.join(trainer.session)
      }
    })
  )

  it.effect("16.75 the first fault in the order of the checks is the reason", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      yield* job.attaching()
      const order: ReadonlyArray<readonly [field: string, wrong: unknown, reason: string]> = [
        ["session_id", "", "session id"],
        ["attach_id", "x", "attach id"],
        ["site_name", "x", "site name"],
        ["job_id", "", "job id"],
        ["trainer_fqcn", "x", "trainer FQCN"],
        ["protocol_version", "1", "protocol version"],
        ["rank", "1", "rank"],
        ["heartbeat_interval", 0, "heartbeat"]
      ]
      for (const [index, [, , reason]] of order.entries()) {
        const wrong = Object.fromEntries(order.slice(index).map(([field, value]) => [field, value]))
        assert.include(String(bodyOf(yield* job.open(wrong)).reason), reason)
      }
    })
  )

  it.effect("16.75 versions equal to 1 pass, whatever their type", () =>
    Effect.gen(function* () {
      for (const version of [1, 1.0, true]) {
        const job = yield* makeJob()
        yield* job.attach({ protocol_version: version })
      }
    })
  )

  it.effect("16.75 heartbeat_timeout 0 is no lease: no beats, no end", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach({ heartbeat_timeout: 0 })
      yield* advance("10 hours")
      assert.deepStrictEqual(job.heard(Topic.heartbeat), [])
      yield* job.task()
      assert.isTrue(yield* session.isRunning)
    })
  )

  it.effect("16.76 without SESSION_OPEN the trainer gives up at job_wait_timeout, to the millisecond", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const bound = TestTrainer.profile({ attachId: "gpu-1", jobWaitTimeout: "10 seconds" })
      const trainer = yield* job.attaching(bound)
      yield* job.connected
      yield* advance(9999)
      yield* settle
      assert.isUndefined(trainer.session.pollUnsafe())
      yield* advance(1)
      const reason = yield* reasonOf(Fiber.join(trainer.session))
      assert.strictEqual(reason._tag === "NoSession" ? reason.stage : reason._tag, "session")
    })
  )

  it.effect("16.76 a SESSION_OPEN just before job_wait_timeout is in time", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const trainer = yield* job.attaching(TestTrainer.profile({ attachId: "gpu-1", jobWaitTimeout: "10 seconds" }))
      yield* job.connected
      yield* advance(9999)
      yield* job.open()
      yield* Fiber.join(trainer.session)
    })
  )
})

describe("the client parent's route", () => {
  /** A client parent with two job cells and the trainer behind it. */
  const makeSite = Effect.gen(function* () {
    const job = yield* makeJob()
    const make = (fqcn: string) => Effect.provide(Cell.make({ fqcn, byeTimeout: 0 }), job.services)
    const parent = yield* make("site-1")
    yield* parent.listen("memory://site-1")
    yield* job.cell.connect("memory://site-1")
    const other = yield* make("site-1.job-2")
    yield* other.connect("memory://site-1")
    const profile = TestTrainer.profile({ attachId: "gpu-1", connectUrl: "memory://site-1" })
    const trainer = yield* job.attaching(profile)
    for (const name of [cjFqcn, "site-1.job-2", trainerFqcn]) {
      yield* Stream.runHead(Stream.filter(parent.connected(name), (up) => up))
    }
    return { job, other, trainer }
  })
  const openFrom = (cell: Cell.Cell["Service"], overrides: Fields = {}) =>
    cell.request(trainerFqcn, Topic.sessionOpen, openBody(overrides), { timeout: 2000, mode: "plain" })

  it.effect(
    "16.31 an unbound trainer hears a job of its own site, whose word must match its name; once bound no other",
    () =>
      Effect.gen(function* () {
        const { job, other, trainer } = yield* makeSite
        const mismatch = bodyOf(yield* openFrom(other))
        assert.deepStrictEqual(mismatch.reply_topic, ReplyTopic.sessionRejected)
        assert.include(String(mismatch.reason), "origin")
        assert.strictEqual(bodyOf(yield* openFrom(job.cell)).reply_topic, ReplyTopic.sessionAccepted)
        yield* Fiber.join(trainer.session)
        assert.strictEqual((yield* openFrom(other, { job_id: "job-2" })).returnCode, "authentication_error")
        const foreign = yield* Effect.forkChild(
          Effect.flip(
            other.request(trainerFqcn, Topic.abort, ClientApi.body({ session_id: sessionId }), { timeout: 500 })
          )
        )
        yield* advance(500)
        assert.strictEqual((yield* Fiber.join(foreign)).reason._tag, "RequestTimeout")
        assert.strictEqual(bodyOf(yield* job.task()).reply_topic, ReplyTopic.taskAccepted)
      })
  )
})
