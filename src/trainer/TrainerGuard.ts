/**
 * Whom a trainer listens to, decided by headers alone, before a byte is decrypted or decoded.
 *
 * Source: docs/wire/attach.md, section 9.
 *
 * @since 0.1.0
 */
import type { GuardRule } from "../cell/Cell.ts"
import * as CellMessage from "../cell/CellMessage.ts"
import * as ClientApi from "../clientapi/ClientApi.ts"
import { trainerPrefix } from "../clientapi/TrainerName.ts"
import * as Fqcn from "../identity/Fqcn.ts"

/** The channel of downloads (docs/wire/fobs.md, section 7). */
const downloadChannel = "download_service__"

/**
 * Secure mode takes nothing in clear.
 *
 * @category constants
 * @since 0.1.0
 */
export const notProtected = { refuse: "not protected" } as const

/**
 * The rule of one trainer. `boundCj` is the CJ it knows, by its session, its profile or the rendezvous; until there is
 * one, only a SESSION_OPEN of a direct child of the client parent passes.
 *
 * In secure mode a reply is judged, too, which the reference does not do: it must be protected, and of that CJ.
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
    const isDownload = address.channel === downloadChannel
    if (address.channel !== ClientApi.channel && !isDownload) return "pass"
    if (options.secure && !CellMessage.isSealed(headers)) return notProtected
    // A download's answer comes from where its request went, which need not be the CJ; the request's waiter knows.
    if (isReply && (!options.secure || isDownload)) return "pass"
    const cj = options.boundCj()
    if (cj !== undefined) return origin === cj ? "admit" : foreign
    const opens = !isReply && !isDownload && address.topic === ClientApi.Topic.sessionOpen.topic
    return opens && isService(options.cpFqcn, origin) ? "admit" : foreign
  }
}

/** Another trainer stands beside this one, and opens no session. */
const isService = (cpFqcn: string, origin: string): boolean =>
  Fqcn.isParent(cpFqcn, origin) && !Fqcn.leaf(origin).startsWith(trainerPrefix)

const foreign = { refuse: "not of this trainer's service" } as const
