import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { FrameReader } from "../../src/transport/FrameReader.ts"
import { fixture, fromHex, makeRandom, toHex } from "./support.ts"

const frameOf = (length: number, fill: number): Uint8Array => {
  const frame = new Uint8Array(length).fill(fill, 16)
  new DataView(frame.buffer).setUint32(0, length)
  return frame
}

/** Fills what `space` has answered with the beginning of some bytes. */
const fill = (space: ReadonlyArray<Uint8Array>, bytes: Uint8Array): number => {
  let at = 0
  for (const place of space) {
    const part = bytes.subarray(at, at + place.length)
    place.set(part)
    at += part.length
  }
  return at
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
          const count = fill(reader.space(random(2) * size), stream.subarray(at, at + size))
          read.push(...Result.getOrThrow(reader.filled(count)))
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
    assert.isAtMost(reader.space(0)[0]?.buffer.byteLength ?? Number.NaN, 16 * 64)
    reader.push(new Uint8Array(1 << 20))
    assert.isAtMost(reader.space(0)[0]?.buffer.byteLength ?? Number.NaN, 10 << 20)
    assert.strictEqual(reader.pending, (1 << 20) + 16)
  })

  it("a large frame whose bytes are waiting is read in place", () => {
    const reader = new FrameReader()
    const size = 1 << 20
    const frame = frameOf(size, 7)
    const stream = concat(frame, frameOf(20, 1))
    const begun = fill(reader.space(size), stream)
    assert.deepStrictEqual(Result.getOrThrow(reader.filled(begun)), [])
    const [rest, next] = reader.space(size)
    assert.strictEqual(rest?.length, size - begun)
    const count = fill([rest ?? stream, next ?? stream], stream.subarray(begun))
    const [read, behind] = Result.getOrThrow(reader.filled(count))
    assert.strictEqual(read?.buffer, rest?.buffer)
    assert.strictEqual(Buffer.compare(read ?? stream, frame), 0)
    assert.deepStrictEqual(behind, frameOf(20, 1))
  })

  it("memory that is given back is used again, and no other", () => {
    const reader = new FrameReader()
    const size = (1 << 20) + 700
    const next = (fill: number): Uint8Array => {
      const frame = frameOf(size, fill)
      reader.push(frame.slice(0, 1000))
      const [read] = Result.getOrThrow(reader.push(frame.slice(1000)))
      return read ?? assert.fail("no frame came out")
    }
    const buffers = new Set<ArrayBufferLike>()
    for (let n = 0; n < 100; n++) {
      const frame = next(n)
      assert.strictEqual(Buffer.compare(frame, frameOf(size, n)), 0)
      buffers.add(frame.buffer)
      const release = reader.releaseOf(frame)
      release?.()
      release?.()
      assert.isUndefined(reader.releaseOf(frame))
    }
    assert.strictEqual(buffers.size, 1)
    const kept = Array.from({ length: 10 }, (_, n) => next(n))
    assert.isTrue(kept.every((frame, n) => Buffer.compare(frame, frameOf(size, n)) === 0))
    // What was given back twice lies there once.
    for (const frame of kept.slice(0, 2)) {
      const release = reader.releaseOf(frame)
      release?.()
      release?.()
    }
    assert.strictEqual(new Set([next(1), next(2), next(3)].map(({ buffer }) => buffer)).size, 3)
  })

  it("what lies idle is bounded, and small and very large frames are not lent", () => {
    const reader = new FrameReader()
    const collected = (size: number): Uint8Array => {
      reader.push(frameOf(size, 1).subarray(0, 8))
      return Result.getOrThrow(reader.push(frameOf(size, 1).subarray(8)))[0] ?? assert.fail("no frame came out")
    }
    for (const size of [100, 60_000, 5 << 20]) {
      assert.isUndefined(reader.releaseOf(collected(size)), `${size}`)
    }
    const frames = Array.from({ length: 20 }, () => collected(1 << 20))
    const before = new Set(frames.map(({ buffer }) => buffer))
    for (const frame of frames) {
      reader.releaseOf(frame)?.()
    }
    const again = Array.from({ length: 20 }, () => collected(1 << 20))
    assert.strictEqual(again.filter(({ buffer }) => before.has(buffer)).length, 8)
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
