import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Latch, Layer, Metric, Result, Scope } from "effect"
import { SecureRandom } from "effect/crypto"
import { TestClock } from "effect/testing"
import type { CellRequest, GuardRule } from "../../src/cell/Cell.ts"
import * as Cell from "../../src/cell/Cell.ts"
import type { CellError } from "../../src/cell/CellError.ts"
import type { Codec, ReferenceSink } from "../../src/fobs/Fobs.ts"
import { DownloadRef } from "../../src/fobs/Values.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import * as MemoryDriver from "../../src/transport/MemoryDriver.ts"
import { chat, echo, makeFamily, settle, until } from "./support.ts"
import { freshSeed, seeded } from "./wire.ts"

const trainerName = "site-1.-client_api_t"
const modes = ["plain", "stream"] as const

/** The tag of the reason of a failed request. */
const reasonOf = <A>(effect: Effect.Effect<A, CellError>) =>
  Effect.match(effect, { onFailure: (error) => error.reason._tag, onSuccess: () => "answered" })

const stageOf = <A>(effect: Effect.Effect<A, CellError>) =>
  Effect.match(effect, {
    onFailure: ({ reason }) => (reason._tag === "RequestTimeout" ? reason.stage : reason._tag),
    onSuccess: () => "answered"
  })

/** Counts what it decodes. */
const countingCodec = () => {
  const counts = { parse: 0, decode: 0 }
  const codec: Codec = {
    encode: ModelCodec.codec.encode,
    parse: (message) => {
      counts.parse += 1
      return ModelCodec.codec.parse(message)
    },
    decode: (message, options) => {
      counts.decode += 1
      return ModelCodec.codec.decode(message, options)
    }
  }
  return { codec, counts }
}

