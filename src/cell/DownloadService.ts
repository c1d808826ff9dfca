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
import { Effect, type Scope } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import type { CellError } from "./CellError.ts"
import type { Handler } from "./CellTypes.ts"
import type { DownloadService, DownloadSettings, Offer } from "./DownloadTypes.ts"
import { type Asking, makeReceiver } from "./internal/downloadReceiver.ts"
import { resolveSettings } from "./internal/downloadSettings.ts"
import { makeSource } from "./internal/downloadSource.ts"
import { downloadAddress, sourceFailureAddress } from "./internal/downloadWire.ts"
import type { Resolve } from "./internal/payloads.ts"
import type { Transfers } from "./TransferProgress.ts"

export type * from "./DownloadTypes.ts"

/**
 * What downloads need of their cell.
 *
 * @category models
 * @since 0.1.0
 */
export interface DownloadHost extends Asking {
  readonly handle: (address: typeof downloadAddress, handler: Handler) => Effect.Effect<void, never, Scope.Scope>
  /** Where it is told how far downloads have come. */
  readonly transfers: Transfers
  /** The largest message that the cell takes, in bytes; 0 or less: no limit. */
  readonly maxBlobSize: number
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

/** A message has more than its arrays. */
const roomBeside = 1024 * 1024

const inlineLimit = (wanted: number, maxBlobSize: number): number =>
  maxBlobSize > 0 ? Math.max(0, Math.min(wanted, maxBlobSize - roomBeside)) : wanted

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
  const { events, publish } = host.transfers
  const source = yield* makeSource({ fqcn: host.fqcn, settings, random, publish, transfers: events })
  const receiver = yield* makeReceiver(host, settings, publish)
  yield* host.handle(downloadAddress, source.handle)
  yield* host.handle(sourceFailureAddress, receiver.sourceFailure)
  return {
    downloads: {
      offer: traced(source.offer),
      cancel: receiver.cancel,
      transfers: events,
      maxInlineBytes: inlineLimit(settings.maxInlineBytes, host.maxBlobSize),
      inUse: () => ({ offered: source.size(), fetched: receiver.size() })
    },
    resolve: receiver.resolve
  }
})
