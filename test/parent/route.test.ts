import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import { moving, startParent, startService, startTrainer, task, valuesOf } from "./support.ts"

describe("services and trainers below one parent", () => {
  it.effect("two services, two trainers each, rounds at once: each gets its own results", () =>
    Effect.gen(function* () {
      const parent = yield* startParent()
      const jobs = [
        { job: "job-1", ids: ["a", "b"] },
        { job: "job-2", ids: ["c", "d"] }
      ]
      for (const [index, id] of ["a", "b", "c", "d"].entries()) yield* startTrainer(id, index + 1)
      const services = yield* Effect.forEach(jobs, startService)
      const all = services.flatMap(({ backends }) => backends)
      for (let round = 0; round < 3; round += 1) {
        const results = yield* moving(
          Effect.forEach(
            all,
            (backend) => Effect.flatMap(task(round, [round, 0.5]), backend.execute).pipe(Effect.flatMap(valuesOf)),
            { concurrency: "unbounded" }
          )
        )
        assert.deepStrictEqual(
          results,
          all.map((_, index) => [round + index + 1, 0.5 + index + 1])
        )
      }
      const { children, upstream } = yield* parent.status
      assert.isUndefined(upstream)
      assert.deepStrictEqual(children.map(({ name }) => name).sort(), [
        "site-1.-client_api_a",
        "site-1.-client_api_b",
        "site-1.-client_api_c",
        "site-1.-client_api_d",
        "site-1.job-1",
        "site-1.job-2"
      ])
      for (const child of children) {
        assert.isAbove(child.framesReceived, 10, child.name)
        assert.isAbove(child.bytesSent, 1000, child.name)
        assert.strictEqual(child.bytesWaiting, 0)
      }
    }).pipe(Effect.provide(MemoryNetwork.layer()))
  )
})