describe("requests", () => {
  for (const mode of modes) {
    it.effect(`${mode}: to the parent, to a child, to a sibling through the parent, to oneself`, () =>
      Effect.gen(function* () {
        const { job, parent, trainer } = yield* makeFamily()
        for (const { cell } of [job, parent, trainer]) {
          yield* cell.handle(chat("echo"), ({ origin, payload }) =>
            Effect.succeed({ returnCode: "ok", headers: new Map([["x_by", cell.fqcn]]), payload: [origin, payload] })
          )
        }
        const routes = [
          [job, "site-1"],
          [parent, trainerName],
          [job, trainerName],
          [job, "site-1.job"]
        ] as const
        for (const [from, target] of routes) {
          const { fqcn } = from.cell
          for (const payload of [null, "text", new Uint8Array([1, 2]), new Map([["k", [1, 2.5]]])]) {
            const reply = yield* from.cell.request(target, chat("echo"), payload, { timeout: "5 seconds", mode })
            assert.strictEqual(reply.returnCode, "ok")
            assert.strictEqual(reply.headers?.get("x_by"), target)
            assert.deepStrictEqual(reply.payload, [fqcn, payload])
          }
        }
      })
    )

    it.effect(`${mode}: bytes come as bytes, nothing as null`, () =>
      Effect.gen(function* () {
        const { job, parent } = yield* makeFamily()
        const got: Array<unknown> = []
        yield* parent.cell.handle(chat("echo"), (request) => {
          got.push(request.payload)
          return echo(request)
        })
        for (const payload of [undefined, new Uint8Array([7]), new Uint8Array(0)]) {
          const reply = yield* job.cell.request("site-1", chat("echo"), payload, { timeout: "5 seconds", mode })
          assert.deepStrictEqual(reply.payload, payload ?? null)
        }
        assert.deepStrictEqual(got, [null, new Uint8Array([7]), new Uint8Array(0)])
      })
    )

    it.effect(`${mode}: times out at its bound, not before; the late reply is dropped`, () =>
      Effect.gen(function* () {
        const { job, parent } = yield* makeFamily()
        yield* parent.cell.handle(chat("slow"), (request) => Effect.delay(echo(request), "3 seconds"))
        const fiber = yield* Effect.forkChild(
          stageOf(job.cell.request("site-1", chat("slow"), 1, { timeout: "2 seconds", mode }))
        )
        yield* TestClock.adjust("1999 millis")
        assert.isUndefined(fiber.pollUnsafe())
        yield* TestClock.adjust("1 millis")
        assert.strictEqual(yield* Fiber.join(fiber), "waiting")
        yield* TestClock.adjust("10 seconds")
        const again = yield* Effect.forkChild(
          job.cell.request("site-1", chat("slow"), 2, { timeout: "3001 millis", mode })
        )
        yield* settle
        yield* TestClock.adjust("3 seconds")
        assert.strictEqual((yield* Fiber.join(again)).payload, 2)
      })
    )

    it.effect(`${mode}: extend allows another timeout each time it says true`, () =>
      Effect.gen(function* () {
        const { job, parent } = yield* makeFamily()
        yield* parent.cell.handle(chat("never"), () => Effect.never)
        let asked = 0
        const extend = Effect.sync(() => {
          asked += 1
          return asked < 3
        })
        const fiber = yield* Effect.forkChild(
          reasonOf(job.cell.request("site-1", chat("never"), 1, { timeout: "2 seconds", mode, extend }))
        )
        yield* TestClock.adjust("5999 millis")
        assert.deepStrictEqual([asked, fiber.pollUnsafe()], [2, undefined])
        yield* TestClock.adjust("1 millis")
        assert.strictEqual(yield* Fiber.join(fiber), "RequestTimeout")
      })
    )

    it.effect(`${mode}: no route fails at once; an invalid name too`, () =>
      Effect.gen(function* () {
        const { job } = yield* makeFamily()
        const ask = (target: string) => reasonOf(job.cell.request(target, chat("x"), 1, { timeout: "1 hour", mode }))
        assert.strictEqual(yield* ask("site-1.job.child"), "TargetUnreachable")
        assert.strictEqual(yield* ask("site-1..x"), "CellMisconfigured")
      })
    )

    it.effect(`${mode}: what can't be encoded is not sent`, () =>
      Effect.gen(function* () {
        const { job, parent } = yield* makeFamily()
        let calls = 0
        yield* parent.cell.handle(chat("x"), () =>
          Effect.sync(() => void calls++).pipe(Effect.as({ returnCode: "ok" }))
        )
        const request = job.cell.request("site-1", chat("x"), () => 1, { timeout: "1 second", mode })
        assert.strictEqual(yield* reasonOf(request), "EncodeFailed")
        assert.strictEqual(yield* reasonOf(job.cell.send("site-1", chat("x"), () => 1)), "EncodeFailed")
        yield* TestClock.adjust("1 second")
        assert.strictEqual(calls, 0)
      })
    )

    it.effect(`${mode}: a slow handler holds nobody up`, () =>
      Effect.gen(function* () {
        const { job, parent } = yield* makeFamily()
        yield* parent.cell.handle(chat("slow"), () => Effect.never)
        yield* parent.cell.handle(chat("echo"), echo)
        yield* Effect.forkChild(job.cell.request("site-1", chat("slow"), 1, { timeout: "1 hour", mode }))
        yield* settle
        const reply = yield* job.cell.request("site-1", chat("echo"), 2, { timeout: "1 second", mode })
        assert.strictEqual(reply.payload, 2)
      })
    )

    it.effect(`${mode}: an interrupted request is forgotten, its reply dropped`, () =>
      Effect.gen(function* () {
        const { job, parent } = yield* makeFamily()
        yield* parent.cell.handle(chat("slow"), (request) => Effect.delay(echo(request), "1 second"))
        const fiber = yield* Effect.forkChild(job.cell.request("site-1", chat("slow"), 1, { timeout: "1 hour", mode }))
        yield* settle
        yield* Fiber.interrupt(fiber)
        yield* TestClock.adjust("2 seconds")
        yield* parent.cell.flush("site-1.job")
      })
    )

    it.effect(`${mode}: without credentials nothing secure is sent`, () =>
      Effect.gen(function* () {
        const { job } = yield* makeFamily()
        const request = job.cell.request("site-1", chat("x"), 1, { timeout: "1 second", mode, secure: true })
        assert.strictEqual(yield* reasonOf(request), "CellMisconfigured")
      })
    )
  }

  it.effect("a peer's codes, error and headers come back; no answer is a process_exception", () =>
    Effect.gen(function* () {
      const { job, parent } = yield* makeFamily()
      yield* parent.cell.handle(chat("no"), () => Effect.succeed({ returnCode: "invalid_request", error: "why" }))
      yield* parent.cell.handle(chat("none"), () => Effect.succeed(undefined))
      for (const mode of modes) {
        const reply = yield* job.cell.request("site-1", chat("no"), 1, { timeout: "1 second", mode })
        assert.deepStrictEqual([reply.returnCode, reply.error, reply.payload], ["invalid_request", "why", null])
      }
      const none = yield* job.cell.request("site-1", chat("none"), 1, { timeout: "1 second" })
      assert.deepStrictEqual([none.returnCode, none.error], ["process_exception", undefined])
    })
  )

  it.effect("a failing handler is told to a streamed requester, not to a plain one", () =>
    Effect.gen(function* () {
      const { job, parent } = yield* makeFamily()
      yield* parent.cell.handle(chat("die"), () => Effect.die(new RangeError("too far")))
      yield* parent.cell.handle(chat("fail"), () => job.cell.send("a..b", chat("x"), 1).pipe(Effect.as(undefined)))
      const failed = (topic: string) => Effect.flip(job.cell.request("site-1", chat(topic), 1, { timeout: "1 second" }))
      const died = yield* failed("die")
      assert.strictEqual(died.reason._tag, "PeerFailed")
      assert.strictEqual(died.message, "blob_cb threw RangeError: too far")
      assert.match((yield* failed("fail")).message, /^blob_cb threw CellMisconfigured: /)
      const plain = yield* job.cell.request("site-1", chat("die"), 1, { timeout: "1 second", mode: "plain" })
      assert.deepStrictEqual([plain.returnCode, plain.error], ["process_exception", undefined])
    })
  )

  it.effect("an undecodable request: streamed it fails at the requester, plain it is never answered", () =>
    Effect.gen(function* () {
      const broken: Codec = { ...ModelCodec.codec, encode: () => Result.succeed([new Uint8Array([1, 2, 3])]) }
      const { job, parent } = yield* makeFamily({ children: { codec: broken } })
      let calls = 0
      yield* parent.cell.handle(chat("x"), () => Effect.sync(() => void calls++).pipe(Effect.as({ returnCode: "ok" })))
      const error = yield* Effect.flip(job.cell.request("site-1", chat("x"), "a", { timeout: "1 second" }))
      assert.strictEqual(error.reason._tag, "PeerFailed")
      assert.match(error.message, /^blob_cb threw DecodeFailed: /)
      const plain = yield* Effect.forkChild(
        reasonOf(job.cell.request("site-1", chat("x"), "a", { timeout: "1 second", mode: "plain" }))
      )
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* Fiber.join(plain), "RequestTimeout")
      assert.strictEqual(calls, 0)
    })
  )

  it.effect("an undecodable reply fails the request with DecodeFailed", () =>
    Effect.gen(function* () {
      const broken: Codec = { ...ModelCodec.codec, encode: () => Result.succeed([new Uint8Array([1, 2, 3])]) }
      const { job, parent } = yield* makeFamily({ parent: { codec: broken } })
      yield* parent.cell.handle(chat("echo"), echo)
      for (const mode of modes) {
        const request = job.cell.request("site-1", chat("echo"), "a", { timeout: "1 second", mode })
        assert.strictEqual(yield* reasonOf(request), "DecodeFailed")
      }
    })
  )

  it.effect("references: a sink takes arrays out, a resolver brings them in, without one the message fails", () =>
    Effect.gen(function* () {
      const taken: Array<unknown> = []
      const marker = new DownloadRef("site-1.job", "ref-1", "T0", 3)
      const sink: ReferenceSink = {
        add: (_, value) => `T${taken.push(value) - 1}`,
        downloads: () => [{ dot: 3, fqcn: "site-1.job", refId: "ref-1" }]
      }
      const { job, parent } = yield* makeFamily()
      yield* parent.cell.handle(chat("echo"), (request) =>
        Effect.succeed({
          returnCode: "ok",
          payload: String(request.payload instanceof Map && request.payload.get("w"))
        })
      )
      const { NdArray } = yield* Effect.promise(() => import("../../src/fobs/NdArray.ts"))
      const array = NdArray.fromTyped(Float32Array.of(1, 2, 3))
      const ask = job.cell.request("site-1", chat("echo"), new Map([["w", array]]), {
        timeout: "1 second",
        references: sink
      })
      assert.match((yield* Effect.flip(ask)).message, /blob_cb threw DownloadFailed/)
      assert.strictEqual(taken.length, 1)
      parent.hooks.resolve = (sections, arrival) => {
        assert.deepStrictEqual([sections.downloads[0]?.refId, arrival.origin], ["ref-1", "site-1.job"])
        const fetched = new Map([
          [marker.itemId, "fetched"],
          ["T1", "fetched"]
        ])
        return Effect.succeed({ items: new Map([[3, fetched]]), settle: () => Effect.void })
      }
      assert.strictEqual((yield* ask).payload, "fetched")
    })
  )
})

