/** The messages that docs/operations.md explains are those that the source has. */
import { globSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"

const root = join(import.meta.dirname, "../..")
const source = globSync("src/**/*.ts", { cwd: root })
  .map((name) => readFileSync(join(root, name), "utf8"))
  .join("\n")

const [, table = ""] = readFileSync(join(root, "docs/operations.md"), "utf8").split(
  "## What is said, why, and what to do"
)

const rows = table.split("\n").filter((line) => line.startsWith("| ") && line.includes("`"))

describe("docs/operations.md", () => {
  it("has no message that nobody says", () => {
    assert.isAbove(rows.length, 20)
    for (const row of rows) {
      const [, said = ""] = row.split("|")
      const messages = [...said.matchAll(/`([^`]+)`/g)].map(([, message = ""]) => message)
      assert.isNotEmpty(messages, row)
      // Three dots stand for what differs from time to time.
      for (const part of messages.flatMap((message) => message.split("...")).map((piece) => piece.trim())) {
        assert.isTrue(source.includes(part), `nobody says "${part}": ${row}`)
      }
    }
  })
})
