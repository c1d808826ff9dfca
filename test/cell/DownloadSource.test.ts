import { createHash } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Exit, Fiber, Option, Scope, Stream } from "effect"
import { TestClock } from "effect/testing"
import type { Cell } from "../../src/cell/Cell.ts"
import type { Offer, OfferOptions } from "../../src/cell/DownloadService.ts"
import { sourceFailureAddress } from "../../src/cell/internal/downloadWire.ts"
import type { TransferProgress } from "../../src/cell/TransferProgress.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import { Tuple } from "../../src/fobs/Values.ts"
import { ask, clean, dict, downloadAddress, duo, family, loadProbe, type ProbeStep, range } from "./downloads.ts"
import { chat, settle } from "./support.ts"

// ---- The recorded producer, step by step.

type Recorded = NonNullable<ProbeStep["reply"]>

/** A described value as our peer would send it; `names` are the ids of the recording and ours. */
const build = (node: Recorded, names: ReadonlyMap<string, string>): unknown => {
  const nodes = node.v as ReadonlyArray<Recorded>
  switch (node.t) {
    case "none":
      return null
    case "bool":
      return node.v
    case "int":
      return Number(node.v)
    case "str":
      return names.get(String(node.v)) ?? node.v
    case "list":
      return nodes.map((item) => build(item, names))
    case "tuple":
      return new Tuple(nodes.map((item) => build(item, names)))
    default:
      assert.strictEqual(node.t, "dict")
      return new Map(
        (node.v as ReadonlyArray<readonly [Recorded, Recorded]>).map(([key, value]) => [
          build(key, names),
          build(value, names)
        ])
      )
  }
}

const hash = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex")

/** Our reply, described as the recording describes one; a nonce is noted under its recorded name. */
const check = (expected: Recorded, actual: unknown, names: Map<string, string>, where: string): void => {
  if (expected.t === "dict") {
    assert.instanceOf(actual, Map, where)
    const entries = expected.v as ReadonlyArray<readonly [Recorded, Recorded]>
    assert.deepStrictEqual(
      [...actual.keys()],
      entries.map(([key]) => key.v),
      where
    )
    for (const [key, value] of entries) {
      const got = actual.get(key.v)
      if (key.v === "confirm_nonce") {
        assert.match(String(got), /^[0-9a-f]{32}$/, where)
        names.set(String(value.v), String(got))
      } else {
        check(value, got, names, `${where}.${String(key.v)}`)
      }
    }
  } else if (expected.t === "list") {
    assert.instanceOf(actual, Array, where)
    const items = expected.v as ReadonlyArray<Recorded>
    assert.lengthOf(actual, items.length, where)
    items.forEach((item, i) => {
      check(item, actual[i], names, `${where}[${i}]`)
    })
  } else if (expected.t === "bytes") {
    assert.instanceOf(actual, Uint8Array, where)
    assert.deepStrictEqual([actual.length, hash(actual)], [expected.len, expected.sha256], where)
  } else {
    assert.deepStrictEqual(actual, build(expected, names), where)
  }
}

const refIdOf = ({ request }: ProbeStep): string | undefined => {
  if (request?.t !== "dict") return undefined
  const found = (request.v as ReadonlyArray<readonly [Recorded, Recorded]>).find(([key]) => key.v === "ref_id")
  return found === undefined ? undefined : String(found[1].v)
}

/** What the recording's refs held, told by the hashes of their items. */
const offers: Readonly<Record<string, { readonly count: number; readonly size: number } & Partial<OfferOptions>>> = {
  Rc73581ad: { count: 3, size: 300, chunkSize: 2048 },
  Rb67d82e5: { count: 3, size: 100, chunkSize: 2048 },
  R79742dbc: { count: 2, size: 10, receivers: ["site-9"] }
}

const make = Effect.fnUntraced(function* (
  cell: Cell["Service"],
  arrays: ReadonlyArray<NdArray | Tensor>,
  options: Partial<OfferOptions> = {}
) {
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  const offer = yield* Scope.provide(cell.offer({ receivers: ["site-1"], threshold: 0, ...options }), scope)
  for (const array of arrays) {
    offer.references.add(array instanceof Tensor ? 6 : 3, array)
  }
  const ids = offer.references.downloads().map(({ refId }) => refId)
  return { ...offer, ids, id: ids[0] ?? "", remove: Scope.close(scope, Exit.void) }
})

