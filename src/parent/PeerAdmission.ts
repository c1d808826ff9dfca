/**
 * Who may connect to a client parent, and under which name.
 *
 * By name, on every listener: only direct children, `<parent>.<job id>` and `<parent>.-client_api_<attach id>`. A peer
 * elsewhere in the tree has its own parent; let in here, it would draw messages of others to itself.
 *
 * By certificate, where both sides have shown one: the name must be one that the certificate may speak for. At a site,
 * service and trainers have the site's own certificate; below a relay each child has its own.
 *
 * A listener in clear sees no certificate: whoever reaches its port may take the name of any child, and with it the
 * place of the cell that had it. Such a listener belongs on the loopback interface or an isolated network.
 *
 * Source: docs/wire/cellnet.md, section 1.1; docs/wire/security.md, section 5.
 *
 * @since 0.1.0
 */
import { Effect, Result } from "effect"
import { attachId, trainerPrefix } from "../clientapi/TrainerName.ts"
import { type IdentityRules, rulesOf } from "../identity/CertificateIdentity.ts"
import * as Fqcn from "../identity/Fqcn.ts"
import type { Options } from "../transport/Connection.ts"
import * as PeerIdentity from "../transport/PeerIdentity.ts"
import { HandshakeFailed, TransportError } from "../transport/TransportError.ts"

/**
 * A judge of peers; a refusal fails with `HandshakeFailed`.
 *
 * @category models
 * @since 0.1.0
 */
export type Verify = NonNullable<Options["verify"]>

/**
 * What a parent knows of itself and of the cell above it.
 *
 * @category models
 * @since 0.1.0
 */
export interface AdmissionRules {
  /** The parent's own name. */
  readonly fqcn: string
  /** The common name of its own certificate. */
  readonly identity: string
  /** Whether its children are sites with certificates of their own; else they share the parent's. */
  readonly isRelay: boolean
  /** The common name of the certificate of the cell above. */
  readonly upstreamIdentity?: string | undefined
}

/**
 * The name that the cell above a parent must have: its own name without the last part, or the server.
 *
 * @category combinators
 * @since 0.1.0
 */
export const upstreamOf = (fqcn: string): string => Fqcn.parent(fqcn) || "server"

const identityRules = (rules: AdmissionRules): IdentityRules => {
  const above = upstreamOf(rules.fqcn)
  const others: ReadonlyMap<string, string> =
    rules.upstreamIdentity === undefined ? new Map() : new Map([[above, rules.upstreamIdentity]])
  return rules.isRelay
    ? { local: rules.fqcn, exact: new Map([[rules.fqcn, rules.identity]]), prefixes: others }
    : rulesOf({ local: rules.fqcn, parent: rules.fqcn, identity: rules.identity, others })
}

const refused = (target: string, message: string) =>
  Effect.fail(new TransportError({ reason: new HandshakeFailed({ target, message }) }))

/** Why a name may not be that of a child; `undefined` when it may. */
const nameFault = (fqcn: string, peer: string): string | undefined => {
  if (!Fqcn.isParent(fqcn, peer)) {
    return `${peer} is no direct child of ${fqcn}; only those may connect here (${fqcn}.<job id>, ${fqcn}.${trainerPrefix}<attach id>): check the site's name (site_name, --site) and the URL`
  }
  const leaf = Fqcn.leaf(peer)
  const id = leaf.startsWith(trainerPrefix) ? attachId(leaf.slice(trainerPrefix.length)) : undefined
  return id !== undefined && Result.isFailure(id) ? `${peer} is no trainer's name: ${id.failure.message}` : undefined
}

/**
 * Judges those who connect to the parent's listeners.
 *
 * @category constructors
 * @since 0.1.0
 */
export const forChildren = (rules: AdmissionRules): Verify => {
  const byCertificate = PeerIdentity.verifyWith(identityRules(rules))
  return (peer, info) => {
    const fault = nameFault(rules.fqcn, peer)
    return fault === undefined ? byCertificate(peer, info) : refused(info.peerAddress, `${info.peerAddress}: ${fault}`)
  }
}

/**
 * Judges the cell above, which the parent dials.
 *
 * @category constructors
 * @since 0.1.0
 */
export const forUpstream = (rules: AdmissionRules): Verify => {
  const byCertificate = PeerIdentity.verifyWith(identityRules(rules))
  const above = upstreamOf(rules.fqcn)
  return (peer, info) =>
    peer === above
      ? byCertificate(peer, info)
      : refused(
          info.peerAddress,
          `${info.peerAddress} is the cell ${peer}, the parent of ${rules.fqcn} is ${above}: check the site's name and the URL`
        )
}
