import { Effect } from "effect"
import type { Driver, FrameLink } from "../../src/transport/Drivers.ts"

/** Frames that a cell holds, and how many it has given back. */
export interface Loans {
  open: number
  returned: number
}

/** A link all of whose frames are lent: one that is given back is spoilt at once, so that its later use shows. */
const lendingLink = (link: FrameLink, loans: Loans): FrameLink => {
  const lent = new WeakSet<Uint8Array>()
  return {
    ...link,
    receive: Effect.map(link.receive, (frames) => {
      for (const frame of frames) {
        lent.add(frame)
        loans.open += 1
      }
      return frames
    }),
    releaseOf: (frame) =>
      lent.has(frame)
        ? () => {
            if (lent.delete(frame)) {
              frame.fill(0xdb)
              loans.open -= 1
              loans.returned += 1
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
