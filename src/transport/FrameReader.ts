/**
 * Cuts a stream of bytes into whole frames.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import { maxSize, prefixSize } from "./Frame.ts"
import { badData } from "./internal/errors.ts"
import * as FramePool from "./internal/framePool.ts"
import type { TransportError } from "./TransportError.ts"

const lengthSize = 4
const scratchSize = 64 * 1024
/** How much memory a frame may take before its bytes are there: this many times what has come. */
const growth = 8

const readLength = (bytes: Uint8Array, at: number): number =>
  (((bytes[at] ?? 0) << 24) | ((bytes[at + 1] ?? 0) << 16) | ((bytes[at + 2] ?? 0) << 8) | (bytes[at + 3] ?? 0)) >>> 0

const checkLength = (length: number): TransportError | undefined =>
  length >= prefixSize && length <= maxSize
    ? undefined
    : badData(
        `a frame says that it is ${length} bytes long, ${prefixSize} to ${maxSize} are possible: the peer speaks another protocol (check port and scheme), or the stream is broken`
      )

/**
 * An incremental splitter for a byte stream that carries frames back to back; one per stream and direction.
 *
 * Chunks come in by {@link push}, or are read straight into place with {@link space} and {@link filled}. Frames that
 * lie whole in a chunk come out as views of it; one that spans chunks is collected in memory that grows with the bytes
 * at hand, never by its declared length alone. After a failure the stream is lost: the reader must not be used again.
 *
 * A frame belongs to whoever gets it, for as long as that one likes. Frames of a middling size (64 KiB to 4 MiB) that
 * were collected lie in memory that can be used again: see {@link releaseOf}.
 * Source: docs/wire/transport.md, sections 1.5 and 3.1.
 *
 * @category models
 * @since 0.1.0
 */
export class FrameReader {
  #buffer: Uint8Array = new Uint8Array(0)
  #have = 0
  /** Length of the frame being collected; 0 while that is not known. */
  #need = 0
  /** Where small frames and the beginnings of large ones are read; used again until a frame lies in it. */
  #scratch = new Uint8Array(0)
  readonly #pool: FramePool.FramePool

  /** @internal Readers of one owner may share the memory of their frames. */
  constructor(pool = FramePool.make()) {
    this.#pool = pool
  }

  /** Bytes of an unfinished frame that are held. */
  get pending(): number {
    return this.#have
  }

  /**
   * Takes a chunk and answers the frames that are whole now. The reader keeps views of the chunk: it must not be
   * changed or used again. Fails with `BadData` on an impossible length; frames in front of it in the same chunk are
   * lost, as with the reference.
   */
  push(chunk: Uint8Array): Result.Result<Array<Uint8Array>, TransportError> {
    const frames: Array<Uint8Array> = []
    // A Buffer's views would be Buffers: other equality, other toString.
    const bytes = new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength)
    let at = 0
    while (at < bytes.length) {
      if (this.#have === 0 && bytes.length - at >= lengthSize) {
        const length = readLength(bytes, at)
        const problem = checkLength(length)
        if (problem !== undefined) {
          return Result.fail(problem)
        }
        if (bytes.length - at >= length) {
          frames.push(bytes.subarray(at, at + length))
          at += length
          continue
        }
        this.#need = length
      }
      at += this.#absorb(bytes, at)
      const problem = this.#finish(frames)
      if (problem !== undefined) {
        return Result.fail(problem)
      }
    }
    return Result.succeed(frames)
  }

  /**
   * Where the next bytes of the stream belong, given that `available` may be waiting: what is missing of the frame being
   * collected, and behind it room for what follows. Read into both, in this order, then call {@link filled}.
   */
  space(available: number): readonly [Uint8Array, ...ReadonlyArray<Uint8Array>] {
    const wanted = Math.max(1, available)
    if (this.#scratch.length === 0) {
      this.#scratch = new Uint8Array(scratchSize)
    }
    if (this.#need === 0) {
      return [this.#scratch.subarray(0, wanted)]
    }
    this.#reserve(Math.min(this.#need, this.#have + wanted))
    const rest = this.#buffer.subarray(this.#have, Math.min(this.#buffer.length, this.#need))
    return this.#have + rest.length === this.#need ? [rest, this.#scratch] : [rest]
  }

  /** Takes the first `count` bytes of what {@link space} answered last; else as {@link push}. */
  filled(count: number): Result.Result<Array<Uint8Array>, TransportError> {
    const frames: Array<Uint8Array> = []
    let inScratch = count
    if (this.#need > 0) {
      const inPlace = Math.min(count, Math.min(this.#buffer.length, this.#need) - this.#have)
      inScratch -= inPlace
      this.#have += inPlace
      this.#finish(frames)
    }
    if (inScratch === 0) {
      return Result.succeed(frames)
    }
    const scratch = this.#scratch
    return Result.map(this.push(scratch.subarray(0, inScratch)), (more) => {
      if (more.length > 0) {
        this.#scratch = new Uint8Array(0)
      }
      return [...frames, ...more]
    })
  }

  /**
   * How to give the memory of a frame back, for the frames to come: the caller says that nobody will look at its bytes
   * any more, nor at a view of them. `undefined` for a frame whose memory is not used again. Nobody has to give
   * anything back; further calls of what is answered do nothing.
   */
  releaseOf(frame: Uint8Array): (() => void) | undefined {
    return this.#pool.releaseOf(frame)
  }

  /** Copies what belongs to the unfinished frame and answers how many bytes that were. */
  #absorb(bytes: Uint8Array, at: number): number {
    const wanted = (this.#need === 0 ? lengthSize : this.#need) - this.#have
    const count = Math.min(wanted, bytes.length - at)
    this.#reserve(this.#have + count)
    this.#buffer.set(bytes.subarray(at, at + count), this.#have)
    this.#have += count
    return count
  }

  /** After bytes were added: learns the length, or hands out the frame. */
  #finish(frames: Array<Uint8Array>): TransportError | undefined {
    if (this.#need === 0 && this.#have === lengthSize) {
      this.#need = readLength(this.#buffer, 0)
      return checkLength(this.#need)
    }
    if (this.#need > 0 && this.#have === this.#need) {
      const frame = this.#buffer.subarray(0, this.#need)
      if (this.#pool.holds(this.#need)) {
        this.#pool.lend(frame, this.#buffer)
      }
      frames.push(frame)
      this.#buffer = new Uint8Array(0)
      this.#have = 0
      this.#need = 0
    }
    return undefined
  }

  #reserve(size: number): void {
    if (this.#buffer.length >= size) {
      return
    }
    const grown = this.#pool.holds(this.#need) ? this.#pool.take(this.#need) : this.#fresh(size)
    grown.set(this.#buffer.subarray(0, this.#have))
    this.#buffer = grown
  }

  #fresh(size: number): Uint8Array {
    let capacity = this.#need === 0 ? lengthSize : this.#need
    while (capacity > size * growth) {
      capacity = Math.ceil(capacity / growth)
    }
    return new Uint8Array(capacity)
  }
}
