import { assert, describe, it } from "@effect/vitest"
import { Clock, Duration, Effect, Exit, Fiber, Layer, Scope } from "effect"
import { TestClock } from "effect/testing"
import { attachError, RouteFailed } from "../../src/attach/AttachError.ts"
import { AttachRoute } from "../../src/attach/AttachRoute.ts"
import * as Cell from "../../src/cell/Cell.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { AttachFleet } from "../../src/service/AttachFleet.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import { adding, layerFleet } from "./fleetSupport.ts"

/** A trainer that accepts every session and never answers SHUTDOWN. */
const deaf = Effect.fn("deaf")(function* (attachId: string) {
  const cell = yield* Cell.make({ fqcn: `site-1.-client_api_${attachId}` })
  yield* cell.handle(ClientApi.Topic.sessionOpen, ({ payload }) =>
    Effect.succeed({
      returnCode: "ok",
      payload: new Map<string, unknown>([
        ["reply_topic", "client_api.session_accepted"],
        ["session_id", payload instanceof Map ? payload.get("session_id") : null],
        ["protocol_version", 1]
      ])
    })
  )
  yield* cell.handle(ClientApi.Topic.shutdown, () => Effect.never)
  yield* cell.connect("memory://service")
})

describe("a fleet", () => {
  it.effect("closes its backends at the same time, not one after the other", () =>
    Effect.gen(function* () {
      const ids = ["a", "b", "c"]
      const scope = yield* Scope.make()
      const services = yield* Layer.buildWithScope(layerFleet, scope)
      yield* Effect.gen(function* () {
        for (const id of ids) yield* deaf(id)
        const fleet = yield* AttachFleet
        for (const attachId of ids) yield* fleet.get({ attachId, controlTimeout: "2 seconds" })
        yield* TestClock.adjust("3 seconds")
        for (const attachId of ids) {
          const backend = yield* fleet.get({ attachId, controlTimeout: "2 seconds" })
          assert.strictEqual((yield* backend.session)._tag, "Ready")
        }
      }).pipe(Effect.provide(services))
      const before = yield* Clock.currentTimeMillis
      yield* Scope.close(scope, Exit.void)
      // One SHUTDOWN waits for two seconds in vain; three of them, in turn, for six.
      assert.isBelow((yield* Clock.currentTimeMillis) - before, 4000)
    })
  )

  it.effect("releases one and keeps the other", () =>
    Effect.gen(function* () {
      const a = yield* TestTrainer.start({ attachId: "a" }, adding(1))
      const b = yield* TestTrainer.start({ attachId: "b" }, adding(1))
      const fleet = yield* AttachFleet
      const first = yield* fleet.get({ attachId: "a" })
      const second = yield* fleet.get({ attachId: "b" })
      yield* TestClock.adjust("1 second")
      const releasing = yield* Effect.forkChild(fleet.release("a"))
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.join(releasing)
      yield* Fiber.join(a)
      assert.strictEqual((yield* first.session)._tag, "Closed")
      assert.strictEqual((yield* second.session)._tag, "Ready")
      assert.isUndefined(b.pollUnsafe())
      // The id is free again, for other options, too.
      const again = yield* fleet.get({ attachId: "a", allowReconnect: true })
      assert.strictEqual((yield* again.session)._tag, "Opening")
      yield* fleet.release("nobody")
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("gives the same backend for the same options, and refuses others", () =>
    Effect.gen(function* () {
      const fleet = yield* AttachFleet
      const [one, two] = yield* Effect.all(
        [
          fleet.get({ attachId: "a", heartbeatTimeout: "9 seconds" }),
          fleet.get({ attachId: "a", heartbeatTimeout: "9 seconds" })
        ],
        { concurrency: "unbounded" }
      )
      assert.strictEqual(one, two)
      const same = yield* fleet.get({ attachId: "b", heartbeatTimeout: Duration.seconds(9) })
      assert.strictEqual(yield* fleet.get({ attachId: "b", heartbeatTimeout: Duration.seconds(9) }), same)
      const refused = yield* Effect.flip(fleet.get({ attachId: "a", heartbeatTimeout: "10 seconds" }))
      assert.include(refused.message, '"a" is in use with other options')
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("forgets a build that failed, and the others never notice", () => {
    let tries = 0
    const flaky = Layer.succeed(
      AttachRoute,
      AttachRoute.of({
        open: ({ attachId }) =>
          attachId === "a" && tries++ === 0
            ? Effect.fail(attachError(new RouteFailed({ attachId, kind: "ClaimHeld", message: "held by another" })))
            : Effect.succeed({ secure: false, direct: true, connectUrl: "memory://service" })
      })
    )
    const services = AttachFleet.layer().pipe(
      Layer.provide(flaky),
      Layer.provideMerge(Cell.layer({ fqcn: "site-1.job-1" })),
      Layer.provideMerge(MemoryNetwork.layer())
    )
    return Effect.gen(function* () {
      const fleet = yield* AttachFleet
      const [a, b] = yield* Effect.all(
        [Effect.result(fleet.get({ attachId: "a" })), Effect.result(fleet.get({ attachId: "b" }))],
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual([a._tag, b._tag], ["Failure", "Success"])
      const again = yield* fleet.get({ attachId: "a" })
      assert.strictEqual((yield* again.session)._tag, "Opening")
      assert.strictEqual(tries, 2)
    }).pipe(Effect.provide(services))
  })
})
