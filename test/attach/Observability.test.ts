import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Metric, References, Result, Tracer } from "effect"
import * as AttachMetrics from "../../src/attach/AttachMetrics.ts"
import { transferBytes } from "../../src/cell/TransferProgress.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import * as support from "./support.ts"

const { layer, openBackend, pass, reasonOf, start, startTrainer } = support

interface Line {
  readonly level: string
  readonly message: string
  readonly annotations: Readonly<Record<string, unknown>>
}

/** Keeps what is logged, counted and traced, apart from other tests. */
const observed = <A, E, R>(
  test: (seen: {
    readonly lines: ReadonlyArray<Line>
    readonly spans: ReadonlyArray<Tracer.Span>
  }) => Effect.Effect<A, E, R>,
  place: support.PlaceOptions = {}
) => {
  const lines: Array<Line> = []
  const spans: Array<Tracer.Span> = []
  const logger = Logger.make(({ fiber, logLevel, message }) => {
    const annotations = fiber.getRef(References.CurrentLogAnnotations)
    lines.push({ level: logLevel, message: String(message), annotations })
  })
  const tracer = Tracer.make({
    span: (options) => {
      const span = new Tracer.NativeSpan(options)
      spans.push(span)
      return span
    }
  })
  return Effect.suspend(() => test({ lines, spans })).pipe(
    Effect.provide(layer(place)),
    Effect.provide(Layer.mergeAll(Logger.layer([logger]))),
    Effect.withTracer(tracer),
    Effect.provideService(Metric.MetricRegistry, new Map())
  )
}

const counted = (metric: Metric.Counter<number>, attributes: Record<string, string> = {}) =>
  Effect.map(Metric.value(Metric.withAttributes(metric, attributes)), ({ count }) => count)
const sessions = (state: string) =>
  Effect.map(Metric.value(Metric.withAttributes(AttachMetrics.sessions, { state })), ({ value }) => value)

