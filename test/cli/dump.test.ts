import { existsSync, mkdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestConsole } from "effect/testing"
import { Screen } from "../../src/cli/internal/Screen.ts"
import * as Main from "../../src/cli/Main.ts"
import { runToEnd, temporaryFolder } from "./support.ts"

interface Vector {
  readonly name: string
  readonly file: string
  readonly kind: "encode" | "decode_only" | "exchange"
  readonly value?: unknown
  readonly reencode?: "exact" | "semantic"
  readonly result?: string
}

const fixtures = join(import.meta.dirname, "../fixtures/fobs")
const { vectors }: { readonly vectors: ReadonlyArray<Vector> } = JSON.parse(
  readFileSync(join(fixtures, "index.json"), "utf8")
)
const messages = vectors.filter(({ file, kind }) => kind !== "exchange" && existsSync(join(fixtures, file)))
const good = messages.filter(({ value }) => value !== undefined)
const bad = messages.filter(({ result }) => result === "error")

const services = Layer.mergeAll(
  NodeServices.layer,
  TestConsole.layer,
  Layer.succeed(Screen, Screen.of({ isTerminal: false, line: () => {}, errorLine: () => {}, bars: () => {} }))
)

const dump = Effect.fnUntraced(function* (files: ReadonlyArray<Vector>, ...more: ReadonlyArray<string>) {
  const code = yield* Main.run(["dump", "--json", ...more, ...files.map(({ file }) => join(fixtures, file))])
  return { code, lines: (yield* TestConsole.logLines).map(String), errors: yield* TestConsole.errorLines }
}, Effect.provide(services))

/** `repr` of a float is information only. */
const comparable = (node: unknown): unknown =>
  JSON.parse(JSON.stringify(node, (key, value) => (key === "repr" ? undefined : value)))

describe("dump", () => {
  it.live("describes every vector as the index does, one line a file", () =>
    Effect.gen(function* () {
      assert.isAtLeast(good.length, 200)
      const { code, errors, lines } = yield* dump(good)
      assert.deepStrictEqual([code, errors], [0, []])
      assert.strictEqual(lines.length, good.length)
      for (const [n, { name, value }] of good.entries()) {
        assert.deepStrictEqual(comparable(JSON.parse(lines[n] ?? "")), comparable(value), name)
      }
    })
  )

  it.live("writes the same bytes again where the index says exact", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const exact = good.filter(({ reencode }) => reencode === "exact")
      assert.isAtLeast(exact.length, 200)
      const { code } = yield* dump(exact, "--reencode", folder)
      assert.strictEqual(code, 0)
      for (const { file, name } of exact) {
        assert.deepStrictEqual(readFileSync(join(folder, file)), readFileSync(join(fixtures, file)), name)
      }
    })
  )

  it.live("has a line for each malformed file, and fails", () =>
    Effect.gen(function* () {
      assert.isAtLeast(bad.length, 30)
      const { code, errors, lines } = yield* dump(bad)
      assert.strictEqual(code, 1)
      assert.deepStrictEqual(errors, [`fl-attach: ${bad.length} of ${bad.length} files can't be decoded`])
      for (const [n, { name }] of bad.entries()) {
        const line = JSON.parse(lines[n] ?? "")
        assert.isString(line.error, name)
        assert.isNotEmpty(line.error, name)
      }
    })
  )

  it.live("goes on after a malformed and a missing file", () =>
    Effect.gen(function* () {
      const [first, second] = good
      const [broken] = bad
      assert.isDefined(first)
      assert.isDefined(second)
      assert.isDefined(broken)
      const { code, lines } = yield* dump([first, broken, { ...first, file: "no-such-file.bin" }, second])
      assert.strictEqual(code, 1)
      assert.deepStrictEqual(
        lines.map((line) => Object.hasOwn(JSON.parse(line), "error")),
        [false, true, true, false]
      )
    })
  )

  it.live("as a process: standard output holds the lines, standard error the verdict", () =>
    Effect.gen(function* () {
      const [first] = good
      const [broken] = bad
      const paths = [first, broken].map((vector) => join(fixtures, vector?.file ?? ""))
      const { code, stderr, stdout } = yield* runToEnd(["dump", "--json", ...paths])
      assert.strictEqual(code, 1)
      assert.strictEqual(stdout.trimEnd().split("\n").length, 2)
      assert.strictEqual(stderr, "fl-attach: 1 of 2 files can't be decoded\n")
    })
  )

  it.live("refuses to write over the files that it reads", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryFolder
      const inside = join(folder, "sub")
      mkdirSync(inside)
      const [first] = good
      const { code } = yield* dump(first === undefined ? [] : [first], "--reencode", inside)
      assert.strictEqual(code, 0)
      const copy = join(inside, first?.file ?? "")
      const again = yield* Effect.provide(Main.run(["dump", "--json", "--reencode", inside, copy]), services)
      assert.strictEqual(again, 2)
    })
  )
})
