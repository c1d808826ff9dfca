/** The answers of the reference's trainer to hand-made messages, and ours to the same. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Stream } from "effect"
import * as Cell from "../../src/cell/Cell.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { Float } from "../../src/fobs/Values.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import { load, valueOf } from "./fixtures.ts"
import { accept, advance, makeJob, model, received } from "./support.ts"

interface Case {
  readonly name: string
  readonly from: string
  readonly via: "core" | "stream"
  readonly topic: string
  readonly payload: unknown
  readonly reply: { readonly return_code: string; readonly body: { readonly [key: string]: unknown } | null }
}

const fixture = load("trainer_replies")
const cases: ReadonlyArray<Case> = fixture.cases

/** A float that is whole, which JSON does not show. */
const payloadOf = ({ name, payload }: Case): unknown => {
  const value = valueOf(payload)
  return name === "task: seq 1.0" && value instanceof Map ? value.set("task_seq", new Float(1)) : value
}

/** Its arrays were fetched from a job that is not there; ours travel inside the message, so the trainer itself refuses. */
const lateTask = "task: after shutdown"

const outcome = (reply: { readonly returnCode: string; readonly payload?: unknown }) => ({
  code: reply.returnCode,
  body: reply.payload instanceof Map ? Object.fromEntries(reply.payload) : null
})

const withoutReason = (body: { readonly [key: string]: unknown } | null) =>
  body === null ? null : Object.entries(body).map(([key, value]) => [key, key === "reason" ? typeof value : value])

describe("the 64 answers of the reference's trainer", () => {
  it.effect("16.74 16.75 ours are the same, but for the texts of reasons", () =>
    Effect.gen(function* () {
      assert.strictEqual(cases.length, 64)
      const job = yield* makeJob()
      const make = (fqcn: string) => Effect.provide(Cell.make({ fqcn, byeTimeout: 0 }), job.services)
      const parent = yield* make("site-1")
      yield* parent.listen("memory://site-1")
      const others = new Map([["site-1.job-1", job.cell]])
      others.set("site-1.job-2", yield* make("site-1.job-2"))
      for (const cell of others.values()) yield* cell.connect("memory://site-1")
      const options = { attachId: "trainer_a", connectUrl: "memory://site-1" }
      const trainer = yield* job.attaching(TestTrainer.profile(options))
      for (const name of [...others.keys(), fixture.trainer]) {
        yield* Stream.runHead(Stream.filter(parent.connected(name), (up) => up))
      }

      const ask = Effect.fnUntraced(function* (each: Case) {
        const cell = others.get(each.from) ?? assert.fail(each.from)
        const mode = each.via === "core" ? ("plain" as const) : ("stream" as const)
        const address = { channel: ClientApi.channel, topic: each.topic }
        const asking = yield* cell.request(fixture.trainer, address, payloadOf(each), { timeout: 2000, mode }).pipe(
          Effect.map(outcome),
          Effect.catch(({ reason }) => {
            const code =
              reason._tag === "RequestTimeout" ? "timeout" : reason._tag === "PeerFailed" ? "comm_error" : reason._tag
            return Effect.succeed({ code, body: null })
          }),
          Effect.forkChild
        )
        if (each.reply.return_code === "timeout") yield* advance(2000)
        return yield* Fiber.join(asking)
      })

      // The reference's trainer was in the middle of a send for some of the cases.
      const sent = yield* Deferred.make<void>()
      job.answer(ClientApi.Topic.resultReady, (body) => Effect.andThen(Deferred.await(sent), accept(body)))
      let sending: Fiber.Fiber<void, unknown> | undefined

      for (const each of cases) {
        const got = yield* ask(each)
        if (each.name === lateTask) {
          assert.deepStrictEqual([got.code, got.body?.reply_topic], ["ok", ClientApi.ReplyTopic.taskFailed])
          continue
        }
        assert.strictEqual(got.code, each.reply.return_code, each.name)
        assert.deepStrictEqual(withoutReason(got.body), withoutReason(each.reply.body), each.name)
        if (each.name === "task: good (retryable seq 1)") {
          const session = yield* Fiber.join(trainer.session)
          received(yield* session.receive)
          sending = yield* Effect.forkChild(session.send(model(1)))
          yield* job.message(ClientApi.Topic.resultReady)
        }
        if (each.name === "task: duplicate with another seq" && sending !== undefined) {
          yield* Deferred.succeed(sent, undefined)
          yield* Fiber.join(sending)
        }
      }
    })
  )
})
