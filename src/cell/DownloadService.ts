/**
 * Arrays that stay at their sender until the receiver fetches them.
 *
 * A sender offers the arrays of a message ({@link Offer}) and serves them to those it names; a receiver fetches all that
 * a message refers to before it decodes it, so that its handlers see nothing but arrays. Peers written in Python send
 * every array this way.
 *
 * Source: docs/wire/fobs.md, sections 6 and 7.
 *
 * @since 0.1.0
 */
import { type Context, type Duration, Effect, Metric, PubSub, type Scope, Stream } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import type { ReferenceSink } from "../fobs/Fobs.ts"
import type { CellError } from "./CellError.ts"
import type { Handler } from "./CellTypes.ts"
import { type Asking, makeReceiver } from "./internal/downloadReceiver.ts"
import { resolveSettings } from "./internal/downloadSettings.ts"
import { makeSource } from "./internal/downloadSource.ts"
import { downloadAddress, sourceFailureAddress } from "./internal/downloadWire.ts"
import type { Resolve } from "./internal/payloads.ts"

/**
 * How arrays are offered and fetched. Bytes where no unit is said; the defaults are the reference's, but for
 * `threshold`, `sourceGrace` and the last two, which it has not.
 *
 * @category models
 * @since 0.1.0
 */
export interface DownloadSettings {
  /** Items go together into one reply while they stay below this; a larger item goes alone. 0 or less: offer nothing. Default 2 MiB. */
  readonly chunkSize: number
  /** Arrays with fewer bytes travel inside their message. Default 64 KiB; 0 offers every array, as the reference does. */
  readonly threshold: number
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
 * How far one download has come, counted in bytes of array data.
 *
 * @category models
 * @since 0.1.0
 */
export interface TransferProgress {
  readonly direction: "send" | "receive"
  /** The cell at the other end. */
  readonly peer: string
  readonly refId: string
  readonly bytes: number
  /** `undefined` where only the source knows. */
  readonly totalBytes: number | undefined
  /** Arrays. */
  readonly items: number
  readonly state: "active" | "completed" | "failed" | "aborted"
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
  /** How many downloads others may make of this cell, and how many it makes, now. */
  readonly inUse: () => { readonly offered: number; readonly fetched: number }
}

/**
 * What downloads need of their cell.
 *
 * @category models
 * @since 0.1.0
 */
export interface DownloadHost extends Asking {
  readonly handle: (address: typeof downloadAddress, handler: Handler) => Effect.Effect<void, never, Scope.Scope>
}

/**
 * Bytes of arrays that were fetched from this program's cells (`direction` `send`) or by them (`receive`), counted when
 * a transfer is over, by its `state`: `completed`, `failed` or `aborted`.
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

/** An offer is a span as long as its Scope, with the verdict on it. */
const traced = (make: DownloadService["offer"]): DownloadService["offer"] =>
  Effect.fnUntraced(function* (options) {
    const span = yield* Effect.makeSpanScoped("DownloadService.offer", {
      attributes: { receivers: options.receivers.join(" ") }
    })
    let made: Offer | undefined
    yield* Effect.addFinalizer(() =>
      made === undefined
        ? Effect.void
        : Effect.map(made.outcome, ({ reason, status }) => {
            span.attribute("status", status)
            span.attribute("reason", reason)
          })
    )
    // Its own finalizer comes first, and leaves a verdict in each case.
    made = yield* make(options)
    return made
  })

/** Progress that a slow reader of the stream may leave unread. */
const maxUnread = 256

/**
 * Makes the downloads of a cell, and serves their addresses until the Scope closes. `resolve` is to be given to what
 * decodes messages.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fnUntraced(function* (
  host: DownloadHost,
  random: SecureRandom["Service"],
  given: Partial<DownloadSettings>
): Effect.fn.Return<{ readonly downloads: DownloadService; readonly resolve: Resolve }, CellError, Scope.Scope> {
  const settings = yield* resolveSettings(given)
  const progress = yield* PubSub.sliding<TransferProgress>(maxUnread)
  const context = yield* Effect.context<never>()
  const publish = (event: TransferProgress) => {
    counted(event, context)
    PubSub.publishUnsafe(progress, event)
  }
  const transfers = Stream.fromPubSub(progress)
  const source = yield* makeSource({ fqcn: host.fqcn, settings, random, publish, transfers })
  const receiver = yield* makeReceiver(host, settings, publish)
  yield* host.handle(downloadAddress, source.handle)
  yield* host.handle(sourceFailureAddress, receiver.sourceFailure)
  return {
    downloads: {
      offer: traced(source.offer),
      cancel: receiver.cancel,
      transfers,
      inUse: () => ({ offered: source.size(), fetched: receiver.size() })
    },
    resolve: receiver.resolve
  }
})
