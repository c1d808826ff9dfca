import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Fiber } from "effect"
import * as TcpDriver from "../../src/transport/TcpDriver.ts"
import { anyFault, type Fault, makeFaultProxy } from "../support/faultProxy.ts"
import { connectAs, frameOf, makePair, portOf, receiveFrames, serveAs } from "./net.ts"
import { makeRandom, silently } from "./support.ts"

const patient = TcpDriver.make({ sendTimeout: "600 millis", closeTimeout: "100 millis" })

/** Both ends of a connection by way of a proxy. */
const pairBehind = Effect.fnUntraced(function* (fault: Fault) {
  const listener = yield* patient.listen("tcp://127.0.0.1:0")
  const proxy = yield* makeFaultProxy({ port: portOf(listener.connectUrl), plan: () => fault })
  return { ...(yield* makePair(patient, listener, proxy.through(listener.connectUrl))), proxy }
})

/** The same after a first small frame: before it no large one is taken. */
const greetedBehind = Effect.fnUntraced(function* (fault: Fault) {
  const pair = yield* pairBehind(fault)
  yield* pair.active.send([frameOf(16, 0)])
  yield* receiveFrames(pair.passive, 1)
  return pair
})

describe("TCP through faults", () => {
  it.live("a slow peer that takes something is no dead one, however long a frame takes", () =>
    Effect.gen(function* () {
      // Far more than the system's buffers hold, at a rate at which it takes several times the deadline.
      const { active, passive } = yield* greetedBehind({ kind: "throttle", bytesPerSecond: 12_000_000 })
      const frame = frameOf(24 * 1024 * 1024, 5)
      const receiving = yield* Effect.forkScoped(receiveFrames(passive, 1))
      const [took] = yield* Effect.timed(active.send([frame]))
      assert.isAbove(Duration.toMillis(took), 600)
      const [received] = yield* Fiber.join(receiving)
      assert.isTrue(Buffer.from(received ?? new Uint8Array(0)).equals(frame))
    })
  )

  it.live("a frame that is interrupted on its way still goes out whole", () =>
    Effect.gen(function* () {
      const { active, passive } = yield* greetedBehind({ kind: "throttle", bytesPerSecond: 30_000_000 })
      const sending = yield* Effect.forkScoped(active.send([frameOf(24 * 1024 * 1024, 1)]))
      yield* Effect.sleep("50 millis")
      yield* Fiber.interrupt(sending)
      yield* Effect.forkScoped(active.send([frameOf(100, 2)]))
      const frames = yield* receiveFrames(passive, 2)
      assert.deepStrictEqual(
        frames.map((bytes) => [bytes.length, bytes[20]]),
        [
          [24 * 1024 * 1024, 1],
          [100, 2]
        ]
      )
    })
  )

  it.live("what was received before a cut comes out, then the reason", () =>
    Effect.gen(function* () {
      for (const reset of [false, true]) {
        const { active, passive } = yield* pairBehind({ kind: "cut", at: 1050, reset })
        yield* Effect.forEach([1, 2, 3], (mark) => Effect.ignore(active.send([frameOf(500, mark)])))
        // A reset may overtake what was sent.
        if (!reset) assert.strictEqual((yield* receiveFrames(passive, 2)).length, 2)
        const { reason } = yield* Effect.flip(Effect.forever(passive.receive))
        assert.deepInclude(reason, { _tag: "ConnectionClosed", by: "peer" })
      }
    })
  )

  it.live("closing does not wait for ever for a peer that takes nothing", () =>
    Effect.gen(function* () {
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { active } = yield* pairBehind({ kind: "blackHole", at: 0 })
          yield* Effect.forkScoped(active.send([frameOf(64 * 1024 * 1024, 1)]))
          yield* Effect.sleep("20 millis")
        })
      ).pipe(Effect.timeout("10 seconds"))
    })
  )

  it.live("any fault ends in frames as they were sent, in order, or in a typed end", () =>
    Effect.gen(function* () {
      const seed = 20261129
      const random = makeRandom(seed)
      const count = 40
      const run = Effect.fnUntraced(function* (round: number) {
        const fault = anyFault(random, 200_000)
        const { active, passive } = yield* pairBehind(fault)
        const sending = yield* Effect.forkScoped(
          Effect.ignore(
            Effect.forEach(
              Array.from({ length: count }, (_, index) => index),
              (index) => active.send([frameOf(5000, index)])
            )
          )
        )
        const marks: Array<number | undefined> = []
        const receiving = Effect.gen(function* () {
          while (marks.length < count) marks.push(...(yield* passive.receive).map((bytes) => bytes[20]))
        })
        // Silence has no end of its own at this floor.
        const isSilent = fault.kind === "blackHole" || fault.kind === "halfOpen"
        const outcome = yield* Effect.result(isSilent ? Effect.timeoutOption(receiving, "300 millis") : receiving)
        yield* Fiber.interrupt(sending)
        const what = `round ${round}, ${JSON.stringify(fault)}, seed ${seed}`
        assert.deepStrictEqual(
          marks,
          marks.map((_, index) => index),
          what
        )
        const isWhole = fault.kind === "none" || fault.kind === "delay" || fault.kind === "throttle"
        if (isWhole) assert.strictEqual(marks.length, count, what)
        if (outcome._tag === "Failure") assert.strictEqual(outcome.failure.reason._tag, "ConnectionClosed", what)
      })
      yield* Effect.forEach(
        Array.from({ length: 24 }, (_, index) => index),
        (round) => Effect.scoped(run(round)),
        { concurrency: 4 }
      )
    })
  )

  it.live("a listener goes on through all of that", () =>
    Effect.gen(function* () {
      const seed = 7
      const random = makeRandom(seed)
      const listener = yield* patient.listen("tcp://127.0.0.1:0")
      yield* silently(serveAs("site-1", listener))
      const proxy = yield* makeFaultProxy({
        port: portOf(listener.connectUrl),
        plan: () => anyFault(random, 300)
      })
      yield* Effect.forEach(
        Array.from({ length: 30 }, (_, index) => index),
        (index) =>
          connectAs(patient, proxy.through(listener.connectUrl), `site-1.c${index}`).pipe(
            Effect.timeoutOption("300 millis"),
            Effect.scoped,
            Effect.ignore
          ),
        { concurrency: 10 }
      )
      const next = yield* connectAs(patient, listener.connectUrl, "site-1.next")
      assert.strictEqual(next.peer, "site-1", `seed ${seed}`)
    }).pipe(silently)
  )
})
