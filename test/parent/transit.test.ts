/** What a parent does to the messages that it passes on: as little as can be. */
import { assert, describe, it, vi } from "@effect/vitest"
import { Effect, Fiber, Latch, Result } from "effect"
import { Cell } from "../../src/cell/Cell.ts"
import * as Msgpack from "../../src/fobs/Msgpack.ts"
import { Ext, Float } from "../../src/fobs/Values.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import type * as ClientParent from "../../src/parent/ClientParent.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import { Drivers, type FrameLink } from "../../src/transport/Drivers.ts"
import * as Frame from "../../src/transport/Frame.ts"
import type { FrameInfo, Verdict } from "../../src/transport/MemoryDriver.ts"
import { startParent, untilChild, url } from "./support.ts"

const get = Result.getOrThrow

/** Lets everything run that needs no time. */
const settle = Effect.repeat(Effect.yieldNow, { times: 200 })

interface Got {
  readonly entries: ReadonlyMap<unknown, string>
  readonly payload: Uint8Array
}

const frameOf = (headers: ReadonlyMap<string, unknown>, payload: Uint8Array, type = 1, appId = 1) =>
  get(Frame.encode({ type, appId, streamId: 17, sequence: 2, headers, payload: [payload] }))

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex")

/** A child that speaks frames; it keeps the bytes of each header that it gets. */
const bareChild = Effect.fnUntraced(function* (parent: ClientParent.ClientParent["Service"], name: string) {
  const driver = yield* (yield* Drivers).forUrl(url)
  const link: FrameLink = yield* driver.connect(url)
  const hello = get(Msgpack.encode({ endpoint_name: name, timestamp: new Float(1), fqcn: name }))
  yield* link.send(frameOf(new Map(), hello, Frame.types.hello, 0))
  const got: Array<Got> = []
  yield* Effect.forkScoped(
    Effect.forever(
      Effect.map(link.receive, (frames) => {
        for (const bytes of frames) {
          const { block, payload, type } = get(Frame.decode(bytes))
          if (type !== Frame.types.data) continue
          const entries = new Map(
            [...get(Msgpack.entries(block))].map(([key, value]) => [key, hex(value.bytes)] as const)
          )
          got.push({ entries, payload })
        }
      })
    ).pipe(Effect.ignore)
  )
  yield* untilChild(parent, name)
  const say = (headers: ReadonlyMap<string, unknown>, payload: Uint8Array) => link.send(frameOf(headers, payload))
  return { name, got, say }
})

const message = (to: string, more: ReadonlyMap<string, unknown> = new Map()) =>
  new Map<string, unknown>([
    ["cn__msg_type", "req"],
    ["cn__origin", "site-1.job-1"],
    ["cn__destination", to],
    ["cn__from", "site-1.job-1"],
    ["cn__to", "site-1"],
    ["cn__channel", "some"],
    ["cn__topic", "thing"],
    ["cn__route", [["site-1.job-1", new Float(5)]]],
    ["cn__payload_encoding", "fobs"],
    ...more
  ])

const trainer = "site-1.-client_api_a"

