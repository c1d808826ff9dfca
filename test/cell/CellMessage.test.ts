import { assert, describe, it } from "@effect/vitest"
import * as CellMessage from "../../src/cell/CellMessage.ts"
import { makeBlobBuffer } from "../../src/cell/internal/blobs.ts"
import { cut } from "../../src/cell/internal/chunks.ts"
import { makeReassembly } from "../../src/cell/internal/reassembly.ts"
import { Float } from "../../src/fobs/Values.ts"
import { freshSeed, seeded } from "./wire.ts"

const headers = (entries: Record<string, unknown>) => new Map(Object.entries(entries))

/** Chunks that are the reader's own. */
const owned = { release: () => {}, keep: (chunk: Uint8Array) => chunk }

/** Chunks that are lent, and spoilt when they are given back. */
const lent = () => ({
  release: (chunk: Uint8Array) => void chunk.fill(0xdb),
  keep: (chunk: Uint8Array) => {
    const copy = chunk.slice()
    chunk.fill(0xdb)
    return copy
  }
})

describe("reading headers", () => {
  it("tells nothing from what a peer may have put there", () => {
    const all = headers({
      t: "x",
      n: 5,
      f: new Float(2),
      b: 7n,
      big: 2n ** 70n,
      inf: Number.POSITIVE_INFINITY,
      y: true,
      one: 1
    })
    assert.deepStrictEqual(
      [CellMessage.text(all, "t"), CellMessage.text(all, "n"), CellMessage.text(all, "-")],
      ["x", "", ""]
    )
    assert.deepStrictEqual(
      ["n", "f", "b", "inf", "t", "-"].map((key) => CellMessage.number(all, key)),
      [5, 2, 7, undefined, undefined, undefined]
    )
    assert.deepStrictEqual(
      [CellMessage.int(all, "big"), CellMessage.int(headers({ x: 1.5 }), "x")],
      [undefined, undefined]
    )
    assert.deepStrictEqual([CellMessage.flag(all, "y"), CellMessage.flag(all, "one")], [true, false])
    assert.deepStrictEqual(CellMessage.texts(headers({ x: ["a", 1, "b"] }), "x"), ["a", "b"])
    assert.deepStrictEqual(CellMessage.route(headers({ cn__route: [["a", 1], "b", [3], []] })), ["a"])
  })

  it("the subject of a message: a stream's own address, a reply's request, nothing for the streams' own", () => {
    const subject = (entries: Record<string, unknown>) => {
      const found = CellMessage.subject(headers({ cn__msg_type: "req", ...entries }))
      return found === undefined ? undefined : [found.address.channel, found.address.topic, found.isReply]
    }
    const frame = (topic: string, channel: string, more = {}) =>
      subject({ cn__channel: "sm__STREAM", cn__topic: topic, sm__ch: channel, sm__tp: "a:b:c", ...more })
    assert.deepStrictEqual(subject({ cn__channel: "c", cn__topic: "t" }), ["c", "t", false])
    assert.deepStrictEqual(subject({ cn__channel: "c", cn__topic: "t", cn__msg_type: "reply" }), ["c", "t", true])
    assert.deepStrictEqual(subject({ cn__channel: "c", cn__topic: "t", cn__msg_type: "what" }), ["c", "t", true])
    assert.isUndefined(subject({ cn__channel: "c", cn__topic: "t", cn__msg_type: "return" }))
    assert.deepStrictEqual(frame("sm__DATA", "c"), ["c", "a:b:c", false])
    assert.deepStrictEqual(frame("sm__DATA", "return_only"), ["a", "b:c", true])
    assert.isUndefined(frame("sm__ACK", "c"))
    assert.isUndefined(frame("sm__ERROR", "c"))
    assert.isUndefined(frame("sm__DATA", "c", { sm__em: "x" }))
  })
})

describe("blobs", () => {
  const seed = freshSeed()

  it(`cut and put together again (SEED=${seed})`, () => {
    const random = seeded(seed)
    for (let round = 0; round < 300; round += 1) {
      const pieces = Array.from({ length: Math.floor(random() * 6) }, () =>
        Uint8Array.from({ length: Math.floor(random() * 50) }, () => Math.floor(random() * 256))
      )
      const size = 1 + Math.floor(random() * 40)
      const chunks = [...cut(pieces, size)]
      const whole = CellMessage.concat(pieces)
      assert.deepStrictEqual(CellMessage.concat(chunks.flatMap((chunk) => chunk.pieces)), whole)
      assert.strictEqual(chunks.length, Math.max(1, Math.ceil(whole.length / size)))
      for (const [index, chunk] of chunks.entries()) {
        assert.strictEqual(chunk.isFinal, index === chunks.length - 1)
        assert.strictEqual(chunk.offset, index * size)
        assert.strictEqual(chunk.length, CellMessage.byteLength(chunk.pieces))
        assert.isTrue(chunk.isFinal || chunk.length === size)
      }
      // Received in a random order, each some times.
      const order = chunks.flatMap((chunk) => (random() < 0.3 ? [chunk, chunk] : [chunk])).sort(() => random() - 0.5)
      const reassembly = makeReassembly(1000, 10_000)
      const buffer = makeBlobBuffer(random() < 0.5 ? whole.length : 0, lent())
      let completions = 0
      for (const { isFinal, pieces, sequence } of order) {
        const accepted = reassembly.accept(sequence, CellMessage.concat(pieces).slice(), isFinal)
        if (accepted.kind === "next") {
          accepted.chunks.forEach(buffer.push)
          completions += accepted.isComplete ? 1 : 0
        }
      }
      assert.strictEqual(completions, 1)
      assert.strictEqual(reassembly.highest(), chunks.length - 1)
      assert.deepStrictEqual(new Uint8Array(buffer.take()), whole)
    }
  })

  it("memory is set apart for what has come, not for what is promised; one chunk is not copied", () => {
    const promised = makeBlobBuffer(2 ** 50, owned)
    promised.push(new Uint8Array(1000))
    promised.push(new Uint8Array(1000))
    assert.strictEqual(promised.take().byteLength, 2000)
    const only = new Uint8Array(100)
    const single = makeBlobBuffer(100, owned)
    single.push(only)
    assert.strictEqual(single.take(), only)
    const ofLent = makeBlobBuffer(100, lent())
    ofLent.push(only)
    assert.deepStrictEqual(ofLent.take(), new Uint8Array(100))
    assert.strictEqual(only[0], 0xdb)
  })

  it("what waits for earlier chunks is bounded, in number and in bytes", () => {
    const few = makeReassembly(2, 1000)
    assert.deepStrictEqual(
      [3, 2, 2, 4].map((sequence) => few.accept(sequence, new Uint8Array(1), false).kind),
      ["stored", "stored", "duplicate", "overflow"]
    )
    const light = makeReassembly(100, 10)
    assert.deepStrictEqual(
      [3, 2].map((sequence) => light.accept(sequence, new Uint8Array(6), false).kind),
      ["stored", "overflow"]
    )
  })
})
