import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import * as Cell from "../../src/cell/Cell.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import type { FrameInfo } from "../../src/transport/MemoryDriver.ts"

const url = "memory://b"
const address = { channel: "chat", topic: "t" }

/** Two cells on a network; `ask` sends one request and says how often it came, when, and how it ended. */
const makePair = Effect.fnUntraced(function* (network: MemoryNetwork.NetworkOptions) {
  const services = yield* Layer.build(MemoryNetwork.layer(network))
  const make = (fqcn: string) => Effect.provide(Cell.make({ fqcn, byeTimeout: 0 }), services)
  const listener = yield* make("b")
  yield* listener.listen(url)
  const heard: Array<unknown> = []
  yield* listener.handle(address, ({ payload }) =>
    Effect.sync(() => {
      heard.push(payload)
      return { returnCode: "ok" }
    })
  )
  const dialer = yield* make("a")
  yield* dialer.connect(url)
  yield* MemoryNetwork.settle
  const ask = (payload: string) =>
    Effect.forkChild(Effect.result(dialer.request("b", address, payload, { timeout: 1000, mode: "plain" })))
  return { ask, heard }
})

const frame = (index: number): FrameInfo => ({ from: "active", url, link: 0, index, bytes: new Uint8Array() })

describe("MemoryNetwork", () => {
  it.effect("outages lose, cut, freeze and restore, to the millisecond", () =>
    Effect.gen(function* () {
      const outages = MemoryNetwork.makeOutages()
      const { ask, heard } = yield* makePair({ faults: outages.faults })
      yield* outages.lose(url)
      const lost = yield* ask("lost")
      yield* MemoryNetwork.advance(1000)
      assert.strictEqual((yield* Fiber.join(lost))._tag, "Failure")
      yield* outages.restore(url)
      assert.strictEqual((yield* Fiber.join(yield* ask("well")))._tag, "Success")

      yield* outages.freeze(url, 500)
      const held = yield* ask("held")
      yield* MemoryNetwork.advance(499)
      yield* MemoryNetwork.settle
      assert.deepStrictEqual(heard, ["well"])
      yield* MemoryNetwork.advance(1)
      assert.strictEqual((yield* Fiber.join(held))._tag, "Success")

      yield* outages.cut(url)
      const cut = yield* ask("cut")
      yield* MemoryNetwork.advance(1000)
      assert.strictEqual((yield* Fiber.join(cut))._tag, "Failure")
      assert.deepStrictEqual(heard, ["well", "held"])
    })
  )

  it.effect("outages of one URL leave others alone", () =>
    Effect.gen(function* () {
      const outages = MemoryNetwork.makeOutages()
      yield* outages.lose("memory://elsewhere")
      assert.strictEqual(yield* outages.faults.onFrame(frame(0)), "deliver")
    })
  )

  it.effect("seeded faults: the same seed gives the same fate to each frame, in its share", () =>
    Effect.gen(function* () {
      const rates = { seed: 7, drop: 0.1, duplicate: 0.1, cut: 0.1, delay: 0.2, maxDelay: "2 seconds" } as const
      const draw = (seed: number) =>
        Effect.forEach(
          Array.from({ length: 2000 }, (_, index) => frame(index)),
          MemoryNetwork.seededFaults({ ...rates, seed }).onFrame
        )
      const fates = yield* draw(7)
      assert.deepStrictEqual(yield* draw(7), fates)
      assert.notDeepEqual(yield* draw(8), fates)
      const share = (kind: string) =>
        fates.filter((fate) => (typeof fate === "string" ? fate : "delay") === kind).length / fates.length
      for (const [kind, expected] of Object.entries({
        drop: 0.1,
        duplicate: 0.1,
        close: 0.05,
        last: 0.05,
        delay: 0.2,
        deliver: 0.5
      })) {
        assert.approximately(share(kind), expected, 0.03, kind)
      }
    })
  )

  it.effect("a duplicated frame is heard twice by a cell's plain handler", () =>
    Effect.gen(function* () {
      let fate: "deliver" | "duplicate" = "deliver"
      const { ask, heard } = yield* makePair({ faults: { onFrame: () => Effect.sync(() => fate) } })
      fate = "duplicate"
      assert.strictEqual((yield* Fiber.join(yield* ask("twice")))._tag, "Success")
      yield* MemoryNetwork.settle
      assert.deepStrictEqual(heard, ["twice", "twice"])
    })
  )
})