const first = (refId: string, more: Readonly<Record<string, unknown>> = {}) =>
  dict({ ref_id: refId, confirm_capable: true, ...more })
const behind = (refId: string, start: number, count: number) => first(refId, { state: dict({ start, count }) })
const confirm = (refId: string, nonce: unknown, status = "success") =>
  dict({ ref_id: refId, confirm: status, confirm_nonce: nonce })

const field = (reply: { readonly payload: unknown }, name: string): unknown =>
  reply.payload instanceof Map ? reply.payload.get(name) : undefined

const outcomeNow = (offer: Offer) => Effect.map(Effect.timeoutOption(offer.outcome, 0), Option.getOrUndefined)

/** Fetches everything and confirms. */
const fetchAll = Effect.fnUntraced(function* (
  cell: Cell["Service"],
  source: string,
  refId: string,
  status = "success"
) {
  let state: unknown
  while (true) {
    const reply = yield* ask(cell, source, first(refId, state === undefined ? {} : { state }))
    if (field(reply, "status") === "eof") {
      return yield* ask(cell, source, confirm(refId, field(reply, "confirm_nonce"), status))
    }
    assert.strictEqual(field(reply, "status"), "ok")
    state = field(reply, "state")
  }
})

describe("a source", () => {
  it.effect("answers as the recorded one, step by step", () =>
    clean(
      Effect.gen(function* () {
        const { server, site } = yield* duo()
        const names = new Map<string, string>()
        const made = new Map<string, Effect.Success<ReturnType<typeof make>>>()
        const steps = loadProbe()
        let last = ""
        for (const step of steps) {
          const refId = refIdOf(step)
          if (refId?.startsWith("R") && !names.has(refId)) {
            const { count, size, ...options } = offers[refId.slice(0, 9)] ?? { count: 2, size: 10 }
            const offer = yield* make(
              server.cell,
              Array.from({ length: count }, () => range(size)),
              options
            )
            names.set(refId, offer.id)
            made.set(refId, offer)
          }
          last = refId ?? last
          if (step.label === "deleted") {
            yield* made.get(last)?.remove ?? Effect.void
          }
          if (step.label === "legacy_settles_by_monitor") {
            yield* TestClock.adjust("5 seconds")
          }
          if (step.label.startsWith("receiver_")) {
            continue // What a sender sees: DownloadService.test.ts.
          }
          if (step.outcome !== undefined) {
            const offer = made.get(last)
            assert.isDefined(offer, step.label)
            const { doneStatus, reason, status, transfers } = yield* offer.outcome
            assert.deepStrictEqual(
              {
                status,
                reason,
                done_status: doneStatus,
                refs: transfers.map((each) => Object.fromEntries(each.receivers))
              },
              step.outcome,
              step.label
            )
          } else if (step.done !== undefined) {
            assert.strictEqual(yield* made.get(last)?.isPending ?? Effect.succeed(false), !step.done, step.label)
          } else if (step.request !== undefined) {
            const request = build(step.request, names)
            const address = step.topic === undefined ? downloadAddress : sourceFailureAddress
            if (step.fire_and_forget === true) {
              yield* site.cell.send("server", address, request)
              yield* settle
              continue
            }
            const reply = yield* Effect.result(site.cell.request("server", address, request, { timeout: "5 seconds" }))
            const { cn__error, cn__return_code } = step.reply_headers ?? { cn__return_code: "" }
            if (reply._tag === "Failure") {
              assert.deepStrictEqual(
                [reply.failure.reason._tag, cn__return_code],
                ["PeerFailed", "comm_error"],
                step.label
              )
              assert.match(reply.failure.message, /blob_cb threw/, step.label)
            } else {
              assert.strictEqual(reply.success.returnCode, cn__return_code, step.label)
              assert.strictEqual(reply.success.error, cn__error, step.label)
              check(step.reply ?? { t: "none" }, reply.success.payload, names, step.label)
            }
          }
        }
        assert.strictEqual(made.size, 8)
      })
    )
  )

  it.effect("takes following items while they stay below the chunk size, and one larger item alone", () =>
    clean(
      Effect.gen(function* () {
        const { server, site } = yield* duo()
        // Items have 258 bytes more than their arrays.
        const offer = yield* make(server.cell, [range(10), range(10), range(10), range(1000), range(10)], {
          chunkSize: 3 * 298
        })
        const counts: Array<number> = []
        let state: unknown
        while (true) {
          const reply = yield* ask(site.cell, "server", first(offer.id, state === undefined ? {} : { state }))
          if (field(reply, "status") === "eof") break
          const items = field(reply, "data")
          assert.instanceOf(items, Array)
          counts.push(items.length)
          state = field(reply, "state")
        }
        // Three items are not below three times 298: strictly.
        assert.deepStrictEqual(counts, [2, 1, 1, 1])
      })
    )
  )

  it.effect("an array met again has the id it has; small ones, and everything when chunkSize is 0, stay inline", () =>
    clean(
      Effect.gen(function* () {
        const { server } = yield* duo({ server: { downloads: { threshold: 100 } } })
        const offer = yield* server.cell.offer({ receivers: ["site-1"] })
        const { references } = offer
        const big = range(25)
        assert.deepStrictEqual(
          [big, range(24), big, range(25), "text", new NdArray("<f4", [3], new Uint8Array(200))].map((value) =>
            references.add(3, value)
          ),
          ["T0", undefined, "T0", "T1", undefined, undefined]
        )
        assert.strictEqual(references.add(6, new Tensor("U8", [100], new Uint8Array(100))), "T0")
        assert.deepStrictEqual(
          references.downloads().map(({ dot, fqcn }) => [dot, fqcn]),
          [
            [3, "server"],
            [6, "server"]
          ]
        )
        const none = yield* server.cell.offer({ receivers: ["site-1"], chunkSize: 0 })
        assert.strictEqual(none.references.add(3, big), undefined)
        assert.deepStrictEqual([yield* offer.hasTransfers, yield* none.hasTransfers], [true, false])
        assert.deepStrictEqual([yield* offer.isPending, yield* none.isPending], [true, false])
      })
    )
  )

  it.effect("both downloads of a message must be confirmed, each by every receiver", () =>
    clean(
      Effect.gen(function* () {
        const { job, parent, trainer } = yield* family()
        const offer = yield* make(parent.cell, [range(10), new Tensor("F32", [2], new Uint8Array(8))], {
          receivers: [job.cell.fqcn, trainer.cell.fqcn]
        })
        for (const cell of [job.cell, trainer.cell]) {
          for (const id of offer.ids) {
            assert.isUndefined(yield* outcomeNow(offer))
            assert.strictEqual((yield* fetchAll(cell, "site-1", id)).returnCode, "ok")
          }
        }
        const outcome = yield* offer.outcome
        assert.strictEqual(outcome.status, "completed")
        assert.lengthOf(outcome.transfers, 2)
        assert.strictEqual(yield* offer.isPending, false)
      })
    )
  )

  it.effect("one receiver that failed makes the verdict failed, but the others are waited for", () =>
    clean(
      Effect.gen(function* () {
        const { job, parent, trainer } = yield* family()
        const offer = yield* make(parent.cell, [range(10)], { receivers: [job.cell.fqcn, trainer.cell.fqcn] })
        yield* fetchAll(job.cell, "site-1", offer.id, "failed")
        assert.isUndefined(yield* outcomeNow(offer))
        yield* fetchAll(trainer.cell, "site-1", offer.id)
        const outcome = yield* offer.outcome
        assert.deepInclude(outcome, { status: "failed", reason: "receiver_failed", doneStatus: "finished" })
        assert.deepStrictEqual(outcome.transfers[0]?.receivers.get(job.cell.fqcn), "failed")
      })
    )
  )

  it.effect("only the newest nonce confirms, and only once", () =>
    clean(
      Effect.gen(function* () {
        const { job, parent, trainer } = yield* family()
        const offer = yield* make(parent.cell, [range(10)], { receivers: [job.cell.fqcn, trainer.cell.fqcn] })
        yield* ask(job.cell, "site-1", first(offer.id))
        const [stale, newest] = [
          yield* ask(job.cell, "site-1", behind(offer.id, 0, 1)),
          yield* ask(job.cell, "site-1", behind(offer.id, 0, 1))
        ].map((reply) => field(reply, "confirm_nonce"))
        for (const nonce of [stale, "made up", null]) {
          yield* ask(job.cell, "site-1", confirm(offer.id, nonce, "failed"))
        }
        // Nor does the nonce of another receiver.
        yield* ask(trainer.cell, "site-1", confirm(offer.id, newest, "failed"))
        yield* ask(job.cell, "site-1", confirm(offer.id, newest))
        yield* ask(job.cell, "site-1", confirm(offer.id, newest, "failed"))
        assert.deepStrictEqual(
          [...((yield* ask(job.cell, "site-1", behind(offer.id, 0, 1))).payload as Map<string, unknown>)],
          [["status", "eof"]]
        )
        yield* fetchAll(trainer.cell, "site-1", offer.id)
        assert.strictEqual((yield* offer.outcome).status, "completed")
      })
    )
  )

  it.effect("a cancellation fails the receiver on every download of the message", () =>
    clean(
      Effect.gen(function* () {
        const { server, site } = yield* duo()
        const offer = yield* make(server.cell, [range(10), new Tensor("F32", [2], new Uint8Array(8))])
        yield* ask(site.cell, "server", first(offer.id))
        yield* site.cell.send("server", downloadAddress, dict({ ref_id: offer.id, cancel: true }))
        const outcome = yield* offer.outcome
        assert.deepStrictEqual(
          [outcome.status, outcome.transfers.map(({ receivers }) => receivers.get("site-1"))],
          ["failed", ["failed", "failed"]]
        )
        assert.strictEqual(field(yield* ask(site.cell, "server", first(offer.ids[1] ?? "")), "status"), "error")
      })
    )
  )
})

