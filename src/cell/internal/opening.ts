import { Effect } from "effect"
import type { CellError } from "../CellError.ts"
import * as CellMessage from "../CellMessage.ts"
import type { Protection } from "../Protection.ts"
import type { Refusals } from "./refusals.ts"

const { header } = CellMessage

export interface OpeningOptions {
  readonly protection: () => Protection | undefined
  readonly refusals: Refusals
  /** Works on a fiber of its own; `false` when too much is at work already. */
  readonly serving: (effect: Effect.Effect<unknown, CellError>) => Effect.Effect<boolean>
}

/** Opens what came protected, then hands it on; what came clear is handed on as it is. */
export type Opening = (
  message: CellMessage.IncomingMessage,
  next: (message: CellMessage.IncomingMessage) => Effect.Effect<void>
) => Effect.Effect<void>

/** Bytes of protected messages that may wait for certificates. */
const maxWaiting = 256 * 1024 * 1024

export const makeOpening = ({ protection, refusals, serving }: OpeningOptions): Opening => {
  let waiting = 0

  const refuse = (message: CellMessage.IncomingMessage, reason: string, why: string) =>
    refusals.count(reason, `a message of ${CellMessage.text(message.headers, header.origin)}: ${why}`)

  const inWaitingRoom = (message: CellMessage.IncomingMessage, opening: Effect.Effect<void>): Effect.Effect<void> =>
    Effect.suspend(() => {
      const size = message.payload.byteLength
      if (waiting + size > maxWaiting) {
        return refuse(message, "exchange", `${waiting} bytes wait for certificates of their origins already`)
      }
      waiting += size
      const leave = Effect.sync(() => {
        waiting -= size
      })
      return Effect.flatMap(serving(Effect.ensuring(opening, leave)), (isServed) => (isServed ? Effect.void : leave))
    })

  return (message, next) => {
    if (!message.headers.has(header.encrypted)) {
      return next(message)
    }
    const shield = protection()
    if (shield === undefined) {
      return refuse(message, "credentials", "it is protected, and this cell has no credentials to open it")
    }
    if (!CellMessage.isSealed(message.headers)) {
      return refuse(message, "marks", `${header.secure} and ${header.encrypted} are not both true`)
    }
    const opening = Effect.matchEffect(shield.open(message), {
      onFailure: ({ message: why, reason }) =>
        refuse(message, reason._tag === "ProtectionFailed" ? reason.stage : "exchange", why),
      onSuccess: (opened) => {
        if (opened.payload.buffer !== message.payload.buffer) {
          message.release?.()
        }
        return next(opened)
      }
    })
    // While its origin is asked for a certificate, the reader goes on; otherwise it brings no more than is opened.
    return Effect.flatMap(shield.isKnown(CellMessage.text(message.headers, header.origin)), (isKnown) =>
      isKnown ? opening : inWaitingRoom(message, opening)
    )
  }
}
