import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Result, Stream } from "effect"
import { ResultAuthority } from "../../src/attach/ResultAuthority.ts"
import * as Cell from "../../src/cell/Cell.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { EnumValue } from "../../src/fobs/Values.ts"
import * as Analytics from "../../src/model/Analytics.ts"
import { Header, Shareable } from "../../src/model/Shareable.ts"
import * as support from "./support.ts"

const { bodyOf, layer, openBackend, pass, reasonOf, start, startTrainer, topicOf } = support

const accepted = "client_api.result_accepted"
const rejected = "client_api.result_rejected"
const errorTopic = "client_api.error"

describe("results", () => {
  it.effect("16.60 a payload that is no map is an invalid request; LOG is dropped in silence", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      for (const topic of ["resultReady", "resultStatus", "resultSourceSettled", "heartbeat"] as const) {
        for (const payload of [5, "text", null, [1]]) {
          assert.strictEqual((yield* trainer.ask(topic, payload)).returnCode, "invalid_request", topic)
        }
      }
      yield* trainer.cell.send(support.cjFqcn, ClientApi.Topic.log, 5)
      yield* pass()
      assert.strictEqual((yield* backend.session)._tag, "Ready")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.61 odd results are refused, the same one again is accepted under its first attempt", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      const sent = yield* trainer.next("taskReady")
      for (const field of ["task_id", "result_id", "attempt_id"]) {
        for (const value of [undefined, null, "", 7]) {
          const reply = bodyOf(yield* trainer.result(sent, { [field]: value }))
          assert.strictEqual(reply.reply_topic, rejected)
          assert.strictEqual(reply.reason, "missing result correlation fields")
        }
      }
      assert.include(bodyOf(yield* trainer.result(sent, { result: 7 })).reason, "invalid result envelope")
      assert.include(bodyOf(yield* trainer.result(sent, { task_id: "other" })).reason, "no current task matching")
      assert.strictEqual(bodyOf(yield* trainer.result(sent, { session_id: "x" })).reason, "stale or unknown session id")
      assert.isFalse(support.isOver(running))
      const first = { reply_topic: accepted, result_id: "r1", accepted_attempt_id: "try1" }
      assert.deepStrictEqual(bodyOf(yield* trainer.result(sent)), first)
      assert.deepStrictEqual(bodyOf(yield* trainer.result(sent, { attempt_id: "try2" })), first)
      assert.deepStrictEqual(bodyOf(yield* trainer.result(sent, { attempt_id: "try3", result: 7 })), first)
      assert.include(bodyOf(yield* trainer.result(sent, { result_id: "r2" })).reason, "canonical")
      assert.strictEqual((yield* Fiber.join(running)).returnCode, "OK")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.61 a result that comes when its task is over is refused", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      trainer.answers.taskReady = () => support.reply("taskFailed", { reason: "no" })
      yield* reasonOf(yield* start(backend), "TaskRejected")
      const sent = yield* trainer.next("taskReady")
      assert.include(bodyOf(yield* trainer.result(sent)).reason, "no current task matching")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.62 RESULT_STATUS: accepted for the canonical id, unknown for others", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      const sent = yield* trainer.next("taskReady")
      const status = (result_id: unknown) =>
        Effect.map(
          trainer.ask(
            "resultStatus",
            ClientApi.body({ session_id: trainer.sessionId(), task_id: sent.body.get("task_id"), result_id })
          ),
          bodyOf
        )
      const unknown = { reply_topic: "client_api.result_status", result_state: "UNKNOWN" }
      assert.deepStrictEqual(yield* status("r1"), unknown)
      yield* trainer.result(sent)
      yield* Fiber.join(running)
      assert.deepStrictEqual(yield* status("r1"), {
        reply_topic: "client_api.result_status",
        result_state: "ACCEPTED",
        accepted_attempt_id: "try1"
      })
      assert.deepStrictEqual(yield* status("r2"), unknown)
      assert.deepStrictEqual(yield* status(undefined), unknown)
    }).pipe(Effect.provide(layer()))
  )

  it.effect(
    "16.71 current_round is copied onto the result and overwrites; job_id and site_name are set on the task",
    () =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend()
        const trainer = yield* startTrainer()
        const running = yield* start(backend, support.task(3))
        const sent = yield* trainer.next("taskReady")
        const given = sent.body.get("model") as Shareable
        assert.strictEqual(given.headers.get(Header.jobId), "job-1")
        assert.strictEqual(given.headers.get(Header.siteName), "site-1")
        assert.strictEqual(given.headers.get(Header.currentRound), 3)
        yield* trainer.result(sent, { result: new Shareable([[Header.currentRound, 99]]) })
        assert.strictEqual((yield* Fiber.join(running)).headers.get(Header.currentRound), 3)
      }).pipe(Effect.provide(layer()))
  )

  it.effect("16.71 a task without current_round leaves the result's own", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      const running = yield* start(backend, { name: "validate", data: new Shareable() })
      yield* trainer.result(yield* trainer.next("taskReady"), { result: new Shareable([[Header.currentRound, 99]]) })
      assert.strictEqual((yield* Fiber.join(running)).headers.get(Header.currentRound), 99)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a result with a return code other than OK is accepted, fails the task, and the session goes on", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      const sent = yield* trainer.next("taskReady")
      const reply = yield* trainer.result(sent, { result: support.failedResult("EXECUTION_EXCEPTION") })
      assert.strictEqual(topicOf(reply), accepted)
      const reason = yield* reasonOf(running, "TaskFailed")
      assert.strictEqual(reason.returnCode, "EXECUTION_EXCEPTION")
      yield* trainer.settle(sent)
      const second = yield* start(backend)
      yield* trainer.result(yield* trainer.next("taskReady"))
      yield* Fiber.join(second)
      assert.lengthOf(trainer.of("sessionOpen"), 1)
      assert.lengthOf(trainer.of("abort"), 0)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.61 a foreign cell is told that its origin is unexpected, before a session that there is none", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const other = yield* startTrainer({}, { fqcn: "site-1.-client_api_zz" })
      yield* pass()
      const beat = Effect.map(other.ask("heartbeat", ClientApi.body({ session_id: "x" })), bodyOf)
      assert.deepStrictEqual(yield* beat, { reply_topic: errorTopic, reason: "no active trainer session" })
      yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      assert.include((yield* beat).reason, "unexpected origin site-1.-client_api_zz")
    }).pipe(Effect.provide(layer()))
  )
})

