import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Scope } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import { collectGarbage } from "../support/garbage.ts"
import { chat, makeFamily } from "./support.ts"

const floats = (count: number, first = 0) =>
  NdArray.fromTyped(Float32Array.from({ length: count }, (_, i) => first + i))

describe("downloads between cells", () => {
  it.effect("arrays above the threshold are fetched, the rest travels inline", () =>
    Effect.gen(function* () {
      const { job, parent } = yield* makeFamily()
      const seen: Array<unknown> = []
      yield* parent.cell.handle(chat("model"), (request) => {
        seen.push(request.payload)
        return Effect.succeed({ returnCode: "ok", payload: "got it" })
      })
      const big = floats(20_000)
      const small = floats(10)
      const tensor = new Tensor("BF16", [3, 20_000], new Uint8Array(120_000).fill(7))
      const scope = yield* Scope.make()
      const offer = yield* Scope.provide(job.cell.offer({ receivers: ["site-1"] }), scope)
      const reply = yield* job.cell.request(
        "site-1",
        chat("model"),
        new Map<string, unknown>([
          ["big", big],
          ["again", big],
          ["small", small],
          ["tensor", tensor]
        ]),
        { timeout: "10 seconds", references: offer.references }
      )
      assert.strictEqual(reply.payload, "got it")
      const outcome = yield* offer.outcome
      assert.deepInclude(outcome, { status: "completed", reason: "all_receivers_succeeded", doneStatus: "finished" })
      const model = seen[0]
      assert.instanceOf(model, Map)
      for (const [name, array] of [
        ["big", big],
        ["again", big],
        ["small", small]
      ] as const) {
        const got = model.get(name)
        assert.instanceOf(got, NdArray)
        assert.deepStrictEqual(Result.getOrThrow(got.toTyped()), Result.getOrThrow(array.toTyped()))
      }
      const got = model.get("tensor")
      assert.instanceOf(got, Tensor)
      assert.deepStrictEqual([got.dtype, got.shape, [...got.bytes]], ["BF16", [3, 20_000], [...tensor.bytes]])
      assert.strictEqual(yield* offer.hasTransfers, true)
    })
  )

  for (const chunkSize of [2 * 1024 * 1024, 0]) {
    it.effect(`a model is let go when its message is over (chunkSize ${chunkSize})`, () =>
      Effect.gen(function* () {
        const { job, parent } = yield* makeFamily()
        const alive: Array<WeakRef<ArrayBufferLike>> = []
        const watch = (array: unknown) => {
          assert.instanceOf(array, NdArray)
          alive.push(new WeakRef(array.bytes.buffer))
        }
        yield* parent.cell.handle(chat("model"), ({ payload }) =>
          Effect.sync(() => {
            watch(payload instanceof Map && payload.get("w"))
            return { returnCode: "ok", payload }
          })
        )
        const send = Effect.scoped(
          Effect.gen(function* () {
            const offer = yield* job.cell.offer({ receivers: ["site-1"], chunkSize })
            const array = floats(100_000)
            watch(array)
            const { payload } = yield* job.cell.request("site-1", chat("model"), new Map([["w", array]]), {
              timeout: "10 seconds",
              references: offer.references
            })
            watch(payload instanceof Map && payload.get("w"))
          })
        )
        // The last message may still be somebody's local variable; those before may not.
        yield* Effect.repeat(send, { times: 3 })
        yield* collectGarbage
        assert.lengthOf(alive, 12)
        assert.deepStrictEqual(
          alive.slice(0, 9).map((each) => each.deref() === undefined),
          new Array(9).fill(true)
        )
      })
    )
  }
})
