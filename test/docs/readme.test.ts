/**
 * The programs of the README are the examples that are type-checked and run.
 */
import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"

const root = join(import.meta.dirname, "../..")
const readme = readFileSync(join(root, "README.md"), "utf8")
const programs = [...readme.matchAll(/```ts\n([\s\S]*?)\n```/g)].map(([, code]) => code)

describe("README", () => {
  it.each([
    [0, "service.ts"],
    [1, "service.test.ts"]
  ] as const)("program %i is docs/examples/%s", (index, file) => {
    const source = readFileSync(join(root, "docs/examples", file), "utf8")
    assert.strictEqual(programs[index], source.slice(source.indexOf(" */\n") + 4).trim())
  })

  it("names documents that are there", () => {
    const paths = [...readme.matchAll(/\]\((docs\/[^)]*)\)/g)].map(([, path]) => path ?? "")
    assert.isAbove(paths.length, 5)
    assert.deepStrictEqual(
      paths.filter((path) => !existsSync(join(root, path))),
      []
    )
  })
})
