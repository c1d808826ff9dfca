/**
 * Binds the names of peers to their certificates.
 *
 * @since 0.1.0
 */
import { Effect, Result } from "effect"
import * as CertificateIdentity from "../identity/CertificateIdentity.ts"
import type { Options } from "./Connection.ts"
import type { LinkInfo } from "./Drivers.ts"
import { handshakeFailed } from "./internal/errors.ts"

/** A listener with one-way TLS, and whoever is reached in clear, sees no certificate. */
const isBound = (info: LinkInfo): boolean => info.security === "mtls" || info.peerCommonName !== undefined

/**
 * A check of peers for `Connection.make` and for cells: on every connection with certificates the peer's must allow the
 * name that the peer claims, or the connection ends with `HandshakeFailed`. Connections without certificates pass.
 * Source: docs/wire/transport.md, section 2.2.
 *
 * @category constructors
 * @since 0.1.0
 */
export const verifyWith =
  (rules: CertificateIdentity.IdentityRules): NonNullable<Options["verify"]> =>
  (peer, info) => {
    if (!isBound(info)) {
      return Effect.void
    }
    const checked = CertificateIdentity.check(rules, peer, info.peerCommonName)
    return Result.isSuccess(checked)
      ? Effect.void
      : Effect.fail(handshakeFailed(info.peerAddress, `${info.peerAddress}: ${checked.failure.message}`))
  }
