import { type Deferred, Effect, Result, type Scope } from "effect"
import { FobsError, MissingReference } from "../../fobs/FobsError.ts"
import type { Pieces } from "../../fobs/Pieces.ts"
import type { TransferOutcome } from "../DownloadTypes.ts"
import { type ArrayValue, type Dot, encodeItem, encodeItemInSteps, itemName } from "./downloadItems.ts"
import type { ReceiverStatus } from "./downloadWire.ts"

/** The arrays of one message that are on offer. */
export interface Transaction {
  readonly scope: Scope.Scope
  readonly expected: ReadonlySet<string>
  readonly chunkSize: number
  /** Milliseconds, as all times here. */
  readonly idleTimeout: number
  readonly acquireTimeout: number | undefined
  readonly receiverIdleTimeout: number | undefined
  readonly created: number
  lastActive: number
  /** Requests for chunks so far. */
  served: number
  /** When each receiver last asked for a chunk of any ref. */
  readonly activity: Map<string, number>
  readonly refs: Map<Dot, Ref>
  readonly outcome: Deferred.Deferred<TransferOutcome>
  isDone: boolean
  readonly touch: (receiver: string, at: number) => void
  /** Whether all that is expected is known. */
  readonly isFinal: () => boolean
}

/** The arrays of one kind in a transaction. */
export interface Ref {
  readonly tx: Transaction
  readonly id: string
  readonly dot: Dot
  /** How many items there are. */
  readonly size: number
  readonly totalBytes: number
  readonly statuses: Map<string, ReceiverStatus>
  /** What the confirmation of a receiver that was told the end must bring. */
  readonly nonces: Map<string, string>
  /** How much each receiver has been served, in arrays from the first and their bytes. */
  readonly reached: Map<string, { readonly items: number; readonly bytes: number }>
  /** The item id of an array; the same one has the same id. */
  readonly add: (value: ArrayValue) => string
  readonly item: (index: number) => Result.Result<Pieces, FobsError>
  /** Makes a large item before it is asked for: its checksum takes a while, in which the one before is on its way. */
  readonly prepare: (index: number) => Effect.Effect<void>
  readonly advance: (receiver: string, items: number) => void
  readonly release: () => void
}

/** Smaller items are made when they are asked for. */
const worthPreparing = 1024 * 1024

const noItem = Result.fail(
  new FobsError({ reason: new MissingReference({ id: "", message: "there is no such item" }) })
)

export const makeRef = (tx: Transaction, id: string, dot: Dot): Ref => {
  let values: Array<ArrayValue> = []
  const names = new Map<ArrayValue, string>()
  // Bytes of the arrays before each.
  let offsets: Array<number> = [0]
  let made: Array<Result.Result<Pieces, FobsError>> = []
  const reached: Ref["reached"] = new Map()
  return {
    tx,
    id,
    dot,
    get size() {
      return values.length
    },
    get totalBytes() {
      return offsets.at(-1) ?? 0
    },
    statuses: new Map(),
    nonces: new Map(),
    reached,
    add: (value) => {
      const known = names.get(value)
      if (known !== undefined) {
        return known
      }
      const name = itemName(values.length)
      names.set(value, name)
      values.push(value)
      offsets.push((offsets.at(-1) ?? 0) + value.bytes.length)
      return name
    },
    item: (index) => {
      const known = made[index]
      const value = values[index]
      if (known !== undefined || value === undefined) {
        return known ?? noItem
      }
      // Views of the array, and a header: cheap to keep, and its checksum costs time.
      const item = encodeItem(itemName(index), value)
      made[index] = item
      return item
    },
    prepare: (index) =>
      Effect.suspend(() => {
        const value = values[index]
        if (made[index] !== undefined || value === undefined || value.bytes.length < worthPreparing) {
          return Effect.void
        }
        return Effect.map(Effect.result(encodeItemInSteps(itemName(index), value)), (item) => {
          if (values[index] === value) {
            made[index] ??= item
          }
        })
      }),
    advance: (receiver, items) => {
      const before = reached.get(receiver)?.items ?? 0
      const furthest = Math.max(before, items)
      reached.set(receiver, { items: furthest, bytes: offsets[furthest] ?? 0 })
    },
    release: () => {
      values = []
      offsets = [offsets.at(-1) ?? 0]
      made = []
      names.clear()
    }
  }
}

/** The verdict of docs/wire/cellnet.md, section 11. */
export const judge = (tx: Transaction, doneStatus: TransferOutcome["doneStatus"]): TransferOutcome => {
  const refs = [...tx.refs.values()]
  const transfers = refs.map(({ id, statuses }) => ({ refId: id, receivers: new Map(statuses) }))
  const outcome = (status: TransferOutcome["status"], reason: TransferOutcome["reason"]): TransferOutcome => ({
    status,
    reason,
    doneStatus,
    transfers
  })
  const haveAll =
    tx.expected.size > 0 &&
    refs.length > 0 &&
    refs.every(({ statuses }) => [...tx.expected].every((receiver) => statuses.get(receiver) === "success"))
  if (haveAll) {
    return outcome("completed", "all_receivers_succeeded")
  }
  switch (doneStatus) {
    case "deleted":
      return outcome("aborted", "deleted")
    case "timeout":
      return outcome("failed", "timeout")
    case "finished":
      return outcome("failed", "receiver_failed")
  }
}
