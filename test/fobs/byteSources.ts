/** Files that are bytes in memory, for the tests of readers and writers. */
import { Effect } from "effect"
import type { ByteSink, ByteSource } from "../../src/fobs/ByteSource.ts"

/** A source that notes the lengths of all reads; a read beyond the end is a defect of the reader. */
export const sourceOf = (bytes: Uint8Array): ByteSource & { readonly reads: Array<number> } => {
  const reads: Array<number> = []
  return {
    reads,
    size: bytes.length,
    readInto: (offset, target) =>
      Effect.sync(() => {
        if (offset < 0 || offset + target.length > bytes.length) throw new Error(`read at ${offset}+${target.length}`)
        reads.push(target.length)
        target.set(bytes.subarray(offset, offset + target.length))
      })
  }
}

/** All bytes that a writer has written. */
export const collect = <E, R>(write: (sink: ByteSink) => Effect.Effect<void, E, R>) => {
  const chunks: Array<Uint8Array> = []
  const sink: ByteSink = (bytes) => Effect.sync(() => void chunks.push(bytes.slice()))
  return Effect.map(write(sink), () => new Uint8Array(Buffer.concat(chunks)))
}
