import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Scope } from "effect"
import { TestClock } from "effect/testing"
import { Drivers, type FrameLink } from "../../src/transport/Drivers.ts"
import * as MemoryDriver from "../../src/transport/MemoryDriver.ts"
import * as SharedFileDriver from "../../src/transport/SharedFileDriver.ts"
import { makeRandom } from "./support.ts"

const frame = (...bytes: ReadonlyArray<number>) => [Uint8Array.from(bytes)]

const makeLinks = Effect.fnUntraced(function* (options: MemoryDriver.NetworkOptions = {}) {
  const network = yield* MemoryDriver.makeNetwork(options)
  const listener = yield* network.listen("memory")
  const active = yield* network.connect(listener.connectUrl, { cn: "dialer" })
  return { active, passive: yield* listener.accept }
})

const collect = Effect.fnUntraced(function* (link: FrameLink) {
  const seen: Array<number | undefined> = []
  const fiber = yield* link.receive.pipe(
    Effect.map((frames) => seen.push(...frames.map((bytes) => bytes[0]))),
    Effect.forever,
    Effect.flip,
    Effect.forkScoped
  )
  return { seen, fiber }
})

describe("MemoryDriver", () => {
  it.effect("carries frames whole and in order, and hands out memory of its own", () =>
    Effect.gen(function* () {
      const { active, passive } = yield* makeLinks()
      const piece = Uint8Array.of(1, 2)
      yield* active.send([piece, Uint8Array.of(3)])
      piece.fill(9)
      yield* active.send(frame(4))
      assert.deepStrictEqual(yield* passive.receive, [Uint8Array.of(1, 2, 3), Uint8Array.of(4)])
      assert.strictEqual(passive.info.peerCommonName, "dialer")
      assert.isUndefined(active.info.peerCommonName)
      assert.strictEqual(passive.info.peerAddress, active.info.localAddress)
    })
  )

  it.effect("nobody there is NotReady, a name in use IoFailed, no name BadConfig", () =>
    Effect.gen(function* () {
      const network = yield* MemoryDriver.makeNetwork()
      assert.strictEqual((yield* Effect.flip(network.connect("memory://x"))).reason._tag, "NotReady")
      const scope = yield* Scope.make()
      yield* Scope.provide(network.listen("memory://x"), scope)
      const taken = yield* Effect.flip(network.listen("memory", { name: "x" }))
      assert.strictEqual(taken.reason._tag === "IoFailed" && taken.reason.code, "EADDRINUSE")
      assert.strictEqual((yield* Effect.flip(network.listen("memory://"))).reason._tag, "BadConfig")
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual((yield* Effect.flip(network.connect("memory://x"))).reason._tag, "NotReady")
      yield* network.listen("memory://x")
    })
  )

  it.effect("a closing listener ends its accept and the links nobody accepted", () =>
    Effect.gen(function* () {
      const network = yield* MemoryDriver.makeNetwork()
      const scope = yield* Scope.make()
      const listener = yield* Scope.provide(network.listen("memory://x"), scope)
      const active = yield* network.connect("memory://x")
      yield* Scope.close(scope, Exit.void)
      const { reason } = yield* Effect.flip(active.receive)
      assert.strictEqual(reason._tag === "ConnectionClosed" && reason.by, "peer")
      assert.strictEqual((yield* Effect.flip(listener.accept)).reason._tag, "ConnectionClosed")
    })
  )

  it.effect("latency is exact, for frames and for the close", () =>
    Effect.gen(function* () {
      const network = yield* MemoryDriver.makeNetwork({ latency: "30 millis" })
      const listener = yield* network.listen("memory://x")
      const scope = yield* Scope.make()
      const active = yield* Scope.provide(network.connect("memory://x"), scope)
      const { fiber, seen } = yield* collect(yield* listener.accept)
      yield* active.send(frame(1))
      yield* TestClock.adjust(10)
      yield* active.send(frame(2))
      yield* Scope.close(scope, Exit.void)
      yield* TestClock.adjust(19)
      assert.deepStrictEqual(seen, [])
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(seen, [1])
      yield* TestClock.adjust(9)
      assert.isUndefined(fiber.pollUnsafe())
      assert.deepStrictEqual(seen, [1])
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(seen, [1, 2])
      const { reason } = yield* Fiber.join(fiber)
      assert.strictEqual(reason._tag === "ConnectionClosed" && reason.by, "peer")
    })
  )

  it.effect("faults drop, delay and cut, each direction by itself", () =>
    Effect.gen(function* () {
      const asked: Array<string> = []
      const onFrame = ({ bytes, from, index, link }: MemoryDriver.FrameInfo) => {
        asked.push(`${link} ${from} ${index}`)
        const verdicts: ReadonlyArray<MemoryDriver.Verdict> = ["deliver", "drop", { delay: "50 millis" }, "close"]
        return Effect.succeed(verdicts[bytes[0] ?? 0] ?? "deliver")
      }
      const { active, passive } = yield* makeLinks({ latency: "10 millis", faults: { onFrame } })
      const atPassive = yield* collect(passive)
      const atActive = yield* collect(active)
      yield* active.send(frame(0))
      yield* active.send(frame(1))
      yield* active.send(frame(2))
      yield* active.send(frame(9))
      yield* passive.send(frame(0))
      yield* TestClock.adjust(59)
      assert.deepStrictEqual(atPassive.seen, [0, 9])
      assert.deepStrictEqual(atActive.seen, [0])
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(atPassive.seen, [0, 9, 2])
      assert.strictEqual((yield* Effect.flip(active.send(frame(3)))).reason._tag, "ConnectionClosed")
      for (const { fiber } of [atActive, atPassive]) {
        const { reason } = yield* Fiber.join(fiber)
        assert.strictEqual(reason._tag === "ConnectionClosed" && reason.by, "io")
      }
      assert.deepStrictEqual(asked, [
        "0 active 0",
        "0 active 1",
        "0 active 2",
        "0 active 3",
        "0 passive 0",
        "0 active 4"
      ])
    })
  )

  it.effect("a cut right behind a frame: it arrives, though its sender is told that it failed", () =>
    Effect.gen(function* () {
      const onFrame = () => Effect.succeed("last" as const)
      const { active, passive } = yield* makeLinks({ latency: "10 millis", faults: { onFrame } })
      const atPassive = yield* collect(passive)
      assert.strictEqual((yield* Effect.flip(active.send(frame(1)))).reason._tag, "ConnectionClosed")
      yield* TestClock.adjust(10)
      assert.deepStrictEqual(atPassive.seen, [1])
      assert.strictEqual((yield* Fiber.join(atPassive.fiber)).reason._tag, "ConnectionClosed")
    })
  )

  it.effect("nothing is lost or reordered, however the senders' waits fall", () =>
    Effect.gen(function* () {
      const random = makeRandom(77)
      const { active, passive } = yield* makeLinks({ latency: "7 millis" })
      const count = 200
      const pump = Effect.fnUntraced(function* (link: FrameLink) {
        for (let index = 0; index < count; index++) {
          yield* link.send(frame(index))
          yield* Effect.sleep(random(5))
        }
      })
      const atActive = yield* collect(active)
      const atPassive = yield* collect(passive)
      yield* Effect.forkScoped(Effect.all([pump(active), pump(passive)], { concurrency: "unbounded" }))
      yield* TestClock.adjust("2 seconds")
      const expected = Array.from({ length: count }, (_, index) => index)
      assert.deepStrictEqual(atActive.seen, expected)
      assert.deepStrictEqual(atPassive.seen, expected)
    })
  )

  it.effect("Drivers.layer finds drivers by scheme, in any case", () =>
    Effect.gen(function* () {
      const drivers = yield* Drivers
      const driver = yield* drivers.forUrl("MEMORY://x")
      assert.deepStrictEqual(driver.schemes, ["memory"])
      assert.strictEqual(yield* drivers.forUrl("memory"), driver)
      const error = yield* Effect.flip(drivers.forUrl("tcp://localhost:1"))
      assert.strictEqual(error.reason._tag, "BadConfig")
      assert.include(error.message, "memory")
    }).pipe(Effect.provide(MemoryDriver.layer()))
  )

  it.effect("Drivers.layerScoped holds several", () =>
    Effect.gen(function* () {
      const drivers = yield* Drivers
      assert.deepStrictEqual((yield* drivers.forUrl("shared-file://0/a")).schemes, ["shared-file"])
      assert.deepStrictEqual((yield* drivers.forUrl("memory://a")).schemes, ["memory"])
    }).pipe(Effect.provide(Drivers.layerScoped([MemoryDriver.makeNetwork(), SharedFileDriver.make()])))
  )
})