describe("a source's time", () => {
  const idle = { reason: "timeout", doneStatus: "timeout", status: "failed" } as const

  it.effect("idle from the last request on, to the millisecond; then the download is unknown", () =>
    clean(
      Effect.gen(function* () {
        const { server, site } = yield* duo()
        const offer = yield* make(server.cell, [range(10), range(10)])
        yield* TestClock.adjust("599 seconds")
        yield* ask(site.cell, "server", first(offer.id))
        yield* TestClock.adjust("599999 millis")
        assert.isUndefined(yield* outcomeNow(offer))
        yield* TestClock.adjust("1 millis")
        assert.deepInclude(yield* offer.outcome, idle)
        assert.strictEqual((yield* ask(site.cell, "server", first(offer.id))).returnCode, "invalid_request")
      })
    )
  )

  it.effect("an accepted confirmation is activity, one that is not accepted is none", () =>
    clean(
      Effect.gen(function* () {
        const { job, parent, trainer } = yield* family()
        const offer = yield* make(parent.cell, [range(10)], {
          receivers: [job.cell.fqcn, trainer.cell.fqcn],
          idleTimeout: "10 seconds"
        })
        yield* ask(job.cell, "site-1", first(offer.id))
        const end = yield* ask(job.cell, "site-1", behind(offer.id, 0, 1))
        yield* TestClock.adjust("9 seconds")
        yield* ask(job.cell, "site-1", confirm(offer.id, field(end, "confirm_nonce")))
        yield* TestClock.adjust("9 seconds")
        yield* ask(job.cell, "site-1", confirm(offer.id, "stale"))
        yield* TestClock.adjust("999 millis")
        assert.isUndefined(yield* outcomeNow(offer))
        yield* TestClock.adjust("1 millis")
        assert.deepInclude(yield* offer.outcome, idle)
      })
    )
  )

  it.effect("a lost confirmation leaves the verdict to the idle timeout; a late one changes nothing", () =>
    clean(
      Effect.gen(function* () {
        const { server, site } = yield* duo()
        const offer = yield* make(server.cell, [range(10)])
        yield* ask(site.cell, "server", first(offer.id))
        const end = yield* ask(site.cell, "server", behind(offer.id, 0, 1))
        yield* TestClock.adjust("600 seconds")
        assert.deepInclude(yield* offer.outcome, idle)
        const late = yield* ask(site.cell, "server", confirm(offer.id, field(end, "confirm_nonce")))
        assert.deepStrictEqual(late, { returnCode: "ok", payload: null })
      })
    )
  )

  it.effect("a finished download is remembered for 1800 seconds, each receiver's own word", () =>
    clean(
      Effect.gen(function* () {
        const { job, parent, trainer } = yield* family()
        const offer = yield* make(parent.cell, [range(10)], { receivers: [job.cell.fqcn, trainer.cell.fqcn] })
        yield* fetchAll(job.cell, "site-1", offer.id)
        yield* fetchAll(trainer.cell, "site-1", offer.id, "failed")
        const words = Effect.all([
          Effect.map(ask(job.cell, "site-1", first(offer.id)), (reply) => [reply.returnCode, field(reply, "status")]),
          Effect.map(ask(trainer.cell, "site-1", first(offer.id)), (reply) => [
            reply.returnCode,
            field(reply, "status")
          ])
        ])
        yield* TestClock.adjust("1800 seconds")
        assert.deepStrictEqual(yield* words, [
          ["ok", "eof"],
          ["ok", "error"]
        ])
        yield* TestClock.adjust("1 millis")
        assert.deepStrictEqual(yield* words, [
          ["invalid_request", undefined],
          ["invalid_request", undefined]
        ])
      })
    )
  )

  it.effect("what a receiver that confirms nothing was served counts after 5 seconds", () =>
    clean(
      Effect.gen(function* () {
        const { server, site } = yield* duo()
        const offer = yield* make(server.cell, [range(10)])
        const legacy = (state?: unknown) =>
          ask(site.cell, "server", dict({ ref_id: offer.id, ...(state === undefined ? {} : { state }) }))
        yield* legacy()
        assert.deepStrictEqual(
          [...((yield* legacy(dict({ start: 0, count: 1 }))).payload as Map<string, unknown>)],
          [["status", "eof"]]
        )
        yield* TestClock.adjust("4999 millis")
        assert.isUndefined(yield* outcomeNow(offer))
        yield* TestClock.adjust("1 millis")
        assert.strictEqual((yield* offer.outcome).status, "completed")
      })
    )
  )

  it.effect("without confirmations (confirm: false) every receiver is such a one", () =>
    clean(
      Effect.gen(function* () {
        const { server, site } = yield* duo({ server: { downloads: { confirm: false } } })
        const offer = yield* make(server.cell, [range(10)])
        yield* ask(site.cell, "server", first(offer.id))
        const end = yield* ask(site.cell, "server", behind(offer.id, 0, 1))
        assert.deepStrictEqual([...(end.payload as Map<string, unknown>)], [["status", "eof"]])
        yield* TestClock.adjust("5 seconds")
        assert.strictEqual((yield* offer.outcome).status, "completed")
      })
    )
  )

  it.effect("a receiver that asks for nothing fails when its time to begin is over", () =>
    clean(
      Effect.gen(function* () {
        const { job, parent, trainer } = yield* family()
        const offer = yield* make(parent.cell, [range(10)], {
          receivers: [job.cell.fqcn, trainer.cell.fqcn],
          receiverAcquireTimeout: "20 seconds"
        })
        yield* TestClock.adjust("19999 millis")
        yield* fetchAll(job.cell, "site-1", offer.id)
        assert.isUndefined(yield* outcomeNow(offer))
        yield* TestClock.adjust("1 millis")
        const outcome = yield* offer.outcome
        assert.deepStrictEqual(
          [outcome.reason, outcome.transfers[0]?.receivers.get(trainer.cell.fqcn)],
          ["receiver_failed", "failed"]
        )
      })
    )
  )

  it.effect("a receiver that falls silent fails, though another one keeps the offer alive", () =>
    clean(
      Effect.gen(function* () {
        const { job, parent, trainer } = yield* family()
        const offer = yield* make(parent.cell, [range(10)], {
          receivers: [job.cell.fqcn, trainer.cell.fqcn],
          receiverIdleTimeout: "30 seconds"
        })
        yield* TestClock.adjust("17 seconds")
        yield* ask(job.cell, "site-1", first(offer.id))
        yield* TestClock.adjust("20 seconds")
        yield* ask(trainer.cell, "site-1", first(offer.id))
        yield* TestClock.adjust("9999 millis")
        assert.strictEqual(field(yield* ask(trainer.cell, "site-1", first(offer.id)), "status"), "ok")
        yield* TestClock.adjust("1 millis")
        const end = yield* ask(trainer.cell, "site-1", behind(offer.id, 0, 1))
        yield* ask(trainer.cell, "site-1", confirm(offer.id, field(end, "confirm_nonce")))
        const { receivers } = (yield* offer.outcome).transfers[0] ?? { receivers: new Map() }
        assert.deepStrictEqual([receivers.get(job.cell.fqcn), receivers.get(trainer.cell.fqcn)], ["failed", "success"])
      })
    )
  )

  it.effect("closing the Scope withdraws the offer at once", () =>
    clean(
      Effect.gen(function* () {
        const { server, site } = yield* duo()
        const offer = yield* make(server.cell, [range(10)])
        yield* ask(site.cell, "server", first(offer.id))
        yield* offer.remove
        assert.deepInclude(yield* offer.outcome, { status: "aborted", reason: "deleted", doneStatus: "deleted" })
        assert.strictEqual((yield* ask(site.cell, "server", first(offer.id))).returnCode, "invalid_request")
        assert.strictEqual(server.downloads.inUse().offered, 0)
        assert.strictEqual(offer.references.add(3, range(100)), undefined)
      })
    )
  )
})

