import * as NodeFs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Duration, Effect, Layer } from "effect"
import { AttachBackend } from "../../src/attach/AttachBackend.ts"
import { type AttachOptions, attachConfig, decodeAttachConfig, sourceGrace } from "../../src/attach/AttachConfig.ts"
import { settingsDoc, settingsFile } from "./settings.ts"
import * as support from "./support.ts"

const refused = (options: Record<string, unknown>) =>
  Effect.map(Effect.flip(decodeAttachConfig({ attachId: "a", ...options } as AttachOptions)), ({ reason }) => {
    assert.strictEqual(reason._tag, "ConfigInvalid")
    return reason.message
  })

describe("settings", () => {
  it.effect("defaults are the reference's", () =>
    Effect.gen(function* () {
      const config = yield* decodeAttachConfig({ attachId: "a" })
      assert.isUndefined(config.attachTimeout)
      assert.isUndefined(config.resultWaitTimeout)
      assert.strictEqual(Duration.toSeconds(config.heartbeatInterval), 5)
      assert.strictEqual(Duration.toSeconds(config.heartbeatTimeout), 30)
      assert.strictEqual(Duration.toSeconds(config.taskWaitTimeout), 600)
      assert.strictEqual(Duration.toSeconds(config.controlTimeout), 2)
      assert.strictEqual(Duration.toMillis(config.controlRetry), 500)
      assert.strictEqual(Duration.toSeconds(config.finalizeTimeout), 600)
      assert.strictEqual(Duration.toSeconds(sourceGrace(config)), 5)
      const quick = yield* decodeAttachConfig({ attachId: "a", heartbeatInterval: "1s", heartbeatTimeout: "3s" })
      assert.strictEqual(Duration.toSeconds(sourceGrace(quick)), 3)
      assert.isFalse(config.allowReconnect)
    })
  )

  it.effect("16.16 heartbeatTimeout 0 is refused, before anything is opened or sent", () =>
    Effect.gen(function* () {
      const trainer = yield* support.startTrainer()
      const error = yield* Effect.flip(support.openBackend({ heartbeatTimeout: "0 seconds" }))
      assert.strictEqual(error.reason._tag, "ConfigInvalid")
      assert.include(error.message, "heartbeatTimeout: must be longer than 0")
      yield* support.pass("1 minute")
      assert.lengthOf(trainer.heard, 0)
    }).pipe(Effect.provide(support.layer()))
  )

  it.effect("14.12 no time at all is refused for every bound that can't be met so", () =>
    Effect.gen(function* () {
      for (const name of ["taskWaitTimeout", "attachTimeout", "resultWaitTimeout", "controlTimeout", "controlRetry"]) {
        assert.include(yield* refused({ [name]: "0 seconds" }), `${name}: must be longer than 0`)
        yield* decodeAttachConfig({ attachId: "a", [name]: "1 millis" })
      }
      for (const name of ["readyTimeout", "sourceGrace", "finalizeTimeout", "settleLinger", "decodeGrace"]) {
        yield* decodeAttachConfig({ attachId: "a", [name]: "0 seconds" })
      }
    })
  )

  it.effect("combinations that can't work are refused in the words of their rule", () =>
    Effect.gen(function* () {
      assert.include(
        yield* refused({ heartbeatInterval: "30 seconds" }),
        "heartbeatTimeout: must be longer than heartbeatInterval (30s)"
      )
      yield* decodeAttachConfig({ attachId: "a", heartbeatInterval: "29999 millis" })
      assert.include(
        yield* refused({ sourceGrace: "30001 millis" }),
        "sourceGrace: must not be longer than heartbeatTimeout (30s); it is 30s 1ms"
      )
      yield* decodeAttachConfig({ attachId: "a", sourceGrace: "30 seconds" })
      assert.include(
        yield* refused({ paramsExchangeFormat: "pytorch", serverExpectedFormat: "keras_layer_weights" }),
        "pytorch can't be converted to keras_layer_weights"
      )
      for (const [exchange, server] of [
        ["raw", "pytorch"],
        ["pytorch", "raw"],
        ["pytorch", "numpy"],
        ["numpy", "keras_layer_weights"],
        ["pytorch", "pytorch"]
      ] as const) {
        yield* decodeAttachConfig({ attachId: "a", paramsExchangeFormat: exchange, serverExpectedFormat: server })
      }
    })
  )

  it.effect("odd values name the setting: a bare number, an unknown name, a bad id", () =>
    Effect.gen(function* () {
      assert.include(yield* refused({ heartbeatTimeout: 30 }), "heartbeatTimeout: ")
      assert.include(yield* refused({ heartbeatTimeOut: "30 seconds" }), "heartbeatTimeOut: ")
      assert.include(yield* refused({ attachId: "a.b" }), "attachId: ")
      assert.include(yield* refused({ memoryGcRounds: -1 }), "memoryGcRounds: ")
      assert.include(yield* refused({ memoryGcRounds: true }), "memoryGcRounds: ")
      assert.include(yield* refused({ decodeFailureLimit: 0 }), "decodeFailureLimit: ")
    })
  )

  it.effect("layerConfig reads the program's configuration", () =>
    Effect.gen(function* () {
      const provider = ConfigProvider.fromUnknown({ attach: { attachId: "b", heartbeatTimeout: "20 seconds" } })
      const backend = yield* AttachBackend.pipe(
        Effect.provide(AttachBackend.layerConfig("attach").pipe(Layer.provide(ConfigProvider.layer(provider))))
      )
      assert.strictEqual(backend.attachId, "b")
    }).pipe(Effect.provide(support.layer()))
  )

  it.effect("environment variables are read by constant case, with their rules", () =>
    Effect.gen(function* () {
      const env = (values: Record<string, string>) =>
        Effect.provide(
          attachConfig(),
          ConfigProvider.layer(ConfigProvider.constantCase(ConfigProvider.fromEnvRecord(values)))
        )
      const config = yield* env({
        ATTACH_ID: "b",
        ALLOW_RECONNECT: "true",
        HEARTBEAT_TIMEOUT: "20 seconds",
        MEMORY_GC_ROUNDS: "3"
      })
      assert.strictEqual(config.attachId, "b")
      assert.isTrue(config.allowReconnect)
      assert.strictEqual(Duration.toSeconds(config.heartbeatTimeout), 20)
      assert.strictEqual(config.memoryGcRounds, 3)
      assert.isUndefined(config.attachTimeout)
      const error = yield* Effect.flip(env({ ATTACH_ID: "b", HEARTBEAT_TIMEOUT: "1 seconds" }))
      assert.include(String(error), "must be longer than heartbeatInterval")
    })
  )

  it.effect("docs/settings.md is what `npm run docs:settings` writes", () =>
    Effect.gen(function* () {
      assert.strictEqual(NodeFs.readFileSync(settingsFile, "utf8"), yield* settingsDoc)
    })
  )
})
