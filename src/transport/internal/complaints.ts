import { Effect } from "effect"

/** Logs what a peer does wrong: the first few times as warnings, then for debugging alone. */
export type Complain = (text: string) => Effect.Effect<void>

const maxWarnings = 10

export const make = (peerAddress: string): Complain => {
  let count = 0
  return (text) => {
    count += 1
    const last = count === maxWarnings ? " (more of this connection goes to the debug log)" : ""
    const line = `${peerAddress}: ${text}${last}`
    return count > maxWarnings ? Effect.logDebug(line) : Effect.logWarning(line)
  }
}
