/**
 * Whom a trainer listens to, decided by headers alone, before a byte is decrypted or decoded.
 *
 * Source: docs/wire/attach.md, section 9.
 *
 * @since 0.1.0
 */
import type { GuardRule } from "../cell/Cell.ts"
import * as ClientApi from "../clientapi/ClientApi.ts"
import * as Fqcn from "../identity/Fqcn.ts"

/** The channel of downloads (docs/wire/fobs.md, section 7). */
const downloadChannel = "download_service__"

/**
 * The rule of one trainer. `boundCj` is the CJ it knows, by its session, its profile or the rendezvous; until there is
 * one, only a SESSION_OPEN of a direct child of the client parent passes.
 *
 * @category constructors
 * @since 0.1.0
 */
export const rule = (options: {
  readonly cpFqcn: string
  readonly secure: boolean
  readonly boundCj: () => string | undefined
}): GuardRule => {
  return ({ address, headers, isReply, origin }) => {
    if (address.channel !== ClientApi.channel && address.channel !== downloadChannel) return "pass"
    if (options.secure && !(headers.get("cn__secure") === true && headers.get("cn__encrypted") === true))
      return "refuse"
    if (isReply) return "pass"
    const cj = options.boundCj()
    if (cj !== undefined) return origin === cj ? "admit" : "refuse"
    const opens = address.channel === ClientApi.channel && address.topic === ClientApi.Topic.sessionOpen.topic
    return opens && Fqcn.isParent(options.cpFqcn, origin) ? "admit" : "refuse"
  }
}
