import { Deferred, Effect } from "effect"
import { header, type IncomingMessage, text, texts } from "../CellMessage.ts"

type Answers = ReadonlyMap<string, Deferred.Deferred<IncomingMessage>>

interface Waiting {
  readonly answers: Answers
  readonly isSecure: boolean
}

/** Who waits for plain replies, by request id and target; docs/wire/cellnet.md, section 5.3. */
export interface Waiters {
  /**
   * Uses the answers of `targets`, by target, and forgets the request afterwards. A secure request has no answer but a
   * protected one; what is returned undelivered is not an answer, and never protected.
   */
  readonly during: <A, E>(
    requestId: string,
    targets: ReadonlyArray<string>,
    use: (answers: Answers) => Effect.Effect<A, E>,
    isSecure?: boolean
  ) => Effect.Effect<A, E>
  /** Hands a reply or return to who waits for it; anything else is dropped. */
  readonly settle: (message: IncomingMessage) => Effect.Effect<void>
}

/** Whether a message may answer a secure request. */
const isFit = ({ headers, isProtected, payload }: IncomingMessage): boolean =>
  isProtected === true || (headers.get(header.messageType) === "return" && payload.byteLength === 0)

export const makeWaiters = (): Waiters => {
  const table = new Map<string, Waiting>()

  const during: Waiters["during"] = (requestId, targets, use, isSecure = false) =>
    Effect.acquireUseRelease(
      Effect.sync(() => {
        const answers: Answers = new Map(targets.map((target) => [target, Deferred.makeUnsafe<IncomingMessage>()]))
        table.set(requestId, { answers, isSecure })
        return answers
      }),
      use,
      () => Effect.sync(() => table.delete(requestId))
    )

  // A reply comes from the target itself; a returned message from any cell on the way, but names the target.
  const answered = ({ headers }: IncomingMessage): string => {
    if (headers.get(header.messageType) !== "return") {
      return text(headers, header.origin)
    }
    const original = headers.get(header.originalHeaders)
    return original instanceof Map ? text(original, header.destination) : ""
  }

  const settle: Waiters["settle"] = (message) =>
    Effect.suspend(() => {
      const target = answered(message)
      const waiting = texts(message.headers, header.requestId).flatMap((id) => {
        const waiting = table.get(id)
        const answer = waiting?.answers.get(target)
        return answer === undefined || (waiting?.isSecure === true && !isFit(message)) ? [] : [answer]
      })
      return waiting.length === 0
        ? Effect.logDebug(`dropped a reply of ${target}: nobody waits for it (any more)`)
        : Effect.forEach(waiting, (answer) => Deferred.succeed(answer, message), { discard: true })
    })

  return { during, settle }
}
