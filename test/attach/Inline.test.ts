/** Arrays inside messages, between peers that say that they take them; docs/protocol.md, "Arrays inside messages". */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Result, Stream } from "effect"
import { Cell } from "../../src/cell/Cell.ts"
import { downloadAddress } from "../../src/cell/internal/downloadWire.ts"
import type { TransferProgress } from "../../src/cell/TransferProgress.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { DownloadRef } from "../../src/fobs/Values.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import { Shareable } from "../../src/model/Shareable.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import type * as MemoryDriver from "../../src/transport/MemoryDriver.ts"
import { keeping } from "../cell/keeping.ts"
import * as support from "./support.ts"

const { inTurn, layer, openBackend, pass, reply, start, startTrainer } = support

const mib = 1024 * 1024
const array = (size: number) => NdArray.fromTyped(new Float32Array(size / 4).fill(7))
const taskOf = (...sizes: ReadonlyArray<number>) => ({
  name: "train",
  data: new Shareable(
    [],
    sizes.map((size, n) => [`w${n}`, array(size)] as const)
  )
})

const accepted = (extra: Readonly<Record<string, unknown>>) => (body: ReadonlyMap<unknown, unknown>) =>
  reply("sessionAccepted", { session_id: body.get("session_id"), protocol_version: 1, ...extra })

/** Which arrays of a task are in its message; the trainer leaves the others where they are. */
const inside = ({ body }: support.Heard): ReadonlyArray<boolean> => {
  const entries = ClientApi.shareableOf(body.get("model"))?.entries ?? new Map()
  return [...entries.values()].map((value) => {
    assert.isTrue(value instanceof NdArray || value instanceof DownloadRef)
    return value instanceof NdArray
  })
}

describe("arrays inside messages", () => {
  it.effect("between a service and a trainer of this library: nothing is fetched, and progress is told", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const cell = yield* Cell
      let fetched = 0
      yield* cell.guard(({ address }) => {
        if (address.channel === downloadAddress.channel) fetched += 1
        return "pass"
      })
      yield* TestTrainer.start({ attachId: "a" }, (model) => Effect.succeed(model))
      yield* support.untilState(backend, "Ready")
      const events: Array<TransferProgress> = []
      yield* Stream.runForEach(backend.progress, (event) => Effect.sync(() => events.push(event))).pipe(
        Effect.forkScoped({ startImmediately: true })
      )
      const params = [["w", array(3 * mib)]] as const
      const data = Result.getOrThrow(ModelExchange.toShareable(new FLModel({ params })))
      const result = yield* backend.execute({ name: "train", data })
      const came = Result.getOrThrow(ModelExchange.fromShareable(result)).arrays.get("w")
      assert.deepStrictEqual(came?.toTyped(), array(3 * mib).toTyped())
      assert.strictEqual(fetched, 0)
      for (const direction of ["send", "receive"] as const) {
        const own = events.filter((event) => event.direction === direction)
        const last = own.at(-1)
        assert.deepInclude(last, { peer: support.trainerFqcn, state: "completed", items: 0 })
        assert.isAtLeast(last?.bytes ?? 0, 3 * mib)
        assert.strictEqual(last?.bytes, last?.totalBytes)
        assert.strictEqual(new Set(own.map(({ refId }) => refId)).size, 1)
      }
    }).pipe(Effect.provide(layer()))
  )

  const cases = [
    { says: "nothing, as NVFlare's", extra: {}, sizes: [mib, mib], expected: [false, false] },
    { says: "0", extra: { max_inline_bytes: 0 }, sizes: [mib], expected: [false] },
    { says: "no number", extra: { max_inline_bytes: "all" }, sizes: [mib], expected: [false] },
    { says: "less than nothing", extra: { max_inline_bytes: -1 }, sizes: [mib], expected: [false] },
    { says: "enough", extra: { max_inline_bytes: 2 * mib }, sizes: [mib, mib], expected: [true, true] },
    {
      says: "enough for some: the others are fetched, in whatever order they come",
      extra: { max_inline_bytes: 2 * mib },
      sizes: [mib, 2 * mib, mib / 2],
      expected: [true, false, true]
    }
  ]
  for (const { expected, extra, says, sizes } of cases) {
    it.effect(`a trainer that says ${says}`, () =>
      Effect.gen(function* () {
        const { backend } = yield* openBackend()
        const trainer = yield* startTrainer({ sessionOpen: accepted(extra) }, { codec: keeping() })
        yield* start(backend, taskOf(...sizes))
        assert.deepStrictEqual(inside(yield* trainer.next("taskReady")), expected)
      }).pipe(Effect.provide(layer()))
    )
  }

  it.effect("a task that is sent again has its arrays fetched: what came of them outlives a connection", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer(
        {
          sessionOpen: accepted({ max_inline_bytes: 2 * mib }),
          taskReady: inTurn(() => Effect.succeed({ returnCode: "process_exception" }))
        },
        { codec: keeping() }
      )
      yield* start(backend, taskOf(mib))
      assert.deepStrictEqual(inside(yield* trainer.next("taskReady")), [true])
      yield* pass(500)
      assert.deepStrictEqual(inside(yield* trainer.next("taskReady")), [false])
    }).pipe(Effect.provide(layer()))
  )

  it.effect("a service that takes none says nothing of it, and gets none", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend()
      const trainer = yield* startTrainer(
        { sessionOpen: accepted({ max_inline_bytes: 2 * mib }) },
        { codec: keeping() }
      )
      assert.isFalse((yield* trainer.next("sessionOpen")).body.has("max_inline_bytes"))
      const running = yield* start(backend, taskOf(mib))
      assert.deepStrictEqual(inside(yield* trainer.next("taskReady")), [false])
      yield* Fiber.interrupt(running)
    }).pipe(Effect.provide(layer(support.asReference)))
  )

  const slow: MemoryDriver.Faults = {
    onFrame: ({ bytes }) =>
      Effect.delay(Effect.succeed("deliver" as const), bytes.byteLength > mib / 2 ? "1 second" : "0 seconds")
  }
  it.effect("a result that comes slowly keeps its session, though no heartbeat gets past it", () =>
    Effect.gen(function* () {
      const { backend } = yield* openBackend({ heartbeatInterval: "1 second", heartbeatTimeout: "3 seconds" })
      const trainer = yield* startTrainer()
      const running = yield* start(backend)
      const result = new Shareable([], [["w", array(8 * mib)]])
      const sent = yield* Effect.forkChild(trainer.result(yield* trainer.next("taskReady"), { result }))
      yield* support.advance(Fiber.join(running), 250)
      assert.strictEqual((yield* backend.session)._tag, "Ready")
      assert.isAtLeast(yield* support.now, 8000)
      yield* Fiber.join(sent)
      // Then silence counts again.
      yield* pass(3001)
      assert.notStrictEqual((yield* backend.session)._tag, "Ready")
    }).pipe(Effect.provide(layer({ faults: slow })))
  )
})
