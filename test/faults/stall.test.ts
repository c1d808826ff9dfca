/** Scenario 7 with real sockets: a trainer whose end of the connection is not read for ten seconds, three in a quick run. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Result, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import * as AttachBackend from "../../src/attach/AttachBackend.ts"
import * as AttachRoute from "../../src/attach/AttachRoute.ts"
import * as Cell from "../../src/cell/Cell.ts"
import * as TrainerName from "../../src/clientapi/TrainerName.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import { FileLock } from "../../src/platform/FileLock.ts"
import { PrivateFiles } from "../../src/platform/PrivateFiles.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import { Drivers } from "../../src/transport/Drivers.ts"
import * as TcpDriver from "../../src/transport/TcpDriver.ts"
import { makeFaultProxy } from "../support/faultProxy.ts"
import { isLong } from "../support/long.ts"
import { silently } from "../transport/support.ts"

const [millis, tasks] = isLong ? [10_000, 50] : [3000, 10]

const layerPlatform = Layer.mergeAll(
  Drivers.layer([TcpDriver.make()]),
  SecureRandom.layerWebCrypto,
  FileLock.layerNode,
  PrivateFiles.layerNode
)
const layerPlace = AttachRoute.layerListener("tcp://127.0.0.1:0").pipe(
  Layer.provideMerge(Cell.layer({ fqcn: "site-1.job-1" })),
  Layer.provideMerge(layerPlatform)
)

const taskOf = (elements: number) => ({
  name: "train",
  data: Result.getOrThrow(
    ModelExchange.toShareable(new FLModel({ params: [["w", NdArray.fromTyped(new Float32Array(elements))]] }))
  )
})

/** A backend with its trainer, which echoes. */
const startPair = Effect.fnUntraced(function* (attachId: string, connectUrl: string) {
  const backend = yield* AttachBackend.make({ attachId })
  yield* TestTrainer.start({ attachId, connectUrl }, (model) => Effect.succeed(model))
  yield* Stream.runHead(Stream.filter(backend.sessionChanges, ({ _tag }) => _tag === "Ready"))
  return backend
})

describe("a peer that doesn't read, over TCP", () => {
  it.live("scenario 7: with 64 MiB on their way to it, tasks of another trainer are done meanwhile", () =>
    Effect.gen(function* () {
      const { open } = yield* AttachRoute.AttachRoute
      const name = yield* Effect.fromResult(TrainerName.trainerName("site-1.job-1", "a"))
      const { connectUrl } = yield* open(name)
      const stall = { kind: "stall", at: 4 * 1024 * 1024, millis } as const
      const proxy = yield* makeFaultProxy({ port: Number(new URL(connectUrl).port), plan: () => stall })
      const a = yield* startPair("a", proxy.through(connectUrl))
      const b = yield* startPair("b", connectUrl)
      const held = yield* Effect.forkChild(a.execute(taskOf(16 * 1024 * 1024)))
      while (proxy.struck() === 0) yield* Effect.sleep("10 millis")
      for (let n = 0; n < tasks; n++) assert.strictEqual((yield* b.execute(taskOf(1000))).returnCode, "OK")
      assert.isUndefined(held.pollUnsafe())
      assert.strictEqual((yield* Fiber.join(held)).returnCode, "OK")
      assert.deepStrictEqual([(yield* a.session)._tag, (yield* b.session)._tag], ["Ready", "Ready"])
    }).pipe(silently, Effect.provide(layerPlace))
  )
})