describe("the source of a result", () => {
  it.effect("16.64 RESULT_SOURCE_SETTLED of a wrong or settled task is an error", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      const sent = yield* trainer.next("taskReady")
      assert.strictEqual(topicOf(yield* trainer.settle(sent)), errorTopic)
      yield* trainer.result(sent)
      yield* Fiber.join(running)
      assert.strictEqual(
        topicOf(yield* trainer.settle({ ...sent, body: new Map([...sent.body, ["task_id", "zz"]]) })),
        errorTopic
      )
      assert.deepStrictEqual(bodyOf(yield* trainer.settle(sent)), {
        reply_topic: "client_api.result_source_settled",
        task_id: sent.body.get("task_id")
      })
      assert.strictEqual(topicOf(yield* trainer.settle(sent)), errorTopic)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.63 only true and false of a heartbeat's live flag say something", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ heartbeatTimeout: "6 seconds", allowReconnect: true })
      const trainer = yield* startTrainer()
      const tag = Effect.map(backend.session, ({ _tag }) => _tag)
      yield* support.untilState(backend, "Ready")
      const first = trainer.sessionId()
      for (const live of [undefined, null, 1, "true"]) {
        assert.strictEqual(topicOf(yield* trainer.heartbeat(live)), "client_api.heartbeat")
      }
      // No latch: a silent session is replaced.
      yield* pass(6001)
      assert.notStrictEqual(trainer.sessionId(), first)
      // A latch, which odd values don't clear: a silent session is kept.
      yield* trainer.heartbeat(true)
      for (const live of [undefined, null, 0]) yield* trainer.heartbeat(live)
      yield* pass("1 minute")
      assert.strictEqual(yield* tag, "Silent")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.65 the ledger keeps 256 results; none goes while a source is live", () =>
    Effect.sync(() => {
      const ledger = new ResultAuthority()
      const accept = (n: number) => ledger.accept(`t${n}`, `r${n}`, `a${n}`)
      for (let n = 0; n < 300; n += 1) accept(n)
      // The first insertion latched the source.
      assert.strictEqual(ledger.size, 300)
      assert.isTrue(ledger.settle("t299"))
      assert.strictEqual(ledger.size, 256)
      assert.isUndefined(ledger.canonical("t43"))
      assert.deepStrictEqual(ledger.canonical("t44"), { resultId: "r44", attemptId: "a44" })
      accept(300)
      assert.strictEqual(ledger.size, 256)
      accept(301)
      assert.strictEqual(ledger.size, 257)
      ledger.reportLive(false)
      assert.strictEqual(ledger.size, 256)
      accept(302)
      accept(303)
      ledger.abandon()
      assert.strictEqual(ledger.size, 256)
      assert.isDefined(ledger.canonical("t303"))
    })
  )

  it.effect("14.16 a latch that sticks costs no memory without end", () =>
    Effect.sync(() => {
      const ledger = new ResultAuthority(4)
      ledger.reportLive(true)
      for (let n = 0; n < 1000; n += 1) ledger.accept(`t${n}`, "r", "a")
      assert.strictEqual(ledger.size, 64)
      assert.isDefined(ledger.canonical("t999"))
    })
  )
})