describe("handlers", () => {
  it.effect("the one of the message's origin, else the newest; until its scope closes", () =>
    Effect.gen(function* () {
      const { job, parent, trainer } = yield* makeFamily()
      const say = (text: string) => () => Effect.succeed({ returnCode: "ok", payload: text })
      const ask = (from: typeof job, mode: "plain" | "stream") =>
        Effect.map(from.cell.request("site-1", chat("who"), 1, { timeout: "1 second", mode }), (reply) => reply.payload)
      const scope = yield* Scope.make()
      yield* parent.cell.handle(chat("who"), say("job's"), { origin: "site-1.job" })
      yield* Scope.provide(parent.cell.handle(chat("who"), say("nobody's"), { origin: "site-1.other" }), scope)
      for (const mode of modes) {
        assert.deepStrictEqual([yield* ask(job, mode), yield* ask(trainer, mode)], ["job's", "nobody's"])
      }
      yield* Scope.close(scope, Exit.void)
      for (const mode of modes) {
        assert.strictEqual(yield* ask(trainer, mode), "job's")
      }
    })
  )

  it.effect("one-way messages, and flush waits for the answers owed", () =>
    Effect.gen(function* () {
      const { job, parent } = yield* makeFamily()
      const got: Array<CellRequest> = []
      yield* parent.cell.handle(chat("log"), (request) =>
        Effect.sync(() => void got.push(request)).pipe(Effect.as(undefined))
      )
      yield* parent.cell.handle(chat("slow"), (request) => Effect.delay(echo(request), "3 seconds"))
      yield* job.cell.send("site-1", chat("log"), "hello", { headers: new Map([["x", 1]]) })
      yield* parent.cell.flush("site-1.job")
      yield* settle
      assert.deepStrictEqual(
        got.map(({ address, headers, origin, payload }) => [origin, address, payload, headers.get("x")]),
        [["site-1.job", chat("log"), "hello", 1]]
      )
      for (const mode of modes) {
        yield* Effect.forkChild(job.cell.request("site-1", chat("slow"), 1, { timeout: "1 hour", mode }))
        yield* settle
        yield* TestClock.adjust("1 second")
        const flushed = yield* Effect.forkChild(parent.cell.flush("site-1.job"))
        yield* TestClock.adjust("1999 millis")
        assert.isUndefined(flushed.pollUnsafe(), mode)
        yield* TestClock.adjust("1 millis")
        assert.isDefined(flushed.pollUnsafe(), mode)
      }
    })
  )

  it.effect("the certificate topic is answered without certificates", () =>
    Effect.gen(function* () {
      const { job } = yield* makeFamily()
      const address = { channel: "credential_manager", topic: "key_exchange" }
      const reply = yield* job.cell.request("site-1", address, new Map(), { timeout: "1 second", mode: "plain" })
      assert.strictEqual(reply.returnCode, "ok")
      assert.isString(reply.payload instanceof Map && reply.payload.get("cert_error"))
    })
  )
})

