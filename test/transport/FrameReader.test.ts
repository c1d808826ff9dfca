import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { FrameReader } from "../../src/transport/FrameReader.ts"
import { fixture, fromHex, makeRandom, toHex } from "./support.ts"

const frameOf = (length: number, fill: number): Uint8Array => {
  const frame = new Uint8Array(length).fill(fill, 16)
  new DataView(frame.buffer).setUint32(0, length)
  return frame
}

const concat = (...parts: ReadonlyArray<Uint8Array>): Uint8Array => new Uint8Array(Buffer.concat(parts))

describe("FrameReader", () => {
  it("frames that lie whole in a chunk are views of it", () => {
    const chunk = concat(frameOf(16, 0), frameOf(40, 1), frameOf(17, 2))
    const frames = Result.getOrThrow(new FrameReader().push(chunk))
    assert.deepStrictEqual(
      frames.map((frame) => frame.length),
      [16, 40, 17]
    )
    assert.isTrue(frames.every((frame) => frame.buffer === chunk.buffer))
  })

  it("a Buffer yields plain views", () => {
    const [frame] = Result.getOrThrow(new FrameReader().push(Buffer.from(frameOf(20, 3))))
    assert.isFalse(Buffer.isBuffer(frame))
    assert.deepStrictEqual(frame, frameOf(20, 3))
  })

  it("whatever the cuts, the same frames come out", () => {
    const seed = 4711
    const random = makeRandom(seed)
    for (let run = 0; run < 300; run++) {
      const frames = Array.from({ length: 1 + random(8) }, () =>
        frameOf(random(3) === 0 ? 16 + random(200_000) : 16 + random(40), random(256))
      )
      const stream = concat(...frames)
      const reader = new FrameReader()
      const read: Array<Uint8Array> = []
      const largest = random(2) === 0 ? 9 : 100_000
      let at = 0
      while (at < stream.length) {
        const size = 1 + random(largest === 9 && stream.length > 5000 ? 1000 : largest)
        if (random(2) === 0) {
          read.push(...Result.getOrThrow(reader.push(stream.slice(at, at + size))))
          at += size
        } else {
          const space = reader.space(random(2) * size)
          const count = Math.min(space.length, size, stream.length - at)
          space.set(stream.subarray(at, at + count))
          read.push(...Result.getOrThrow(reader.filled(space.subarray(0, count))))
          at += count
        }
      }
      assert.strictEqual(reader.pending, 0, `seed ${seed}, run ${run}`)
      assert.strictEqual(read.length, frames.length, `seed ${seed}, run ${run}`)
      assert.isTrue(
        read.every((frame, index) => Buffer.compare(frame, frames[index] ?? new Uint8Array()) === 0),
        `seed ${seed}, run ${run}`
      )
    }
  })

  it("memory follows the bytes that came, not the length that is declared", () => {
    const reader = new FrameReader()
    const head = new Uint8Array(16)
    new DataView(head.buffer).setUint32(0, 2145386496)
    reader.push(head)
    assert.isAtMost(reader.space(0).buffer.byteLength, 16 * 64)
    reader.push(new Uint8Array(1 << 20))
    assert.isAtMost(reader.space(0).buffer.byteLength, 10 << 20)
    assert.strictEqual(reader.pending, (1 << 20) + 16)
  })

  it("a large frame whose bytes are waiting is read in place", () => {
    const reader = new FrameReader()
    const size = 1 << 20
    const frame = frameOf(size, 7)
    const scratch = reader.space(size)
    scratch.set(frame.subarray(0, scratch.length))
    assert.deepStrictEqual(Result.getOrThrow(reader.filled(scratch)), [])
    const rest = reader.space(size - scratch.length)
    assert.strictEqual(rest.length, size - scratch.length)
    rest.set(frame.subarray(scratch.length))
    const [read] = Result.getOrThrow(reader.filled(rest))
    assert.strictEqual(read?.buffer, rest.buffer)
    assert.strictEqual(Buffer.compare(read ?? rest, frame), 0)
  })

  it("impossible lengths fail with BadData, however they arrive", () => {
    for (const length of [0, 1, 15, 2145386497, 4294967295]) {
      const bytes = new Uint8Array(16)
      new DataView(bytes.buffer).setUint32(0, length)
      for (const step of [1, 3, 16]) {
        const reader = new FrameReader()
        let failure = "none"
        for (let at = 0; at < 16 && failure === "none"; at += step) {
          const pushed = reader.push(bytes.slice(at, at + step))
          failure = Result.isFailure(pushed) ? pushed.failure.reason._tag : "none"
        }
        assert.strictEqual(failure, "BadData", `length ${length} in steps of ${step}`)
      }
    }
  })

  it("the captured malformed TCP streams fail where the reference closes, and only there", () => {
    const framing = ["length below 16", "length zero before HELLO", "length above maximum"]
    for (const { name, send } of fixture("transport/malformed_tcp.json").cases) {
      const reader = new FrameReader()
      const results = send.map((hex: string) => reader.push(fromHex(hex)))
      assert.strictEqual(results.some(Result.isFailure), framing.includes(name), name)
    }
  })

  it("random bytes yield frames or BadData", () => {
    const seed = 99
    const random = makeRandom(seed)
    for (let run = 0; run < 10_000; run++) {
      const reader = new FrameReader()
      const bytes = new Uint8Array(random(64)).map(() => (random(2) === 0 ? random(3) : random(256)))
      const pushed = reader.push(bytes)
      if (Result.isFailure(pushed)) {
        assert.strictEqual(pushed.failure.reason._tag, "BadData", `seed ${seed}, run ${run}: ${toHex(bytes)}`)
      }
    }
  })
})
