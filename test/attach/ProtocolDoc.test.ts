import { globSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SessionState } from "../../src/attach/SessionState.ts"

const doc = readFileSync(new URL("../../docs/protocol.md", import.meta.url), "utf8")
const tests = join(import.meta.dirname, "..")
const sourceOf = (file: string) => readFileSync(join(tests, `${file}.test.ts`), "utf8")

/** What each row names: `[number, file, name]`. */
const named = [...doc.matchAll(/^\| 16\.(\d+) (.*)$/gm)].flatMap(([, number, row = ""]) =>
  [...row.matchAll(/([\w/]+): `([^`]*)`/g)].map(([, file = "", name = ""]) => [Number(number), file, name] as const)
)

/** The tests that carry numbers of behaviours. */
const numbered = globSync("**/*.test.ts", { cwd: tests }).flatMap((path) => {
  const file = path.slice(0, -".test.ts".length)
  if (file === "attach/ProtocolDoc") return []
  return [...sourceOf(file).matchAll(/["`]((?:16\.\d+ )+[^"`]*)["`]/g)].flatMap(([, name = ""]) => {
    const [numbers = ""] = /^(?:16\.\d+ )+/.exec(name) ?? []
    return [...numbers.matchAll(/16\.(\d+)/g)].map(([, number]) => [Number(number), file, name] as const)
  })
})

describe("docs/protocol.md", () => {
  it.effect("its first diagram has the states that a session has", () =>
    Effect.sync(() => {
      const diagram = /```mermaid\n([\s\S]*?)```/.exec(doc)?.[1] ?? ""
      const states = new Set([...diagram.matchAll(/(\w+) -->|--> (\w+)/g)].map(([, from, to]) => from ?? to))
      assert.deepStrictEqual([...states].sort(), Object.keys(SessionState.cases).sort())
    })
  )

  it.effect("each of the 82 behaviours has its row, and each test in it exists", () =>
    Effect.sync(() => {
      const all = Array.from({ length: 82 }, (_, index) => index + 1)
      assert.deepStrictEqual([...new Set(named.map(([number]) => number))], all)
      for (const [number, file, name] of named) {
        const source = sourceOf(file)
        assert.isTrue(
          [`"${name}"`, `\`${name}\``].some((text) => source.includes(text)),
          `16.${number}: ${file}: ${name}`
        )
      }
    })
  )

  it.effect("each test that carries a behaviour's number is in its row", () =>
    Effect.sync(() => {
      const rows = new Set(named.map((each) => JSON.stringify(each)))
      const missing = numbered.filter((each) => !rows.has(JSON.stringify(each)))
      assert.deepStrictEqual(missing, [])
      assert.isAbove(numbered.length, 100)
    })
  )

  it.effect("each of the 16 weaknesses says what it became", () =>
    Effect.sync(() => {
      const [, table = ""] = doc.split("### Better than the reference, on the same wire")
      const numbers = [...table.matchAll(/^\| (\d+) [^|]+\| [^|]+\|/gm)].map(([, number]) => Number(number))
      assert.deepStrictEqual(
        numbers,
        Array.from({ length: 16 }, (_, index) => index + 1)
      )
    })
  )
})
