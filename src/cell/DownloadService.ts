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
import { type Context, Effect, Metric, PubSub, type Scope, Stream } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import type { CellError } from "./CellError.ts"
import type { Handler } from "./CellTypes.ts"
import type { DownloadService, DownloadSettings, Offer, TransferProgress } from "./DownloadTypes.ts"
import { type Asking, makeReceiver } from "./internal/downloadReceiver.ts"
import { resolveSettings } from "./internal/downloadSettings.ts"
import { makeSource } from "./internal/downloadSource.ts"
import { downloadAddress, sourceFailureAddress } from "./internal/downloadWire.ts"
import type { Resolve } from "./internal/payloads.ts"

export type * from "./DownloadTypes.ts"

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
