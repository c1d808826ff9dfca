/** What a chunk did to the order of a stream. */
type Accepted =
  | { readonly kind: "duplicate" }
  | { readonly kind: "stored" }
  | { readonly kind: "overflow" }
  | { readonly kind: "next"; readonly chunks: ReadonlyArray<Uint8Array>; readonly isComplete: boolean }

/** Puts chunks in order; docs/wire/cellnet.md, section 10.4. */
export interface Reassembly {
  readonly accept: (sequence: number, chunk: Uint8Array, isFinal: boolean) => Accepted
  /** The highest sequence number up to which nothing is missing; -1 before the first. */
  readonly highest: () => number
}

interface Stored {
  readonly chunk: Uint8Array
  readonly isFinal: boolean
}

/** At most `maxStored` chunks, and `maxBytes`, wait for earlier ones. */
export const makeReassembly = (maxStored: number, maxBytes: number): Reassembly => {
  const stored = new Map<number, Stored>()
  let storedBytes = 0
  let next = 0
  let isComplete = false

  const accept: Reassembly["accept"] = (sequence, chunk, isFinal) => {
    if (isComplete || sequence < next || stored.has(sequence)) {
      return { kind: "duplicate" }
    }
    if (sequence > next) {
      if (stored.size >= maxStored || storedBytes + chunk.byteLength > maxBytes) {
        return { kind: "overflow" }
      }
      stored.set(sequence, { chunk, isFinal })
      storedBytes += chunk.byteLength
      return { kind: "stored" }
    }
    const chunks: Array<Uint8Array> = []
    let entry: Stored | undefined = { chunk, isFinal }
    while (entry !== undefined) {
      chunks.push(entry.chunk)
      stored.delete(next)
      next += 1
      if (entry.isFinal) {
        isComplete = true
        stored.clear()
        break
      }
      entry = stored.get(next)
      storedBytes -= entry?.chunk.byteLength ?? 0
    }
    return { kind: "next", chunks, isComplete }
  }

  return { accept, highest: () => next - 1 }
}
