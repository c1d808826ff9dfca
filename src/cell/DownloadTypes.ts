/**
 * Offers of arrays, their outcome and progress, and the bounds of both ends of a download.
 *
 * Source: docs/wire/fobs.md, sections 6 and 7.
 *
 * @since 0.1.0
 */
import type { Duration, Effect, Scope, Stream } from "effect"
import type { ReferenceSink } from "../fobs/Codec.ts"
import type { TransferProgress } from "./TransferProgress.ts"

/**
 * How arrays are offered and fetched. Bytes where no unit is said; the defaults are the reference's, but for
 * `threshold`, `maxInlineBytes`, `sourceGrace` and the last two, which it has not.
 *
 * @category models
 * @since 0.1.0
 */
export interface DownloadSettings {
  /** Items go together into one reply while they stay below this; a larger item goes alone. 0 or less: offer nothing. Default 2 MiB. */
  readonly chunkSize: number
  /** Arrays with fewer bytes travel inside their message. Default 64 KiB; 0 offers every array, as the reference does. */
  readonly threshold: number
  /**
   * To a receiver that says that it takes them, larger arrays travel inside their message as well, up to so many bytes
   * together; and this cell says that it takes so many, if `maxBlobSize` allows. That is about twice as fast as to
   * offer them. Default 1 GiB; 0: never.
   */
  readonly maxInlineBytes: number
  /** An offer that nobody asks anything of for so long ends. Default 600 seconds. */
  readonly idleTimeout: Duration.Input
  /** A receiver that has asked for nothing so long after the offer is given up. Default: no limit of its own. */
  readonly receiverAcquireTimeout: Duration.Input
  /** A receiver that falls silent for so long is given up. Default: no limit of its own. */
  readonly receiverIdleTimeout: Duration.Input
  /** Whether receivers tell their sources how a download ended. Without it a source takes what it served for received. Default true. */
  readonly confirm: boolean
  /** How long each stage of the request for a chunk may pass without progress. Default 600 seconds. */
  readonly requestTimeout: Duration.Input
  /** How long the connection to a source may be away before its downloads fail. Default 10 seconds. */
  readonly sourceGrace: Duration.Input
  /** What the downloads of one message may take in memory. Default 16 GiB. */
  readonly maxModelBytes: number
  /** How many arrays the downloads of one message may bring. Default 1000000. */
  readonly maxItems: number
}

/**
 * How the arrays of one message are offered; what is left out is as the cell's {@link DownloadSettings} say.
 *
 * @category models
 * @since 0.1.0
 */
export interface OfferOptions
  extends Partial<
    Pick<DownloadSettings, "chunkSize" | "threshold" | "idleTimeout" | "receiverAcquireTimeout" | "receiverIdleTimeout">
  > {
  /** The cells that are to fetch everything. Others are served too, but count for nothing. */
  readonly receivers: ReadonlyArray<string>
  /** The bytes of arrays that the receivers take inside the message itself, by their own word. Default 0. */
  readonly inlineBytes?: number
}

/**
 * The verdict on an offer (docs/wire/cellnet.md, section 11): `completed` if and only if every receiver has confirmed
 * every download, however the offer ended.
 *
 * @category models
 * @since 0.1.0
 */
export interface TransferOutcome {
  readonly status: "completed" | "failed" | "aborted"
  readonly reason: "all_receivers_succeeded" | "receiver_failed" | "timeout" | "deleted"
  /** What ended it: all receivers are done, nobody asked for too long, or its Scope closed. */
  readonly doneStatus: "finished" | "timeout" | "deleted"
  /** What became of each download at each cell that told, expected or not. */
  readonly transfers: ReadonlyArray<{
    readonly refId: string
    readonly receivers: ReadonlyMap<string, "success" | "failed">
  }>
}

/**
 * The arrays of one message, on offer until its receivers have them, or its Scope closes.
 *
 * @category models
 * @since 0.1.0
 */
export interface Offer {
  /**
   * To be given to the request (`references`). The arrays that it takes are served as they are, uncopied: they must not
   * change until the offer has an outcome.
   */
  readonly references: ReferenceSink
  /** Whether anything was taken: an offer of nothing has no transfers to wait for, and gets its outcome from its end. */
  readonly hasTransfers: Effect.Effect<boolean>
  /** Whether transfers are still to be finished. */
  readonly isPending: Effect.Effect<boolean>
  /** How many requests for chunks were answered so far: transfers that move have more from time to time. */
  readonly served: Effect.Effect<number>
  /** Waits for the verdict. */
  readonly outcome: Effect.Effect<TransferOutcome>
  /** The progress of its transfers from now on. A slow reader misses some; ends with the outcome. */
  readonly progress: Stream.Stream<TransferProgress>
}

/**
 * Downloads of a cell, both ends.
 *
 * @category models
 * @since 0.1.0
 */
export interface DownloadService {
  /** Makes an offer; closing the Scope withdraws it. */
  readonly offer: (options: OfferOptions) => Effect.Effect<Offer, never, Scope.Scope>
  /** Fails the downloads that run from a source, and so the messages that refer to them. */
  readonly cancel: (source: string, reason: string) => Effect.Effect<void>
  /** The progress of all downloads, both ways, from now on. A slow reader misses some. */
  readonly transfers: Stream.Stream<TransferProgress>
  /** The bytes of arrays that this cell takes inside one message. */
  readonly maxInlineBytes: number
  /** How many downloads others may make of this cell, and how many it makes, now. */
  readonly inUse: () => { readonly offered: number; readonly fetched: number }
}
