import * as NodeHttp2 from "node:http2"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as Credentials from "../../src/identity/Credentials.ts"
import * as Connection from "../../src/transport/Connection.ts"
import * as Frame from "../../src/transport/Frame.ts"
import * as GrpcDriver from "../../src/transport/GrpcDriver.ts"
import * as GrpcFrame from "../../src/transport/internal/net/grpcFrame.ts"
import * as TcpDriver from "../../src/transport/TcpDriver.ts"
import { connectAs, frameOf, makePair, portOf, rawServer, rawSocket, receiveFrames, serveAs } from "./net.ts"
import { makePki } from "./pki.ts"
import { asDecoded, fixture, fromHex, makeRandom, silently, toHex, typed } from "./support.ts"

const driver = GrpcDriver.make({ handshakeTimeout: "1 second" })
const anyPort = "grpc://127.0.0.1:0"
const path = "/streamer.Streamer/Stream"

const withoutTime = (hex: string): string => hex.replace(/(a974696d657374616d70cb)[0-9a-f]{16}/, "$1")

/** The prefix of a gRPC message: not compressed, its length. */
const enveloped = (message: Uint8Array): Buffer => {
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}

/** Takes messages out of a stream of bytes, as far as they are whole. */
const makeUnwrap = () => {
  let bytes = Buffer.alloc(0)
  return (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk])
    const messages: Array<Buffer> = []
    while (bytes.length >= 5 && bytes.length >= 5 + bytes.readUInt32BE(1)) {
      const end = 5 + bytes.readUInt32BE(1)
      messages.push(bytes.subarray(5, end))
      bytes = bytes.subarray(end)
    }
    return messages
  }
}

/** A call by HTTP/2 alone, without any gRPC library. */
const rawCall = Effect.fnUntraced(function* (port: number) {
  const session = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const session = NodeHttp2.connect(`http://127.0.0.1:${port}`)
      session.on("error", () => {})
      return session
    }),
    (session) => Effect.sync(() => session.destroy())
  )
  const stream = session.request({
    ":method": "POST",
    ":path": path,
    te: "trailers",
    "content-type": "application/grpc"
  })
  stream.on("error", () => {})
  const messages: Array<Buffer> = []
  const unwrap = makeUnwrap()
  let look = () => {}
  stream.on("data", (chunk: Buffer) => {
    messages.push(...unwrap(chunk))
    look()
  })
  const ended = Promise.withResolvers<string>()
  const onTrailers = (trailers: NodeHttp2.IncomingHttpHeaders) => {
    if (trailers["grpc-status"] !== undefined) {
      ended.resolve(`${trailers["grpc-status"]} ${decodeURI(String(trailers["grpc-message"] ?? ""))}`)
    }
  }
  stream.on("trailers", onTrailers)
  stream.on("response", onTrailers)
  stream.on("close", () => ended.resolve("closed"))
  const atLeast = (count: number) =>
    Effect.callback<void>((resume) => {
      look = () => messages.length >= count && resume(Effect.void)
      look()
    })
  return { stream, messages, atLeast, ended: Effect.promise(() => ended.promise) }
})

describe("the message Frame", () => {
  it("is encoded as captured, and decoded", () => {
    for (const { message_hex, seq, sfm } of fixture("transport/grpc_session.json").events) {
      if (message_hex !== undefined) {
        const bytes = fromHex(sfm.hex)
        assert.strictEqual(toHex(GrpcFrame.encode(seq, [bytes.subarray(0, 3), bytes.subarray(3)])), message_hex)
        assert.strictEqual(toHex(GrpcFrame.decode(fromHex(message_hex)) ?? new Uint8Array(0)), sfm.hex)
      }
    }
  })

  it("counts to 2^31 - 1 and begins again; passes over unknown fields; refuses what is broken", () => {
    const bytes = Uint8Array.of(1, 2, 3)
    for (const seq of [1, 127, 128, 16384, 0x7fffffff]) {
      assert.deepStrictEqual(GrpcFrame.decode(GrpcFrame.encode(seq, [bytes])), bytes)
    }
    const known = ["", "1200", "0801", "08ffffffffffffffffff01", "1801120101", "1a0161120101", "2512345678120101"]
    assert.deepStrictEqual(
      known.map((hex) => toHex(GrpcFrame.decode(fromHex(hex)) ?? fromHex("ee"))),
      ["", "", "", "", "01", "01", "01"]
    )
    for (const hex of [
      "ff",
      "ffff",
      "12",
      "1203aabb",
      "12ffffffffffffffff7f",
      "00",
      "0b",
      "0fff",
      "08ffffffffffffffffffff01"
    ]) {
      assert.isUndefined(GrpcFrame.decode(fromHex(hex)), hex)
    }
  })

  it("never throws", () => {
    const seed = 8
    const random = makeRandom(seed)
    for (let round = 0; round < 5000; round += 1) {
      const bytes = Uint8Array.from({ length: random(40) }, () => random(256))
      const decoded = GrpcFrame.decode(bytes)
      assert.isTrue(decoded === undefined || decoded.length <= bytes.length, `seed ${seed}`)
    }
  })
})

