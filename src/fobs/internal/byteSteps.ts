/** Reading, checking and writing in steps that are neither slow nor hold up others. */
import { crc32 } from "node:zlib"
import { Effect } from "effect"
import type { ByteSink, ByteSource } from "../ByteSource.ts"

/** Bytes that are read, checked or written in one go: a matter of a few milliseconds. */
const step = 2 ** 22
/** Bytes of the buffers that small reads and writes go through. */
export const bufferLength = 2 ** 18

/** Small reads that lie near to each other, answered from one large one. */
export interface Window<E, R> {
  /** At most {@link bufferLength} bytes, as a view that is good until the next call. */
  readonly at: (offset: number, length: number) => Effect.Effect<Uint8Array, E, R>
}

export const makeWindow = <E, R>(source: ByteSource<E, R>): Window<E, R> => {
  const buffer = new Uint8Array(Math.min(bufferLength, source.size))
  let begin = 0
  let end = 0
  const view = (offset: number, length: number) => buffer.subarray(offset - begin, offset - begin + length)
  return {
    at: (offset, length) =>
      Effect.suspend(() => {
        if (offset >= begin && offset + length <= end) return Effect.succeed(view(offset, length))
        const count = Math.min(buffer.length, source.size - offset)
        begin = offset
        end = offset
        return Effect.map(source.readInto(offset, buffer.subarray(0, count)), () => {
          end = offset + count
          return view(offset, length)
        })
      })
  }
}

/** Fills `target` step by step and tells each to `onStep`. */
export const readSteps = Effect.fnUntraced(function* <E, R>(
  source: ByteSource<E, R>,
  offset: number,
  target: Uint8Array,
  onStep: (bytes: Uint8Array) => void
): Effect.fn.Return<void, E, R> {
  for (let at = 0; at < target.length; at += step) {
    const bytes = target.subarray(at, at + step)
    yield* source.readInto(offset + at, bytes)
    onStep(bytes)
  }
})

/** The checksum of pieces, with pauses in which others may run. */
export const checksum = Effect.fnUntraced(function* (pieces: ReadonlyArray<Uint8Array>) {
  let crc = 0
  for (const piece of pieces) {
    for (let at = 0; at < piece.length; at += step) {
      crc = crc32(piece.subarray(at, at + step), crc)
      if (piece.length > step) yield* Effect.yieldNow
    }
  }
  return crc
})

/** A sink that gathers small pieces and cuts large ones. */
export const makeBatcher = <E, R>(sink: ByteSink<E, R>) => {
  const buffer = new Uint8Array(bufferLength)
  let length = 0
  const flush: Effect.Effect<void, E, R> = Effect.suspend(() => {
    const bytes = buffer.subarray(0, length)
    length = 0
    return bytes.length === 0 ? Effect.void : sink(bytes)
  })
  const writeLarge = Effect.fnUntraced(function* (bytes: Uint8Array): Effect.fn.Return<void, E, R> {
    yield* flush
    for (let at = 0; at < bytes.length; at += step) yield* sink(bytes.subarray(at, at + step))
  })
  const write = Effect.fnUntraced(function* (bytes: Uint8Array): Effect.fn.Return<void, E, R> {
    if (bytes.length >= bufferLength) return yield* writeLarge(bytes)
    if (length + bytes.length > bufferLength) yield* flush
    buffer.set(bytes, length)
    length += bytes.length
  })
  return { write, flush }
}
