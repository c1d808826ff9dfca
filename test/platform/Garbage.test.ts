import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { collectArrays } from "../../src/platform/Garbage.ts"

describe("collectArrays", () => {
  it.effect("takes no memory itself, however much has been let go", () =>
    Effect.gen(function* () {
      const before = process.memoryUsage().arrayBuffers
      for (const bytes of [0, 2 ** 27, Number.MAX_SAFE_INTEGER]) yield* collectArrays(bytes)
      assert.isBelow(process.memoryUsage().arrayBuffers - before, 2 ** 26)
    })
  )
})
