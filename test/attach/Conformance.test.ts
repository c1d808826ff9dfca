import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { CellReply } from "../../src/cell/Cell.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { EnumValue } from "../../src/fobs/Values.ts"
import { Header, Shareable } from "../../src/model/Shareable.ts"
import * as support from "./support.ts"
import { load } from "./transcripts.ts"

/** One case of cj_replies.json: what the reference's backend answers to a hand-made message. */
interface Case {
  readonly name: string
  readonly from?: string
  readonly topic: string
  readonly payload: unknown
  readonly reply: { readonly return_code: string; readonly body: Readonly<Record<string, unknown>> | null }
  /** How `execute` ended, in the one entry that is no message. */
  readonly rc?: string
  readonly headers?: Readonly<Record<string, unknown>>
}

const recorded: { readonly cases: ReadonlyArray<Case>; readonly seen_from_cj: ReadonlyArray<{ payload: Json }> } =
  load("cj_replies")

type Json = { readonly [key: string]: unknown }

const isJson = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value)

/** A value as the fixture describes it; arrays are filled with zeros. */
const valueOf = (json: unknown, ids: ReadonlyMap<string, string>): unknown => {
  if (typeof json === "string") return ids.get(json) ?? json
  if (Array.isArray(json)) return json.map((each) => valueOf(each, ids))
  if (!isJson(json)) return json
  if ("__ndarray__" in json) return NdArray.fromTyped(new Float32Array(4))
  if ("__enum__" in json) return new EnumValue(String(json.__enum__), String(json.value))
  if ("__type__" in json) {
    const { __headers__, ...entries } = json.items as Json
    const headers = valueOf(__headers__, ids) as ReadonlyMap<string, unknown>
    return new Shareable(headers, valueOf(entries, ids) as ReadonlyMap<unknown, unknown>)
  }
  return new Map(Object.entries(json).map(([key, each]) => [key, valueOf(each, ids)]))
}

/** Where in the course of the recording a case stands. */
const stages = {
  "heartbeat ok": "session",
  "result without result_id": "task",
  "heartbeat after finalize": "closing"
} as const

describe("answers to hand-made messages", () => {
  it.effect("15 all cases of cj_replies.json are answered as the reference answers them, reason texts aside", () =>
    Effect.gen(function* () {
      const { backend, close } = yield* support.openBackend({ attachId: "trainer_a", heartbeatTimeout: "60 seconds" })
      const trainer = yield* support.startTrainer(
        { sessionOpen: () => Effect.succeed({ returnCode: "timeout" }), shutdown: support.silence },
        { fqcn: "site-1.-client_api_trainer_a" }
      )
      const stranger = yield* support.startTrainer({}, { fqcn: "site-1.-client_api_zz" })
      yield* support.pass("1 second")

      const ids = new Map<string, string>()
      let running: Fiber.Fiber<Shareable, unknown> | undefined
      const enter = Effect.fnUntraced(function* (stage: string | undefined) {
        if (stage === "session") {
          trainer.answers.sessionOpen = (body) =>
            support.reply("sessionAccepted", { session_id: body.get("session_id"), protocol_version: 1 })
          yield* support.pass("1 second")
          ids.set(String(recorded.seen_from_cj[0]?.payload.session_id), trainer.sessionId())
        } else if (stage === "task") {
          running = yield* support.start(backend, support.task(3))
          const sent = yield* trainer.next("taskReady")
          ids.set(String(recorded.seen_from_cj[1]?.payload.task_id), String(sent.body.get("task_id")))
        } else if (stage === "closing") {
          yield* close
          yield* support.pass()
        }
      })

      let answered = 0
      for (const each of recorded.cases) {
        yield* enter(stages[each.name as keyof typeof stages])
        if (each.rc !== undefined && running !== undefined) {
          const result = yield* Fiber.join(running)
          assert.strictEqual(result.returnCode, each.rc)
          assert.strictEqual(result.headers.get(Header.currentRound), each.headers?.current_round)
          continue
        }
        const { cell } = each.from === trainer.cell.fqcn ? trainer : stranger
        assert.strictEqual(cell.fqcn, each.from)
        const address = { channel: "client_api", topic: each.topic }
        const reply = yield* cell
          .request(support.cjFqcn, address, valueOf(each.payload, ids), { timeout: "2 seconds" })
          .pipe(
            // A stream error is what the reference calls a comm_error.
            Effect.catch(({ reason }) =>
              Effect.succeed<CellReply>({ returnCode: reason._tag === "PeerFailed" ? "comm_error" : reason._tag })
            )
          )
        assert.strictEqual(reply.returnCode, each.reply.return_code, each.name)
        const got = support.bodyOf(reply)
        const wanted = Object.fromEntries((valueOf(each.reply.body ?? {}, ids) as Map<string, unknown>).entries())
        assert.deepStrictEqual(Object.keys(got), Object.keys(wanted), each.name)
        for (const body of [got, wanted]) delete body.reason
        assert.deepStrictEqual(got, wanted, each.name)
        answered += 1
      }
      assert.strictEqual(answered, 35)
      assert.lengthOf(recorded.cases, 36)
    }).pipe(Effect.provide(support.layer()))
  )
})
