import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import * as AttachGuard from "../../src/attach/AttachGuard.ts"
import type { GuardRule, GuardVerdict } from "../../src/cell/Cell.ts"
import * as CellMessage from "../../src/cell/CellMessage.ts"
import * as TrainerGuard from "../../src/trainer/TrainerGuard.ts"
import { chat, echo, makeFamily } from "../cell/support.ts"
import { securityVectors } from "../pki.ts"

const isRefusal = (verdict: GuardVerdict) => verdict === "refuse" || typeof verdict === "object"

/** A cell's verdict by several rules. */
const judge = (rules: ReadonlyArray<GuardRule>, headers: ReadonlyMap<string, unknown>, local: string): string => {
  const subject = CellMessage.subject(headers)
  if (subject === undefined || headers.get("cn__destination") !== local) return "pass"
  const origin = CellMessage.text(headers, "cn__origin")
  const verdicts = rules.map((rule) => rule({ ...subject, origin, headers }))
  return verdicts.some(isRefusal) && !verdicts.includes("admit") ? "reject" : "pass"
}

/** Where this library refuses, and the reference does not. */
const stricter = new Set([
  // The marks must be boolean true.
  "cj:secure-truthy-int",
  "trainer:secure-string",
  // Another trainer opens no session.
  "trainer:stream-open-from-another-attach-leaf",
  // Replies are judged, too.
  "trainer:return-only-clear-in-secure"
])

describe("guards, by the recorded decisions", () => {
  for (const one of securityVectors("guard.json").cases) {
    it(`${one.id}`, () => {
      const headers = new Map<string, unknown>(Object.entries(one.headers))
      const verdict =
        one.side === "cj"
          ? judge(
              one.claims.map(([trainerFqcn]: [string]) => AttachGuard.rule({ cjFqcn: one.cj_fqcn, trainerFqcn })),
              headers,
              one.cj_fqcn
            )
          : judge(
              [
                TrainerGuard.rule({
                  cpFqcn: one.cp_fqcn,
                  secure: one.protocol_secure,
                  boundCj: () => one.bound_cj ?? undefined
                })
              ],
              headers,
              String(headers.get("cn__destination"))
            )
      assert.strictEqual(verdict, stricter.has(one.id) ? "reject" : one.outcome)
    })
  }
})

describe("AttachGuard.claim", () => {
  it.effect("each claim admits its own trainer; the last one to leave leaves no guard", () =>
    Effect.gen(function* () {
      const { job, trainer } = yield* makeFamily()
      const cjFqcn = job.cell.fqcn
      yield* job.cell.handle({ channel: "client_api", topic: "x" }, echo)
      yield* job.cell.handle(chat("x"), echo)
      const code = (channel: string) =>
        Effect.map(
          trainer.cell.request(cjFqcn, { channel, topic: "x" }, 1, { timeout: "1 second", mode: "plain" }),
          ({ returnCode }) => returnCode
        )
      const claimed = Effect.fnUntraced(function* (trainerFqcn: string) {
        const scope = yield* Scope.make()
        yield* Scope.provide(AttachGuard.claim(job.cell, { cjFqcn, trainerFqcn }), scope)
        return Scope.close(scope, Exit.void)
      })
      assert.strictEqual(yield* code("client_api"), "ok")
      const first = yield* claimed("site-1.-client_api_other")
      const second = yield* claimed("site-1.-client_api_another")
      assert.strictEqual(yield* code("client_api"), "authentication_error")
      assert.strictEqual(yield* code("chat"), "ok")
      yield* first
      assert.strictEqual(yield* code("client_api"), "authentication_error")
      yield* second
      assert.strictEqual(yield* code("client_api"), "ok")
    })
  )
})
