import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Logger, Result, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as Msgpack from "../../src/fobs/Msgpack.ts"
import * as Connection from "../../src/transport/Connection.ts"
import type { FrameLink } from "../../src/transport/Drivers.ts"
import * as Frame from "../../src/transport/Frame.ts"
import { FrameReader } from "../../src/transport/FrameReader.ts"
import * as MemoryDriver from "../../src/transport/MemoryDriver.ts"
import { HandshakeFailed, TransportError } from "../../src/transport/TransportError.ts"
import { asEncoded, fixture, fromHex, makeRandom, silently, toHex, typed } from "./support.ts"

const makeLinks = Effect.fnUntraced(function* (options: MemoryDriver.NetworkOptions = {}) {
  const network = yield* MemoryDriver.makeNetwork(options)
  const listener = yield* network.listen("memory://peer", { cn: "site-1" })
  const active = yield* network.connect(listener.connectUrl)
  const passive = yield* listener.accept
  return { active, passive }
})

const decode = (bytes: Uint8Array) => Result.getOrThrow(Frame.decode(bytes))

const greeting = (type: number, name: unknown) =>
  Result.getOrThrow(
    Frame.encode({
      type,
      appId: 0,
      streamId: 1,
      sequence: 1,
      headers: undefined,
      payload: [Result.getOrThrow(Msgpack.encode(new Map([["endpoint_name", name]])))]
    })
  )

const typeNames = (frames: ReadonlyArray<Uint8Array>) =>
  frames.map((bytes) => {
    const { type } = decode(bytes)
    return Object.entries(Frame.types)
      .find(([, value]) => value === type)?.[0]
      ?.toUpperCase()
  })

/** All frames that come over a link, as they come. */
const collect = Effect.fnUntraced(function* (link: FrameLink) {
  const frames: Array<Uint8Array> = []
  yield* link.receive.pipe(
    Effect.map((batch) => frames.push(...batch)),
    Effect.forever,
    Effect.ignore,
    Effect.forkScoped
  )
  return frames
})

const receiveAll = Effect.fnUntraced(function* (connection: Connection.Connection) {
  const messages: Array<Connection.Incoming> = []
  const fiber = yield* connection.receive.pipe(
    Effect.map((batch) => messages.push(...batch)),
    Effect.forever,
    Effect.flip,
    Effect.forkScoped
  )
  return { messages, fiber }
})

/** Both ends of a connection. */
const connectBoth = Effect.fnUntraced(function* (
  links: { readonly active: FrameLink; readonly passive: FrameLink },
  options: Partial<Connection.Options> = {}
) {
  return yield* Effect.all(
    {
      active: Connection.make(links.active, { ...options, role: "active", local: "site-1.a" }),
      passive: Connection.make(links.passive, { ...options, role: "passive", local: "site-1" })
    },
    { concurrency: "unbounded" }
  )
})

/** Lets all fibers run until they wait. */
const settle = Effect.forEach([1, 2, 3], () => TestClock.adjust("1 millis"))