describe("progress of an offer", () => {
  it.effect("counts array bytes up to the total, repeated chunks once, and ends with the outcome", () =>
    clean(
      Effect.gen(function* () {
        const { server, site } = yield* duo()
        const offer = yield* make(server.cell, [range(10), range(20), range(30)], { chunkSize: 300 })
        const events: Array<TransferProgress> = []
        const reading = yield* Stream.runForEach(offer.progress, (event) => Effect.sync(() => events.push(event))).pipe(
          Effect.forkScoped({ startImmediately: true })
        )
        yield* settle
        yield* ask(site.cell, "server", first(offer.id))
        yield* ask(site.cell, "server", first(offer.id))
        yield* fetchAll(site.cell, "server", offer.id)
        yield* offer.outcome
        yield* Fiber.join(reading)
        assert.deepStrictEqual(
          events.map(({ bytes, items, state }) => [bytes, items, state]),
          [
            [40, 1, "active"],
            [40, 1, "active"],
            [40, 1, "active"],
            [120, 2, "active"],
            [240, 3, "active"],
            [240, 3, "completed"]
          ]
        )
        for (const { direction, peer, refId, totalBytes } of events) {
          assert.deepStrictEqual([direction, peer, refId, totalBytes], ["send", "site-1", offer.id, 240])
        }
      })
    )
  )

  it.effect("a message with an offer that is withdrawn before it is fetched fails at its receiver", () =>
    clean(
      Effect.gen(function* () {
        const { server, site } = yield* duo()
        yield* site.cell.handle(chat("model"), () => Effect.succeed({ returnCode: "ok" }))
        const offer = yield* make(server.cell, [])
        const array = range(1000)
        assert.strictEqual(offer.references.add(3, array), "T0")
        yield* offer.remove
        const error = yield* Effect.flip(
          server.cell.request("site-1", chat("model"), dict({ w: array }), {
            timeout: Duration.seconds(5),
            references: { add: () => "T0", downloads: () => [{ dot: 3, fqcn: "server", refId: "gone" }] }
          })
        )
        assert.match(error.message, /blob_cb threw DownloadFailed: failed to download from server: .*invalid_request/)
      })
    )
  )
})