describe("what a parent passes on", () => {
  it.effect("headers that it does not write are the same bytes behind it, the payload is the same, undecoded", () =>
    Effect.gen(function* () {
      const calls = [vi.spyOn(ModelCodec.codec, "parse"), vi.spyOn(ModelCodec.codec, "decode")]
      yield* Effect.addFinalizer(() => Effect.sync(() => calls.map((call) => call.mockRestore())))
      const parent = yield* startParent()
      const job = yield* bareChild(parent, "site-1.job-1")
      const child = yield* bareChild(parent, trainer)
      const odd = new Map<string, unknown>([
        ["float", new Float(5)],
        ["int", 5],
        ["fraction", 0.5],
        ["nan", new Float(Number.NaN, 0x7ff8_0000_0000_0001n)],
        ["minus_zero", -0],
        ["large", 2n ** 64n - 1n],
        // What no encoder of ours would write: a float32, an int in nine bytes, an ext type.
        ["float32", new Msgpack.Encoded(Uint8Array.of(0xca, 0x40, 0xa0, 0, 0))],
        ["wide_int", new Msgpack.Encoded(Uint8Array.of(0xcf, 0, 0, 0, 0, 0, 0, 0, 7))],
        ["ext", new Ext(5, Uint8Array.of(1, 2, 3))],
        ["bytes", Uint8Array.of(0, 255)],
        ["nil", null],
        ["nested", new Map<string, unknown>([["list", [new Float(1), 1, true, new Map([["deep", new Float(2)]])]]])],
        ["sm__rw", new Float(5)],
        ["cn__secure", true],
        ["cn__encrypted", true]
      ])
      const sent = message(trainer, odd)
      const garbage = Uint8Array.from({ length: 3000 }, (_, index) => (index * 31) & 255)
      yield* job.say(sent, garbage)
      yield* settle
      assert.lengthOf(child.got, 1)
      const [{ entries, payload } = assert.fail()] = child.got
      assert.deepStrictEqual(Buffer.from(payload), Buffer.from(garbage))
      const written = new Set(["cn__from", "cn__to", "cn__route", "cn__payload_len", "cn__send_time"])
      for (const [key, value] of get(Msgpack.entries(get(Msgpack.encode(sent))))) {
        if (!written.has(String(key))) assert.strictEqual(entries.get(key), hex(value.bytes), String(key))
      }
      assert.sameMembers([...entries.keys()], [...sent.keys(), "cn__payload_len", "cn__send_time"])
      const value = (key: string) => get(Msgpack.decode(Buffer.from(entries.get(key) ?? "", "hex"), { lossless: true }))
      assert.deepStrictEqual([value("cn__from"), value("cn__to")], ["site-1", trainer])
      assert.strictEqual(value("cn__payload_len"), garbage.length)
      assert.deepStrictEqual(value("cn__route"), [
        ["site-1.job-1", new Float(5)],
        ["site-1", new Float(0)]
      ])
      for (const call of calls) assert.strictEqual(call.mock.calls.length, 0)
    }).pipe(Effect.provide(MemoryNetwork.layer()))
  )

  it.effect(
    "a request that can't go on comes back, its headers as they were; one that has been there before, too",
    () =>
      Effect.gen(function* () {
        const parent = yield* startParent()
        const job = yield* bareChild(parent, "site-1.job-1")
        const asking = new Map<string, unknown>([
          ["cn__reply_expected", true],
          ["cn__req_id", "r-1"],
          ["mark", new Float(7)]
        ])
        yield* job.say(message("site-1.absent", asking), new Uint8Array(0))
        // The way to site-1.job-1.x leads back to site-1.job-1, where it comes from.
        yield* job.say(message("site-1.job-1.x", asking), new Uint8Array(0))
        yield* settle
        assert.lengthOf(job.got, 2)
        for (const { entries } of job.got) {
          const value = (key: string) =>
            get(Msgpack.decode(Buffer.from(entries.get(key) ?? "", "hex"), { lossless: true }))
          assert.deepStrictEqual(
            ["cn__msg_type", "cn__return_code", "cn__error", "cn__return_reason", "cn__req_id"].map(value),
            ["return", "comm_error", "cannot forward", "cant_forward", ["r-1"]]
          )
          const original = value("cn__original_headers")
          assert.deepStrictEqual(original instanceof Map ? original.get("mark") : undefined, new Float(7))
        }
      }).pipe(Effect.provide(MemoryNetwork.layer()))
  )

  it.effect("an optional chunk that can't go on is told of, another vanishes", () =>
    Effect.gen(function* () {
      const parent = yield* startParent()
      const job = yield* bareChild(parent, "site-1.job-1")
      const chunk = (optional: boolean) =>
        new Map<string, unknown>([
          ["cn__channel", "sm__STREAM"],
          ["cn__topic", "sm__DATA"],
          ["cn__optional", optional],
          ["sm__id", 1_800_000_000_000_000],
          ["sm__sq", 0],
          ["sm__ch", "c"],
          ["sm__tp", "t"],
          ["sm__ri", "r-9"]
        ])
      yield* job.say(message("site-1.absent", chunk(false)), Uint8Array.of(1))
      yield* settle
      assert.lengthOf(job.got, 0)
      yield* job.say(message("site-1.absent", chunk(true)), Uint8Array.of(1))
      yield* settle
      const [{ entries } = assert.fail()] = job.got
      const value = (key: string) => get(Msgpack.decode(Buffer.from(entries.get(key) ?? "", "hex")))
      assert.deepStrictEqual(
        ["cn__topic", "sm__id", "sm__dt", "sm__et", "sm__fd", "sm__ri", "cn__optional"].map(value),
        ["sm__ERROR", 1_800_000_000_000_000, 6, "StreamTargetUnreachable", "site-1.absent", "r-9", true]
      )
    }).pipe(Effect.provide(MemoryNetwork.layer()))
  )
})

