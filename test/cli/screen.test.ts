import { readFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import * as EventLog from "../../src/cli/internal/EventLog.ts"
import { makeScreen } from "../../src/cli/internal/Screen.ts"
import { makeServeView } from "../../src/cli/internal/ServeView.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { AnalyticsRecord } from "../../src/model/Analytics.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import { RoundEvent } from "../../src/service/Rounds.ts"
import { temporaryFolder } from "./support.ts"

/** What a terminal shows of the text, if it knows "up", "return" and "erase below". */
const shown = (text: string, columns = 40): ReadonlyArray<string> => {
  const lines = [""]
  let row = 0
  // biome-ignore lint/suspicious/noControlCharactersInRegex: what a terminal reads
  for (const part of text.match(/\u001b\[\d*[AJ]|\r|\n|[^\u001b\r\n]+/g) ?? []) {
    if (part === "\n") {
      row++
      lines[row] ??= ""
    } else if (part.endsWith("A") && part.startsWith("\u001b")) row -= Number(part.slice(2, -1))
    else if (part.endsWith("J") && part.startsWith("\u001b")) {
      lines.length = row + 1
      lines[row] = ""
    } else if (part !== "\r") {
      assert.isBelow(part.length, columns, "a line that wraps moves all that is drawn")
      lines[row] = part
    }
  }
  return lines
}

const terminal = (isTerminal = true) => {
  const text = { all: "" }
  const write = (more: string) => {
    text.all += more
  }
  return { text, screen: makeScreen({ isTerminal, columns: () => 40, out: write, err: write }) }
}

describe("the screen", () => {
  it("keeps bars below the lines that stay", () => {
    const { screen, text } = terminal()
    screen.line("first")
    screen.bars(["a [..]", "b [..]"])
    screen.line("second")
    screen.errorLine("third")
    screen.bars(["a [#.]", "b [..]"])
    assert.deepStrictEqual(shown(text.all), ["first", "second", "third", "a [#.]", "b [..]", ""])
  })

  it("cuts bars that are wider than the terminal", () => {
    const { screen, text } = terminal()
    screen.bars(["x".repeat(100)])
    screen.bars(["y".repeat(100)])
    assert.deepStrictEqual(shown(text.all), ["y".repeat(39), ""])
  })

  it("draws no bars without a terminal", () => {
    const { screen, text } = terminal(false)
    screen.bars(["a [..]"])
    screen.line("first")
    assert.strictEqual(text.all, "first\n")
  })

  it("lets nobody move the cursor: control characters of peers become blanks", () => {
    const { screen, text } = terminal()
    screen.line("a\u001b[2Jb\nc\rd\u009be")
    assert.strictEqual(text.all, "a [2Jb c d e\n")
  })
})

describe("what serve tells", () => {
  it.effect("a bar a trainer: rounds done, what it does, how long", () =>
    Effect.gen(function* () {
      const { screen, text } = terminal()
      const view = yield* makeServeView(screen, () => Effect.void, ["a", "long-name"], 4)
      const why = "because"
      yield* view.session("a", { _tag: "Opening", sessionId: "s", why })
      yield* view.session("a", { _tag: "Ready", sessionId: "s", why })
      yield* view.round(RoundEvent.RoundStarted({ round: 2, totalRounds: 4, attempt: 1 }))
      assert.deepStrictEqual(
        shown(text.all).map((line) => line.slice(0, 39)),
        [
          "trainer a attached after 0.0 s",
          "round 3/4 started",
          "a         [############............] 2/4",
          "long-name [############............] 2/4",
          ""
        ].map((line) => line.slice(0, 39))
      )
      yield* view.round(
        RoundEvent.ResultReceived({ round: 2, attachId: "a", duration: "2 seconds", result: new FLModel({}) } as never)
      )
      assert.include(text.all, "a         [##################......] 3/")
    })
  )
})

describe("the file of events", () => {
  it.live("holds one JSON object a line, whatever a trainer logs", () =>
    Effect.gen(function* () {
      const path = join(yield* temporaryFolder, "events.jsonl")
      yield* Effect.scoped(
        Effect.gen(function* () {
          const events = yield* EventLog.open(Option.some(path))
          const records = [
            new AnalyticsRecord({ tag: "loss", value: 0.5, dataType: "SCALAR", globalStep: 3 }),
            new AnalyticsRecord({ tag: "big", value: 2n ** 70n, dataType: "PARAMETER" }),
            new AnalyticsRecord({
              tag: "all",
              value: new Map<string, unknown>([
                ["__proto__", 1],
                ["w", NdArray.fromTyped(Float32Array.of(1))],
                ["raw", Uint8Array.of(1, 2)]
              ]),
              dataType: "PARAMETERS",
              extra: [["note", "two\nlines"]]
            })
          ]
          yield* Effect.forEach(records, (record) => events({ event: "log", ...EventLog.logFields(record) }), {
            concurrency: "unbounded"
          })
        })
      )
      const lines = readFileSync(path, "utf8").trimEnd().split("\n")
      assert.deepStrictEqual(lines.slice(0, 2), [
        '{"event":"log","tag":"loss","value":0.5,"data_type":"SCALAR","global_step":3}',
        '{"event":"log","tag":"big","value":"1180591620717411303424","data_type":"PARAMETER"}'
      ])
      assert.strictEqual(
        lines[2],
        '{"event":"log","tag":"all","value":{"__proto__":1,"w":{"dtype":"<f4","shape":[1]},"raw":{"bytes":2}},"data_type":"PARAMETERS","extra":{"note":"two\\nlines"}}'
      )
    }).pipe(Effect.provide(NodeFileSystem.layer))
  )
})
