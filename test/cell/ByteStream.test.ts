import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import type { IncomingStream } from "../../src/cell/ByteStream.ts"
import type { CellError } from "../../src/cell/CellError.ts"
import { readBlob } from "../../src/cell/internal/blobs.ts"
import { settle } from "./support.ts"
import { arrives, type Fate, freshSeed, makeWire, type Sent, seeded, sizes, vanishes } from "./wire.ts"

const address = { channel: "ch", topic: "tp" }
const small = { chunkSize: 64, windowSize: 256, ackInterval: 128 }
const bytes = (length: number) => Uint8Array.from({ length }, (_, i) => (i * 7 + (i >> 8)) & 255)

const tagOf = <A>(effect: Effect.Effect<A, CellError>) =>
  Effect.match(effect, { onFailure: (error) => error.reason._tag, onSuccess: () => "sent" })

const data = (sent: ReadonlyArray<Sent>) =>
  sent.filter(({ headers, topic }) => topic === "sm__DATA" && headers.has("sm__sq"))
const sequences = (sent: ReadonlyArray<Sent>) => data(sent).map(({ headers }) => headers.get("sm__sq"))
const errors = (sent: ReadonlyArray<Sent>) =>
  sent.flatMap(({ headers, optional, topic }) =>
    headers.has("sm__em") ? [[topic, headers.get("sm__et"), optional]] : []
  )
const acks = (sent: ReadonlyArray<Sent>) =>
  sent.flatMap(({ headers, topic }) =>
    topic === "sm__ACK" && !headers.has("sm__em") ? [[headers.get("sm__os"), headers.get("sm__sq")]] : []
  )

/** Collects the blobs of an address. */
const gather = (blobs: Array<Uint8Array | undefined>) => (incoming: IncomingStream) =>
  Effect.asVoid(Effect.tap(readBlob(incoming, 0), (blob) => Effect.sync(() => void blobs.push(blob))))

const ack = (id: unknown, offset: number, sequence: number): ReadonlyArray<readonly [string, unknown]> => [
  ["sm__id", id],
  ["sm__dt", 3],
  ["sm__os", offset],
  ["sm__sq", sequence]
]