describe("what the trainer logs", () => {
  const enumOf = (name: string) => new EnumValue("nvflare.apis.analytix.AnalyticsDataType", name)

  it.effect("16.77 each kind of record is checked; what does not fit is dropped, and the next one comes", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      const records: Array<Analytics.AnalyticsRecord> = []
      yield* Effect.forkScoped(
        Stream.runForEach(backend.analytics, (record) => Effect.sync(() => records.push(record))),
        { startImmediately: true }
      )
      const log = (fields: Record<string, unknown>) =>
        Effect.andThen(
          Effect.orDie(
            trainer.cell.send(
              support.cjFqcn,
              ClientApi.Topic.log,
              ClientApi.body({ session_id: trainer.sessionId(), key: "k", ...fields })
            )
          ),
          pass()
        )
      const map = new Map([["a", 1]])
      const good: ReadonlyArray<readonly [string, unknown]> = [
        ["SCALAR", 1.5],
        ["METRIC", 2],
        ["SCALARS", map],
        ["METRICS", map],
        ["PARAMETERS", map],
        ["TAGS", map],
        ["TEXT", "t"],
        ["PARAMETER", 1],
        ["IMAGE", new Uint8Array(1)]
      ]
      for (const [name, value] of good) yield* log({ data_type: enumOf(name), value })
      assert.deepStrictEqual(
        records.map(({ dataType }) => dataType as string),
        good.map(([name]) => name)
      )
      const bad: ReadonlyArray<readonly [string, unknown]> = [
        ["SCALAR", "x"],
        ["METRICS", new Map([["a", "x"]])],
        ["SCALARS", 1],
        ["TAGS", 1],
        ["TEXT", 1]
      ]
      for (const [name, value] of bad) yield* log({ data_type: enumOf(name), value })
      yield* log({ data_type: "SCALAR", value: 1 })
      yield* log({ data_type: enumOf("SCALAR"), value: 1, global_step: -1 })
      yield* log({ data_type: enumOf("SCALAR"), value: 1, session_id: "stale" })
      assert.lengthOf(records, good.length)
      yield* log({ data_type: enumOf("SCALAR"), value: 1, global_step: 7, path: "p", epoch: 2 })
      const last = records.at(-1)
      assert.strictEqual(last?.globalStep, 7)
      assert.strictEqual(last?.path, "p")
      assert.deepStrictEqual([...(last?.extra ?? [])], [["epoch", 2]])
    }).pipe(Effect.provide(layer()))
  )

  it.effect("14.10 a reader that is too slow costs records, and they are counted", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      yield* Effect.forkScoped(
        Stream.runForEach(backend.analytics, () => Effect.never),
        { startImmediately: true }
      )
      const record = new Analytics.AnalyticsRecord({ tag: "loss", value: 1, dataType: "SCALAR" })
      const body = Result.getOrThrow(Analytics.toLog(trainer.sessionId(), record))
      for (let n = 0; n < 1200; n += 1) {
        yield* Effect.orDie(trainer.cell.send(support.cjFqcn, ClientApi.Topic.log, body))
      }
      yield* pass()
      const dropped = yield* backend.analyticsDropped
      assert.isAtLeast(dropped, 1)
      assert.isAtMost(dropped, 1200 - 1024)
      assert.strictEqual(topicOf(yield* trainer.heartbeat()), "client_api.heartbeat")
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.77 a LOG that asks for an answer gets none of its own", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      yield* support.untilState(backend, "Ready")
      const reply = yield* trainer.ask("log", ClientApi.body({ session_id: trainer.sessionId(), key: "k" }))
      assert.strictEqual(reply.returnCode, "process_exception")
    }).pipe(Effect.provide(layer()))
  )
})

describe("several backends on one cell", () => {
  it.effect("hear their own trainers only", () =>
    Effect.gen(function* () {
      const a = yield* openBackend()
      const b = yield* openBackend({ attachId: "b" })
      const trainerA = yield* startTrainer()
      const trainerB = yield* startTrainer({}, { fqcn: "site-1.-client_api_b" })
      yield* support.untilState(a.backend, "Ready")
      yield* support.untilState(b.backend, "Ready")
      const runningA = yield* start(a.backend)
      const runningB = yield* start(b.backend)
      const sentA = yield* trainerA.next("taskReady")
      const sentB = yield* trainerB.next("taskReady")
      // Not with the other's session.
      assert.strictEqual(topicOf(yield* trainerB.result(sentA)), rejected)
      assert.strictEqual(topicOf(yield* trainerB.result(sentB)), accepted)
      assert.strictEqual(topicOf(yield* trainerA.result(sentA)), accepted)
      yield* Fiber.join(runningA)
      yield* Fiber.join(runningB)
      const { fqcn } = yield* Cell.Cell
      assert.strictEqual(fqcn, support.cjFqcn)
    }).pipe(Effect.provide(layer()))
  )
})
