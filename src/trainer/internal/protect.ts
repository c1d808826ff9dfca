/** How a trainer's cell is protected. Source: docs/wire/security.md, sections 3.3, 5 and 6.3. */
import { Effect, type Scope } from "effect"
import type { CellOptions } from "../../cell/Cell.ts"
import * as CellCredentials from "../../cell/CellCredentials.ts"
import { type IdentityRules, rulesOf } from "../../identity/CertificateIdentity.ts"
import type { Resources } from "../../transport/Drivers.ts"
import * as PeerIdentity from "../../transport/PeerIdentity.ts"
import { RouteFailed, type TrainerError, trainerError } from "../TrainerError.ts"
import type { TrainerProfile } from "../TrainerProfile.ts"

/** Why a trainer has no way to its service, in the words of its profile. */
export const routeFailed = (kind: string, message: string): TrainerError =>
  trainerError(new RouteFailed({ kind, message: message.replace("(identity)", "(auth_identity)") }))

/** What a cell and its connection to the client parent need for a profile's security. */
export interface Shield {
  readonly cell: Pick<CellOptions, "credentials" | "verify">
  readonly rules?: IdentityRules
  readonly resources: Resources
}

/** A trainer whose certificates can't be used does not attach in clear: it fails with `RouteFailed`. */
export const shieldOf = Effect.fnUntraced(function* (
  profile: TrainerProfile,
  trainerFqcn: string
): Effect.fn.Return<Shield, TrainerError, Scope.Scope> {
  const { caCert, source } = profile
  if (source._tag === "Rendezvous") return { cell: {}, resources: {} }
  const resources: Resources = {
    connection_security: source.security,
    ...(caCert === undefined ? {} : { ca_cert: caCert })
  }
  const rules = rulesOf({ local: trainerFqcn, parent: source.cpFqcn, identity: source.authIdentity })
  const verify = PeerIdentity.verifyWith(rules)
  if (!profile.isProtected) return { cell: { verify }, rules, resources }
  if (caCert === undefined) {
    const message =
      "ca_cert is missing: a protected trainer needs the project's root certificate, and its own beside it"
    return yield* routeFailed("CredentialsError", message)
  }
  const credentials = yield* CellCredentials.watch({ caCert }, { rules }).pipe(
    Effect.mapError(({ _tag, message }) => routeFailed(_tag, message))
  )
  return { cell: { credentials, verify }, rules, resources }
})
