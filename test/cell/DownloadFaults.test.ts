import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Result } from "effect"
import { TestClock } from "effect/testing"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import { clean, dict, duo } from "./downloads.ts"
import { chat, settle, until } from "./support.ts"
import { freshSeed } from "./wire.ts"

const arrays = (round: number) =>
  Object.fromEntries(
    [10, 5000, 40_000, 3].map((count, i) => [
      `p${i}`,
      NdArray.fromTyped(Float32Array.from({ length: count }, (_, at) => round + at))
    ])
  )

const downloads = { requestTimeout: "10 seconds", chunkSize: 30_000, threshold: 0 } as const

/** A model each way over a bad network, as often as is said, each sent again until it is there. */
const play = Effect.fnUntraced(function* (rates: MemoryNetwork.FaultRates, rounds: number) {
  const { server, site } = yield* duo({
    network: { latency: "20 millis", faults: MemoryNetwork.seededFaults(rates) },
    server: { downloads },
    site: { downloads }
  })
  const taken = new Set<string>()
  for (const engine of [server, site]) {
    yield* engine.cell.handle(chat("model"), ({ origin, payload }) =>
      Effect.sync(() => {
        assert.instanceOf(payload, Map)
        const round = Number(payload.get("round"))
        for (const [name, array] of Object.entries(arrays(round))) {
          const got = payload.get(name)
          assert.instanceOf(got, NdArray)
          assert.deepStrictEqual(Result.getOrThrow(got.toTyped()), Result.getOrThrow(array.toTyped()))
        }
        taken.add(`${round} of ${origin}`)
        return { returnCode: "ok" }
      })
    )
  }
  const send = (from: typeof server, to: string, round: number) =>
    Effect.gen(function* () {
      yield* until(from.cell, to)
      const offer = yield* from.cell.offer({ receivers: [to] })
      yield* from.cell.request(to, chat("model"), dict({ round, ...arrays(round) }), {
        timeout: "60 seconds",
        references: offer.references
      })
    }).pipe(Effect.scoped, Effect.retry({ times: 200 }))
  for (let round = 0; round < rounds; round += 1) {
    yield* send(server, "site-1", round)
    yield* send(site, "server", round)
  }
  assert.strictEqual(taken.size, 2 * rounds)
  // What was given up is over, too, once its times have passed.
  yield* Effect.sleep("5 minutes")
  const none = { offered: 0, fetched: 0 }
  assert.deepStrictEqual([server.downloads.inUse(), site.downloads.inUse()], [none, none])
})

/** Moves the clock until all is over and closed. */
const simulate = Effect.fnUntraced(function* (rates: MemoryNetwork.FaultRates, rounds: number) {
  const playing = yield* Effect.forkScoped(Effect.scoped(play(rates, rounds)), { startImmediately: true })
  for (let seconds = 0; playing.pollUnsafe() === undefined; seconds += 1) {
    assert.isBelow(seconds, 50_000, "it goes on for ever")
    yield* settle
    yield* TestClock.adjust("1 second")
  }
  yield* Fiber.join(playing)
})

describe("downloads over a bad network", () => {
  for (const rates of [
    { drop: 0.03 },
    { cut: 0.01 },
    { delay: 0.3 },
    { duplicate: 0.2 },
    { drop: 0.01, cut: 0.005, delay: 0.1 }
  ]) {
    const seed = freshSeed()
    it.effect(`bring every model, whole, and leave nothing: ${JSON.stringify(rates)} (SEED=${seed})`, () =>
      clean(simulate({ seed, ...rates }, 4))
    )
  }
})
