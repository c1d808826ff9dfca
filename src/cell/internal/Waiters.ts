import { Deferred, Effect } from "effect"
import { header, type IncomingMessage, text, texts } from "../CellMessage.ts"

type Answers = ReadonlyMap<string, Deferred.Deferred<IncomingMessage>>

/** Who waits for plain replies, by request id and target; docs/wire/cellnet.md, section 5.3. */
export interface Waiters {
  /** Uses the answers of `targets`, by target, and forgets the request afterwards. */
  readonly during: <A, E>(
    requestId: string,
    targets: ReadonlyArray<string>,
    use: (answers: Answers) => Effect.Effect<A, E>
  ) => Effect.Effect<A, E>
  /** Hands a reply or return to who waits for it; anything else is dropped. */
  readonly settle: (message: IncomingMessage) => Effect.Effect<void>
}

export const makeWaiters = (): Waiters => {
  const table = new Map<string, Answers>()

  const during: Waiters["during"] = (requestId, targets, use) =>
    Effect.acquireUseRelease(
      Effect.sync(() => {
        const answers: Answers = new Map(targets.map((target) => [target, Deferred.makeUnsafe<IncomingMessage>()]))
        table.set(requestId, answers)
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
        const answer = table.get(id)?.get(target)
        return answer === undefined ? [] : [answer]
      })
      return waiting.length === 0
        ? Effect.logDebug(`dropped a reply of ${target}: nobody waits for it (any more)`)
        : Effect.forEach(waiting, (answer) => Deferred.succeed(answer, message), { discard: true })
    })

  return { during, settle }
}
