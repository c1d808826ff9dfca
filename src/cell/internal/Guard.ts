import { Effect, Metric, Result, type Scope } from "effect"
import * as CellMessage from "../CellMessage.ts"
import type { GuardRule, GuardVerdict, Headers } from "../CellTypes.ts"
import type { Refusals } from "./refusals.ts"

/** The one guard of a cell: refused is what some rule refuses and none admits. */
export interface Guard {
  readonly add: (rule: GuardRule) => Effect.Effect<void, never, Scope.Scope>
  /** Whether a message is refused; counted when it is. */
  readonly refuses: (headers: Headers) => Effect.Effect<boolean>
}

const refused = Metric.counter("fl_attach_cell_refused", {
  description: "Messages that a cell's guard refused, by their claimed origin and address",
  incremental: true
})

// Origins and topics are a peer's words: beyond so many distinct ones they share a label.
const maxLabels = 256

const isRefusal = (verdict: GuardVerdict): boolean => verdict === "refuse" || typeof verdict === "object"

const reasonOf = (verdicts: ReadonlyArray<GuardVerdict>): string => {
  const reasoned = verdicts.find((verdict) => typeof verdict === "object")
  return typeof reasoned === "object" ? reasoned.refuse : "guard"
}

export const makeGuard = (cell: string, refusals: Refusals): Guard => {
  let rules: ReadonlyArray<GuardRule> = []
  const labels = new Set<string>()

  const count = (origin: string, channel: string, topic: string): Effect.Effect<void> => {
    const key = JSON.stringify([origin, channel, topic])
    const isNamed = labels.has(key) || labels.size < maxLabels
    if (isNamed) {
      labels.add(key)
    }
    const attributes = isNamed ? { cell, origin, channel, topic } : { cell, origin: "other", channel: "", topic: "" }
    return Metric.update(Metric.withAttributes(refused, attributes), 1)
  }

  const add: Guard["add"] = (rule) =>
    Effect.asVoid(
      Effect.acquireRelease(
        Effect.sync(() => {
          // Wrapped, so that the same function added twice is two rules.
          const own: GuardRule = (message) => rule(message)
          rules = [...rules, own]
          return own
        }),
        (own) =>
          Effect.sync(() => {
            rules = rules.filter((other) => other !== own)
          })
      )
    )

  const pass = Effect.succeed(false)
  const refuses: Guard["refuses"] = (headers) => {
    const subject = rules.length === 0 ? undefined : CellMessage.subject(headers)
    if (subject === undefined) {
      return pass
    }
    return Effect.suspend(() => {
      const origin = CellMessage.text(headers, CellMessage.header.origin)
      // A rule that throws has not admitted anything.
      const verdicts = rules.map((rule) =>
        Result.getOrElse(
          Result.try(() => rule({ ...subject, origin, headers })),
          (): GuardVerdict => ({ refuse: "rule failed" })
        )
      )
      if (!verdicts.some(isRefusal) || verdicts.includes("admit")) {
        return pass
      }
      const { channel, topic } = subject.address
      const why = `${subject.isReply ? "a reply" : "a message"} of ${origin} for ${channel}/${topic}`
      return count(origin, channel, topic).pipe(
        Effect.andThen(refusals.count(reasonOf(verdicts), why)),
        Effect.as(true)
      )
    })
  }

  return { add, refuses }
}
