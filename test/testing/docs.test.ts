import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8")

describe("docs/testing.md", () => {
  it("shows the example that the tests run", () => {
    const page = read("docs/testing.md")
    const shown = /<!-- example: (\S+) -->\n```ts\n([\s\S]*?)```\n/.exec(page)
    assert.isNotNull(shown)
    assert.strictEqual(shown?.[2], read(String(shown?.[1])))
  })
})
