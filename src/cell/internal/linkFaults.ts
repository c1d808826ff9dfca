/** What the system or a broken stream did to connections: told to people, and remembered for the failures that follow. */
import { Clock, Duration, Effect } from "effect"
import type { TransportError } from "../../transport/TransportError.ts"
import type { LinkFailure } from "../CellTypes.ts"

/** A cause is told again after so long. */
const quietNanos = Duration.toNanosUnsafe(Duration.minutes(1))
/** Names are a peer's words, and so are causes: forgotten when there are many. */
const maxKept = 1000

/** Whether a connection ended by something that a person has to set right: a full disk, a port for something else. */
const isFault = ({ reason }: TransportError): boolean =>
  reason._tag === "IoFailed" || reason._tag === "BadData" || (reason._tag === "ConnectionClosed" && reason.by === "io")

const kindOf = ({ reason }: TransportError): string => (reason._tag === "IoFailed" ? reason.code : reason._tag)

export interface LinkFaults {
  /** Tells of the end of a connection: faults as warnings, one a minute for each place and cause, the rest for debugging. */
  readonly tell: (place: string, error: TransportError, text: string) => Effect.Effect<void>
  /** Keeps a fault in mind; without a `peer` it is that of a dial, which concerns all. */
  readonly remember: (peer: string | undefined, error: TransportError) => Effect.Effect<void>
  /** The newest fault that concerns a peer. */
  readonly last: (peer: string) => LinkFailure | undefined
}

export const make = (): LinkFaults => {
  const told = new Map<string, { at: bigint; unsaid: number }>()
  const kept = new Map<string, LinkFailure>()
  let dialed: LinkFailure | undefined

  const tell: LinkFaults["tell"] = Effect.fnUntraced(function* (place, error, text) {
    if (!isFault(error)) return yield* Effect.logDebug(text)
    const key = `${place} ${kindOf(error)}`
    const now = yield* Clock.monotonicTimeNanos
    const before = told.get(key)
    if (before !== undefined && now - before.at < quietNanos) {
      before.unsaid += 1
      return yield* Effect.logDebug(text)
    }
    if (told.size >= maxKept) told.clear()
    told.set(key, { at: now, unsaid: 0 })
    const more = before === undefined || before.unsaid === 0 ? "" : ` (${before.unsaid} more before)`
    yield* Effect.logWarning(`${text}${more}`)
  })

  const remember: LinkFaults["remember"] = Effect.fnUntraced(function* (peer, error) {
    if (!isFault(error)) return
    const failure: LinkFailure = { message: error.message, at: yield* Clock.monotonicTimeNanos }
    if (peer === undefined) {
      dialed = failure
      return
    }
    if (kept.size >= maxKept) kept.clear()
    kept.set(peer, failure)
  })

  const last: LinkFaults["last"] = (peer) => {
    const own = kept.get(peer)
    return own === undefined || (dialed !== undefined && dialed.at > own.at) ? dialed : own
  }

  return { tell, remember, last }
}
