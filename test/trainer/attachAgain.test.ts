/** What a failed attach leaves behind in the Scope that goes on: nothing. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import * as Cell from "../../src/cell/Cell.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import * as Trainer from "../../src/trainer/Trainer.ts"
import type { TrainerError } from "../../src/trainer/TrainerError.ts"
import { Drivers } from "../../src/transport/Drivers.ts"
import { advance, openBody, settle, trainerFqcn } from "./support.ts"

const url = "memory://service"

/** The network of `MemoryNetwork`, which counts the dials that a test's cells make and the connections they hold. */
const makeNetwork = Effect.gen(function* () {
  const services = yield* Layer.build(MemoryNetwork.layer())
  const drivers = yield* Effect.provide(Drivers, services)
  const counts = { dials: 0, connections: 0 }
  const forUrl = (schemeOrUrl: string) =>
    Effect.map(drivers.forUrl(schemeOrUrl), (driver) => ({
      ...driver,
      connect: (...args: Parameters<typeof driver.connect>) =>
        Effect.gen(function* () {
          counts.dials += 1
          const link = yield* driver.connect(...args)
          counts.connections += 1
          yield* Effect.addFinalizer(() =>
            Effect.sync(() => {
              counts.connections -= 1
            })
          )
          return link
        })
    }))
  const counted = Layer.succeed(Drivers, Drivers.of({ forUrl }))
  const attach = Effect.provide(
    Trainer.attach(TestTrainer.profile({ attachId: "gpu-1", jobWaitTimeout: "10 seconds" })),
    Layer.merge(Layer.succeedContext(services), counted)
  )
  const listen = Effect.fnUntraced(function* (fqcn: string) {
    const cell = yield* Effect.provide(Cell.make({ fqcn, byeTimeout: 0 }), services)
    yield* cell.listen(url)
    return cell
  })

  /** Neither holds a connection nor asks for one, however long the Scope goes on. */
  const assertNothingLeft = Effect.gen(function* () {
    assert.strictEqual(counts.connections, 0)
    const { dials } = counts
    yield* advance("1 hour")
    yield* settle
    assert.strictEqual(counts.dials, dials)
  })
  return { attach, listen, counts, assertNothingLeft }
})

/** How it failed, within the time that the profile gives. */
const failing = Effect.fnUntraced(function* <A, R>(attach: Effect.Effect<A, TrainerError, R>) {
  const fiber = yield* Effect.forkChild(Effect.map(Effect.flip(attach), ({ reason }) => reason))
  yield* advance("10 seconds")
  yield* settle
  assert.isDefined(fiber.pollUnsafe(), "it ends in time")
  return yield* Fiber.join(fiber)
})

describe("an attach that fails", () => {
  it.effect("without a service: dials no more, and the next one in the same Scope gets its session", () =>
    Effect.gen(function* () {
      const network = yield* makeNetwork
      assert.strictEqual((yield* failing(network.attach))._tag, "NoSession")
      assert.isAbove(network.counts.dials, 1)
      yield* network.assertNothingLeft

      const service = yield* network.listen("site-1.job-1")
      const fiber = yield* Effect.forkChild(network.attach)
      yield* settle
      yield* service.request(trainerFqcn, ClientApi.Topic.sessionOpen, openBody(), { timeout: 2000, mode: "plain" })
      const session = yield* Fiber.join(fiber)
      assert.strictEqual(session.jobId, "job-1")
      assert.strictEqual(network.counts.connections, 1)
    })
  )

  it.effect("without SESSION_OPEN: the service is rid of the trainer, and takes the next one", () =>
    Effect.gen(function* () {
      const network = yield* makeNetwork
      const service = yield* network.listen("site-1.job-1")
      assert.strictEqual((yield* failing(network.attach))._tag, "NoSession")
      assert.deepStrictEqual(yield* service.peers, [])
      yield* network.assertNothingLeft

      const fiber = yield* Effect.forkChild(network.attach)
      yield* settle
      yield* service.request(trainerFqcn, ClientApi.Topic.sessionOpen, openBody(), { timeout: 2000, mode: "plain" })
      const session = yield* Fiber.join(fiber)
      assert.strictEqual(session.jobId, "job-1")
    })
  )

  it.effect("at another site's cell, and when it is interrupted: the same", () =>
    Effect.gen(function* () {
      const network = yield* makeNetwork
      yield* network.listen("site-2.job-1")
      const reason = yield* failing(network.attach)
      assert.strictEqual(reason._tag === "RouteFailed" ? reason.kind : reason._tag, "WrongParent")
      yield* network.assertNothingLeft

      const fiber = yield* Effect.forkChild(network.attach)
      yield* Effect.yieldNow
      yield* Fiber.interrupt(fiber)
      yield* network.assertNothingLeft
    })
  )
})
