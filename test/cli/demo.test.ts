import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { start, temporaryFolder } from "./support.ts"

const program = join(import.meta.dirname, "../../docs/examples/digits/main.ts")

/** The demo in a folder of its own for temporary files. */
const demoIn = (folder: string, args: ReadonlyArray<string>) => start(args, program, { TMPDIR: folder })

const trainersOf = (stdout: string): ReadonlyArray<string> =>
  Array.from(stdout.matchAll(/process (\d+)/g), ([, pid]) => pid ?? "")

describe("the demo", () => {
  it.live("trains two processes' digits into one model, and leaves nothing", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const { code, stderr, stdout } = yield* Effect.flatMap(demoIn(folder, ["--json"]), ({ ended }) => ended)
      assert.deepStrictEqual([code, stderr], [0, ""])
      const last = JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "")
      assert.hasAllKeys(last, ["rounds", "trainers", "accuracy", "seconds"])
      assert.isAtLeast(last.rounds, 3)
      assert.strictEqual(last.trainers, 2)
      assert.isAtLeast(last.accuracy, 0.8)
      assert.lengthOf(stdout.match(/of held-out digits/g) ?? [], last.rounds)
      assert.deepStrictEqual(readdirSync(folder), [])
      // Not even a zombie: the demo waits for its trainers.
      assert.lengthOf(trainersOf(stdout), 2)
      for (const pid of trainersOf(stdout)) assert.isFalse(existsSync(`/proc/${pid}`))
    })
  )

  it.live("ends its trainers and removes its folder on SIGINT", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const demo = yield* demoIn(folder, [])
      yield* demo.printed("both have attached")
      yield* demo.kill("SIGINT")
      const { code, stdout } = yield* demo.ended
      assert.strictEqual(code, 130)
      assert.lengthOf(trainersOf(stdout), 2)
      for (const pid of trainersOf(stdout)) assert.isFalse(existsSync(`/proc/${pid}`))
      assert.deepStrictEqual(readdirSync(folder), [])
    })
  )
})
