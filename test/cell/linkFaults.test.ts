import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Logger, Option } from "effect"
import { SecureRandom } from "effect/crypto"
import { TestClock } from "effect/testing"
import { makeEngine } from "../../src/cell/internal/CellEngine.ts"
import { type Driver, Drivers } from "../../src/transport/Drivers.ts"
import { badData, closed, ioFailed } from "../../src/transport/internal/errors.ts"
import * as MemoryDriver from "../../src/transport/MemoryDriver.ts"
import type { TransportError } from "../../src/transport/TransportError.ts"
import { puppet } from "./puppet.ts"
import { settle, until } from "./support.ts"

const url = "memory://site-1"
const diskFull = ioFailed("append to", "/shared/passive.0.log", { code: "ENOSPC" })

/** The driver, whose accepted links end with this failure as soon as something is sent after the greeting. */
const failing = (driver: Driver, error: TransportError): Driver => ({
  ...driver,
  listen: (schemeOrUrl, resources) =>
    Effect.map(driver.listen(schemeOrUrl, resources), (listener) => ({
      ...listener,
      accept: Effect.map(listener.accept, (link) => {
        let sent = 0
        let ended: TransportError | undefined
        const receive = Effect.suspend(() => (ended === undefined ? link.receive : Effect.fail(ended)))
        return {
          ...link,
          send: (pieces: ReadonlyArray<Uint8Array>) =>
            Effect.suspend(() => {
              if (sent++ === 0) return link.send(pieces)
              ended = error
              return Effect.andThen(link.send(pieces), Effect.fail(error))
            }),
          receive
        }
      })
    }))
})

const warningsOf = () => {
  const lines: Array<string> = []
  const logger = Logger.make(({ logLevel, message }) => {
    if (logLevel === "Warn") lines.push(Array.isArray(message) ? message.map(String).join(" ") : String(message))
  })
  return { lines, layer: Logger.layer([logger]) }
}

/** A cell that listens; `meet` has a peer connect, be sent something, and answer, which ends its connection. */
const listening = Effect.fnUntraced(function* (error: TransportError) {
  const driver = yield* MemoryDriver.makeNetwork()
  const { cell } = yield* makeEngine({ fqcn: "site-1" }).pipe(
    Effect.provide(
      Layer.merge(
        Layer.succeed(Drivers, Drivers.of({ forUrl: () => Effect.succeed(failing(driver, error)) })),
        SecureRandom.layerWebCrypto
      )
    )
  )
  yield* cell.listen(url)
  const meet = Effect.scoped(
    Effect.gen(function* () {
      const peer = yield* puppet(yield* driver.connect(url), "site-1.job", [], true)
      yield* until(cell, "site-1.job")
      yield* Effect.ignore(cell.send("site-1.job", { channel: "c", topic: "t" }, 1))
      yield* Effect.ignore(peer.say(new Map(), new Uint8Array(0)))
      yield* settle
      yield* Effect.ignore(peer.say(new Map(), new Uint8Array(0)))
      yield* until(cell, "site-1.job", false)
    })
  )
  return { cell, meet }
})

describe("connections that end by a fault", () => {
  it.effect("a full disk is a warning at once, with path and cause, and remembered for what fails after it", () => {
    const { layer, lines } = warningsOf()
    return Effect.gen(function* () {
      const { cell, meet } = yield* listening(diskFull)
      yield* TestClock.adjust("5 seconds")
      yield* meet
      assert.strictEqual(lines.length, 1)
      assert.include(lines[0], "append to /shared/passive.0.log failed (ENOSPC): the file system is full; free space")
      const failure = yield* cell.linkFailure("site-1.job")
      assert.deepStrictEqual([failure?.message, failure?.at], [diskFull.message, 5_000_000_000n])
      assert.isTrue(Option.isNone(Option.fromUndefinedOr(yield* cell.linkFailure("site-1.other"))))
    }).pipe(Effect.provide(layer))
  })

  it.effect("again and again: one line a minute, with how many were not told", () => {
    const { layer, lines } = warningsOf()
    return Effect.gen(function* () {
      const { meet } = yield* listening(diskFull)
      for (let n = 0; n < 5; n++) yield* meet
      assert.strictEqual(lines.length, 1)
      yield* TestClock.adjust("61 seconds")
      yield* meet
      assert.strictEqual(lines.length, 2)
      assert.include(lines[1], "(4 more before)")
    }).pipe(Effect.provide(layer))
  })

  it.effect("a peer that speaks something else is one, a peer that went away is none", () => {
    const { layer, lines } = warningsOf()
    return Effect.gen(function* () {
      yield* (yield* listening(closed("x", "peer", "gone"))).meet
      assert.deepStrictEqual(lines, [])
      yield* (yield* listening(badData("it speaks TLS, and this port is in clear"))).meet
      assert.strictEqual(lines.length, 1)
      assert.include(lines[0], "it speaks TLS, and this port is in clear")
    }).pipe(Effect.provide(layer))
  })
})
