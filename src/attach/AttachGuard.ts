/**
 * Whom a service listens to in secure mode, decided by headers alone, before a byte is decrypted or decoded.
 *
 * Source: docs/wire/attach.md, section 9; docs/wire/security.md, section 7.1.
 *
 * @since 0.1.0
 */
import type { Cell, GuardRule } from "../cell/Cell.ts"
import * as CellMessage from "../cell/CellMessage.ts"
import * as ClientApi from "../clientapi/ClientApi.ts"
import type { TrainerName } from "../clientapi/TrainerName.ts"
import * as Fqcn from "../identity/Fqcn.ts"

/** The channel of downloads (docs/wire/fobs.md, section 7). */
const downloadChannel = "download_service__"

/**
 * The rule of one claimed trainer. Its messages, replies too, must be protected; of others nothing is heard on the
 * Client API's channel, and no download of cells below the client parent but the service's own. Several claims on one
 * cell are as many rules: what one admits, the others' refusals don't stop.
 *
 * @category constructors
 * @since 0.1.0
 */
export const rule = ({ cjFqcn, trainerFqcn }: Pick<TrainerName, "cjFqcn" | "trainerFqcn">): GuardRule => {
  const cpFqcn = Fqcn.parent(cjFqcn)
  return ({ address, headers, origin }) => {
    const isClientApi = address.channel === ClientApi.channel
    if (!isClientApi && address.channel !== downloadChannel) return "pass"
    if (origin === trainerFqcn) return CellMessage.isSealed(headers) ? "admit" : { refuse: "not protected" }
    const isNeighbour = Fqcn.isAncestor(cpFqcn, origin) && !Fqcn.isAncestor(cjFqcn, origin)
    return isClientApi || isNeighbour ? { refuse: "not of a trainer of this service" } : "pass"
  }
}

/**
 * Guards a cell for one claimed trainer until the Scope closes; the last one to leave leaves no guard.
 *
 * @category constructors
 * @since 0.1.0
 */
export const claim = (cell: Cell["Service"], trainer: Pick<TrainerName, "cjFqcn" | "trainerFqcn">) =>
  cell.guard(rule(trainer))