describe("the guard", () => {
  const byTopic =
    (topic: string, verdict: "admit" | "refuse"): GuardRule =>
    ({ address }) =>
      address.topic === topic ? verdict : "pass"

  it.effect("refuses before anything is decoded: plain with a code, streamed in silence", () =>
    Effect.gen(function* () {
      const { codec, counts } = countingCodec()
      const { job, parent } = yield* makeFamily({ parent: { codec } })
      let calls = 0
      yield* parent.cell.handle({ channel: "chat", topic: "*" }, (request) => {
        calls += 1
        return echo(request)
      })
      const scope = yield* Scope.make()
      yield* Scope.provide(parent.cell.guard(byTopic("bad", "refuse")), scope)
      const ask = (topic: string, mode: "plain" | "stream") =>
        job.cell.request("site-1", chat(topic), "payload", { timeout: "1 second", mode })
      const plain = yield* ask("bad", "plain")
      assert.deepStrictEqual([plain.returnCode, plain.payload], ["authentication_error", null])
      assert.match(plain.error ?? "", /guard of site-1/)
      const streamed = yield* Effect.forkChild(stageOf(ask("bad", "stream")))
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* Fiber.join(streamed), "waiting")
      assert.deepStrictEqual([counts.parse, counts.decode, calls], [0, 0, 0])
      // Nothing else is concerned.
      assert.strictEqual((yield* ask("good", "stream")).payload, "payload")
      yield* parent.cell.guard(byTopic("bad", "admit"))
      assert.strictEqual((yield* ask("bad", "stream")).payload, "payload")
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual((yield* ask("bad", "plain")).payload, "payload")
    })
  )

  it.effect("sees origin, headers, and the application's address of requests and replies", () =>
    Effect.gen(function* () {
      const { job, parent } = yield* makeFamily()
      yield* parent.cell.handle(chat("echo"), echo)
      const atParent: Array<unknown> = []
      const atJob: Array<unknown> = []
      const noting =
        (notes: Array<unknown>): GuardRule =>
        ({ address, headers, isReply, origin }) => {
          notes.push([origin, address.channel, address.topic, isReply, headers.get("cn__origin")])
          return "pass"
        }
      yield* parent.cell.guard(noting(atParent))
      yield* job.cell.guard(noting(atJob))
      for (const mode of modes) {
        yield* job.cell.request("site-1", chat("echo"), 1, { timeout: "1 second", mode })
      }
      const request = ["site-1.job", "chat", "echo", false, "site-1.job"]
      const reply = ["site-1", "chat", "echo", true, "site-1"]
      assert.deepStrictEqual(
        [atParent, atJob],
        [
          [request, request],
          [reply, reply]
        ]
      )
    })
  )

  it.effect("counts what it refuses, by origin and address", () =>
    Effect.gen(function* () {
      const { job, parent } = yield* makeFamily()
      yield* parent.cell.guard(byTopic("counted", "refuse"))
      yield* Effect.forkChild(job.cell.send("site-1", chat("counted"), 1))
      yield* job.cell.request("site-1", chat("counted"), 1, { timeout: "1 second", mode: "plain" })
      yield* settle
      const counted = (yield* Metric.snapshot).filter(
        ({ attributes, id }) => id === "fl_attach_cell_refused" && attributes?.topic === "counted"
      )
      assert.deepStrictEqual(
        counted.map(({ attributes, state }) => [attributes, state]),
        [
          [
            { cell: "site-1", origin: "site-1.job", channel: "chat", topic: "counted" },
            { count: 2, incremental: true }
          ]
        ]
      )
    })
  )

  it.effect("a refused reply is no reply; a rule that throws refuses", () =>
    Effect.gen(function* () {
      const { job, parent } = yield* makeFamily()
      yield* parent.cell.handle(chat("echo"), echo)
      yield* job.cell.guard(({ isReply }) => {
        if (isReply) {
          throw new Error("a broken rule")
        }
        return "pass"
      })
      for (const mode of modes) {
        const fiber = yield* Effect.forkChild(
          reasonOf(job.cell.request("site-1", chat("echo"), 1, { timeout: "1 second", mode }))
        )
        yield* TestClock.adjust("1 second")
        assert.strictEqual(yield* Fiber.join(fiber), "RequestTimeout")
      }
    })
  )
})

