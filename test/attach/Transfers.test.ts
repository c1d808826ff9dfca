/** Tasks and results whose arrays are fetched; docs/wire/attach.md, section 6.3. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Stream } from "effect"
import { downloadAddress } from "../../src/cell/internal/downloadWire.ts"
import type { TransferProgress } from "../../src/cell/TransferProgress.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { DownloadRef } from "../../src/fobs/Values.ts"
import { Shareable } from "../../src/model/Shareable.ts"
import { fakeReferences, serve } from "../cell/downloads.ts"
import { keeping } from "../cell/keeping.ts"
import * as support from "./support.ts"

const { cjFqcn, inTurn, isOver, layer, openBackend, pass, reasonOf, reply, silence, start, startTrainer, trainerFqcn } =
  support

const weights = NdArray.fromTyped(new Float32Array(50_000).fill(7))
const bigTask = { name: "train", data: new Shareable([], [["w", weights]]) }
const patient = { heartbeatTimeout: "1 hour" }

/** The download that a task refers to. */
const refOf = ({ body }: support.Heard): string => {
  const model = ClientApi.shareableOf(body.get("model"))
  const ref = model?.entries.get("w")
  assert.instanceOf(ref, DownloadRef)
  assert.strictEqual(ref.fqcn, cjFqcn)
  return ref.refId
}

const download = (trainer: support.ScriptedTrainer, request: Readonly<Record<string, unknown>>) =>
  Effect.orDie(
    Effect.map(
      trainer.cell.request(cjFqcn, downloadAddress, ClientApi.body(request), { timeout: "5 seconds" }),
      ({ returnCode }) => returnCode
    )
  )
const first = (trainer: support.ScriptedTrainer, refId: string) =>
  download(trainer, { ref_id: refId, confirm_capable: true })

describe("tasks by reference", () => {
  it.effect("the trainer has the arrays before its handler runs; each attempt has an offer of its own", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer({
        taskReady: inTurn(
          () => Effect.succeed({ returnCode: "process_exception" }),
          (body) => reply("taskAccepted", { task_id: body.get("task_id") })
        )
      })
      const events: Array<TransferProgress> = []
      yield* Stream.runForEach(backend.progress, (event) => Effect.sync(() => events.push(event))).pipe(
        Effect.forkScoped({ startImmediately: true })
      )
      const running = yield* start(backend, bigTask)
      for (const sent of [
        yield* trainer.next("taskReady"),
        yield* Effect.andThen(pass(500), trainer.next("taskReady"))
      ]) {
        const got = ClientApi.shareableOf(sent.body.get("model"))?.entries.get("w")
        assert.instanceOf(got, NdArray)
        assert.deepStrictEqual(got.toTyped(), weights.toTyped())
      }
      const sent = trainer.of("taskReady")[1]
      assert.isDefined(sent)
      yield* trainer.result(sent)
      yield* Fiber.join(running)
      const told = events.map(({ bytes, direction, peer, state }) => [direction, peer, bytes, state])
      assert.deepStrictEqual(told.slice(0, 2), [
        ["send", trainerFqcn, 200_000, "active"],
        ["send", trainerFqcn, 200_000, "completed"]
      ])
      assert.lengthOf(told, 4)
      assert.strictEqual(new Set(events.map(({ refId }) => refId)).size, 2)
    }).pipe(Effect.provide(layer()))
  )

  it.effect("16.70 an attempt that failed takes its offer with it", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer(
        { taskReady: inTurn(() => Effect.succeed({ returnCode: "process_exception" }), silence) },
        { codec: keeping() }
      )
      yield* start(backend, bigTask)
      const one = refOf(yield* trainer.next("taskReady"))
      yield* pass(500)
      const two = refOf(yield* trainer.next("taskReady"))
      assert.notStrictEqual(one, two)
      assert.deepStrictEqual([yield* first(trainer, one), yield* first(trainer, two)], ["invalid_request", "ok"])
    }).pipe(Effect.provide(layer()))
  )

  it.effect("an accepted task needs no confirmation, and what was on offer is gone", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend(patient)
      const trainer = yield* startTrainer({}, { codec: keeping() })
      const running = yield* start(backend, bigTask)
      const sent = yield* trainer.next("taskReady")
      yield* pass("700 seconds")
      assert.isFalse(isOver(running))
      assert.strictEqual(yield* first(trainer, refOf(sent)), "invalid_request")
      yield* trainer.result(sent)
      yield* Fiber.join(running)
      assert.lengthOf(trainer.of("taskReady"), 1)
    }).pipe(Effect.provide(layer()))
  )

  for (const isTheEnd of [true, false]) {
    const ending = isTheEnd ? "interrupting the task" : "a lost session"
    it.effect(`${ending} takes the offer back`, () =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend({ decodeGrace: "1 second" })
        const trainer = yield* startTrainer({ taskReady: silence }, { codec: keeping() })
        const running = yield* start(backend, bigTask)
        const refId = refOf(yield* trainer.next("taskReady"))
        assert.strictEqual(yield* first(trainer, refId), "ok")
        if (isTheEnd) {
          yield* Fiber.interrupt(running)
        } else {
          yield* pass("40 seconds")
          yield* reasonOf(running, "SessionLost")
        }
        yield* pass()
        assert.strictEqual(yield* first(trainer, refId), "invalid_request")
      }).pipe(Effect.provide(layer()))
    )
  }

  for (const deliveryProgress of [true, false]) {
    it.effect(
      `a trainer that goes on fetching ${deliveryProgress ? "has" : "gets no"} more time (deliveryProgress)`,
      () =>
        Effect.gen(function* () {
          const { backend } = yield* openBackend({ taskWaitTimeout: "10 seconds", deliveryProgress, ...patient })
          const trainer = yield* startTrainer({ taskReady: silence }, { codec: keeping() })
          const running = yield* start(backend, bigTask)
          const refId = refOf(yield* trainer.next("taskReady"))
          for (let i = 0; i < 10; i += 1) {
            yield* pass("3 seconds")
            if (i === 1) assert.strictEqual(yield* first(trainer, refId), "ok")
            if (deliveryProgress) assert.strictEqual(yield* first(trainer, refId), "ok")
          }
          assert.strictEqual(isOver(running), !deliveryProgress)
          yield* pass("20 seconds")
          yield* reasonOf(running, "DeliveryTimeout")
        }).pipe(Effect.provide(layer()))
    )
  }
})

