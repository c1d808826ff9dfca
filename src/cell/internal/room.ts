import { Effect } from "effect"

/** What waits to be forwarded to one peer. */
export interface Queued {
  bytes: number
  frames: number
}

export interface RoomLimits {
  /** Bytes that may wait for one peer. */
  readonly peerBytes: number
  /** Bytes that may wait for all peers together. */
  readonly totalBytes: number
}

/**
 * The room that a forwarder has for frames that their receivers have not taken yet. Whoever brings a frame waits until
 * there is room, so that a slow receiver holds its senders back, at last, instead of filling the memory. A frame for a
 * peer that has little waiting goes in even when all others together have used up the total.
 */
export interface Room {
  readonly enter: (peer: Queued, size: number) => Effect.Effect<void>
  readonly leave: (peer: Queued, size: number) => void
}

interface Waiter {
  readonly peer: Queued
  readonly size: number
  readonly resume: (effect: Effect.Effect<void>) => void
}

/** Frames that may wait for one peer, however small they are. */
const peerFrames = 4096
/** What a peer may always have waiting, as far as the total is concerned. */
const share = 1024 * 1024

export const makeQueued = (): Queued => ({ bytes: 0, frames: 0 })

export const makeRoom = ({ peerBytes, totalBytes }: RoomLimits): Room => {
  let total = 0
  let waiting: ReadonlyArray<Waiter> = []

  // A frame that is larger than all bounds must get through, too.
  const fits = (peer: Queued, size: number): boolean =>
    peer.frames === 0 ||
    (peer.frames < peerFrames &&
      peer.bytes + size <= peerBytes &&
      (peer.bytes + size <= share || total + size <= totalBytes))

  const take = (peer: Queued, size: number): void => {
    total += size
    peer.bytes += size
    peer.frames += 1
  }

  /** Lets in who fits by now; of one peer's frames in the order in which they came. */
  const admit = (): void => {
    const blocked = new Set<Queued>()
    const admitted: Array<Waiter> = []
    waiting = waiting.filter((waiter) => {
      const { peer, size } = waiter
      if (blocked.has(peer) || !fits(peer, size)) {
        blocked.add(peer)
        return true
      }
      take(peer, size)
      admitted.push(waiter)
      return false
    })
    // They run at once, and may bring the next frame.
    for (const { resume } of admitted) {
      resume(Effect.void)
    }
  }

  const enter: Room["enter"] = (peer, size) =>
    Effect.suspend(() => {
      if (fits(peer, size) && !waiting.some((waiter) => waiter.peer === peer)) {
        take(peer, size)
        return Effect.void
      }
      return Effect.callback<void>((resume) => {
        const waiter: Waiter = { peer, size, resume }
        waiting = [...waiting, waiter]
        return Effect.sync(() => {
          waiting = waiting.filter((other) => other !== waiter)
        })
      })
    })

  const leave: Room["leave"] = (peer, size) => {
    total -= size
    peer.bytes -= size
    peer.frames -= 1
    if (waiting.length > 0) {
      admit()
    }
  }

  return { enter, leave }
}
