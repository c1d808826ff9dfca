/** Where a dialed socket puts what it reads: straight into the frames, instead of into fresh memory for each 64 KiB. */
import type { OnReadOpts } from "node:net"

/** What knows where the next bytes belong. */
interface Sink {
  readonly space: () => Uint8Array
  /** Takes what lies at the start of what `space` answered last. */
  readonly filled: (count: number) => void
  /** Takes bytes that came before it was asked for space. */
  readonly push: (bytes: Uint8Array) => void
}

/** Given to a socket when it is made; that must be paused until the inlet is attached. */
export interface Inlet {
  readonly onread: OnReadOpts
  readonly attach: (sink: Sink) => void
}

const firstRead = 64 * 1024

export const make = (): Inlet => {
  let sink: Sink | undefined
  // The socket asks for memory when it is made, and then after each read.
  let first: Uint8Array | undefined = new Uint8Array(firstRead)
  return {
    onread: {
      buffer: () => first ?? sink?.space() ?? new Uint8Array(firstRead),
      callback: (count) => {
        const start = first
        first = undefined
        if (start === undefined) {
          sink?.filled(count)
        } else {
          sink?.push(start.subarray(0, count))
        }
        return true
      }
    },
    attach: (attached) => {
      sink = attached
    }
  }
}
