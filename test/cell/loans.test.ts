import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { chat, echo, makeFamily, settle } from "./support.ts"

const mebi = 1024 * 1024

describe("frames that are lent", () => {
  it.effect("come back, whatever carries them: streams, plain messages, and both passed on by a third cell", () =>
    Effect.gen(function* () {
      const { job, loans, trainer } = yield* makeFamily()
      yield* trainer.cell.handle(chat("echo"), echo)
      const payload = new Uint8Array(5 * mebi).map((_, at) => at % 251)
      for (let round = 1; round <= 4; round++) {
        for (const mode of ["stream", "plain"] as const) {
          const target = trainer.cell.fqcn
          const reply = yield* job.cell.request(target, chat("echo"), payload, { timeout: "10 seconds", mode })
          assert.strictEqual(Buffer.compare(reply.payload as Uint8Array, payload), 0, `${mode}, round ${round}`)
        }
        assert.strictEqual(loans.open, 0, `round ${round}`)
        // Both ways, over two links each: five or six chunks, and one message.
        assert.isAtLeast(loans.returned, round * 24)
      }
    })
  )

  it.effect("come back when nobody takes what they carry", () =>
    Effect.gen(function* () {
      const { job, loans, trainer } = yield* makeFamily()
      const payload = new Uint8Array(2 * mebi)
      for (const mode of ["stream", "plain"] as const) {
        const request = { timeout: "10 seconds", mode } as const
        yield* Effect.exit(job.cell.request(trainer.cell.fqcn, chat("unknown"), payload, request))
      }
      assert.strictEqual(loans.open, 0)
      assert.isAbove(loans.returned, 0)
    })
  )

  it.effect("stay away when the connection that they were passed on to ends: their bytes may be on its way", () =>
    Effect.gen(function* () {
      const { job, loans, trainer } = yield* makeFamily()
      const payload = new Uint8Array(3 * mebi).fill(0x41)
      yield* trainer.cell.handle(chat("echo"), echo)
      for (const mode of ["stream", "plain"] as const) {
        // What the job sends reaches the parent; what the parent sends on does not reach the trainer.
        let sent = 0
        const ending: Array<ReadonlyArray<Uint8Array>> = []
        loans.isCutShort = (pieces) => {
          sent += 1
          if (sent === 1) return false
          ending.push(pieces)
          return true
        }
        const request = { timeout: "1 second", mode } as const
        const asked = yield* Effect.forkChild(job.cell.request(trainer.cell.fqcn, chat("echo"), payload, request))
        yield* TestClock.adjust("2 seconds")
        yield* Fiber.await(asked)
        assert.isNotEmpty(ending, mode)
        for (const pieces of ending)
          assert.isTrue(
            pieces.at(-1)?.every((byte) => byte === 0x41),
            mode
          )
        loans.isCutShort = undefined
        yield* settle
      }
    })
  )
})