describe("GrpcDriver", () => {
  it.live("carries frames both ways, and tells each end of the other's close", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      const accepting = yield* Effect.forkScoped(listener.accept)
      const frames = [16, 125, 126, 65536, 1_048_700, 9_000_000].map(frameOf)
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
          return passive
        })
      )
      assert.deepInclude((yield* Effect.flip(passive.receive)).reason, { _tag: "ConnectionClosed", by: "peer" })
    })
  )

  it.live("tells the dialer that the listener's end has closed", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      const accepting = yield* Effect.forkScoped(Effect.scoped(Effect.tap(listener.accept, (link) => link.receive)))
      const active = yield* driver.connect(listener.connectUrl)
      yield* active.send([frameOf(16, 1)])
      yield* Fiber.join(accepting)
      assert.deepInclude((yield* Effect.flip(active.receive)).reason, { _tag: "ConnectionClosed", by: "peer" })
    })
  )

  it.live("stops reading while nobody receives, and loses nothing", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      const { active, passive } = yield* makePair(driver, listener)
      let sent = 0
      const count = 64
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

  it.live("speaks TLS with certificates on both sides, and looks at the host", () =>
    Effect.gen(function* () {
      const pki = yield* makePki
      const withFiles = (folder: string) => GrpcDriver.make({ credentials: Credentials.inFolder(folder) })
      const listener = yield* withFiles(pki.folder("site-1-listener")).listen("grpc", { connection_security: "mtls" })
      assert.match(listener.connectUrl, /^grpcs:\/\/localhost:\d+$/)
      const { active, passive } = yield* makePair(withFiles(pki.folder("site-2")), listener)
      assert.deepInclude(active.info, { scheme: "grpcs", peerCommonName: "site-1", security: "mtls" })
      assert.deepInclude(passive.info, { scheme: "grpcs", peerCommonName: "site-2", security: "mtls" })
      yield* active.send([frameOf(100, 1)])
      assert.strictEqual((yield* receiveFrames(passive, 1)).length, 1)

      const clear = yield* Effect.flip(connectAs(driver, listener.connectUrl.replace("grpcs", "grpc"), "site-1.a"))
      assert.match(clear.message, /grpcs/)
      const open = yield* driver.listen(anyPort)
      const toClear = yield* Effect.flip(
        withFiles(pki.folder("site-1")).connect(open.connectUrl.replace("grpc:", "grpcs:"))
      )
      assert.strictEqual(toClear.reason._tag, "TlsFailed")
      const foreign = yield* Effect.flip(withFiles(pki.folder("foreign-full")).connect(listener.connectUrl))
      assert.deepInclude(foreign.reason, { _tag: "TlsFailed", problem: "foreign" })

      // A client pair does not serve here, and a certificate for another host is refused.
      const unfit = yield* Effect.flip(withFiles(pki.folder("site-1")).listen("grpcs"))
      assert.deepInclude(unfit.reason, { _tag: "BadConfig", setting: "server_cert" })
      const elsewhere = pki.mix({
        "rootCA.pem": "rootCA.pem",
        "server.crt": "site-1/client.crt",
        "server.key": "site-1/client.key"
      })
      const other = yield* withFiles(elsewhere).listen("grpcs")
      const wrongHost = yield* Effect.flip(withFiles(pki.folder("site-1")).connect(other.connectUrl))
      assert.deepInclude(wrongHost.reason, { _tag: "TlsFailed", problem: "hostName" })
    }).pipe(silently)
  )

  it.live("takes no client without a certificate of the project", () =>
    Effect.gen(function* () {
      const pki = yield* makePki
      const site = GrpcDriver.make({ credentials: Credentials.inFolder(pki.folder("site-1-listener")) })
      const listener = yield* site.listen("grpcs")
      yield* serveAs("site-1", listener)
      const none = GrpcDriver.make({ credentials: Credentials.inFolder(pki.mix({ "rootCA.pem": "rootCA.pem" })) })
      const refused = yield* none.connect(listener.connectUrl, { connection_security: "tls" }).pipe(
        Effect.flatMap((link) => Connection.make(link, { role: "active", local: "site-1.a" })),
        Effect.flip
      )
      assert.include(["ConnectionClosed", "TlsFailed", "NotReady"], refused.reason._tag)
      const next = yield* connectAs(site, listener.connectUrl, "site-1.a")
      assert.strictEqual(next.peer, "site-1")
    }).pipe(silently)
  )

  it.live("sends away who is silent, and serves others meanwhile", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      yield* silently(serveAs("site-1", listener))
      const silent = yield* Effect.forEach(["", "PRI * HTTP/2.0\r\n"], (start) =>
        Effect.flatMap(rawSocket(listener.connectUrl), (socket) =>
          Effect.callback<void>((resume) => {
            socket.write(start)
            socket.resume()
            socket.on("close", () => resume(Effect.void))
          }).pipe(Effect.forkScoped)
        )
      )
      const next = yield* connectAs(driver, listener.connectUrl, "site-1.a")
      assert.strictEqual(next.peer, "site-1")
      yield* Effect.forEach(silent, Fiber.join)
    }).pipe(silently)
  )

  it.live("ends a client whose first message is larger than any greeting", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      yield* serveAs("site-1", listener)
      const call = yield* rawCall(portOf(listener.connectUrl))
      // Its end never comes.
      const head = Buffer.alloc(5)
      head.writeUInt32BE(2_000_000_000, 1)
      call.stream.write(head)
      call.stream.write(Buffer.alloc(3_000_000))
      assert.strictEqual(yield* call.ended, "closed")
    }).pipe(silently)
  )

  it.live("says that a message is larger than the limits", () =>
    Effect.gen(function* () {
      const small = GrpcDriver.make({ maxMessageBytes: 100_000 })
      const listener = yield* small.listen(anyPort)
      const sender = yield* makePair(small, listener)
      yield* Effect.forkScoped(Effect.ignore(sender.active.send([frameOf(200_000, 1)])))
      assert.include((yield* Effect.flip(sender.active.receive)).message, "limits")
      const receiver = yield* makePair(driver, listener)
      yield* Effect.forkScoped(Effect.ignore(receiver.active.send([frameOf(200_000, 1)])))
      assert.include((yield* Effect.flip(receiver.active.receive)).message, "limits")
    })
  )

  it.live("says what else has the port", () =>
    Effect.gen(function* () {
      const { connectUrl } = yield* Effect.scoped(driver.listen(anyPort))
      const closed = yield* Effect.flip(driver.connect(connectUrl))
      assert.strictEqual(closed.reason._tag, "NotReady")
      assert.include(closed.message, "nobody listens there")
      const ssh = yield* rawServer((socket) => socket.write("SSH-2.0-OpenSSH_9.6\r\n"))
      const other = yield* Effect.flip(connectAs(driver, `grpc://127.0.0.1:${ssh.port}`, "site-1.a"))
      assert.match(other.message, /check (host and|the) port|port and scheme/)
      const tcp = yield* TcpDriver.make().listen("tcp://127.0.0.1:0")
      yield* silently(serveAs("site-1", tcp))
      const frames = yield* Effect.flip(connectAs(driver, tcp.connectUrl.replace("tcp", "grpc"), "site-1.a"))
      assert.match(frames.message, /port/)
      const stranger = yield* Effect.acquireRelease(
        Effect.callback<NodeHttp2.Http2Server>((resume) => {
          const server = NodeHttp2.createServer()
          server.on("stream", (stream) =>
            stream.respond({ "content-type": "application/grpc", "grpc-status": "12" }, { endStream: true })
          )
          server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
        }),
        (server) => Effect.sync(() => server.close())
      )
      const address = stranger.address()
      const port = typeof address === "object" ? address?.port : 0
      const noCell = yield* Effect.flip(connectAs(driver, `grpc://127.0.0.1:${port}`, "site-1.a"))
      assert.include(noCell.message, "is no cell")
    }).pipe(silently)
  )
})

