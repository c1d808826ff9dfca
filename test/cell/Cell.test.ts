import { assert, describe, it } from "@effect/vitest"
import { Cause, Duration, Effect, Exit, Fiber, Layer, Scope, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import { TestClock } from "effect/testing"
import type { CellRequest } from "../../src/cell/Cell.ts"
import * as Cell from "../../src/cell/Cell.ts"
import * as MemoryDriver from "../../src/transport/MemoryDriver.ts"

const network = Layer.merge(MemoryDriver.layer(), SecureRandom.layerWebCrypto)
const chat = (topic: string) => ({ channel: "chat", topic })
const up = (cell: Cell.Cell["Service"], peer: string) =>
  Stream.runHead(Stream.filter(cell.connected(peer), (connected) => connected))

/** A parent that listens and a child that has connected to it. */
const family = Effect.gen(function* () {
  const parent = yield* Cell.make({ fqcn: "site-1" })
  const child = yield* Cell.make({ fqcn: "site-1.job" })
  yield* parent.listen("memory://site-1")
  yield* child.connect("memory://site-1")
  yield* up(parent, "site-1.job")
  yield* up(child, "site-1")
  return { parent, child }
})

const echo = (request: CellRequest) => Effect.succeed({ returnCode: "ok", payload: request.payload })

describe("Cell", () => {
  it.effect("a streamed and a plain request, answered by one handler", () =>
    Effect.gen(function* () {
      const { child, parent } = yield* family
      yield* parent.handle(chat("echo"), echo)
      for (const mode of ["stream", "plain"] as const) {
        const payload = new Map<string, unknown>([
          ["mode", mode],
          ["n", 3]
        ])
        const reply = yield* child.request("site-1", chat("echo"), payload, { timeout: "5 seconds", mode })
        assert.strictEqual(reply.returnCode, "ok")
        assert.deepStrictEqual(reply.payload, payload)
      }
    }).pipe(Effect.provide(network))
  )

  it.effect("a one-way message", () =>
    Effect.gen(function* () {
      const { child, parent } = yield* family
      const got: Array<CellRequest> = []
      yield* child.handle(chat("log"), (request) =>
        Effect.sync(() => void got.push(request)).pipe(Effect.as(undefined))
      )
      yield* parent.send("site-1.job", chat("log"), "hello")
      yield* Effect.yieldNow
      yield* TestClock.adjust(0)
      assert.deepStrictEqual(
        got.map((request) => [request.origin, request.payload]),
        [["site-1", "hello"]]
      )
    }).pipe(Effect.provide(network))
  )
})