describe("results by reference", () => {
  it.effect("an ended session fails a result that is being fetched, and cancels at the trainer", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer()
      const asked: Array<unknown> = []
      yield* trainer.cell.handle(downloadAddress, ({ payload }) => {
        asked.push(payload)
        return Effect.never
      })
      const running = yield* start(backend)
      const sent = yield* trainer.next("taskReady")
      const result = yield* trainer.cell
        .request(
          cjFqcn,
          ClientApi.Topic.resultReady,
          ClientApi.body({
            session_id: sent.body.get("session_id"),
            task_id: sent.body.get("task_id"),
            result_id: "r1",
            attempt_id: "a1",
            result: new Shareable([], [["w", weights]])
          }),
          {
            timeout: "1 hour",
            references: { add: () => "T0", downloads: () => [{ dot: 3, fqcn: trainerFqcn, refId: "ref" }] }
          }
        )
        .pipe(Effect.flip, Effect.forkChild({ startImmediately: true }))
      yield* pass()
      assert.lengthOf(asked, 1)
      yield* Fiber.interrupt(running)
      yield* pass()
      assert.match((yield* Fiber.join(result)).message, /blob_cb threw DownloadFailed/)
    }).pipe(Effect.provide(layer()))
  )
})

describe("results that can't be read", () => {
  it.effect("the log and the task's failure name the trainer, the array and why", () => {
    const lines: Array<string> = []
    const logger = Logger.make(({ message }) => {
      lines.push(String(message))
    })
    return Effect.gen(function* () {
      const { backend } = yield* openBackend({ ...patient, resultWaitTimeout: "20 seconds" })
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      const sent = yield* trainer.next("taskReady")
      // As nvflare's trainer, when torch's tensors are not contiguous.
      yield* serve(trainer.cell, () => Effect.succeed({ returnCode: "process_exception", error: "not contiguous" }))
      const result = new Shareable([], [["conv.weight", weights]])
      const body = { session_id: sent.body.get("session_id"), task_id: sent.body.get("task_id") }
      const refused = yield* trainer.cell
        .request(
          cjFqcn,
          ClientApi.Topic.resultReady,
          ClientApi.body({ ...body, result_id: "r1", attempt_id: "a1", result }),
          { timeout: "5 seconds", references: fakeReferences([{ dot: 3, fqcn: trainerFqcn, refId: "ref-1" }]) }
        )
        .pipe(Effect.flip, Effect.forkChild({ startImmediately: true }))
      yield* pass("20 seconds")
      assert.strictEqual((yield* Fiber.join(refused)).reason._tag, "PeerFailed")
      const why = `failed to download from ${trainerFqcn}: it answered process_exception: not contiguous (reference ref-1, array T0 or one behind it); T0 is "conv.weight"`
      const { message } = yield* reasonOf(running, "ResultTimeout")
      assert.include(message, `within resultWaitTimeout (20s); one came, but could not be read: ${why}`)
      const logged = `${cjFqcn}: ${ClientApi.Topic.resultReady.channel}/${ClientApi.Topic.resultReady.topic} of ${trainerFqcn} failed: DownloadFailed: ${why}`
      assert.include(lines, logged)
    }).pipe(Effect.provide(Layer.provideMerge(layer(), Logger.layer([logger]))))
  })
})
