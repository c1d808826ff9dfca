import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Logger } from "effect"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { EnumValue, NumpyScalar } from "../../src/fobs/Values.ts"
import { AnalyticsRecord } from "../../src/model/Analytics.ts"
import { makeJob, settle } from "./support.ts"

const { Topic } = ClientApi

const warnings = Effect.fnUntraced(function* () {
  const lines: Array<string> = []
  const logger = Logger.make(({ logLevel, message }) => {
    if (logLevel === "Warn") lines.push(String(message))
  })
  return { lines, layer: Logger.layer([logger]) }
})

describe("log", () => {
  it.effect("16.54 a record goes one way to the CJ, its numbers plain", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const { session } = yield* job.attach()
      yield* session.log(
        new AnalyticsRecord({
          tag: "loss",
          value: new NumpyScalar("float32", 0.5),
          dataType: "SCALAR",
          globalStep: 3,
          extra: [["phase", "warm"]]
        })
      )
      const { body } = yield* job.message(Topic.log)
      assert.deepStrictEqual(
        [...body],
        [
          ["session_id", "session-1"],
          ["key", "loss"],
          ["value", 0.5],
          ["data_type", new EnumValue("nvflare.apis.analytix.AnalyticsDataType", "SCALAR")],
          ["global_step", 3],
          ["phase", "warm"]
        ]
      )
    })
  )

  it.effect("16.54 what can't be sent is a warning and no failure; a closed session says nothing", () =>
    Effect.gen(function* () {
      const { layer, lines } = yield* warnings()
      const job = yield* makeJob()
      const { close, session } = yield* job.attach()
      const log = (value: unknown) =>
        Effect.provide(session.log(new AnalyticsRecord({ tag: "loss", value, dataType: "SCALAR" })), layer)
      yield* log("no number")
      assert.strictEqual(lines.length, 1)
      assert.include(lines[0], "loss")
      yield* close
      yield* log(1)
      assert.strictEqual(lines.length, 1)
      yield* settle
      assert.deepStrictEqual(job.heard(Topic.log), [])
    })
  )

  it.effect("16.54 a rank without a session logs nowhere, with a warning", () =>
    Effect.gen(function* () {
      const { layer, lines } = yield* warnings()
      const job = yield* makeJob()
      const trainer = yield* job.attaching(undefined, { rank: 1 })
      yield* settle
      const session = yield* trainer.session.pollUnsafe() ?? Exit.die("not attached")
      yield* Effect.provide(session.log(new AnalyticsRecord({ tag: "loss", value: 1, dataType: "SCALAR" })), layer)
      assert.strictEqual(lines.length, 1)
    })
  )
})
