import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Result } from "effect"
import { portRanges } from "../../src/transport/internal/net/connector.ts"
import * as TcpDriver from "../../src/transport/TcpDriver.ts"
import { connectAs, frameOf, makePair, rawServer, rawSocket, receiveFrames, serveAs } from "./net.ts"
import { makeRandom } from "./support.ts"

const driver = TcpDriver.make()
const anyPort = "tcp://127.0.0.1:0"

describe("TcpDriver", () => {
  it.live("carries frames of all sizes both ways, in order", () =>
    Effect.gen(function* () {
      const seed = 20261129
      const random = makeRandom(seed)
      const listener = yield* driver.listen(anyPort)
      const { active, passive } = yield* makePair(driver, listener)
      const sizes = [16, 17, 65535, 65536, 1024 * 1024, 3 * 1024 * 1024 + 5]
      const frames = Array.from({ length: 60 }, (_, index) =>
        frameOf(index < sizes.length ? (sizes[index] ?? 16) : 16 + random(200_000), index)
      )
      for (const [from, to] of [
        [active, passive],
        [passive, active]
      ] as const) {
        const received = yield* Effect.forkScoped(receiveFrames(to, frames.length))
        yield* Effect.forEach(
          frames,
          (bytes) => {
            const cut = random(bytes.length)
            return from.send([bytes.subarray(0, cut), new Uint8Array(0), bytes.subarray(cut)])
          },
          { concurrency: "unbounded" }
        )
        for (const [index, bytes] of (yield* Fiber.join(received)).entries()) {
          assert.isTrue(Buffer.from(bytes).equals(frames[index] ?? new Uint8Array(0)), `frame ${index}, seed ${seed}`)
        }
      }
      assert.strictEqual(active.info.scheme, "tcp")
      assert.strictEqual(active.info.localAddress, passive.info.peerAddress)
      assert.strictEqual(active.info.peerAddress, passive.info.localAddress)
    })
  )

  it.live("tells each end that the other has closed, after the last frame", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      const accepting = yield* Effect.forkScoped(listener.accept)
      yield* Effect.scoped(Effect.flatMap(driver.connect(listener.connectUrl), (link) => link.send([frameOf(20, 1)])))
      const passive = yield* Fiber.join(accepting)
      assert.strictEqual((yield* receiveFrames(passive, 1)).length, 1)
      const error = yield* Effect.flip(passive.receive)
      assert.deepInclude(error.reason, { _tag: "ConnectionClosed", by: "peer" })
      assert.deepInclude((yield* Effect.flip(passive.send([frameOf(16, 0)]))).reason, { _tag: "ConnectionClosed" })
    })
  )

  it.live("stops reading while nobody receives, and loses nothing", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      const { active, passive } = yield* makePair(driver, listener)
      const count = 64
      let sent = 0
      const sending = yield* Effect.forEach(
        Array.from({ length: count }, (_, index) => frameOf(1024 * 1024, index)),
        (bytes) => Effect.tap(active.send([bytes]), () => Effect.sync(() => (sent += 1)))
      ).pipe(Effect.forkScoped)
      yield* Effect.sleep("300 millis")
      assert.isBelow(sent, count)
      const frames = yield* receiveFrames(passive, count)
      yield* Fiber.join(sending)
      assert.deepStrictEqual(
        frames.map((bytes) => bytes[20]),
        Array.from({ length: count }, (_, index) => index)
      )
    })
  )

  it.live("closes a connection whose peer takes nothing, with a typed outcome for all that waits", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort, { streaming_send_timeout: 0.2 })
      const accepting = yield* Effect.forkScoped(listener.accept)
      const socket = yield* rawSocket(listener.connectUrl)
      socket.pause()
      const link = yield* Fiber.join(accepting)
      const big = frameOf(16 * 1024 * 1024, 1)
      const outcomes = yield* Effect.all(
        [Effect.flip(link.send([big])), Effect.flip(link.send([frameOf(16, 2)])), Effect.flip(link.receive)],
        { concurrency: "unbounded" }
      )
      for (const { reason } of outcomes) {
        assert.deepInclude(reason, { _tag: "ConnectionClosed", by: "io" })
        assert.include(reason.message, "streaming_send_timeout")
      }
    })
  )

  it.live("serves others while clients are silent, slow or half open", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      yield* serveAs("site-1", listener)
      const silent = yield* Effect.forEach(Array.from({ length: 20 }), () => rawSocket(listener.connectUrl))
      for (const [index, socket] of silent.entries()) {
        if (index % 2 === 0) socket.write(new Uint8Array([0, 0, 0]))
        if (index % 3 === 0) socket.end()
      }
      const connection = yield* connectAs(driver, listener.connectUrl, "site-1.a")
      assert.strictEqual(connection.peer, "site-1")
    })
  )

  it.live("gives ports from ranges, and says when none is free", () =>
    Effect.gen(function* () {
      const first = yield* driver.listen("tcp")
      const port = Number(first.connectUrl.split(":")[2])
      assert.strictEqual(first.connectUrl, `tcp://localhost:${port}`)
      const taken = yield* Effect.flip(driver.listen("tcp", { ports: `${port},${port}-${port}` }))
      assert.deepInclude(taken.reason, { _tag: "BadConfig", setting: "ports" })
      const inUse = yield* Effect.flip(driver.listen(first.connectUrl.replace("localhost", "127.0.0.1")))
      assert.deepInclude(inUse.reason, { _tag: "IoFailed", code: "EADDRINUSE" })
      const next = yield* driver.listen("tcp", { ports: "20000-60000" })
      assert.match(next.connectUrl, /^tcp:\/\/localhost:[2-6]\d{4}$/)
      assert.deepStrictEqual(Result.getOrThrow(portRanges("8000, -9000,9000-,7-8")), [
        [8000, 8000],
        [1025, 9000],
        [9000, 65535],
        [7, 8]
      ])
      for (const wrong of ["", "-", "a", "9-8", "1-2-3", "70000", "1,,2"]) {
        assert.isTrue(Result.isFailure(portRanges(wrong)), wrong)
      }
    })
  )
})

