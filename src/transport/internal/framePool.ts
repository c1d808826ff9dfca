/** Memory that frames are gathered in again and again: fresh memory costs more than what is copied into it. */

/**
 * The buffers of one reader, or of several. A frame in one of them is lent: whoever is done with its bytes gives them
 * back, once. A frame that nobody gives back is never written over; its buffer goes the way of all garbage.
 */
export interface FramePool {
  /** Whether frames of this length are lent. */
  readonly holds: (length: number) => boolean
  /** Memory of at least this length, with whatever was in it before. */
  readonly take: (length: number) => Uint8Array
  /** Notes that a frame lies in memory that was taken here. */
  readonly lend: (frame: Uint8Array, memory: Uint8Array) => void
  /** Gives the memory of a frame back, at its first call; `undefined` for a frame that is not lent, or was given back. */
  readonly releaseOf: (frame: Uint8Array) => (() => void) | undefined
}

/** Smaller frames are not worth the while, and larger ones are rare: chunks of streams have 1 MiB. */
const smallest = 64 * 1024
const largest = 4 * 1024 * 1024
/** What lies idle at most, of one reader. */
const idleOfOne = 8 * 1024 * 1024
const step = 128 * 1024

/** At most `maxIdle` bytes lie idle. */
export const make = (maxIdle = idleOfOne): FramePool => {
  const idle: Array<Uint8Array> = []
  let idleBytes = 0
  const lent = new WeakMap<Uint8Array, Uint8Array>()

  const take: FramePool["take"] = (length) => {
    // The one that came back last is the likeliest to be in the processor's caches.
    const at = idle.findLastIndex(({ byteLength }) => byteLength >= length && byteLength <= 2 * length + step)
    const [found] = at < 0 ? [] : idle.splice(at, 1)
    if (found === undefined) {
      return new Uint8Array(Math.ceil(length / step) * step)
    }
    idleBytes -= found.byteLength
    return found
  }

  const giveBack = (memory: Uint8Array): void => {
    idle.push(memory)
    idleBytes += memory.byteLength
    while (idleBytes > maxIdle) {
      idleBytes -= idle.shift()?.byteLength ?? idleBytes
    }
  }

  return {
    holds: (length) => length >= smallest && length <= largest,
    take,
    lend: (frame, memory) => lent.set(frame, memory),
    releaseOf: (frame) => {
      if (!lent.has(frame)) {
        return undefined
      }
      return () => {
        const memory = lent.get(frame)
        if (memory !== undefined) {
          lent.delete(frame)
          giveBack(memory)
        }
      }
    }
  }
}
