import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import type { Verdict } from "../../src/transport/MemoryDriver.ts"
import { advance, type Fields, makeJob, model, reasonOf, received, settle, silence, trainerFqcn } from "./support.ts"

const { Topic } = ClientApi

/** A trainer with a task in hand, on a network whose fate the test holds. */
const onNetwork = Effect.fnUntraced(function* (overrides: Fields = {}) {
  let verdict: Verdict = "deliver"
  const job = yield* makeJob({ network: { faults: { onFrame: () => Effect.sync(() => verdict) } } })
  const { session } = yield* job.attach(overrides)
  yield* job.task()
  received(yield* session.receive)
  const become = (next: Verdict) => {
    verdict = next
  }
  const down = Stream.runHead(Stream.filter(job.cell.connected(trainerFqcn), (up) => !up))
  return { job, session, become, down }
})

describe("a connection that is lost", () => {
  it.effect("a send waits until the connection is made anew, instead of losing both its tries at once", () =>
    Effect.gen(function* () {
      const { become, down, job, session } = yield* onNetwork({ heartbeat_interval: 1 })
      become("close")
      yield* advance("1 second")
      yield* down
      const sending = yield* Effect.forkChild(session.send(model(9)))
      yield* advance("3 seconds")
      assert.isUndefined(sending.pollUnsafe())
      assert.deepStrictEqual(job.heard(Topic.resultReady), [])
      become("deliver")
      yield* advance("20 seconds")
      yield* Fiber.join(sending)
      assert.strictEqual(job.heard(Topic.resultReady).length, 1)
    })
  )

  it.effect("a send without a connection ends with the lease", () =>
    Effect.gen(function* () {
      const { become, session } = yield* onNetwork({ heartbeat_interval: 1, heartbeat_timeout: 10 })
      become("close")
      yield* advance("1 second")
      const sending = yield* Effect.forkChild(reasonOf(session.send(model(9))))
      yield* advance(9000)
      yield* settle
      assert.isUndefined(sending.pollUnsafe())
      yield* advance(1)
      const reason = yield* Fiber.join(sending)
      assert.strictEqual(reason._tag === "SessionEnded" ? reason.by : reason._tag, "lease")
    })
  )

  it.effect("16.49 the settlement ends with the connection: the result is accepted, and nobody is there to tell", () =>
    Effect.gen(function* () {
      const { become, job, session } = yield* onNetwork({ heartbeat_interval: 1 })
      job.answer(Topic.resultSourceSettled, () => silence)
      const sending = yield* Effect.forkChild(session.send(model(9)))
      yield* job.message(Topic.resultSourceSettled)
      become("close")
      yield* advance("999 millis")
      yield* settle
      assert.isUndefined(sending.pollUnsafe())
      yield* advance(1)
      yield* Fiber.join(sending)
    })
  )

  it.effect("frames that vanish without a word are noticed by the lease alone", () =>
    Effect.gen(function* () {
      const { become, session } = yield* onNetwork({ heartbeat_interval: 5, heartbeat_timeout: 30 })
      become("drop")
      yield* advance(30_000)
      assert.isTrue(yield* session.isRunning)
      yield* advance(1)
      assert.isFalse(yield* session.isRunning)
      // A closing cell waits for the answer to its bye, and nobody moves the clock for it.
      become("deliver")
    })
  )
})