describe("what a person is told", () => {
  const reasonOf = (url: string, resources?: { readonly [name: string]: string | boolean }) =>
    Effect.map(Effect.flip(Effect.scoped(driver.connect(url, resources))), ({ reason }) => reason)

  /** How a cell's handshake with what has this port ends. */
  const handshakeError = (port: number) =>
    Effect.flip(Effect.scoped(connectAs(driver, `tcp://127.0.0.1:${port}`, "site-1.a")))

  it.live("a closed port, an unknown host, a wrong URL", () =>
    Effect.gen(function* () {
      const { connectUrl } = yield* Effect.scoped(driver.listen(anyPort))
      const refused = yield* reasonOf(connectUrl)
      assert.strictEqual(refused._tag, "NotReady")
      assert.include(refused.message, "nobody listens there")
      const unknown = yield* reasonOf("tcp://no-such-host.invalid:8102")
      assert.strictEqual(unknown._tag, "NotReady")
      assert.match(unknown.message, /host/)
      assert.deepInclude(yield* reasonOf("tcp://localhost"), { _tag: "BadConfig", setting: "url" })
      assert.deepInclude(yield* reasonOf("tcp://[::1]:1"), { _tag: "BadConfig", setting: "url" })
      assert.deepInclude(yield* reasonOf("tcp://localhost:99999"), { _tag: "BadConfig", setting: "url" })
    })
  )

  it.live("a host that does not answer", () =>
    Effect.gen(function* () {
      const patient = TcpDriver.make({ connectTimeout: "100 millis" })
      // An address of documentation (RFC 5737): its packets go nowhere, or the system knows no way at once.
      const { reason } = yield* Effect.flip(Effect.scoped(patient.connect("tcp://192.0.2.1:8102")))
      assert.strictEqual(reason._tag, "NotReady")
    })
  )

  it.live("a clear URL is not dialed where certificates are wanted", () =>
    Effect.gen(function* () {
      const reason = yield* reasonOf("tcp://localhost:8102", { connection_security: "mtls" })
      assert.deepInclude(reason, { _tag: "BadConfig", setting: "connection_security" })
      assert.include(reason.message, "stcp://localhost:8102")
    })
  )

  it.live("ports of other services", () =>
    Effect.gen(function* () {
      const answers = {
        "another service": "SSH-2.0-OpenSSH_9.6\r\n",
        "speaks HTTP": "HTTP/1.1 400 Bad Request\r\n\r\n",
        "answers with TLS": Buffer.from([0x15, 3, 3, 0, 2, 2, 70]),
        "another protocol": Buffer.from([0xff, 0xfe, 0xfd, 0xfc, 1])
      }
      for (const [said, answer] of Object.entries(answers)) {
        const server = yield* rawServer((socket) => socket.write(answer))
        const error = yield* handshakeError(server.port)
        assert.strictEqual(error.reason._tag, "BadData", said)
        assert.include(error.message, said)
      }
      const leaving = yield* rawServer((socket) => socket.once("data", () => socket.end()))
      const left = yield* handshakeError(leaving.port)
      assert.deepInclude(left.reason, { _tag: "ConnectionClosed", by: "peer" })
      assert.include(left.message, "before it said a word")
    })
  )
})
