import { Effect } from "effect"
import type { Driver, FrameLink } from "../../src/transport/Drivers.ts"
import { ConnectionClosed, TransportError } from "../../src/transport/TransportError.ts"

/** Frames are counted from here on: a pool lends no smaller ones. */
const large = 64 * 1024

/** Large frames that the cells hold, and how many they have given back. */
export interface Loans {
  open: number
  returned: number
  /** Whether the connection ends with a large frame that is handed to it, while it still reads the memory of that. */
  isCutShort?: ((pieces: ReadonlyArray<Uint8Array>) => boolean) | undefined
}

const sendOrEnd =
  (link: FrameLink, loans: Loans): FrameLink["send"] =>
  (pieces) => {
    const isLarge = pieces.some(({ byteLength }) => byteLength >= large)
    if (!isLarge || loans.isCutShort?.(pieces) !== true) return link.send(pieces)
    const reason = new ConnectionClosed({ target: link.info.peerAddress, by: "peer", message: "it left meanwhile" })
    return Effect.fail(new TransportError({ reason }))
  }

/** A link all of whose frames are lent: one that is given back is spoilt at once, so that its later use shows. */
const lendingLink = (link: FrameLink, loans: Loans): FrameLink => {
  const lent = new WeakSet<Uint8Array>()
  return {
    ...link,
    send: sendOrEnd(link, loans),
    receive: Effect.map(link.receive, (frames) => {
      for (const frame of frames) {
        lent.add(frame)
        loans.open += frame.byteLength >= large ? 1 : 0
      }
      return frames
    }),
    releaseOf: (frame) =>
      lent.has(frame)
        ? () => {
            if (lent.delete(frame)) {
              frame.fill(0xdb)
              const count = frame.byteLength >= large ? 1 : 0
              loans.open -= count
              loans.returned += count
            }
          }
        : undefined
  }
}

export const lending = (driver: Driver, loans: Loans): Driver => ({
  ...driver,
  connect: (url, resources) => Effect.map(driver.connect(url, resources), (link) => lendingLink(link, loans)),
  listen: (url, resources) =>
    Effect.map(driver.listen(url, resources), (listener) => ({
      ...listener,
      accept: Effect.map(listener.accept, (link) => lendingLink(link, loans))
    }))
})
