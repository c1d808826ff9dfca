import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Result } from "effect"
import * as Connection from "../../src/transport/Connection.ts"
import * as Frame from "../../src/transport/Frame.ts"
import { forListener } from "../../src/transport/internal/net/connector.ts"
import * as TcpDriver from "../../src/transport/TcpDriver.ts"
import { connectAs, rawServer, rawSocket, serveAs, watchFrames } from "./net.ts"
import { asDecoded, fixture, fromHex, silently, toHex, typed } from "./support.ts"

const driver = TcpDriver.make()
const anyPort = "tcp://127.0.0.1:0"

/** The captures were made with the application id 2; cells have 1. */
const ofCells = (hex: string): Uint8Array => {
  const bytes = fromHex(hex)
  const view = new DataView(bytes.buffer)
  let at = 0
  while (at + 16 <= bytes.length) {
    if (bytes[at + 6] === Frame.types.data && view.getUint16(at + 10) === 2) {
      view.setUint16(at + 10, Frame.cellAppId)
    }
    at += Math.max(16, view.getUint32(at))
  }
  return bytes
}

const typeNameOf = (bytes: Uint8Array): string | undefined =>
  Object.entries(Frame.types)
    .find(([, type]) => type === bytes[6])?.[0]
    ?.toUpperCase()

/** The wall clock in a greeting is the only thing that differs from one time to the next. */
const withoutTime = (hex: string): string => hex.replace(/(a974696d657374616d70cb)[0-9a-f]{16}/, "$1")

describe("listeners without a URL", () => {
  for (const { connect_url, listen_url, resources, scheme } of fixture("transport/listener_urls.json").cases) {
    it(`${scheme} ${JSON.stringify(resources)}`, () => {
      const binding = Result.getOrThrow(forListener(scheme, resources, "machine"))
      const [range] = binding.ports
      assert.strictEqual(`${binding.scheme}://${binding.host}:${range?.[0]}`, connect_url)
      assert.strictEqual(
        `${binding.scheme}://${binding.bindHost === "" ? "0" : binding.bindHost}:${range?.[1]}`,
        listen_url
      )
    })
  }
})

describe("a captured session", () => {
  const session = fixture("transport/tcp_cell_session.json")
  const frames: ReadonlyArray<{ readonly from: string; readonly type: string; readonly hex: string }> =
    session.frames.filter((frame: { readonly hex?: string }) => frame.hex !== undefined)
  const data = (from: string) => frames.filter((frame) => frame.from === from && frame.type === "DATA")
  const greeting = (from: string) => frames.find((frame) => frame.from === from)?.hex ?? ""

  const isSame = (received: ReadonlyArray<Connection.Incoming>, from: string) => {
    const expected = data(from).map(({ hex }) => Result.getOrThrow(Frame.decode(ofCells(hex))))
    assert.deepStrictEqual(
      received.map(({ headers, payload }) => ({ headers: new Map(headers), payload: toHex(payload) })),
      expected.map(({ headers, payload }) => ({ headers: new Map(headers ?? []), payload: toHex(payload) }))
    )
  }

  const receiveAll = Effect.fnUntraced(function* (connection: Connection.Connection, count: number) {
    const received: Array<Connection.Incoming> = []
    while (received.length < count) {
      received.push(...(yield* connection.receive))
    }
    return received
  })

  it.live("in the place of its dialer", () =>
    Effect.gen(function* () {
      let heard: ReadonlyArray<Uint8Array> = []
      const server = yield* rawServer((socket) => {
        const { frames: got } = watchFrames(socket)
        heard = got
        socket.once("data", () => {
          for (const { from, hex } of frames) {
            if (from === "passive") socket.write(ofCells(hex))
          }
        })
      })
      const connection = yield* connectAs(driver, `tcp://127.0.0.1:${server.port}`, session.active_endpoint)
      assert.strictEqual(connection.peer, session.passive_endpoint)
      isSame(yield* receiveAll(connection, data("passive").length), "passive")
      assert.strictEqual(withoutTime(toHex(heard[0] ?? new Uint8Array(0))), withoutTime(greeting("active")))
    })
  )

  it.live("in the place of its listener", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      const serving = yield* listener.accept.pipe(
        Effect.flatMap((link) => Connection.make(link, { role: "passive", local: session.passive_endpoint })),
        Effect.flatMap((connection) => receiveAll(connection, data("active").length)),
        Effect.forkScoped
      )
      const socket = yield* rawSocket(listener.connectUrl)
      const heard = watchFrames(socket)
      for (const { from, hex } of frames) {
        if (from === "active") socket.write(ofCells(hex))
      }
      isSame(yield* Fiber.join(serving), "active")
      yield* heard.atLeast(1)
      assert.strictEqual(withoutTime(toHex(heard.frames[0] ?? new Uint8Array(0))), withoutTime(greeting("passive")))
    })
  )
})

describe("malformed input to a live listener", () => {
  const { cases, reference_endpoint: local } = fixture("transport/malformed_tcp.json")
  // The reference leaves this connection open without a name; ours is refused, since nothing could come of it.
  const closedHere = new Set(["HELLO with the reference's own name"])

  for (const { connection, delivered, name, replies, reply_hex, send } of cases) {
    it.live(name, () =>
      Effect.gen(function* () {
        const messages: Array<Connection.Incoming> = []
        const listener = yield* driver.listen(anyPort)
        yield* silently(serveAs(local, listener, (message) => messages.push(message)))
        const socket = yield* rawSocket(listener.connectUrl)
        const heard = watchFrames(socket)
        for (const piece of send) {
          socket.write(ofCells(piece))
          yield* Effect.sleep("10 millis")
        }
        yield* heard.atLeast(replies.length)
        if (connection === "closed by the reference" || closedHere.has(name)) {
          yield* heard.closed
        } else {
          assert.isFalse(socket.readableEnded || socket.destroyed)
        }
        assert.deepStrictEqual(heard.frames.map(typeNameOf), replies)
        assert.deepStrictEqual(
          heard.frames.map((bytes) => withoutTime(toHex(bytes))),
          reply_hex.map(withoutTime)
        )
        // It goes on serving others; by then all that was sent before has been looked at.
        const next = yield* connectAs(driver, listener.connectUrl, "site-1.next")
        assert.strictEqual(next.peer, local)
        assert.deepStrictEqual(
          messages.map(({ headers, payload }) => ({ headers: new Map(headers), payload: toHex(payload) })),
          delivered.map((one: { readonly headers: unknown; readonly payload_hex: string | null }) => ({
            headers: one.headers === null ? new Map() : typed(one.headers, asDecoded),
            payload: one.payload_hex ?? ""
          }))
        )
      })
    )
  }
})