describe("the captured session by gRPC", () => {
  const session = fixture("transport/grpc_session.json")
  const messages = (from: string): ReadonlyArray<string> =>
    session.events.flatMap((event: { readonly from: string; readonly message_hex?: string }) =>
      event.from === from && event.message_hex !== undefined ? [event.message_hex] : []
    )

  it.live("in the place of its listener", () =>
    Effect.gen(function* () {
      const listener = yield* driver.listen(anyPort)
      yield* silently(serveAs(session.passive_endpoint, listener))
      const call = yield* rawCall(portOf(listener.connectUrl))
      for (const hex of messages("active")) call.stream.write(enveloped(fromHex(hex)))
      yield* call.atLeast(1)
      // The number of the message differs: here it is the first of its driver.
      assert.strictEqual(
        withoutTime(toHex(GrpcFrame.decode(call.messages[0] ?? Buffer.of()) ?? Buffer.of())),
        withoutTime(toHex(GrpcFrame.decode(fromHex(messages("passive")[0] ?? "")) ?? Buffer.of()))
      )
    })
  )

  it.live("in the place of its dialer", () =>
    Effect.gen(function* () {
      const heard: Array<Buffer> = []
      let called: NodeHttp2.IncomingHttpHeaders = {}
      const server = yield* Effect.acquireRelease(
        Effect.callback<NodeHttp2.Http2Server>((resume) => {
          const server = NodeHttp2.createServer()
          server.on("stream", (stream, headers) => {
            called = headers
            const unwrap = makeUnwrap()
            stream.on("error", () => {})
            stream.on("data", (chunk: Buffer) => {
              const isFirst = heard.length === 0
              heard.push(...unwrap(chunk))
              // Headers go out with READY alone, as the reference's do.
              if (isFirst && heard.length > 0) {
                stream.respond({ "content-type": "application/grpc" }, { waitForTrailers: true })
                for (const hex of messages("passive")) stream.write(enveloped(fromHex(hex)))
              }
            })
          })
          server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
        }),
        (server) => Effect.sync(() => server.close())
      )
      const address = server.address()
      const url = `grpc://127.0.0.1:${typeof address === "object" ? address?.port : 0}`
      const link = yield* GrpcDriver.make().connect(url)
      const connection = yield* Connection.make(link, { role: "active", local: session.active_endpoint })
      assert.strictEqual(connection.peer, session.passive_endpoint)
      assert.strictEqual(called[":path"], path)
      assert.match(String(called["content-type"]), /^application\/grpc/)
      assert.strictEqual(withoutTime(toHex(heard[0] ?? Buffer.of())), withoutTime(messages("active")[0] ?? ""))
    })
  )
})

