/** Certificates of a listener that follow their files. */
import { type Duration, Effect, type Scope } from "effect"
import * as CertificateCare from "../../../identity/CertificateCare.ts"
import type { TlsContext } from "../../../identity/TlsContext.ts"
import type { TransportError } from "../../TransportError.ts"
import { badConfig } from "../errors.ts"

/** Shows other certificates to those who come from now on; connections that are there stay as they are. */
export type Renew = (context: TlsContext) => void

/** For a listener that shows none. */
export const nothingToRenew: Renew = () => {}

export interface Following {
  /** The listener's URL, for the log. */
  readonly url: string
  /** What it shows now; `undefined` where it speaks without TLS. */
  readonly shown: TlsContext | undefined
  /** Reads the files, and checks them as when the listener was opened. */
  readonly read: Effect.Effect<TlsContext, TransportError>
  readonly renew: Renew
  readonly interval: Duration.Input | undefined
}

const isSame = (one: TlsContext, other: TlsContext): boolean =>
  one.ca === other.ca && one.cert === other.cert && one.key === other.key

const quoted = (name: string | undefined): string => (name === undefined ? "none" : `"${name}"`)

/** Those who dial know whom they want: all would refuse another name. */
const checkName = (found: TlsContext, shown: TlsContext) =>
  found.commonName === shown.commonName
    ? Effect.void
    : Effect.fail(
        badConfig(
          "server_cert",
          `the common name of the new certificate is ${quoted(found.commonName)}, and ${quoted(shown.commonName)} is shown: use the same site's files, or start anew to take the other name`
        )
      )

const messageOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause))

/**
 * Looks for changed files until the Scope closes. What is broken is a warning, once as long as it stays the same: the
 * certificates that were good go on. An end that is near is a warning a day.
 */
export const follow = Effect.fnUntraced(function* ({
  interval = "1 minute",
  read,
  renew,
  shown,
  url
}: Following): Effect.fn.Return<void, never, Scope.Scope> {
  if (shown === undefined) return
  let current = shown
  let warned: string | undefined
  const warnOfExpiry = CertificateCare.makeExpiryWarnings()
  const careFor = Effect.suspend(() =>
    current.notAfter === undefined
      ? Effect.void
      : warnOfExpiry({ commonName: current.commonName, notAfter: current.notAfter, listener: url })
  )
  yield* careFor
  const takeOver = Effect.gen(function* () {
    const found = yield* read
    yield* checkName(found, current)
    warned = undefined
    if (isSame(found, current)) return
    yield* Effect.try({
      try: () => renew(found),
      catch: (cause) => badConfig("server_cert", `TLS does not take the renewed certificate: ${messageOf(cause)}`)
    })
    current = found
    yield* Effect.logInfo(`${url} shows its renewed certificate from now on`)
  }).pipe(
    Effect.catch(({ message }) => {
      const isNews = warned !== message
      warned = message
      return isNews
        ? Effect.logWarning(`${url} goes on with the certificate it has; the files can't be used: ${message}`)
        : Effect.void
    })
  )
  yield* Effect.forkScoped(Effect.forever(Effect.delay(Effect.andThen(takeOver, careFor), interval)))
})
