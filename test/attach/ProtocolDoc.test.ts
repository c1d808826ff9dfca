import { readdirSync, readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SessionState } from "../../src/attach/SessionState.ts"

const doc = readFileSync(new URL("../../docs/protocol.md", import.meta.url), "utf8")
const here = new URL(".", import.meta.url)

describe("docs/protocol.md", () => {
  it.effect("its first diagram has the states that a session has", () =>
    Effect.sync(() => {
      const diagram = /```mermaid\n([\s\S]*?)```/.exec(doc)?.[1] ?? ""
      const states = new Set([...diagram.matchAll(/(\w+) -->|--> (\w+)/g)].map(([, from, to]) => from ?? to))
      assert.deepStrictEqual([...states].sort(), Object.keys(SessionState.cases).sort())
    })
  )

  it.effect("the tests that it names exist, and it names each test that carries a behaviour's number", () =>
    Effect.sync(() => {
      const named = [...doc.matchAll(/(\w+): `(16\.[^`]*)`/g)].map(([, file, name]) => `${file}: ${name}`)
      const files = readdirSync(here).filter((name) => name.endsWith(".test.ts"))
      const existing = files.flatMap((file) => {
        const source = readFileSync(new URL(file, here), "utf8")
        return [...source.matchAll(/it\.(?:effect|live)\(\s*(?:"([^"]*)"|`([^`]*)`)/g)]
          .map(([, plain, template]) => (plain ?? template ?? "").replace(/\$\{state\}/, "QUEUED"))
          .filter((name) => name.startsWith("16."))
          .map((name) => `${file.slice(0, -".test.ts".length)}: ${name}`)
      })
      assert.deepStrictEqual([...new Set(named)].sort(), existing.sort())
    })
  )
})