describe("Connection", () => {
  it.effect("says HELLO and READY as captured", () =>
    Effect.gen(function* () {
      const captured = fixture("cellnet/01_connect_handshake.json").frames.slice(0, 2)
      for (const [index, role] of (["active", "passive"] as const).entries()) {
        const links = yield* makeLinks()
        const { from, payload, payload_msgpack, prefix } = captured[index]
        const [link, peer] = role === "active" ? [links.active, links.passive] : [links.passive, links.active]
        const frames = yield* collect(peer)
        yield* TestClock.setTime(payload_msgpack[1].value * 1000)
        yield* Effect.forkScoped(Connection.make(link, { role, local: from }))
        if (role === "passive") {
          yield* peer.send(greeting(Frame.types.hello, "site-1.x"))
        }
        yield* settle
        const [bytes] = frames
        assert.isDefined(bytes)
        // The capture has microseconds, the clock of Effect milliseconds: compare all but the timestamp.
        const timestampAt =
          16 + 15 + payload_msgpack[0].value.length + 10 + (payload_msgpack[0].value.length > 31 ? 1 : 0)
        const masked = (hex: string) => hex.slice(0, timestampAt * 2) + hex.slice((timestampAt + 9) * 2)
        const whole = toHex(bytes.subarray(0, 16)) + payload.hex
        assert.strictEqual(toHex(bytes).length, whole.length)
        assert.strictEqual(masked(toHex(bytes)), masked(whole))
        const { app_id, length, sequence, stream_id } = prefix
        const frame = decode(bytes)
        assert.deepStrictEqual(
          [bytes.length, frame.appId, frame.streamId, frame.sequence],
          [length, app_id, stream_id, sequence]
        )
      }
    })
  )

  it.effect("both ends learn each other's name, and messages travel both ways", () =>
    Effect.gen(function* () {
      const links = yield* makeLinks()
      const { active, passive } = yield* connectBoth(links)
      assert.deepStrictEqual([active.local, active.peer], ["site-1.a", "site-1"])
      assert.deepStrictEqual([passive.local, passive.peer], ["site-1", "site-1.a"])
      assert.strictEqual(active.info.peerCommonName, "site-1")

      let sent = 0
      yield* active.send(new Map<string, unknown>([["k", 1]]), [fromHex("01"), fromHex("0203")], () => {
        sent += 1
      })
      assert.strictEqual(sent, 1)
      yield* active.send(new Map(), [])
      const messages = [...(yield* passive.receive)]
      if (messages.length < 2) {
        messages.push(...(yield* passive.receive))
      }
      assert.deepStrictEqual(messages, [
        { headers: new Map([["k", 1]]), block: fromHex("81a16b01"), payload: fromHex("010203") },
        { headers: new Map(), block: new Uint8Array(0), payload: new Uint8Array(0) }
      ])
      yield* passive.send(new Map([["r", "x"]]), [])
      const [answer] = yield* active.receive
      assert.deepStrictEqual(answer.headers, new Map([["r", "x"]]))
    })
  )

  it.effect("numbers frames as the reference: sequences a connection, stream ids a peer", () =>
    Effect.gen(function* () {
      const nextStreamId = Connection.makeStreamIds()
      for (const [first, second] of [
        [17, 18],
        [19, 20]
      ] as const) {
        const links = yield* makeLinks()
        const frames = yield* collect(links.passive)
        yield* links.passive.send(greeting(Frame.types.ready, "site-1"))
        const connection = yield* Connection.make(links.active, { role: "active", local: "site-1.a", nextStreamId })
        yield* connection.send(new Map([["k", 1]]), [])
        yield* connection.send(new Map([["k", 1]]), [])
        yield* settle
        assert.deepStrictEqual(
          frames.map(decode).map(({ appId, sequence, streamId }) => [appId, streamId, sequence]),
          [
            [0, 1, 1],
            [1, first, 2],
            [1, second, 3]
          ]
        )
      }
      for (let count = 0; count < 65536 - 21; count++) {
        nextStreamId()
      }
      assert.deepStrictEqual([nextStreamId(), nextStreamId()], [0, 1])
    })
  )

  it.effect("a message that is too large fails, and the connection goes on", () =>
    Effect.gen(function* () {
      const { active, passive } = yield* connectBoth(yield* makeLinks())
      const error = yield* Effect.flip(active.send(new Map([["k", "x".repeat(70_000)]]), []))
      assert.strictEqual(error.reason._tag, "BadData")
      yield* active.send(new Map([["k", 1]]), [])
      assert.strictEqual((yield* passive.receive).length, 1)
    })
  )

  it.effect("answers malformed input as captured", () =>
    Effect.gen(function* () {
      // Framing is the drivers' matter, see FrameReader. Its own name the reference keeps open for ever; we close.
      const elsewhere = ["length below 16", "length zero before HELLO", "length above maximum"]
      const ours = new Map([["HELLO with the reference's own name", "closed by the reference"]])
      let seen = 0
      for (const captured of fixture("transport/malformed_tcp.json").cases) {
        if (elsewhere.includes(captured.name)) {
          continue
        }
        seen += 1
        const links = yield* makeLinks()
        const replies = yield* collect(links.active)
        const messages: Array<Connection.Incoming> = []
        const life = yield* Effect.scoped(
          Effect.gen(function* () {
            const connection = yield* Connection.make(links.passive, { role: "passive", local: "site-1.job-1" })
            return yield* Effect.forever(Effect.map(connection.receive, (batch) => messages.push(...batch)))
          })
        ).pipe(Effect.forkScoped)
        const reader = new FrameReader()
        for (const hex of captured.send) {
          for (const frame of Result.getOrThrow(reader.push(fromHex(hex)))) {
            // The capture had a receiver for the application 2; cells have the application 1.
            if (frame[11] === 2) {
              frame[11] = 1
            }
            yield* links.active.send([frame])
          }
        }
        yield* settle
        const closed = (ours.get(captured.name) ?? captured.connection) === "closed by the reference"
        assert.strictEqual(life.pollUnsafe() !== undefined, closed, captured.name)
        // After its end a connection answers nothing.
        assert.deepStrictEqual(typeNames(replies), captured.replies, captured.name)
        for (const [index, hex] of captured.reply_hex.entries()) {
          const reply = replies[index]
          assert.isDefined(reply)
          // All but the timestamp, which is in READY alone.
          assert.strictEqual(toHex(reply.subarray(0, 16)), hex.slice(0, 32), captured.name)
          assert.strictEqual(reply.length * 2, hex.length, captured.name)
        }
        assert.deepStrictEqual(
          messages.map(({ headers, payload }) => ({ headers, payload: toHex(payload) })),
          captured.delivered.map(({ headers, payload_hex }: { headers: unknown; payload_hex: string | null }) => ({
            headers: typed(headers, asEncoded),
            payload: payload_hex ?? ""
          })),
          captured.name
        )
      }
      assert.strictEqual(seen, 18)
    }).pipe(silently)
  )

  it.effect("the active end sends nothing behind HELLO before READY", () =>
    Effect.gen(function* () {
      const links = yield* makeLinks({ latency: "20 millis" })
      const frames = yield* collect(links.passive)
      const made = yield* Connection.make(links.active, { role: "active", local: "site-1.a" }).pipe(
        Effect.tap((connection) => connection.send(new Map([["k", 1]]), [])),
        Effect.forkScoped
      )
      yield* TestClock.adjust("25 seconds")
      assert.deepStrictEqual(typeNames(frames), ["HELLO"])
      yield* links.passive.send(greeting(Frame.types.ready, " site-1 "))
      yield* TestClock.adjust("40 millis")
      assert.strictEqual((yield* Fiber.join(made)).peer, "site-1")
      assert.deepStrictEqual(typeNames(frames), ["HELLO", "DATA"])
    })
  )

  it.effect("gives up after the handshake timeout, to the millisecond", () =>
    Effect.gen(function* () {
      for (const [role, timeout, awaited] of [
        ["active", undefined, "READY"],
        ["passive", "2 seconds", "HELLO"]
      ] as const) {
        const links = yield* makeLinks()
        const options = { role, local: "site-1.a", ...(timeout === undefined ? {} : { handshakeTimeout: timeout }) }
        const fiber = yield* Effect.forkScoped(Effect.flip(Connection.make(links[role], options)))
        const millis = timeout === undefined ? 30_000 : 2000
        yield* TestClock.adjust(millis - 1)
        assert.isUndefined(fiber.pollUnsafe())
        yield* TestClock.adjust(1)
        const error = yield* Fiber.join(fiber)
        assert.strictEqual(error.reason._tag, "HandshakeFailed")
        assert.include(error.message, awaited)
        assert.include(error.message, `${millis / 1000}s`)
        assert.include(error.message, "handshakeTimeout")
      }
    })
  )

  it.effect("refuses names that no peer may have, after READY", () =>
    Effect.gen(function* () {
      for (const name of ["a/b", "a..b", "p.p", "site-1", " site-1 ", " ", 5, fromHex("61")]) {
        const links = yield* makeLinks()
        const frames = yield* collect(links.active)
        yield* links.active.send(greeting(Frame.types.hello, name))
        const error = yield* Effect.flip(Connection.make(links.passive, { role: "passive", local: "site-1" }))
        assert.strictEqual(error.reason._tag, "HandshakeFailed", String(name))
        yield* settle
        assert.deepStrictEqual(typeNames(frames), ["READY"])
      }
    })
  )

  it.effect("verify has the last word, after READY", () =>
    Effect.gen(function* () {
      const links = yield* makeLinks()
      const frames = yield* collect(links.active)
      yield* links.active.send(greeting(Frame.types.hello, "site-1.a"))
      const refusal = new TransportError({ reason: new HandshakeFailed({ target: "x", message: "wrong certificate" }) })
      const error = yield* Effect.flip(
        Connection.make(links.passive, {
          role: "passive",
          local: "site-1",
          verify: (peer, info) => {
            assert.deepStrictEqual([peer, info], ["site-1.a", links.passive.info])
            return Effect.fail(refusal)
          }
        })
      )
      assert.strictEqual(error, refusal)
      yield* settle
      assert.deepStrictEqual(typeNames(frames), ["READY"])
    })
  )

  it.effect("after silence a PING goes out, and any frame puts it off", () =>
    Effect.gen(function* () {
      const links = yield* makeLinks()
      const frames = yield* collect(links.active)
      yield* links.active.send(greeting(Frame.types.hello, "site-1.a"))
      const connection = yield* Connection.make(links.passive, { role: "passive", local: "site-1" })
      yield* receiveAll(connection)
      yield* TestClock.adjust(59_999)
      assert.deepStrictEqual(typeNames(frames), ["READY"])
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(typeNames(frames), ["READY", "PING"])
      assert.strictEqual(toHex(frames[1] ?? new Uint8Array()), "00000011000006000000000000110002c0")
      yield* TestClock.adjust(30_000)
      yield* links.active.send([fromHex("00000011000007000000000000110001c0")])
      yield* TestClock.adjust(59_999)
      assert.strictEqual(frames.length, 2)
      yield* TestClock.adjust(1)
      assert.strictEqual(frames.length, 3)
      // No answer at all: one more each time the interval has passed, and nothing is closed.
      yield* TestClock.adjust("2 minutes")
      assert.deepStrictEqual(typeNames(frames), ["READY", "PING", "PING", "PING", "PING"])
    })
  )

  it.effect("two ends that are idle ping and answer", () =>
    Effect.gen(function* () {
      const seen: Array<string> = []
      const onFrame = (frame: MemoryDriver.FrameInfo) =>
        Effect.sync(() => {
          seen.push(`${frame.from} ${typeNames([frame.bytes])[0]}`)
          return "deliver" as const
        })
      const links = yield* makeLinks({ latency: "5 millis", faults: { onFrame } })
      const both = yield* connectBoth(links, { heartbeatInterval: "10 seconds" }).pipe(Effect.forkScoped)
      yield* TestClock.adjust("10 millis")
      const { active, passive } = yield* Fiber.join(both)
      yield* receiveAll(active)
      yield* receiveAll(passive)
      yield* TestClock.adjust("10100 millis")
      assert.deepStrictEqual(seen.slice(0, 2), ["active HELLO", "passive READY"])
      assert.sameMembers(
        seen.slice(2),
        ["passive PING", "active PONG", "active PING", "passive PONG"].slice(0, seen.length - 2)
      )
      assert.include(seen, "active PONG")
    })
  )

  it.effect("a flood of PINGs at a peer that takes nothing stays bounded", () =>
    Effect.gen(function* () {
      const links = yield* makeLinks()
      yield* links.active.send(greeting(Frame.types.hello, "site-1.a"))
      let sends = 0
      const stuck: FrameLink = {
        ...links.passive,
        send: (pieces) => (sends++ === 0 ? links.passive.send(pieces) : Effect.never)
      }
      const connection = yield* Connection.make(stuck, { role: "passive", local: "site-1" })
      for (let count = 0; count < 1000; count++) {
        yield* links.active.send([fromHex("00000011000006000000000000110001c0")])
      }
      yield* links.active.send([fromHex("0000001e000e0100000000010014000581a46f6e6c79a768656164657273")])
      assert.strictEqual((yield* connection.receive).length, 1)
      assert.strictEqual(sends, 2)
    })
  )

  it.effect("the end of the peer's Scope ends receive and send", () =>
    Effect.gen(function* () {
      const network = yield* MemoryDriver.makeNetwork()
      const listener = yield* network.listen("memory://peer")
      const scope = yield* Scope.make()
      const active = yield* Scope.provide(network.connect(listener.connectUrl), scope)
      const both = yield* connectBoth({ active, passive: yield* listener.accept })
      yield* both.active.send(new Map([["k", 1]]), [])
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual((yield* both.passive.receive).length, 1, "what was sent before arrives")
      for (const [attempt, by] of [
        [both.passive.receive, "peer"],
        [both.passive.send(new Map(), []), "peer"],
        [both.active.receive, "local"],
        [both.active.send(new Map(), []), "local"]
      ] as const) {
        const { reason } = yield* Effect.flip(attempt)
        assert.deepStrictEqual([reason._tag, reason._tag === "ConnectionClosed" && reason.by], ["ConnectionClosed", by])
      }
    })
  )

  it.effect("complaints about a peer are bounded", () =>
    Effect.gen(function* () {
      const warnings: Array<unknown> = []
      const logger = Logger.make(({ logLevel, message }) => {
        if (logLevel === "Warn") {
          warnings.push(message)
        }
      })
      const { active, passive } = yield* makeLinks()
      const serve = Effect.gen(function* () {
        const connection = yield* Connection.make(passive, { role: "passive", local: "site-1" })
        return yield* Effect.forever(connection.receive)
      })
      yield* Effect.forkScoped(Effect.provide(serve, Logger.layer([logger])))
      yield* active.send(greeting(Frame.types.hello, "site-1.a"))
      for (let count = 0; count < 100; count++) {
        yield* active.send([fromHex("0000001100006300000000000001000178")])
      }
      yield* settle
      assert.strictEqual(warnings.length, 10)
      assert.include(String(warnings[9]), "debug log")
    })
  )

  it.effect("an interrupted receive loses nothing", () =>
    Effect.gen(function* () {
      const { active, passive } = yield* connectBoth(yield* makeLinks())
      const fiber = yield* Effect.forkScoped(passive.receive)
      yield* settle
      yield* Fiber.interrupt(fiber)
      yield* active.send(new Map([["k", 1]]), [])
      assert.strictEqual((yield* passive.receive).length, 1)
    })
  )

  it.effect("mutated frames end in messages or typed errors", () =>
    Effect.gen(function* () {
      const seed = 1234
      const random = makeRandom(seed)
      const captured = fixture("transport/tcp_cell_session.json").frames.flatMap(
        (frame: { readonly hex?: string }) => frame.hex ?? []
      )
      const ends = new Map<string, number>()
      for (let run = 0; run < 300; run++) {
        const links = yield* makeLinks()
        const life = yield* Effect.scoped(
          Effect.gen(function* () {
            const connection = yield* Connection.make(links.passive, { role: "passive", local: "site-1.job-1" })
            return yield* Effect.forever(connection.receive)
          })
        ).pipe(Effect.forkScoped)
        if (random(2) === 0) {
          yield* links.active.send(greeting(Frame.types.hello, "site-1.a"))
        }
        for (let count = 0; count < 40; count++) {
          const bytes = fromHex(captured[random(captured.length)])
          for (let change = random(4); change > 0; change--) {
            bytes[random(bytes.length)] = random(256)
          }
          yield* links.active.send([bytes])
        }
        yield* settle
        const exit = life.pollUnsafe()
        const end = exit === undefined ? "open" : yield* Effect.result(exit)
        const tag =
          typeof end === "string"
            ? end
            : Result.match(end, { onSuccess: () => "done", onFailure: (e) => e.reason._tag })
        assert.include(["open", "ConnectionClosed", "HandshakeFailed"], tag, `seed ${seed}, run ${run}`)
        ends.set(tag, (ends.get(tag) ?? 0) + 1)
        yield* Fiber.interrupt(life)
      }
      assert.isAbove(ends.get("ConnectionClosed") ?? 0, 10)
    }).pipe(silently)
  )
})