describe("a child that takes nothing", () => {
  /** What the parent sends on the link number `stuck` waits for `open`. */
  const blocking = (stuck: number, open: Latch.Latch, then: Verdict = "deliver") => ({
    onFrame: ({ bytes, from, link }: FrameInfo) =>
      link === stuck && from === "passive" && bytes[6] === 1
        ? Effect.as(open.await, then)
        : Effect.succeed("deliver" as const)
  })
  const one = { channel: "client_command", topic: "x" }

  it.effect(
    "others get theirs meanwhile, what waits for it is bounded and shown, and comes when it takes again",
    () => {
      const open = Latch.makeUnsafe()
      return Effect.gen(function* () {
        const parent = yield* startParent({ forwardBytes: 100_000 })
        const slow = yield* bareChild(parent, "site-1.-client_api_slow")
        const quick = yield* bareChild(parent, trainer)
        const job = yield* bareChild(parent, "site-1.job-1")
        const other = yield* bareChild(parent, "site-1.job-2")
        const chunk = new Uint8Array(20_000)
        const from = (child: { readonly name: string }, to: string) =>
          message(to, new Map([["cn__origin", child.name]]))
        for (let index = 0; index < 50; index += 1) {
          yield* job.say(from(job, slow.name), chunk)
          yield* other.say(from(other, quick.name), chunk)
        }
        yield* settle
        assert.lengthOf(quick.got, 50)
        assert.lengthOf(slow.got, 0)
        const waiting = (yield* parent.status).children.find(({ name }) => name === slow.name)?.bytesWaiting ?? 0
        assert.isAtLeast(waiting, 80_000)
        assert.isAtMost(waiting, 100_000)
        yield* open.open
        yield* settle
        assert.lengthOf(slow.got, 50)
        assert.isTrue((yield* parent.status).children.every(({ bytesWaiting }) => bytesWaiting === 0))
      }).pipe(Effect.provide(MemoryNetwork.layer({ faults: blocking(0, open) })))
    }
  )

  it.effect("with many such the total is bounded, too, and small messages to others still pass", () => {
    const open = Latch.makeUnsafe()
    const onFrame = (frame: FrameInfo) =>
      (frame.link < 4 ? blocking(frame.link, open) : blocking(-1, open)).onFrame(frame)
    return Effect.gen(function* () {
      const parent = yield* startParent({ forwardBytes: 4_000_000, forwardTotalBytes: 6_000_000 })
      const slow = yield* Effect.forEach([0, 1, 2, 3], (n) => bareChild(parent, `site-1.-client_api_slow${n}`))
      const quick = yield* bareChild(parent, trainer)
      const jobs = yield* Effect.forEach([0, 1, 2, 3, 4], (n) => bareChild(parent, `site-1.job-${n}`))
      const chunk = new Uint8Array(500_000)
      for (const [index, to] of slow.entries()) {
        for (let count = 0; count < 8; count += 1) {
          yield* jobs[index]?.say(message(to.name, new Map([["cn__origin", `site-1.job-${index}`]])), chunk) ??
            Effect.void
        }
      }
      yield* settle
      const total = (yield* parent.status).children.reduce((sum, { bytesWaiting }) => sum + bytesWaiting, 0)
      // Beyond the total each peer may have 1 MiB.
      assert.isAtMost(total, 6_000_000 + 4 * 1_048_576)
      assert.isAtLeast(total, 5_000_000)
      yield* jobs[4]?.say(message(quick.name, new Map([["cn__origin", "site-1.job-4"]])), new Uint8Array(100)) ??
        Effect.void
      yield* settle
      assert.lengthOf(quick.got, 1)
      yield* open.open
      yield* settle
      for (const child of slow) assert.lengthOf(child.got, 8)
    }).pipe(Effect.provide(MemoryNetwork.layer({ faults: { onFrame } })))
  })

  it.effect("one that is cut off with much waiting sets its senders free, and requests to it come back", () => {
    const open = Latch.makeUnsafe()
    return Effect.gen(function* () {
      const parent = yield* startParent({ forwardBytes: 1000, byeTimeout: 0 })
      const slow = yield* bareChild(parent, trainer)
      const job = yield* Cell.make({ fqcn: "site-1.job-1", byeTimeout: 0 })
      yield* job.connect(url)
      yield* untilChild(parent, job.fqcn)
      const asking = yield* Effect.forkChild(
        Effect.forEach(
          [1, 2, 3, 4],
          () => Effect.flip(job.request(slow.name, one, new Uint8Array(900), { timeout: "1 minute", mode: "plain" })),
          { concurrency: "unbounded" }
        )
      )
      yield* settle
      assert.isUndefined(asking.pollUnsafe())
      yield* open.open
      yield* settle
      const errors = yield* Fiber.join(asking)
      for (const { reason } of errors) assert.strictEqual(reason._tag, "TargetUnreachable")
    }).pipe(Effect.provide(MemoryNetwork.layer({ faults: blocking(0, open, "close") })))
  })
})
