/** Protected messages need a cell that can protect them. */
import { Effect } from "effect"
import type { Cell } from "../../cell/Cell.ts"
import { type AttachError, attachError, ConfigInvalid } from "../AttachError.ts"

/** Without credentials no message to a trainer could ever be sent, however long it is waited for. */
export const requireCredentials = ({ fqcn, isSecure }: Cell["Service"]): Effect.Effect<void, AttachError> => {
  if (isSecure) return Effect.void
  const message = `secure: messages to trainers are to be protected, but the cell ${fqcn} has no credentials: make it with "credentials" (CellCredentials.watch), or leave out "secure" of the route`
  return Effect.fail(attachError(new ConfigInvalid({ setting: "secure", message })))
}
