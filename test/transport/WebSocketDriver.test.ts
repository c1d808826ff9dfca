import * as NodeCrypto from "node:crypto"
import type { Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { WebSocket } from "ws"
import * as Credentials from "../../src/identity/Credentials.ts"
import * as Connection from "../../src/transport/Connection.ts"
import * as TcpDriver from "../../src/transport/TcpDriver.ts"
import * as WebSocketDriver from "../../src/transport/WebSocketDriver.ts"
import { connectAs, frameOf, makePair, portOf, rawServer, rawSocket, receiveFrames, serveAs } from "./net.ts"
import { makePki } from "./pki.ts"
import { fixture, fromHex, silently, toHex } from "./support.ts"

const driver = WebSocketDriver.make({ handshakeTimeout: "1 second" })
const anyPort = "http://127.0.0.1:0"

/** Takes messages out of a stream of WebSocket bytes, as far as they are whole: opcode, mask or not, and payload. */
const makeParser = () => {
  let bytes = Buffer.alloc(0)
  return (chunk: Uint8Array) => {
    bytes = Buffer.concat([bytes, chunk])
    const messages: Array<{ readonly first: number; readonly masked: boolean; readonly payload: Buffer }> = []
    while (bytes.length >= 2) {
      const masked = ((bytes[1] ?? 0) & 128) !== 0
      const short = (bytes[1] ?? 0) & 127
      const lengthSize = short === 126 ? 2 : short === 127 ? 8 : 0
      const at = 2 + lengthSize + (masked ? 4 : 0)
      if (bytes.length < at) break
      const length = lengthSize === 0 ? short : lengthSize === 2 ? bytes.readUInt16BE(2) : bytes.readUInt32BE(6)
      if (bytes.length < at + length) break
      const payload = Buffer.from(bytes.subarray(at, at + length))
      for (let index = 0; masked && index < length; index += 1) {
        payload[index] = (payload[index] ?? 0) ^ (bytes[at - 4 + (index % 4)] ?? 0)
      }
      messages.push({ first: bytes[0] ?? 0, masked, payload })
      bytes = bytes.subarray(at + length)
    }
    return messages
  }
}

/** The text of a request or response, then each chunk behind it. */
const afterHead = (socket: Socket, onHead: (head: string) => void, onRest: (rest: Uint8Array) => void) => {
  let head = ""
  let isDone = false
  socket.on("data", (chunk: Buffer) => {
    if (isDone) return onRest(chunk)
    head += chunk.toString("latin1")
    const end = head.indexOf("\r\n\r\n")
    if (end >= 0) {
      isDone = true
      onHead(head.slice(0, end + 4))
      const rest = Buffer.from(head.slice(end + 4), "latin1")
      if (rest.length > 0) onRest(rest)
    }
  })
}

const withoutTime = (hex: string): string => hex.replace(/(a974696d657374616d70cb)[0-9a-f]{16}/, "$1")

describe("WebSocketDriver", () => {
  it.live("carries frames both ways, and tells each end of the other's close", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      const accepting = yield* Effect.forkScoped(listener.accept)
      const frames = [16, 125, 126, 65536, 1_048_700, 5_000_000].map(frameOf)
      const passive = yield* Effect.scoped(
        Effect.gen(function* () {
          const active = yield* driver.connect(listener.connectUrl)
          const passive = yield* Fiber.join(accepting)
          for (const [from, to] of [
            [active, passive],
            [passive, active]
          ] as const) {
            yield* Effect.forkScoped(
              Effect.forEach(frames, (bytes) => from.send([bytes.subarray(0, 10), bytes.subarray(10)]))
            )
            assert.deepStrictEqual(yield* receiveFrames(to, frames.length), frames)
          }
          assert.strictEqual(active.info.localAddress, passive.info.peerAddress)
          return passive
        })
      )
      assert.deepInclude((yield* Effect.flip(passive.receive)).reason, { _tag: "ConnectionClosed", by: "peer" })
    })
  )

  it.live("stops reading while nobody receives, and loses nothing", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      const { active, passive } = yield* makePair(driver, listener)
      // A greeting, as it were: before it no large frame is taken.
      yield* active.send([frameOf(16, 0)])
      yield* receiveFrames(passive, 1)
      let sent = 0
      const count = 64
      const sending = yield* Effect.forEach(
        Array.from({ length: count }, (_, index) => frameOf(1024 * 1024, index)),
        (bytes) => Effect.tap(active.send([bytes]), () => Effect.sync(() => (sent += 1)))
      ).pipe(Effect.forkScoped)
      yield* Effect.sleep("200 millis")
      assert.isBelow(sent, count)
      const frames = yield* receiveFrames(passive, count)
      yield* Fiber.join(sending)
      assert.deepStrictEqual(
        frames.map((bytes) => bytes[20]),
        Array.from({ length: count }, (_, index) => index)
      )
    })
  )

  it.live("speaks TLS with certificates on both sides", () =>
    Effect.gen(function* () {
      const pki = yield* makePki
      const withFiles = (folder: string) =>
        WebSocketDriver.make({ credentials: Credentials.inFolder(pki.folder(folder)) })
      const listener = yield* withFiles("site-1-listener").listen("http", { connection_security: "mtls" })
      assert.match(listener.connectUrl, /^https:\/\/localhost:\d+$/)
      const { active, passive } = yield* makePair(withFiles("site-2"), listener)
      assert.deepInclude(active.info, { scheme: "https", peerCommonName: "site-1", security: "mtls" })
      assert.deepInclude(passive.info, { scheme: "https", peerCommonName: "site-2", security: "mtls" })
      yield* active.send([frameOf(100, 1)])
      assert.strictEqual((yield* receiveFrames(passive, 1)).length, 1)
      const clear = yield* Effect.flip(driver.connect(listener.connectUrl.replace("https", "http")))
      assert.match(clear.message, /https/)
    }).pipe(silently)
  )

  it.live("sends no frame to a dialer of the reference that would end it", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      const accepting = yield* Effect.forkScoped(listener.accept)
      const socket = yield* Effect.acquireRelease(
        Effect.sync(
          () =>
            new WebSocket(`ws://127.0.0.1:${portOf(listener.connectUrl)}/f3`, {
              headers: { "User-Agent": "Python/3.11 aiohttp/3.14.3" }
            })
        ),
        (socket) => Effect.sync(() => socket.terminate())
      )
      const sizes: Array<number> = []
      socket.on("message", (data: Buffer) => sizes.push(data.length))
      const link = yield* Fiber.join(accepting)
      const { reason } = yield* Effect.flip(link.send([frameOf(4_194_304, 1)]))
      assert.deepInclude(reason, { _tag: "BadData" })
      yield* link.send([frameOf(4_194_303, 1)])
      yield* Effect.callback<void>((resume) => {
        if (sizes.length > 0) resume(Effect.void)
        socket.on("message", () => resume(Effect.void))
      })
      assert.deepStrictEqual(sizes, [4_194_303])
    })
  )

  it.live("answers other paths and plain requests as the reference, and serves others meanwhile", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      yield* silently(serveAs("site-1", listener))
      const statusOf = (request: string) =>
        Effect.flatMap(rawSocket(listener.connectUrl), (socket) =>
          Effect.callback<string>((resume) => {
            let text = ""
            socket.on("data", (chunk) => (text += chunk.toString("latin1")))
            socket.on("close", () => resume(Effect.succeed(text.split("\r\n")[0] ?? "")))
            socket.write(request)
          })
        )
      const upgrade = "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
      const key = "Sec-WebSocket-Key: 99z/spRcJS7ZCES/hsSzNQ==\r\n\r\n"
      assert.strictEqual(yield* statusOf(`GET /other HTTP/1.1\r\n${upgrade}${key}`), "HTTP/1.1 404 Not Found")
      assert.strictEqual(yield* statusOf("GET /other HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 404 Not Found")
      assert.strictEqual(yield* statusOf("GET /f3 HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 400 Bad Request")
      assert.strictEqual(yield* statusOf("\x00\x00\x00\x41\x00\r\n\r\n"), "HTTP/1.1 400 Bad Request")
      // Silent, and slow ones, are sent away after the handshake timeout.
      const slow = yield* Effect.forEach(["", "GET /f3 HTTP/1.1\r\nHost:"], (start) =>
        Effect.forkScoped(statusOf(start))
      )
      const next = yield* connectAs(driver, listener.connectUrl, "site-1.a")
      assert.strictEqual(next.peer, "site-1")
      yield* Effect.forEach(slow, Fiber.join)
    }).pipe(silently)
  )

  it.live("ends a client whose first message is larger than any greeting", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      yield* silently(serveAs("site-1", listener))
      const link = yield* driver.connect(listener.connectUrl)
      yield* Effect.ignore(link.send([frameOf(3_000_000, 1)]))
      assert.strictEqual((yield* Effect.flip(link.receive)).reason._tag, "ConnectionClosed")
    })
  )

  it.live("says what else has the port", () =>
    Effect.gen(function* () {
      const ssh = yield* rawServer((socket) => socket.write("SSH-2.0-OpenSSH_9.6\r\n"))
      const notHttp = yield* Effect.flip(driver.connect(`http://127.0.0.1:${ssh.port}`))
      assert.strictEqual(notHttp.reason._tag, "BadData")
      const web = yield* rawServer((socket) =>
        socket.once("data", () => socket.write("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))
      )
      const page = yield* Effect.flip(driver.connect(`http://127.0.0.1:${web.port}`))
      assert.strictEqual(page.reason._tag, "NotReady")
      assert.include(page.message, "404")
      const tcp = yield* TcpDriver.make().listen("tcp://127.0.0.1:0")
      yield* silently(serveAs("site-1", tcp))
      const frames = yield* Effect.flip(driver.connect(tcp.connectUrl.replace("tcp", "http")))
      assert.deepInclude(frames.reason, { _tag: "ConnectionClosed", by: "peer" })
      const silent = yield* rawServer(() => {})
      const late = yield* Effect.flip(driver.connect(`http://127.0.0.1:${silent.port}`))
      assert.include(late.message, "handshakeTimeout")
      const closed = yield* Effect.flip(driver.connect("http://127.0.0.1:9"))
      assert.strictEqual(closed.reason._tag, "NotReady")
    })
  )
})