describe("sending", () => {
  it.effect("cuts pieces into frames of views, with look-ahead: no empty frame behind a full one", () =>
    Effect.gen(function* () {
      const wire = yield* makeWire(["a", "b"], small, vanishes)
      const pieces = [bytes(10), new Uint8Array(0), bytes(150), bytes(32)]
      yield* wire.streams("a").send("b", address, pieces)
      assert.deepStrictEqual(sizes(wire.sent), [64, 64, 64])
      for (const piece of wire.sent.flatMap((frame) => frame.pieces)) {
        assert.isTrue(pieces.some((given) => given.buffer === piece.buffer))
      }
      assert.deepStrictEqual(
        wire.sent.map(({ headers }) => [
          headers.get("sm__sq"),
          headers.get("sm__os"),
          headers.get("sm__dt"),
          headers.get("sm__sz")
        ]),
        [
          [0, 0, 1, 192],
          [1, 64, 1, 192],
          [2, 128, 2, 192]
        ]
      )
    })
  )

  it.effect("stops at the window, but for the final frame; each acknowledgement opens it", () =>
    Effect.gen(function* () {
      const wire = yield* makeWire(["a", "b"], small, vanishes)
      yield* wire.streams("a").send("b", address, [bytes(330)])
      assert.deepStrictEqual(sizes(wire.sent), [64, 64, 64, 64, 64, 10])
      wire.sent.length = 0
      const sending = yield* Effect.forkChild(wire.streams("a").send("b", address, [bytes(520)]))
      yield* settle
      assert.strictEqual(wire.sent.length, 5)
      const id = wire.sent[0]?.headers.get("sm__id")
      yield* wire.inject("b", "a", "sm__ACK", ack(id, 63, 0))
      yield* settle
      assert.strictEqual(wire.sent.length, 5)
      yield* wire.inject("somebody", "a", "sm__ACK", ack(id, 520, 8))
      yield* settle
      assert.strictEqual(wire.sent.length, 5, "an acknowledgement of another cell counts for nothing")
      yield* wire.inject("b", "a", "sm__ACK", ack(id, 64, 0))
      yield* settle
      assert.strictEqual(wire.sent.length, 6)
      yield* wire.inject("b", "a", "sm__ACK", ack(id, 10_000, 8))
      yield* Fiber.join(sending)
      assert.deepStrictEqual(sequences(wire.sent), [0, 1, 2, 3, 4, 5, 6, 7, 8])
    })
  )

  it.effect("fails when nothing is consumed for 60 s, counted from the last progress, and says so", () =>
    Effect.gen(function* () {
      const wire = yield* makeWire(["a", "b"], small, vanishes)
      const sending = yield* Effect.forkChild(tagOf(wire.streams("a").send("b", address, [bytes(1000)])))
      yield* settle
      yield* TestClock.adjust("30 seconds")
      yield* wire.inject("b", "a", "sm__ACK", ack(wire.sent[0]?.headers.get("sm__id"), 1, -1))
      yield* TestClock.adjust("59999 millis")
      assert.isUndefined(sending.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(yield* Fiber.join(sending), "StreamFailed")
      const last = wire.sent.at(-1)
      assert.deepStrictEqual([...(last?.headers.keys() ?? [])], ["sm__id", "sm__dt", "sm__os", "sm__em"])
      assert.deepStrictEqual(
        [last?.topic, last?.optional, last?.headers.get("sm__dt"), last?.headers.get("sm__os")],
        ["sm__DATA", true, 6, 320]
      )
    })
  )

  it.effect("fails after 300 s in one wait, whatever the progress", () =>
    Effect.gen(function* () {
      const wire = yield* makeWire(["a", "b"], small, vanishes)
      const sending = yield* Effect.forkChild(tagOf(wire.streams("a").send("b", address, [bytes(1000)])))
      yield* settle
      for (let seconds = 0; seconds < 250; seconds += 50) {
        yield* TestClock.adjust("50 seconds")
        yield* wire.inject("b", "a", "sm__ACK", ack(wire.sent[0]?.headers.get("sm__id"), 1 + seconds / 50, -1))
      }
      yield* TestClock.adjust("49999 millis")
      assert.isUndefined(sending.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(yield* Fiber.join(sending), "StreamFailed")
    })
  )

  it.effect("reliable: repeats after 5 s what is not acknowledged, and fails 60 s after the first repetition", () =>
    Effect.gen(function* () {
      const wire = yield* makeWire(["a", "b"], { ...small, windowSize: 1024 }, vanishes)
      const sending = yield* Effect.forkChild(
        tagOf(wire.streams("a").send("b", address, [bytes(200)], { reliable: true }))
      )
      yield* settle
      yield* TestClock.adjust("4999 millis")
      assert.deepStrictEqual(sequences(wire.sent), [0, 1, 2, 3])
      yield* TestClock.adjust("1 millis")
      assert.deepStrictEqual(sequences(wire.sent), [0, 1, 2, 3, 0, 1, 2, 3])
      assert.deepStrictEqual(wire.sent[4]?.headers, wire.sent[0]?.headers)
      yield* wire.inject("b", "a", "sm__ACK", ack(wire.sent[0]?.headers.get("sm__id"), 64, 2))
      wire.sent.length = 0
      yield* TestClock.adjust("5 seconds")
      assert.deepStrictEqual(sequences(wire.sent), [3])
      yield* TestClock.adjust("54999 millis")
      assert.isUndefined(sending.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(yield* Fiber.join(sending), "StreamFailed")
    })
  )

  it.effect("reliable: survives a route that comes back, unlike a plain stream", () =>
    Effect.gen(function* () {
      const wire = yield* makeWire(["a", "b"], small, () => "unreachable")
      const blobs: Array<Uint8Array | undefined> = []
      yield* wire.streams("b").handle(address, gather(blobs))
      const send = (reliable: boolean) => tagOf(wire.streams("a").send("b", address, [bytes(100)], { reliable }))
      assert.strictEqual(yield* send(false), "TargetUnreachable")
      const sending = yield* Effect.forkChild(send(true))
      yield* settle
      yield* TestClock.adjust("4 seconds")
      wire.fate.current = arrives
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* Fiber.join(sending), "sent")
      assert.deepStrictEqual(blobs, [bytes(100)])
    })
  )

  it.effect("reliable: a bound on what is unacknowledged; a receiver that can't is told apart", () =>
    Effect.gen(function* () {
      const wire = yield* makeWire(["a", "b"], { ...small, retryMaxPendingBytes: 150 }, vanishes)
      const send = tagOf(wire.streams("a").send("b", address, [bytes(200)], { reliable: true }))
      assert.strictEqual(yield* send, "StreamFailed")
      const other = yield* makeWire(["a", "b"], small, vanishes)
      const sending = yield* Effect.forkChild(
        Effect.flip(other.streams("a").send("b", address, [bytes(1)], { reliable: true }))
      )
      yield* settle
      const id = other.sent[0]?.headers.get("sm__id")
      yield* other.inject("b", "a", "sm__ACK", [
        ["sm__id", id],
        ["sm__dt", 3],
        ["sm__os", 1]
      ])
      assert.match((yield* Fiber.join(sending)).message, /doesn't support reliable/)
    })
  )

  it.effect("interrupted: the receiver is told, its handler fails, and nothing comes back", () =>
    Effect.gen(function* () {
      const wire = yield* makeWire(["a", "b"], small)
      const ends: Array<string> = []
      yield* wire
        .streams("b")
        .handle(address, ({ read }) => Effect.andThen(read, Effect.never).pipe(Effect.raceFirst(Effect.never)))
      yield* wire
        .streams("b")
        .handle({ channel: "ch", topic: "reading" }, (incoming) =>
          Effect.tapError(readBlob(incoming, 0), (error) => Effect.sync(() => void ends.push(error.message))).pipe(
            Effect.asVoid
          )
        )
      wire.fate.current = ({ headers }) => (headers.get("sm__sq") === 1 ? [] : [0])
      const sending = yield* Effect.forkChild(
        wire.streams("a").send("b", { channel: "ch", topic: "reading" }, [bytes(1000)], { reliable: true })
      )
      yield* settle
      yield* Fiber.interrupt(sending)
      yield* settle
      assert.match(ends[0] ?? "", /given up by its sender/)
      assert.deepStrictEqual(errors(wire.sent), [["sm__DATA", undefined, true]])
    })
  )

  it.effect("interrupted without a connection: the receiver is told once there is one again, for a minute", () =>
    Effect.gen(function* () {
      const give = Effect.fnUntraced(function* (down: number) {
        const wire = yield* makeWire(["a", "b"], small)
        const ends: Array<string> = []
        yield* wire
          .streams("b")
          .handle(address, (incoming) =>
            Effect.asVoid(
              Effect.tapError(readBlob(incoming, 0), (error) => Effect.sync(() => void ends.push(error.message)))
            )
          )
        wire.fate.current = ({ headers }) => (headers.get("sm__sq") === 1 ? [] : [0])
        const sending = yield* Effect.forkChild(wire.streams("a").send("b", address, [bytes(1000)], { reliable: true }))
        yield* settle
        wire.fate.current = () => "unreachable"
        yield* Fiber.interrupt(sending)
        yield* TestClock.adjust(down)
        assert.isEmpty(ends)
        wire.fate.current = arrives
        yield* TestClock.adjust("1 second")
        yield* settle
        return ends.length
      })
      assert.strictEqual(yield* give(58_500), 1)
      assert.strictEqual(yield* give(60_500), 0)
    })
  )

  it.effect("learns of an error up to 300 s after its end, from the target or naming it, about this very stream", () =>
    Effect.gen(function* () {
      const wire = yield* makeWire(["a", "b"], small, vanishes)
      const told: Array<string> = []
      yield* wire.streams("a").send("b", address, [bytes(1)], {
        headers: new Map([["sm__ri", "r-1"]]),
        onPeerError: (error) => void told.push(error.reason._tag)
      })
      const report = (from: string, change: ReadonlyArray<readonly [string, unknown]> = []) =>
        wire
          .inject("b", "a", "sm__ERROR", [])
          .pipe(
            Effect.andThen(
              wire.inject(from, "a", "sm__ERROR", [
                ["sm__id", wire.sent[0]?.headers.get("sm__id")],
                ["sm__dt", 6],
                ["sm__em", "no"],
                ["sm__et", "StreamError"],
                ["sm__ch", "ch"],
                ["sm__tp", "tp"],
                ["sm__ri", "r-1"],
                ...change
              ])
            )
          )
      yield* report("c")
      yield* report("b", [["sm__tp", "other"]])
      yield* report("b", [["sm__ri", "r-2"]])
      yield* report("b", [["sm__fd", "c"]])
      assert.deepStrictEqual(told, [])
      yield* TestClock.adjust("300 seconds")
      yield* report("b")
      yield* report("forwarder", [
        ["sm__fd", "b"],
        ["sm__et", "StreamTargetUnreachable"]
      ])
      assert.deepStrictEqual(told, ["PeerFailed", "TargetUnreachable"])
      yield* TestClock.adjust("1 millis")
      yield* report("b")
      assert.strictEqual(told.length, 2)
    })
  )
})

const frame = (
  sequence: number,
  payload: Uint8Array,
  change: ReadonlyArray<readonly [string, unknown]> = []
): readonly [ReadonlyArray<readonly [string, unknown]>, Uint8Array] => [
  [
    ["sm__id", 7],
    ["sm__dt", 1],
    ["sm__sq", sequence],
    ["sm__os", 0],
    ["sm__sz", 0],
    ["sm__ch", "ch"],
    ["sm__tp", "tp"],
    ["sm__rs", true],
    ["sm__cs", 64],
    ["sm__ws", 256],
    ["sm__ai", 128],
    ["sm__rw", 5],
    ["sm__rt", 60],
    ...change
  ],
  payload
]
const final = ["sm__dt", 2] as const
const nonReliable = ["sm__rs", false] as const

describe("receiving", () => {
  const receiver = Effect.fnUntraced(function* (settings = {}) {
    const wire = yield* makeWire(["b"], settings)
    const blobs: Array<Uint8Array | undefined> = []
    yield* wire.streams("b").handle(address, gather(blobs))
    const take = (...args: Parameters<typeof frame>) =>
      Effect.andThen(wire.inject("a", "b", "sm__DATA", ...frame(...args)), settle)
    return { wire, blobs, take }
  })

  it.effect("puts frames in order, ignores duplicates, and acknowledges by the rules", () =>
    Effect.gen(function* () {
      const { blobs, take, wire } = yield* receiver()
      yield* take(2, bytes(64))
      yield* take(2, bytes(64))
      assert.deepStrictEqual(acks(wire.sent), [[0, -1]], "a duplicate is answered")
      yield* take(0, bytes(64))
      yield* take(3, bytes(8), [final])
      assert.deepStrictEqual(acks(wire.sent), [[0, -1]])
      yield* take(1, bytes(64))
      assert.deepStrictEqual(acks(wire.sent).at(-1), [200, 3])
      assert.strictEqual(blobs[0]?.length, 200)
      yield* take(1, bytes(64))
      assert.deepStrictEqual(acks(wire.sent).at(-1), [200, 3])
      assert.isTrue(wire.sent.at(-1)?.optional)
    })
  )

  it.effect("acknowledges what is consumed, each interval", () =>
    Effect.gen(function* () {
      const { take, wire } = yield* receiver()
      for (let sequence = 0; sequence < 4; sequence += 1) {
        yield* take(sequence, bytes(64), [nonReliable])
      }
      assert.deepStrictEqual(acks(wire.sent), [
        [128, 1],
        [256, 3]
      ])
      assert.isFalse(wire.sent[0]?.optional)
      yield* take(4, bytes(1), [nonReliable, final])
      assert.deepStrictEqual(acks(wire.sent).at(-1), [257, 4])
      assert.isTrue(wire.sent.at(-1)?.optional)
    })
  )

  it.effect("keeps as many frames ahead as the sender's window holds, 16 at least; one more is an error", () =>
    Effect.gen(function* () {
      const { take, wire } = yield* receiver()
      for (let sequence = 1; sequence <= 16; sequence += 1) {
        yield* take(sequence, bytes(1))
      }
      assert.deepStrictEqual(errors(wire.sent), [])
      yield* take(17, bytes(1))
      assert.deepStrictEqual(errors(wire.sent), [
        ["sm__ERROR", "StreamError", false],
        ["sm__ACK", "StreamError", false]
      ])
      yield* take(0, bytes(1))
      assert.deepStrictEqual(errors(wire.sent).slice(2), [
        ["sm__ERROR", "StreamError", true],
        ["sm__ACK", "StreamError", true]
      ])
    })
  )

  it.effect("fails a stream that brings nothing for 300 s, also one whose first frame never came", () =>
    Effect.gen(function* () {
      for (const sequence of [0, 1]) {
        const { blobs, take, wire } = yield* receiver()
        yield* take(sequence, bytes(10), [nonReliable])
        yield* TestClock.adjust("299999 millis")
        assert.deepStrictEqual(errors(wire.sent), [])
        yield* TestClock.adjust("1 millis")
        yield* settle
        assert.deepStrictEqual(errors(wire.sent).length, 2)
        assert.deepStrictEqual(blobs, [])
        // Silent for 5 s, then forgotten.
        yield* take(2, bytes(10), [nonReliable])
        assert.deepStrictEqual(errors(wire.sent).length, 2)
      }
    })
  )

  it.effect("remembers a complete reliable stream for 65 s, or as long as its sender may repeat", () =>
    Effect.gen(function* () {
      for (const [retryTimeout, seconds] of [
        [60, 65],
        [100, 105]
      ] as const) {
        const { blobs, take, wire } = yield* receiver()
        const only = [final, ["sm__rt", retryTimeout]] as const
        yield* take(0, bytes(10), only)
        yield* TestClock.adjust(seconds * 1000 - 1)
        yield* take(0, bytes(10), only)
        assert.deepStrictEqual([acks(wire.sent).length, blobs.length], [2, 1])
        yield* TestClock.adjust(1)
        yield* take(0, bytes(10), only)
        assert.strictEqual(blobs.length, 2)
      }
    })
  )

  it.effect("a blob is no longer than declared, nor than the limit; a short one is dropped in silence", () =>
    Effect.gen(function* () {
      const size = (bytes: number) => ["sm__sz", bytes] as const
      const cases = [
        { declared: 100, sent: 101, error: "StreamError" },
        { declared: 100, sent: 99, error: undefined },
        { declared: 1001, sent: 1, error: "BlobSizeError" },
        { declared: 0, sent: 1001, error: "BlobSizeError" }
      ]
      for (const { declared, error, sent } of cases) {
        const wire = yield* makeWire(["b"])
        const blobs: Array<Uint8Array | undefined> = []
        yield* wire
          .streams("b")
          .handle(address, (incoming) =>
            Effect.asVoid(Effect.tap(readBlob(incoming, 1000), (blob) => Effect.sync(() => void blobs.push(blob))))
          )
        yield* wire.inject("a", "b", "sm__DATA", ...frame(0, bytes(sent), [final, size(declared)]))
        yield* settle
        assert.deepStrictEqual(blobs, error === undefined ? [undefined] : [])
        assert.deepStrictEqual(
          errors(wire.sent).map(([, type]) => type),
          error === undefined ? [] : [error, error]
        )
      }
    })
  )

  it.effect("a first frame of another address than the stream's is an error", () =>
    Effect.gen(function* () {
      const { blobs, take, wire } = yield* receiver()
      yield* take(1, bytes(1), [final])
      yield* take(0, bytes(1), [["sm__tp", "other"]])
      assert.strictEqual(errors(wire.sent).length, 2)
      assert.deepStrictEqual(blobs, [])
    })
  )

  it.effect("a stream id beyond 2^53 is answered as it came", () =>
    Effect.gen(function* () {
      const { take, wire } = yield* receiver()
      const id = 2n ** 63n + 1n
      yield* take(0, bytes(1), [final, ["sm__id", id]])
      assert.strictEqual(wire.sent[0]?.headers.get("sm__id"), id)
    })
  )
})

describe("a wire that loses, repeats and reorders", () => {
  const seed = freshSeed()

  it.effect(`reliable streams arrive whole and once (SEED=${seed})`, () =>
    Effect.gen(function* () {
      const random = seeded(seed)
      const unruly: Fate = () => {
        const chance = random()
        const delay = () => Math.floor(random() * 3000)
        return chance < 0.2 ? [] : chance < 0.35 ? [delay(), delay()] : [delay()]
      }
      const wire = yield* makeWire(["a", "b"], small, unruly)
      const blobs = new Map<unknown, Uint8Array>()
      let count = 0
      yield* wire.streams("b").handle({ channel: "ch", topic: "*" }, (incoming) =>
        Effect.gen(function* () {
          const blob = yield* readBlob(incoming, 0)
          count += 1
          if (blob !== undefined) {
            blobs.set(incoming.headers.get("x"), blob)
          }
        })
      )
      const all = Array.from({ length: 12 }, () => bytes(Math.floor(random() * 1500)))
      const sending = yield* Effect.forkChild(
        Effect.forEach(
          all,
          (blob, x) =>
            wire.streams("a").send("b", { channel: "ch", topic: "t" }, [blob.subarray(0, 100), blob.subarray(100)], {
              reliable: true,
              headers: new Map([["x", x]])
            }),
          { concurrency: "unbounded" }
        )
      )
      for (let second = 0; second < 200 && sending.pollUnsafe() === undefined; second += 1) {
        yield* settle
        yield* TestClock.adjust("1 second")
      }
      assert.isDefined(sending.pollUnsafe(), "all are sent")
      yield* Fiber.join(sending)
      assert.strictEqual(count, all.length)
      for (const [x, blob] of all.entries()) {
        assert.deepStrictEqual(blobs.get(x), blob)
      }
    })
  )

  it.effect(`plain streams arrive whole when nothing is lost (SEED=${seed})`, () =>
    Effect.gen(function* () {
      const random = seeded(seed + 1)
      const wire = yield* makeWire(["a", "b"], small, () => [Math.floor(random() * 50)])
      const blobs: Array<Uint8Array | undefined> = []
      yield* wire.streams("b").handle(address, gather(blobs))
      for (let round = 0; round < 20; round += 1) {
        const blob = bytes(Math.floor(random() * 3000))
        const sending = yield* Effect.forkChild(wire.streams("a").send("b", address, [blob]))
        for (let step = 0; step < 40; step += 1) {
          yield* settle
          yield* TestClock.adjust("50 millis")
        }
        yield* Fiber.join(sending)
        assert.deepStrictEqual(blobs.pop(), blob)
      }
    })
  )
})
