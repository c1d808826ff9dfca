/**
 * docs/cli.md against the command itself.
 */
import { readFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestConsole } from "effect/testing"
import { Screen } from "../../src/cli/internal/Screen.ts"
import * as Main from "../../src/cli/Main.ts"

const doc = readFileSync(join(import.meta.dirname, "../../docs/cli.md"), "utf8")

const silent = Layer.succeed(
  Screen,
  Screen.of({ isTerminal: false, line: () => {}, errorLine: () => {}, bars: () => {} })
)

const help = (...args: ReadonlyArray<string>) =>
  Effect.andThen(
    Main.run([...args, "--help"]),
    Effect.map(TestConsole.logLines, (lines) => lines.join("\n"))
  ).pipe(Effect.provide(Layer.mergeAll(NodeServices.layer, silent, TestConsole.layer)))

const commands = ["serve", "probe", "parent", "dump", "certs"] as const

const sectionOf = (command: string): string => doc.split(/^## /m).find((part) => part.startsWith(`${command}\n`)) ?? ""

/** The flags of a command, as its help lists them before those that all commands have. */
const flagsOf = (text: string): ReadonlyArray<string> => {
  const own = text.slice(text.indexOf("FLAGS"), text.indexOf("GLOBAL FLAGS"))
  return [...own.matchAll(/^\s+(--[a-z-]+)/gm)].map(([, flag]) => flag ?? "")
}

describe("docs/cli.md", () => {
  it.live("has a section for each command", () =>
    Effect.gen(function* () {
      const text = yield* help()
      const listed = [...text.slice(text.indexOf("SUBCOMMANDS")).matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name)
      assert.includeMembers(listed, [...commands])
      for (const command of listed) assert.isNotEmpty(sectionOf(command ?? ""), command)
    })
  )

  it.live.each(commands)("%s: each flag stands in its section", (command) =>
    Effect.gen(function* () {
      const flags = flagsOf(yield* help(command))
      assert.isNotEmpty(flags)
      const section = sectionOf(command)
      assert.deepStrictEqual(
        flags.filter((flag) => !new RegExp(`${flag}(?![a-z-])`).test(section)),
        []
      )
    })
  )

  it.live("the help of serve says what is required", () =>
    Effect.gen(function* () {
      const text = yield* help("serve")
      for (const flag of ["site", "job", "attach-id", "model", "rounds", "out"]) {
        assert.match(text, new RegExp(`--${flag} [^\\n]*\\(required\\)`))
      }
    })
  )
})
