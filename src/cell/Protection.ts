/**
 * What a secure cell does to the payloads of its messages.
 *
 * Source: docs/wire/security.md, and docs/wire/cellnet.md, section 8.
 *
 * @since 0.1.0
 */
import type { Effect } from "effect"
import type { CellError } from "./CellError.ts"
import type * as CellMessage from "./CellMessage.ts"
import type { CellReply } from "./CellTypes.ts"
import type { Sealed } from "./MessageCipher.ts"

/**
 * Seals the payloads of secure messages and opens sealed ones. `seal` adds its marks to the headers it is given, `open`
 * takes them away. `isKnown`: opening a message of that cell takes no question to it. `exchange` answers a question for
 * the own certificate, whose payload it reads itself; `undefined`: not at all.
 *
 * @category models
 * @since 0.1.0
 */
export interface Protection {
  readonly seal: (
    target: string,
    headers: Map<string, unknown>,
    payload: ReadonlyArray<Uint8Array>
  ) => Effect.Effect<Sealed, CellError>
  readonly open: (message: CellMessage.IncomingMessage) => Effect.Effect<CellMessage.IncomingMessage, CellError>
  readonly isKnown: (origin: string) => Effect.Effect<boolean>
  readonly exchange: (message: CellMessage.IncomingMessage) => Effect.Effect<CellReply | undefined>
}
