import { Effect } from "effect"
import type { CellError } from "../CellError.ts"
import { concat } from "../CellMessage.ts"
import type { IncomingStream } from "../StreamTypes.ts"
import { streamFailed } from "./errors.ts"

/**
 * Gathers a blob into one buffer, each byte copied at most once; a blob of one chunk only where its memory was lent.
 * Chunks are given back as soon as they are copied.
 */
export interface BlobBuffer {
  readonly length: () => number
  readonly push: (chunk: Uint8Array) => void
  readonly take: () => Uint8Array
}

// Memory for the whole is set apart once this share of it has come: a peer that only promises costs nothing. What waits
// till then is more lent memory than links have to use again, if the share is large.
const trustedShare = 1 / 16

/** `size` is what the peer declared, 0 for unknown; more than that must not be pushed. */
export const makeBlobBuffer = (
  size: number,
  { keep, release }: Pick<IncomingStream, "keep" | "release">
): BlobBuffer => {
  let chunks: Array<Uint8Array> = []
  let whole: Uint8Array | undefined
  let length = 0

  const push: BlobBuffer["push"] = (chunk) => {
    if (whole === undefined && length > 0 && size > 0 && length + chunk.byteLength >= size * trustedShare) {
      whole = new Uint8Array(size)
      let at = 0
      for (const earlier of chunks) {
        whole.set(earlier, at)
        at += earlier.byteLength
        release(earlier)
      }
      chunks = []
    }
    if (whole === undefined) {
      chunks.push(chunk)
    } else {
      whole.set(chunk, length)
    }
    length += chunk.byteLength
    if (whole !== undefined) {
      release(chunk)
    }
  }

  const take: BlobBuffer["take"] = () => {
    if (whole !== undefined) {
      return whole.subarray(0, length)
    }
    const [only] = chunks
    if (only !== undefined && chunks.length === 1) {
      return keep(only)
    }
    const all = concat(chunks)
    chunks.forEach(release)
    return all
  }

  return { length: () => length, push, take }
}

const tooLarge = (origin: string, size: number, limit: number): CellError =>
  streamFailed(
    origin,
    `a blob of ${size} bytes is larger than the ${limit} that are taken (maxBlobSize): raise it, or send arrays as downloads`,
    "BlobSizeError"
  )

/**
 * Reads a stream that carries one blob. `undefined` when the sender ended it short of the size it declared: nobody is
 * told of that. Source: docs/wire/cellnet.md, sections 10.6 and 10.7.
 */
export const readBlob = Effect.fnUntraced(function* (
  incoming: IncomingStream,
  maxBlobSize: number,
  onChunk?: (length: number) => void
): Effect.fn.Return<Uint8Array | undefined, CellError> {
  const { origin, size } = incoming
  const limit = maxBlobSize > 0 ? maxBlobSize : Number.MAX_SAFE_INTEGER
  if (size > limit) {
    return yield* Effect.fail(tooLarge(origin, size, limit))
  }
  const buffer = makeBlobBuffer(size, incoming)
  while (true) {
    const chunk = yield* incoming.read
    if (chunk === undefined) {
      break
    }
    const length = buffer.length() + chunk.byteLength
    onChunk?.(length)
    if (size > 0 && length > size) {
      const message = `Buffer overrun: the stream has more than the ${size} bytes it declared`
      return yield* Effect.fail(streamFailed(origin, message))
    }
    if (length > limit) {
      return yield* Effect.fail(tooLarge(origin, length, limit))
    }
    buffer.push(chunk)
  }
  if (buffer.length() < size) {
    yield* Effect.logWarning(`a blob of ${origin} ended after ${buffer.length()} of ${size} bytes: it is dropped`)
    return undefined
  }
  return buffer.take()
})
