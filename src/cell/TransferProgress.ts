/**
 * How far the large transfers of a cell have come: the downloads of arrays, and messages of more than one chunk.
 *
 * @since 0.1.0
 */
import { type Context, Effect, Metric, PubSub, Stream } from "effect"

/**
 * How far one transfer has come: a download, or a message with its arrays in it.
 *
 * @category models
 * @since 0.1.0
 */
export interface TransferProgress {
  readonly direction: "send" | "receive"
  /** The cell at the other end. */
  readonly peer: string
  /** The id of the download, or that of the message's request. */
  readonly refId: string
  /** Of array data; of a message: all its bytes. Those sent count when the receiver has taken them. */
  readonly bytes: number
  /** `undefined` where only the source knows. */
  readonly totalBytes: number | undefined
  /** Arrays; 0 for a message. */
  readonly items: number
  readonly state: "active" | "completed" | "failed" | "aborted"
}

/**
 * Bytes that were fetched from this program's cells (`direction` `send`) or by them (`receive`), and those of large
 * messages, counted when a transfer is over, by its `state`: `completed`, `failed` or `aborted`.
 *
 * @category metrics
 * @since 0.1.0
 */
export const transferBytes = Metric.counter("fl_attach_transfer_bytes", {
  description: "Bytes of arrays in transfers that are over, by direction and state",
  incremental: true
})

const counted = ({ bytes, direction, state }: TransferProgress, context: Context.Context<never>): void => {
  if (state !== "active" && bytes > 0) {
    Metric.withAttributes(transferBytes, { direction, state }).updateUnsafe(bytes, context)
  }
}

/** Progress that a slow reader of the stream may leave unread. */
const maxUnread = 256

/**
 * Where those that move bytes tell of it, and others hear it.
 *
 * @category models
 * @since 0.1.0
 */
export interface Transfers {
  readonly publish: (event: TransferProgress) => void
  /** All of it, from now on. A slow reader misses some. */
  readonly events: Stream.Stream<TransferProgress>
}

/**
 * @category constructors
 * @since 0.1.0
 */
export const make: Effect.Effect<Transfers> = Effect.gen(function* () {
  const progress = yield* PubSub.sliding<TransferProgress>(maxUnread)
  const context = yield* Effect.context<never>()
  return {
    publish: (event) => {
      counted(event, context)
      PubSub.publishUnsafe(progress, event)
    },
    events: Stream.fromPubSub(progress)
  }
})