describe("faults on the way", () => {
  const seed = freshSeed()

  it.effect(`a lost reply frame is sent again: the requester gets its answer (SEED=${seed})`, () =>
    Effect.gen(function* () {
      const random = seeded(seed)
      // Requests are not reliable, replies are: lose a third of what the parent sends once the handshake is over.
      const onFrame = ({ bytes, from }: { readonly bytes: Uint8Array; readonly from: "active" | "passive" }) =>
        Effect.succeed(
          from === "passive" && bytes[6] === 1 && random() < 0.33 ? ("drop" as const) : ("deliver" as const)
        )
      const { job, parent } = yield* makeFamily({
        network: { faults: { onFrame } },
        parent: { streaming: { chunkSize: 100 }, byeTimeout: 0 },
        children: { byeTimeout: 0 }
      })
      yield* parent.cell.handle(chat("echo"), echo)
      const payload = Uint8Array.from({ length: 1234 }, () => Math.floor(random() * 256))
      const asking = yield* Effect.forkChild(
        job.cell.request("site-1", chat("echo"), payload, { timeout: "60 seconds" })
      )
      for (let second = 0; second < 70 && asking.pollUnsafe() === undefined; second += 1) {
        yield* settle
        yield* TestClock.adjust("1 second")
      }
      const reply = yield* Fiber.join(asking)
      assert.deepStrictEqual(reply.payload, payload)
    })
  )

  it.effect("a receiver that takes nothing holds its senders back, and nobody else", () =>
    Effect.gen(function* () {
      const open = yield* Latch.make()
      // The second link is the trainer's: what the parent sends on it waits.
      const onFrame = ({
        bytes,
        from,
        link
      }: {
        readonly bytes: Uint8Array
        readonly from: string
        readonly link: number
      }) =>
        link === 1 && from === "passive" && bytes[6] === 1
          ? Effect.as(open.await, "deliver" as const)
          : Effect.succeed("deliver" as const)
      const { job, parent, trainer } = yield* makeFamily({
        network: { faults: { onFrame } },
        parent: { forwardBytes: 100 }
      })
      const got: Array<unknown> = []
      yield* trainer.cell.handle({ channel: "client_command", topic: "x" }, ({ payload }) =>
        Effect.sync(() => void got.push(payload)).pipe(Effect.as(undefined))
      )
      yield* parent.cell.handle(chat("note"), ({ origin }) =>
        Effect.sync(() => void got.push(origin)).pipe(Effect.as(undefined))
      )
      for (let index = 0; index < 6; index += 1) {
        const payload = new Uint8Array(60).fill(index)
        yield* job.cell.send(trainerName, { channel: "client_command", topic: "x" }, payload)
      }
      yield* job.cell.send("site-1", chat("note"), null)
      yield* trainer.cell.send("site-1", chat("note"), null)
      yield* settle
      assert.deepStrictEqual(got, [trainerName], "the parent reads the trainer, but no more of the job")
      yield* open.open
      yield* settle
      assert.deepStrictEqual(got.length, 8)
      assert.isTrue(got.includes("site-1.job"))
    })
  )

  it.effect("large requests and replies both ways at once, over small windows", () =>
    Effect.gen(function* () {
      const streaming = { chunkSize: 1000, windowSize: 4000, ackInterval: 2000 }
      const { job, trainer } = yield* makeFamily({ parent: { streaming }, children: { streaming } })
      yield* job.cell.handle(chat("echo"), echo)
      yield* trainer.cell.handle(chat("echo"), echo)
      const payload = Uint8Array.from({ length: 100_000 }, (_, i) => (i * 13) & 255)
      const pairs = [
        [job, trainerName],
        [trainer, "site-1.job"]
      ] as const
      const replies = yield* Effect.forEach(
        [...pairs, ...pairs],
        ([from, target]) => from.cell.request(target, chat("echo"), payload, { timeout: "5 seconds" }),
        { concurrency: "unbounded" }
      )
      for (const reply of replies) {
        assert.deepStrictEqual(reply.payload, payload)
      }
    })
  )

  it.effect("forged replies are not taken: only the target answers", () =>
    Effect.gen(function* () {
      const { job, parent, trainer } = yield* makeFamily()
      let requestId: unknown
      yield* parent.cell.handle(chat("hold"), (request) => {
        requestId = request.headers.get("sm__ri")
        return Effect.delay(Effect.succeed({ returnCode: "ok", payload: "true" }), "1 second")
      })
      const asking = yield* Effect.forkChild(job.cell.request("site-1", chat("hold"), 1, { timeout: "5 seconds" }))
      yield* settle
      yield* trainer.streams.send("site-1.job", { channel: "return_only", topic: "chat:hold" }, [], {
        headers: new Map([
          ["sm__ri", requestId],
          ["cn__return_code", "ok"],
          ["sm__pe", "none"]
        ])
      })
      yield* settle
      assert.isUndefined(asking.pollUnsafe())
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* Fiber.join(asking)).payload, "true")
    })
  )
})