describe("the captured session by WebSocket", () => {
  const session = fixture("transport/websocket_session.json")

  it.live("in the place of its dialer", () =>
    Effect.gen(function* () {
      const heard: Array<ReturnType<ReturnType<typeof makeParser>>[number]> = []
      let request = ""
      const closed = yield* Effect.acquireRelease(
        Effect.sync(() => Promise.withResolvers<void>()),
        () => Effect.void
      )
      const server = yield* rawServer((socket) => {
        const parse = makeParser()
        let isServed = false
        afterHead(
          socket,
          (head) => {
            request = head
            const key = /Sec-WebSocket-Key: (.*)\r\n/i.exec(head)?.[1]
            const accept = NodeCrypto.createHash("sha1")
              .update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
              .digest("base64")
            socket.write(session.response.replace(/(Sec-WebSocket-Accept: ).*\r\n/, `$1${accept}\r\n`))
          },
          (rest) => {
            heard.push(...parse(rest))
            if (!isServed && heard.length > 0) {
              isServed = true
              for (const { opcode, wire_hex } of session.passive_messages) {
                if (opcode === 2) socket.write(fromHex(wire_hex))
              }
            }
            if (heard.some(({ first }) => first === 0x88)) {
              socket.end(fromHex("880203e8"))
              closed.resolve()
            }
          }
        )
      })
      yield* Effect.scoped(
        Effect.gen(function* () {
          const link = yield* driver.connect(`http://127.0.0.1:${server.port}`)
          const connection = yield* Connection.make(link, { role: "active", local: session.active_endpoint })
          assert.strictEqual(connection.peer, session.passive_endpoint)
        })
      )
      yield* Effect.promise(() => closed.promise)
      assert.match(request, /^GET \/f3 HTTP\/1\.1\r\n/)
      assert.match(request, /\r\nSec-WebSocket-Version: 13\r\n/)
      assert.notMatch(request, /Sec-WebSocket-(Extensions|Protocol)|Origin/i)
      const [hello, close] = [heard[0], heard.at(-1)]
      assert.deepInclude(hello, { first: 0x82, masked: true })
      assert.strictEqual(
        withoutTime(toHex(hello?.payload ?? Buffer.of())),
        withoutTime(session.active_messages[0].sfm.hex)
      )
      assert.deepInclude(close, { first: 0x88, masked: true })
      assert.strictEqual(toHex(close?.payload ?? Buffer.of()), "03e8")
    })
  )

  it.live("in the place of its listener", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      const serving = yield* listener.accept.pipe(
        Effect.flatMap((link) => Connection.make(link, { role: "passive", local: session.passive_endpoint })),
        Effect.forkScoped
      )
      const socket = yield* rawSocket(listener.connectUrl)
      const parse = makeParser()
      const heard: Array<ReturnType<typeof parse>[number]> = []
      let response = ""
      const closed = Promise.withResolvers<void>()
      afterHead(
        socket,
        (head) => {
          response = head
          for (const { wire_hex } of session.active_messages) socket.write(fromHex(wire_hex))
        },
        (rest) => heard.push(...parse(rest))
      )
      socket.on("close", () => closed.resolve())
      socket.write(session.request.replaceAll("<PORT>", String(portOf(listener.connectUrl))))
      assert.strictEqual((yield* Fiber.join(serving)).peer, session.active_endpoint)
      yield* Effect.promise(() => closed.promise)
      assert.match(response, /^HTTP\/1\.1 101 Switching Protocols\r\n/)
      assert.include(response, "Sec-WebSocket-Accept: YJAVix3aZNb/KzZ/fuYxohkqbfg=\r\n")
      const [ready, close] = [heard[0], heard.at(-1)]
      assert.deepInclude(ready, { first: 0x82, masked: false })
      assert.strictEqual(
        withoutTime(toHex(ready?.payload ?? Buffer.of())),
        withoutTime(session.passive_messages[0].sfm.hex)
      )
      assert.deepInclude(close, { first: 0x88, masked: false })
      assert.strictEqual(toHex(close?.payload ?? Buffer.of()), "03e8")
    })
  )
})
