/**
 * Warnings of what will go wrong with credentials that are good now: an open key, an end that is near.
 *
 * @since 0.1.0
 */
import * as NodeFs from "node:fs/promises"
import { Clock, Effect, Metric } from "effect"

const othersMay = 0o077

/** `false` where the system does not tell. */
const isOpen = (path: string): Effect.Effect<boolean> =>
  Effect.tryPromise(() => NodeFs.stat(path)).pipe(
    Effect.map(({ mode }) => (mode & othersMay) !== 0),
    Effect.orElseSucceed(() => false)
  )

/**
 * Warns where others than its owner can get at the file of a key.
 *
 * @category combinators
 * @since 0.1.0
 */
export const warnOfOpenKey = (path: string): Effect.Effect<void> =>
  Effect.flatMap(isOpen(path), (open) =>
    open ? Effect.logWarning(`other users can get at the private key ${path}: chmod 600 it`) : Effect.void
  )

/**
 * Warns of open keys, of each file once as long as it stays open, however often it is read.
 *
 * @category constructors
 * @since 0.1.0
 */
export const makeKeyWarnings = (): ((path: string) => Effect.Effect<void>) => {
  const told = new Set<string>()
  return Effect.fnUntraced(function* (path) {
    const isNews = !told.has(path)
    if (!(yield* isOpen(path))) {
      told.delete(path)
    } else if (isNews) {
      told.add(path)
      yield* warnOfOpenKey(path)
    }
  })
}

const day = 86_400_000
const warnDays = 30

const secondsLeft = Metric.gauge("fl_attach_certificate_seconds_left", {
  description: "How long a cell's or a listener's own certificate and its issuers still hold"
})

/**
 * A certificate in use: whose it is, and until when it and its issuers hold, in milliseconds since the epoch.
 *
 * @category models
 * @since 0.1.0
 */
export interface InUse {
  readonly commonName: string | undefined
  readonly notAfter: number
  /** The URL of the listener that shows it; absent for a cell's. */
  readonly listener?: string
}

/** Sets the metric, too. */
const daysLeft = ({ commonName = "", listener, notAfter }: InUse): Effect.Effect<number> =>
  Effect.flatMap(Clock.currentTimeMillis, (now) => {
    const attributes = { common_name: commonName, ...(listener === undefined ? {} : { listener }) }
    const left = notAfter - now
    return Effect.as(
      Metric.update(Metric.withAttributes(secondsLeft, attributes), Math.floor(left / 1000)),
      Math.floor(left / day)
    )
  })

/**
 * Warns from 30 days before the end on, each time that fewer days are left than at the last call.
 *
 * @category constructors
 * @since 0.1.0
 */
export const makeExpiryWarnings = (): ((inUse: InUse) => Effect.Effect<void>) => {
  let warned = Number.POSITIVE_INFINITY
  return Effect.fnUntraced(function* (inUse) {
    const days = yield* daysLeft(inUse)
    const isNews = days < warned
    warned = days
    if (!isNews || days > warnDays) return
    const where = inUse.listener === undefined ? "" : ` that ${inUse.listener} shows`
    yield* Effect.logWarning(
      `the certificate of ${inUse.commonName}${where}, or its issuer, expires in ${days} days: renew it before then`
    )
  })
}