describe("the layer", () => {
  it.effect("two cells of one graph are two cells; closing them needs no clock", () =>
    Effect.gen(function* () {
      const network = Layer.merge(MemoryDriver.layer(), SecureRandom.layerWebCrypto)
      const listening = Layer.effectDiscard(
        Effect.gen(function* () {
          const cell = yield* Cell.Cell
          yield* cell.handle(chat("echo"), echo)
          yield* cell.listen("memory://site-1")
        })
      )
      const parent = listening.pipe(Layer.provideMerge(Cell.layer({ fqcn: "site-1" })))
      const reply = yield* Effect.gen(function* () {
        const context = yield* Layer.build(parent)
        const child = yield* Cell.make({ fqcn: "site-1.job" })
        yield* child.connect("memory://site-1")
        yield* until(child, "site-1")
        assert.isDefined(context)
        return yield* child.request("site-1", chat("echo"), "hi", { timeout: "1 second" })
      }).pipe(Effect.scoped, Effect.provide(network))
      assert.strictEqual(reply.payload, "hi")
    })
  )

  it.effect("a name or a setting that can't be used is refused", () =>
    Effect.gen(function* () {
      const network = Layer.merge(MemoryDriver.layer(), SecureRandom.layerWebCrypto)
      const refused = (options: Cell.CellOptions) =>
        Cell.make(options).pipe(
          Effect.flip,
          Effect.map(({ reason }) => (reason._tag === "CellMisconfigured" ? reason.setting : reason._tag)),
          Effect.scoped,
          Effect.provide(network)
        )
      assert.strictEqual(yield* refused({ fqcn: "a..b" }), "fqcn")
      assert.strictEqual(yield* refused({ fqcn: "a", streaming: { chunkSize: 0 } }), "chunkSize")
      assert.strictEqual(yield* refused({ fqcn: "a", streaming: { windowSize: 1.5 } }), "windowSize")
    })
  )
})
