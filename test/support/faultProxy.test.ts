import * as NodeNet from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { rawServer } from "../transport/net.ts"
import { makeRandom } from "../transport/support.ts"
import { anyFault, type Fault, makeFaultProxy } from "./faultProxy.ts"

/** A client of an echo server behind a proxy with one fault, and what each end sees. */
const scene = Effect.fnUntraced(function* (fault: Fault) {
  let served: NodeNet.Socket | undefined
  let servedBytes = 0
  const echo = yield* rawServer((socket) => {
    served = socket
    socket.on("data", (chunk) => {
      servedBytes += chunk.length
      socket.write(chunk)
    })
  })
  const proxy = yield* makeFaultProxy({ port: echo.port, plan: () => fault })
  let received = 0
  let look = () => {}
  const events: Array<string> = []
  const client = yield* Effect.acquireRelease(
    Effect.callback<NodeNet.Socket>((resume) => {
      const socket = NodeNet.connect(proxy.port, "127.0.0.1", () => resume(Effect.succeed(socket)))
      socket.on("error", (error: NodeJS.ErrnoException) => events.push(error.code ?? "error"))
      socket.on("end", () => events.push("end"))
      socket.on("data", (chunk) => {
        received += chunk.length
        look()
      })
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )
  const until = (is: () => boolean) =>
    Effect.callback<void>((resume) => {
      look = () => {
        if (is()) resume(Effect.void)
      }
      client.on("close", look)
      look()
    })
  return {
    proxy,
    client,
    events,
    received: () => received,
    servedBytes: () => servedBytes,
    isServedOpen: () => served !== undefined && !served.destroyed && !served.readableEnded,
    until
  }
})

describe("faultProxy", () => {
  it.live("passes on as it is", () =>
    Effect.gen(function* () {
      const { client, proxy, received, until } = yield* scene({ kind: "none" })
      client.write(new Uint8Array(3_000_000))
      yield* until(() => received() === 3_000_000)
      assert.strictEqual(proxy.struck(), 0)
      assert.strictEqual(proxy.through("stcp://localhost:8102"), `stcp://localhost:${proxy.port}`)
    })
  )

  it.live("delays, and passes an end behind the last byte", () =>
    Effect.gen(function* () {
      const { client, events, received, until } = yield* scene({ kind: "delay", millis: 40 })
      const before = process.hrtime.bigint()
      client.write(new Uint8Array(100_000))
      yield* until(() => received() === 100_000)
      assert.isAtLeast(Number(process.hrtime.bigint() - before) / 1e6, 79)
      client.end()
      yield* until(() => client.destroyed)
      assert.deepStrictEqual(events, ["end"])
    })
  )

  it.live("throttles", () =>
    Effect.gen(function* () {
      const { client, received, until } = yield* scene({ kind: "throttle", bytesPerSecond: 1_000_000 })
      const before = process.hrtime.bigint()
      client.write(new Uint8Array(300_000))
      yield* until(() => received() === 300_000)
      assert.isAtLeast(Number(process.hrtime.bigint() - before) / 1e6, 150)
    })
  )

  it.live("cuts at a byte, with an end or a reset", () =>
    Effect.gen(function* () {
      for (const reset of [false, true]) {
        const { client, events, isServedOpen, proxy, received, servedBytes, until } = yield* scene({
          kind: "cut",
          at: 1000,
          reset
        })
        client.write(new Uint8Array(700))
        yield* until(() => received() === 300)
        yield* until(() => client.destroyed)
        assert.deepStrictEqual(events, [reset ? "ECONNRESET" : "end"])
        assert.strictEqual(servedBytes(), 700)
        assert.strictEqual(proxy.struck(), 1)
        yield* Effect.sleep("20 millis")
        assert.isFalse(isServedOpen())
      }
    })
  )

  it.live("swallows all from a byte on, and closes nothing", () =>
    Effect.gen(function* () {
      const { client, events, isServedOpen, received, until } = yield* scene({ kind: "blackHole", at: 1000 })
      client.write(new Uint8Array(700))
      yield* until(() => received() === 300)
      client.write(new Uint8Array(5000))
      yield* Effect.sleep("50 millis")
      assert.strictEqual(received(), 300)
      assert.deepStrictEqual(events, [])
      assert.isTrue(isServedOpen())
      assert.isFalse(client.destroyed)
    })
  )

  it.live("closes one end and tells the other nothing", () =>
    Effect.gen(function* () {
      const kept = yield* scene({ kind: "halfOpen", at: 0, stays: "dialer" })
      kept.client.write(new Uint8Array(100))
      yield* Effect.sleep("50 millis")
      assert.isFalse(kept.client.destroyed)
      assert.isFalse(kept.isServedOpen())
      const lost = yield* scene({ kind: "halfOpen", at: 100, stays: "listener" })
      lost.client.write(new Uint8Array(100))
      yield* lost.until(() => lost.client.destroyed)
      yield* Effect.sleep("50 millis")
      assert.isTrue(lost.isServedOpen())
    })
  )

  it("chooses the same by the same seed, and every kind", () => {
    const choose = (seed: number) => {
      const random = makeRandom(seed)
      return Array.from({ length: 100 }, () => anyFault(random, 1000))
    }
    assert.deepStrictEqual(choose(7), choose(7))
    assert.notDeepEqual(choose(7), choose(8))
    assert.strictEqual(new Set(choose(7).map(({ kind }) => kind)).size, 6)
  })
})
