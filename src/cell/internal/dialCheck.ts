/** What can't be dialed whatever the peer does is not tried again and again. */
import { Effect, Result } from "effect"
import * as CertificateIdentity from "../../identity/CertificateIdentity.ts"
import type { Driver, Resources } from "../../transport/Drivers.ts"
import type { TransportError } from "../../transport/TransportError.ts"
import { misconfigured } from "./errors.ts"

interface Dialing {
  readonly url: string
  readonly resources: Resources | undefined
  readonly rules: CertificateIdentity.IdentityRules | undefined
}

const refused = ({ message, reason }: TransportError) =>
  misconfigured(reason._tag === "BadConfig" ? reason.setting : "url", message)

/** Fails with `CellMisconfigured` where a URL or its files can't be used, or show another's certificate. */
export const checkDialing = Effect.fnUntraced(function* (driver: Driver, { resources, rules, url }: Dialing) {
  if (driver.check === undefined) return
  const shown = yield* Effect.mapError(driver.check(url, resources), refused)
  if (shown === undefined || rules === undefined) return
  const named = CertificateIdentity.checkOwn(rules, shown.commonName)
  if (Result.isSuccess(named)) return
  return yield* Effect.fail(misconfigured("client_cert", `${url} can't be dialed: ${named.failure}`))
})