describe("malformed input to a live listener by gRPC", () => {
  for (const { delivered, name, replies, rpc, send } of fixture("transport/malformed_grpc.json").cases) {
    it.live(name, () =>
      Effect.gen(function* () {
        const received: Array<Connection.Incoming> = []
        const listener = yield* driver.listen(anyPort)
        yield* silently(serveAs("site-1.job-1", listener, (message) => received.push(message)))
        const call = yield* rawCall(portOf(listener.connectUrl))
        for (const piece of send) {
          if (piece === "<half-close>") {
            call.stream.end()
          } else {
            // The captures were made with the application id 2; cells have 1.
            call.stream.write(enveloped(fromHex(piece.replace(/(00040100000000)02/, "$101"))))
          }
          yield* Effect.sleep("10 millis")
        }
        yield* call.atLeast(replies.length)
        if (rpc !== "stays open") {
          const [, code, details] = /ended (\w+): (.*)/.exec(rpc) ?? []
          assert.strictEqual(yield* call.ended, `${code === "INTERNAL" ? 13 : 1} ${details}`)
        }
        const types = call.messages.map((message) => (GrpcFrame.decode(message) ?? Buffer.of())[6])
        const names = new Map<number, string>(
          Object.entries(Frame.types).map(([name, type]) => [type, name.toUpperCase()])
        )
        assert.deepStrictEqual(
          types.map((type) => names.get(type ?? 0)),
          replies
        )
        const next = yield* connectAs(driver, listener.connectUrl, "site-1.next")
        assert.strictEqual(next.peer, "site-1.job-1")
        assert.deepStrictEqual(
          received.map(({ headers, payload }) => ({ headers: new Map(headers), payload: toHex(payload) })),
          delivered.map((one: { readonly headers: unknown; readonly payload_hex: string | null }) => ({
            headers: typed(one.headers, asDecoded),
            payload: one.payload_hex ?? ""
          }))
        )
      }).pipe(silently)
    )
  }
})