describe("what can be seen of a backend", () => {
  it.effect("a lost session and its task name the setting and its value in error, log, span and metric", () =>
    observed(({ lines, spans }) =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend({ heartbeatInterval: "1 second", heartbeatTimeout: "6 seconds" })
        const trainer = yield* startTrainer()
        const running = yield* start(backend)
        const sent = yield* trainer.next("taskReady")
        yield* pass(6001)
        const error = yield* reasonOf(running, "SessionLost")
        const named = { reason: "SessionLost", setting: "heartbeatTimeout", limit: "6s" }
        assert.include(error.message, "heartbeatTimeout is 6s")
        const line = lines.find(({ message }) => message.startsWith("session failed"))
        assert.deepInclude(line?.annotations, { ...named, attach_id: "a", session_id: trainer.sessionId() })
        const taskLine = lines.find(({ message }) => message.startsWith('task "train" failed'))
        assert.deepInclude(taskLine?.annotations, {
          attach_id: "a",
          session_id: trainer.sessionId(),
          task_id: sent.body.get("task_id")
        })
        const session = spans.find(({ name }) => name === "AttachBackend.session")
        const attributes = Object.fromEntries(session?.attributes ?? [])
        assert.deepInclude(attributes, { ...named, attach_id: "a", session_id: trainer.sessionId() })
        const task = spans.find(({ name }) => name === "AttachBackend.execute")
        assert.deepInclude(Object.fromEntries(task?.attributes ?? []), { ...named, task_name: "train", task_seq: 1 })
        // The session and its task.
        assert.strictEqual(yield* counted(AttachMetrics.failures, named), 2)
        assert.strictEqual(yield* counted(AttachMetrics.heartbeatsMissed), 6)
        assert.strictEqual(yield* sessions("Ready"), 0)
        assert.strictEqual(yield* sessions("Failed"), 1)
      })
    )
  )

  it.effect("each delivery attempt is a span and a count, with its outcome", () =>
    observed(({ spans }) =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend()
        const trainer = yield* startTrainer({
          taskReady: support.inTurn(
            () => Effect.succeed({ returnCode: "comm_error" }),
            (body) => support.reply("taskAccepted", { task_id: body.get("task_id") })
          )
        })
        const running = yield* start(backend)
        yield* pass(500)
        const sent = trainer.of("taskReady")[1]
        assert.isDefined(sent)
        yield* trainer.result(sent)
        yield* Fiber.join(running)
        const attempts = spans.filter(({ name }) => name === "TaskDelivery.attempt")
        assert.deepStrictEqual(
          attempts.map(({ attributes }) => attributes.get("outcome")),
          ["Again", "Delivered"]
        )
        assert.strictEqual(attempts[1]?.attributes.get("attempt_id"), sent.body.get("attempt_id"))
        assert.strictEqual(yield* counted(AttachMetrics.deliveryAttempts, { outcome: "Again" }), 1)
        assert.strictEqual(yield* counted(AttachMetrics.deliveryAttempts, { outcome: "Delivered" }), 1)
        const seconds = yield* Metric.value(Metric.withAttributes(AttachMetrics.taskSeconds, { outcome: "ok" }))
        assert.strictEqual(seconds.count, 1)
        assert.strictEqual(seconds.sum, 0.5)
      })
    )
  )

  it.effect("sessions are counted by state, until they are closed", () =>
    observed(() =>
      Effect.gen(function* () {
        const first = yield* openBackend()
        const second = yield* openBackend({ attachId: "b" })
        assert.strictEqual(yield* sessions("Opening"), 2)
        yield* startTrainer()
        yield* support.untilState(first.backend, "Ready")
        assert.deepStrictEqual([yield* sessions("Opening"), yield* sessions("Ready")], [1, 1])
        yield* support.advance(Effect.flatMap(first.close, Fiber.join))
        yield* support.advance(Effect.flatMap(second.close, Fiber.join))
        assert.deepStrictEqual([yield* sessions("Opening"), yield* sessions("Ready")], [0, 0])
      })
    )
  )

  it.effect("refused messages are counted by what was wrong with them", () =>
    observed(() =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend()
        const other = yield* startTrainer({}, { fqcn: "site-1.-client_api_zz" })
        yield* pass()
        yield* other.heartbeat()
        const trainer = yield* startTrainer()
        yield* support.untilState(backend, "Ready")
        yield* other.heartbeat()
        yield* other.heartbeat()
        yield* trainer.ask("heartbeat", ClientApi.body({ session_id: "stale" }))
        assert.strictEqual(yield* counted(AttachMetrics.refusals, { reason: "no_session" }), 1)
        assert.strictEqual(yield* counted(AttachMetrics.refusals, { reason: "origin" }), 2)
        assert.strictEqual(yield* counted(AttachMetrics.refusals, { reason: "session" }), 1)
      })
    )
  )

  it.effect("heartbeats that did not come are counted when the trainer is heard again", () =>
    observed(() =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend({ heartbeatInterval: "1 second" })
        const trainer = yield* startTrainer()
        yield* support.untilState(backend, "Ready")
        yield* pass(1000)
        yield* trainer.heartbeat()
        assert.strictEqual(yield* counted(AttachMetrics.heartbeatsMissed), 0)
        yield* pass(4500)
        yield* trainer.heartbeat()
        assert.strictEqual(yield* counted(AttachMetrics.heartbeatsMissed), 3)
      })
    )
  )

  it.effect("a source that is given up names the setting in the log", () =>
    observed(({ lines }) =>
      Effect.gen(function* () {
        const { backend, close } = yield* openBackend({ finalizeTimeout: "10 seconds" })
        const trainer = yield* startTrainer({ shutdown: () => support.ok({ result_source_live: true }) })
        const running = yield* start(backend)
        yield* trainer.result(yield* trainer.next("taskReady"))
        yield* Fiber.join(running)
        yield* support.advance(Effect.flatMap(close, Fiber.join), 1000)
        const line = lines.find(({ level }) => level === "Warn")
        assert.include(line?.message, "finalizeTimeout (10s) and sourceGrace (5s)")
        assert.deepInclude(line?.annotations, { setting: "finalizeTimeout", limit: "10s", attach_id: "a" })
      })
    )
  )

  it.effect("transfers are spans, with their verdict, and their bytes are counted at both ends", () =>
    observed(
      ({ spans }) =>
        Effect.gen(function* () {
          const { backend } = yield* openBackend()
          yield* TestTrainer.start({ attachId: "a" }, (model) => Effect.succeed(model))
          yield* support.untilState(backend, "Ready")
          const params = [["w", NdArray.fromTyped(new Float32Array(50_000))]] as const
          const data = Result.getOrThrow(ModelExchange.toShareable(new FLModel({ params })))
          yield* backend.execute({ name: "train", data })
          // The trainer's offer ends when the result's settlement has been answered.
          yield* pass("1 second")
          for (const direction of ["send", "receive"]) {
            // The task and the result, both between cells of this program.
            assert.strictEqual(yield* counted(transferBytes, { direction, state: "completed" }), 400_000)
          }
          const named = (name: string) => spans.filter((span) => span.name === name)
          const offers = named("DownloadService.offer")
          assert.deepStrictEqual(
            offers.map(({ attributes, status }) => [
              attributes.get("receivers"),
              attributes.get("status"),
              status._tag
            ]),
            [support.trainerFqcn, support.cjFqcn].map((receiver) => [receiver, "completed", "Ended"])
          )
          assert.deepStrictEqual(
            named("DownloadService.fetch").map(({ attributes }) => [attributes.get("source"), attributes.get("bytes")]),
            [support.cjFqcn, support.trainerFqcn].map((source) => [source, 200_000])
          )
        }),
      support.asReference
    )
  )
})
