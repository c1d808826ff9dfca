import { deflateRawSync } from "node:zlib"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Result, Stream } from "effect"
import { TestClock } from "effect/testing"
import type { CellOptions, CellReply } from "../../src/cell/Cell.ts"
import { sourceFailureAddress } from "../../src/cell/internal/downloadWire.ts"
import type { TransferProgress } from "../../src/cell/TransferProgress.ts"
import type { Download } from "../../src/fobs/Fobs.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as Npy from "../../src/fobs/Npy.ts"
import * as Npz from "../../src/fobs/Npz.ts"
import * as Safetensors from "../../src/fobs/Safetensors.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import { DownloadRef } from "../../src/fobs/Values.ts"
import type { NetworkOptions } from "../../src/transport/MemoryDriver.ts"
import { clean, data, dict, duo, eof, fakeReferences, family, range, serve } from "./downloads.ts"
import { chat, settle } from "./support.ts"

const npz = (name: string, array: NdArray): Uint8Array => Buffer.concat(Result.getOrThrow(Npz.encode([[name, array]])))
const safetensors = (name: string, tensor: Tensor): Uint8Array =>
  Buffer.concat(Result.getOrThrow(Safetensors.encode([[name, tensor]])))

const numpy: Download = { dot: 3, fqcn: "site-1", refId: "ref" }
const torch: Download = { dot: 6, fqcn: "site-1", refId: "tensors" }

interface Heard {
  /** Milliseconds since the message was sent. */
  readonly at: number
  readonly request: ReadonlyMap<unknown, unknown>
  readonly secure: unknown
}

type Script = (request: ReadonlyMap<unknown, unknown>, index: number) => Effect.Effect<CellReply | undefined>

const isChunkRequest = ({ request }: Heard): boolean => !request.has("confirm") && !request.has("cancel")

/** A site that serves a message's arrays by a script, to a server that is the real thing. */
const scene = Effect.fnUntraced(function* (
  script: Script,
  options: {
    readonly downloads?: NonNullable<CellOptions["downloads"]>
    readonly network?: NetworkOptions
    readonly offers?: ReadonlyArray<Download>
    readonly payload?: unknown
    readonly isListenerOutside?: boolean
  } = {}
) {
  const ends = yield* duo({
    server: { downloads: { requestTimeout: "10 seconds", ...options.downloads } },
    isListenerOutside: options.isListenerOutside ?? false,
    ...(options.network === undefined ? {} : { network: options.network })
  })
  const { server, site } = ends
  const heard: Array<Heard> = []
  const start = yield* Clock.currentTimeMillis
  yield* serve(site.cell, (request, { headers }) =>
    Effect.gen(function* () {
      const entry = { at: (yield* Clock.currentTimeMillis) - start, request, secure: headers.get("cn__secure") }
      heard.push(entry)
      return isChunkRequest(entry) ? yield* script(request, heard.filter(isChunkRequest).length - 1) : undefined
    })
  )
  const got: Array<unknown> = []
  yield* server.cell.handle(chat("model"), ({ payload }) =>
    Effect.sync(() => {
      got.push(payload)
      return { returnCode: "ok" }
    })
  )
  const send = site.cell
    .request("server", chat("model"), options.payload ?? dict({ w: range(10) }), {
      timeout: "10 hours",
      references: fakeReferences(options.offers ?? [numpy])
    })
    .pipe(
      Effect.map(({ returnCode }) => returnCode),
      Effect.catch(({ message, reason }) => Effect.succeed(`${reason._tag}: ${message}`)),
      Effect.forkScoped({ startImmediately: true }),
      Effect.tap(settle)
    )
  return {
    ...ends,
    heard,
    got,
    send,
    chunks: () => heard.filter(isChunkRequest),
    /** What the source was told, beside requests for chunks. */
    words: () =>
      heard
        .filter((entry) => !isChunkRequest(entry))
        .map(({ request }) => [request.get("ref_id"), request.get("confirm") ?? "cancel", request.get("confirm_nonce")])
  }
})

const silence = Effect.never
const answer = (reply: CellReply) => Effect.succeed(reply)
const code = (returnCode: string) => answer({ returnCode, payload: null })
/** One chunk with the array `w`, then the end. */
const whole: Script = (request) => answer(request.has("state") ? eof("nonce") : data(0, [npz("T0", range(10))]))

const times = (entries: ReadonlyArray<Heard>) => entries.map(({ at }) => at)

describe("a receiver's requests", () => {
  it.effect("a request without an answer is sent again after 2, 4 and 8 seconds, then it is over", () =>
    clean(
      Effect.gen(function* () {
        const { chunks, send, words } = yield* scene(() => silence)
        const sent = yield* send
        yield* TestClock.adjust("11999 millis")
        assert.deepStrictEqual(times(chunks()), [0])
        yield* TestClock.adjust("1 millis")
        assert.deepStrictEqual(times(chunks()), [0, 12_000])
        yield* TestClock.adjust("13999 millis")
        assert.lengthOf(chunks(), 2)
        yield* TestClock.adjust("1 millis")
        assert.lengthOf(chunks(), 3)
        yield* TestClock.adjust("17999 millis")
        assert.lengthOf(chunks(), 3)
        yield* TestClock.adjust("10000 millis")
        assert.deepStrictEqual(times(chunks()), [0, 12_000, 26_000, 44_000])
        assert.isUndefined(sent.pollUnsafe())
        yield* TestClock.adjust("1 millis")
        assert.match(yield* Fiber.join(sent), /blob_cb threw DownloadFailed: failed to download from site-1: .*4 times/)
        for (const { request } of chunks()) {
          assert.deepStrictEqual(
            [...request],
            [
              ["ref_id", "ref"],
              ["confirm_capable", true]
            ]
          )
        }
        // Nothing was ever said to be cancellable.
        assert.deepStrictEqual(words(), [])
      })
    )
  )

  it.effect("the code `timeout` is retried likewise, with the same state; a success starts the count anew", () =>
    clean(
      Effect.gen(function* () {
        const { chunks, got, send, words } = yield* scene((_, index) =>
          [3, 7].includes(index)
            ? answer(index === 3 ? data(0, [npz("T0", range(10))]) : eof("nonce"))
            : code("timeout")
        )
        const sent = yield* send
        yield* TestClock.adjust("28 seconds")
        assert.strictEqual(yield* Fiber.join(sent), "ok")
        assert.deepStrictEqual(times(chunks()), [0, 2000, 6000, 14_000, 14_000, 16_000, 20_000, 28_000])
        const states = chunks().map(({ request }) => request.get("state"))
        const state = new Map([
          ["start", 0],
          ["count", 1]
        ])
        assert.deepStrictEqual(states, [undefined, undefined, undefined, undefined, state, state, state, state])
        assert.lengthOf(got, 1)
        assert.deepStrictEqual(words(), [["ref", "success", "nonce"]])
      })
    )
  )

  it.effect("any other code fails at once; a source that understands it is told", () =>
    clean(
      Effect.gen(function* () {
        for (const [chunksBefore, returnCode] of [
          [0, "invalid_request"],
          [0, "process_exception"],
          [0, ""],
          [1, "invalid_request"]
        ] as const) {
          const { chunks, send, words } = yield* scene((_, index) =>
            index < chunksBefore ? answer(data(index, [npz("T0", range(10))])) : code(returnCode)
          )
          const error = yield* Fiber.join(yield* send)
          assert.include(error, `failed to download from site-1: it answered ${returnCode || "without a return code"}`)
          assert.lengthOf(chunks(), chunksBefore + 1)
          yield* settle
          assert.deepStrictEqual(words(), chunksBefore === 0 ? [] : [["ref", "cancel", undefined]])
        }
      })
    )
  )

  it.effect("the next chunk is asked for while one is decoded, with the state as it came", () =>
    clean(
      Effect.gen(function* () {
        const state = dict({ start: 0, count: 1, own: "thing" })
        const { chunks, send } = yield* scene((_, index) =>
          index === 0
            ? answer({
                returnCode: "ok",
                payload: dict({ status: "ok", state, data: [new Uint8Array(9)], cancel_capable: true })
              })
            : silence
        )
        // The chunk is no npz, but the next one was asked for before that was known.
        assert.match(yield* Fiber.join(yield* send), /no npz/)
        assert.deepStrictEqual(chunks()[1]?.request.get("state"), state)
      })
    )
  )

  it.effect("a failure names the reference, the array and what the message calls it", () =>
    clean(
      Effect.gen(function* () {
        const payload = dict({ params: dict({ "a.weight": range(10), "b.weight": range(10), "b.bias": range(10) }) })
        const first = data(0, [npz("T0", range(10))])
        const refused = yield* scene(
          (_, index) => answer(index === 0 ? first : { returnCode: "process_exception", error: "not contiguous" }),
          { payload }
        )
        assert.match(
          yield* Fiber.join(yield* refused.send),
          /download from site-1: it answered process_exception: not contiguous \(reference ref, array T1 or one behind it\); T1 is "b\.weight"$/
        )
        const broken = yield* scene(
          (_, index) => answer(index === 0 ? first : data(1, [npz("T1", range(10)), new Uint8Array(9)])),
          { payload }
        )
        assert.match(
          yield* Fiber.join(yield* broken.send),
          /download from site-1: .*no npz.* \(reference ref, array T2\); T2 is "b\.bias"$/
        )
      })
    )
  )

  it.effect("a status of error is confirmed as failed", () =>
    clean(
      Effect.gen(function* () {
        const { send, words } = yield* scene(() =>
          answer({ returnCode: "ok", payload: dict({ status: "error", confirm_expected: true, confirm_nonce: "n" }) })
        )
        assert.match(yield* Fiber.join(yield* send), /it failed there/)
        yield* settle
        assert.deepStrictEqual(words(), [["ref", "failed", "n"]])
      })
    )
  )

  it.effect("nothing is confirmed that the source doesn't expect, nor with confirm: false", () =>
    clean(
      Effect.gen(function* () {
        const legacy = yield* scene((request) =>
          answer(
            request.has("state")
              ? { returnCode: "ok", payload: dict({ status: "eof" }) }
              : data(0, [npz("T0", range(10))])
          )
        )
        assert.strictEqual(yield* Fiber.join(yield* legacy.send), "ok")
        const off = yield* scene(whole, { downloads: { confirm: false } })
        assert.strictEqual(yield* Fiber.join(yield* off.send), "ok")
        yield* settle
        assert.deepStrictEqual([legacy.words(), off.words()], [[], []])
        assert.isTrue(off.chunks().every(({ request }) => !request.has("confirm_capable")))
      })
    )
  )

  it.effect("requests are protected only when the message was, and comes from the source itself", () =>
    clean(
      Effect.gen(function* () {
        for (const [fqcn, secure] of [
          ["site-1", false],
          ["site-1", true],
          ["server", true]
        ] as const) {
          const { heard, server, site } = yield* scene(whole)
          yield* serve(server.cell, (request, { headers }) => {
            heard.push({ at: 0, request, secure: headers.get("cn__secure") })
            return whole(request, 0)
          })
          for (const { hooks } of [server, site]) {
            hooks.protection = {
              seal: (_to, headers, pieces) => {
                headers.set("cn__encrypted", true)
                return Effect.succeed({ pieces, release: () => {} })
              },
              open: (message) => {
                const headers = new Map(message.headers)
                headers.delete("cn__encrypted")
                return Effect.succeed({ ...message, headers, isProtected: true })
              },
              isKnown: () => Effect.succeed(true),
              exchange: () => Effect.succeed(undefined)
            }
          }
          yield* site.cell.request("server", chat("model"), dict({ w: range(10) }), {
            timeout: "10 seconds",
            secure,
            references: fakeReferences([{ ...numpy, fqcn }])
          })
          yield* settle
          const expected = secure && fqcn === "site-1"
          assert.deepStrictEqual(
            heard.map((entry) => entry.secure),
            [expected, expected, expected]
          )
        }
      })
    )
  )
})

describe("both kinds in one message", () => {
  const payload = dict({ w: range(10), t: new Tensor("BF16", [2], Uint8Array.of(1, 2, 3, 4)) })
  const both = { payload, offers: [numpy, torch] }
  const serveBoth =
    (torchItem: Uint8Array, last: CellReply = eof("two")): Script =>
    (request) =>
      answer(
        request.get("ref_id") === "ref"
          ? request.has("state")
            ? eof("one")
            : data(0, [npz("T0", range(10))])
          : request.has("state")
            ? last
            : data(0, [torchItem])
      )

  it.effect("are fetched one after the other, and confirmed when the message could be decoded", () =>
    clean(
      Effect.gen(function* () {
        const tensor = safetensors("T0", new Tensor("BF16", [2], Uint8Array.of(1, 2, 3, 4)))
        const { got, send, words } = yield* scene(serveBoth(tensor), both)
        assert.strictEqual(yield* Fiber.join(yield* send), "ok")
        yield* settle
        assert.deepStrictEqual(words(), [
          ["ref", "success", "one"],
          ["tensors", "success", "two"]
        ])
        const value = got[0]
        assert.instanceOf(value, Map)
        assert.deepStrictEqual([...(value.get("t") as Tensor).bytes], [1, 2, 3, 4])
      })
    )
  )

  it.effect("when the second fails, the first has failed too", () =>
    clean(
      Effect.gen(function* () {
        const { send, words } = yield* scene(serveBoth(new Uint8Array(100).fill(255)), both)
        assert.match(yield* Fiber.join(yield* send), /DownloadFailed/)
        yield* settle
        assert.deepStrictEqual(words(), [
          ["tensors", "cancel", undefined],
          ["ref", "failed", "one"]
        ])
      })
    )
  )

  it.effect("an item that the message needs and the source lacks is confirmed as failed", () =>
    clean(
      Effect.gen(function* () {
        const { send, words } = yield* scene((request) =>
          answer(request.has("state") ? eof("nonce") : data(0, [npz("T7", range(10))]))
        )
        assert.match(yield* Fiber.join(yield* send), /blob_cb threw DecodeFailed: .*T0/)
        yield* settle
        assert.deepStrictEqual(words(), [["ref", "failed", "nonce"]])
      })
    )
  )
})

describe("a source that vanishes", () => {
  for (const after of [0, 1, 2, 3]) {
    it.effect(
      `after ${after} of 3 chunks, for good: the message fails after sourceGrace, not after the request timeout`,
      () =>
        clean(
          Effect.gen(function* () {
            const { server, site, send, chunks, got } = yield* scene(
              (_, index) => (index < after ? answer(data(index, [npz(`T${index}`, range(10))])) : silence),
              { downloads: { requestTimeout: "600 seconds" } }
            )
            const events: Array<TransferProgress> = []
            yield* Stream.runForEach(server.cell.transfers, (event) => Effect.sync(() => events.push(event))).pipe(
              Effect.forkScoped({ startImmediately: true })
            )
            yield* settle
            yield* send
            assert.lengthOf(chunks(), after + 1)
            yield* site.stop
            yield* TestClock.adjust("9999 millis")
            assert.strictEqual(server.downloads.inUse().fetched, 1)
            yield* TestClock.adjust("1 millis")
            assert.strictEqual(server.downloads.inUse().fetched, 0)
            assert.lengthOf(got, 0)
            assert.deepStrictEqual(
              events.map(({ direction, items, peer, state }) => [direction, items, peer, state]),
              [
                ...Array.from({ length: after }, (_, i) => ["receive", i + 1, "site-1", "active"]),
                ["receive", after, "site-1", "failed"]
              ]
            )
          })
        )
    )
  }

  it.effect("and comes back in time is asked for the same chunk again", () =>
    clean(
      Effect.gen(function* () {
        let cut = false
        const { chunks, got, send, words } = yield* scene(
          (request, index) => {
            if (index === 1) {
              cut = true
              return Effect.succeed(eof("lost with the connection"))
            }
            return whole(request, index)
          },
          {
            downloads: { requestTimeout: "600 seconds" },
            network: {
              faults: {
                onFrame: () =>
                  Effect.sync(() => {
                    const verdict = cut ? "close" : "deliver"
                    cut = false
                    return verdict
                  })
              }
            }
          }
        )
        const sent = yield* send
        yield* TestClock.adjust("10 seconds")
        assert.strictEqual(yield* Fiber.join(sent), "ok")
        assert.lengthOf(got, 1)
        const states = chunks().map(({ request }) => request.get("state"))
        assert.deepStrictEqual(states[1], states[2])
        assert.lengthOf(states, 3)
        yield* settle
        assert.deepStrictEqual(words(), [["ref", "success", "nonce"]])
      })
    )
  )

  it.effect("was never there: fails at once", () =>
    clean(
      Effect.gen(function* () {
        const { send, server, site } = yield* scene(whole)
        yield* send
        const error = yield* Effect.flip(
          site.cell.request("server", chat("model"), dict({ w: range(10) }), {
            timeout: "10 hours",
            references: fakeReferences([{ ...numpy, fqcn: "site-9" }])
          })
        )
        assert.match(error.message, /failed to download from site-9: server has no route to site-9/)
        assert.strictEqual(server.downloads.inUse().fetched, 0)
      })
    )
  )

  it.effect("behind a parent: the parent tells that it is not there", () =>
    clean(
      Effect.gen(function* () {
        const { job, trainer } = yield* family()
        yield* job.cell.handle(chat("model"), () => Effect.succeed({ returnCode: "ok" }))
        const error = yield* Effect.flip(
          trainer.cell.request(job.cell.fqcn, chat("model"), dict({ w: range(10) }), {
            timeout: "10 hours",
            references: fakeReferences([{ ...numpy, fqcn: "site-1.other" }])
          })
        )
        assert.match(error.message, /failed to download from site-1.other/)
      })
    )
  )
})

describe("giving up", () => {
  const stuck: Script = (_, index) => (index === 0 ? answer(data(0, [npz("T0", range(10))])) : silence)
  const cancelled = [["ref", "cancel", undefined]]

  it.effect("cancelDownloads fails the message and cancels at the source", () =>
    clean(
      Effect.gen(function* () {
        const { send, server, words } = yield* scene(stuck)
        const sent = yield* send
        yield* server.cell.cancelDownloads("site-2", "not this one")
        assert.strictEqual(server.downloads.inUse().fetched, 1)
        yield* server.cell.cancelDownloads("site-1", "the session ended")
        assert.match(yield* Fiber.join(sent), /failed to download from site-1: the session ended/)
        yield* settle
        assert.deepStrictEqual(words(), cancelled)
      })
    )
  )

  it.effect("a closing cell cancels before it goes", () =>
    clean(
      Effect.gen(function* () {
        const { send, server, words } = yield* scene(stuck, { isListenerOutside: true })
        yield* send
        yield* server.stop
        yield* settle
        assert.deepStrictEqual(words(), cancelled)
      })
    )
  )

  it.effect("interrupting a request cancels what its reply refers to", () =>
    clean(
      Effect.gen(function* () {
        const { server, site, words } = yield* scene(stuck)
        yield* site.cell.handle(chat("get"), () =>
          Effect.succeed({ returnCode: "ok", payload: dict({ w: new DownloadRef("site-1", "ref", "T0", 3) }) })
        )
        const asking = yield* server.cell
          .request("site-1", chat("get"), null, { timeout: "10 hours" })
          .pipe(Effect.forkScoped({ startImmediately: true }))
        yield* settle
        assert.strictEqual(server.downloads.inUse().fetched, 1)
        yield* Fiber.interrupt(asking)
        yield* settle
        assert.deepStrictEqual(words(), cancelled)
        assert.strictEqual(server.downloads.inUse().fetched, 0)
      })
    )
  )

  it.effect("a reply's downloads are fetched as a request's", () =>
    clean(
      Effect.gen(function* () {
        const { server, site, words } = yield* scene(whole)
        yield* site.cell.handle(chat("get"), () =>
          Effect.succeed({ returnCode: "ok", payload: dict({ w: new DownloadRef("site-1", "ref", "T0", 3) }) })
        )
        const { payload } = yield* server.cell.request("site-1", chat("get"), null, { timeout: "1 second" })
        assert.instanceOf(payload, Map)
        assert.deepStrictEqual((payload.get("w") as NdArray).shape, [10])
        yield* settle
        assert.deepStrictEqual(words(), [["ref", "success", "nonce"]])
      })
    )
  )

  it.effect("the parent of a source that died ends its downloads, and those of the next 1800 seconds", () =>
    clean(
      Effect.gen(function* () {
        const { job, parent, trainer } = yield* family()
        const source = trainer.cell.fqcn
        let asked = 0
        const words: Array<unknown> = []
        yield* serve(trainer.cell, (request) => {
          if (request.has("cancel")) {
            words.push([...request])
            return Effect.succeed(undefined)
          }
          asked += 1
          return stuck(request, asked - 1)
        })
        yield* job.cell.handle(chat("model"), () => Effect.succeed({ returnCode: "ok" }))
        const send = (refId: string) =>
          Effect.map(
            Effect.flip(
              trainer.cell.request(job.cell.fqcn, chat("model"), dict({ w: range(10) }), {
                timeout: "10 hours",
                references: fakeReferences([{ dot: 3, fqcn: source, refId }])
              })
            ),
            ({ message }) => message
          )
        const notice = (from: typeof parent, refs: ReadonlyArray<string>) =>
          from.cell.request(
            job.cell.fqcn,
            sourceFailureAddress,
            dict({ source_fqcn: source, ref_ids: refs, reason: "it died" }),
            { timeout: "1 second" }
          )
        const sent = yield* send("ref").pipe(Effect.forkScoped({ startImmediately: true }))
        yield* settle
        assert.strictEqual((yield* notice(trainer, ["ref"])).returnCode, "invalid_request")
        assert.strictEqual((yield* notice(parent, ["another ref"])).returnCode, "ok")
        assert.strictEqual(job.downloads.inUse().fetched, 1)
        assert.strictEqual((yield* notice(parent, ["ref"])).returnCode, "ok")
        assert.match(yield* Fiber.join(sent), new RegExp(`failed to download from ${source}: it died`))
        yield* settle
        assert.deepStrictEqual(words, [
          [
            ["ref_id", "ref"],
            ["cancel", true]
          ]
        ])
        assert.strictEqual(asked, 2)

        yield* TestClock.adjust("1799999 millis")
        assert.match(yield* send("ref"), /it died/)
        assert.strictEqual(asked, 2)
        yield* TestClock.adjust("1 millis")
        yield* send("ref").pipe(Effect.forkScoped({ startImmediately: true }))
        yield* settle
        assert.strictEqual(asked, 3)
      })
    )
  )
})

// ---- Bad sources.

/** A zip file with one deflated member. */
const deflated = (member: Uint8Array, claim: number): Uint8Array => {
  const packed = deflateRawSync(member, { level: 9 })
  const name = new TextEncoder().encode("T0.npy")
  const local = new Uint8Array(30 + name.length)
  const view = new DataView(local.buffer)
  view.setUint32(0, 0x04034b50, true)
  view.setUint16(8, 8, true)
  view.setUint16(26, name.length, true)
  local.set(name, 30)
  const entry = new Uint8Array(46 + name.length)
  const directory = new DataView(entry.buffer)
  directory.setUint32(0, 0x02014b50, true)
  directory.setUint16(10, 8, true)
  directory.setUint32(20, packed.length, true)
  directory.setUint32(24, claim, true)
  directory.setUint16(28, name.length, true)
  entry.set(name, 46)
  const end = new Uint8Array(22)
  const tail = new DataView(end.buffer)
  tail.setUint32(0, 0x06054b50, true)
  tail.setUint16(8, 1, true)
  tail.setUint16(10, 1, true)
  tail.setUint32(12, entry.length, true)
  tail.setUint32(16, local.length + packed.length, true)
  return Buffer.concat([local, packed, entry, end])
}

const zeros = (bytes: number): Uint8Array =>
  Buffer.concat(Result.getOrThrow(Npy.encode(new NdArray("|u1", [bytes], new Uint8Array(bytes)))))

/** An npy header of bytes that are not there. */
const promise = (bytes: number): Uint8Array => {
  const text = `{'descr': '|u1', 'fortran_order': False, 'shape': (${BigInt(bytes)},), }\n`
  return Buffer.concat([
    Uint8Array.of(0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, text.length, 0),
    new TextEncoder().encode(text)
  ])
}

const header = (json: string): Uint8Array => {
  const text = new TextEncoder().encode(json)
  const bytes = new Uint8Array(8 + text.length)
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true)
  bytes.set(text, 8)
  return bytes
}

describe("a source that lies", () => {
  const once =
    (reply: CellReply): Script =>
    (request) =>
      answer(request.has("state") ? eof("nonce") : reply)
  const payload = (entries: Readonly<Record<string, unknown>>): CellReply => ({
    returnCode: "ok",
    payload: dict({ cancel_capable: true, ...entries })
  })
  const good = npz("T0", range(10))
  const state = dict({ start: 0, count: 1 })
  const cases: ReadonlyArray<readonly [what: string, reply: CellReply, words: RegExp, offer?: Download]> = [
    ["no dict", { returnCode: "ok", payload: [1] }, /its answer is no dict/],
    ["no status", payload({}), /status undefined/],
    ["an unknown status", payload({ status: "later" }), /status later/],
    ["no data", payload({ status: "ok", state }), /brings no items/],
    ["an empty list", payload({ status: "ok", state, data: [] }), /brings no items/],
    ["data that is no list", payload({ status: "ok", state, data: good }), /brings no items/],
    ["an item that is no bytes", payload({ status: "ok", state, data: [good, "text"] }), /an item is no bytes/],
    ["no state", payload({ status: "ok", data: [good] }), /has no state/],
    ["a state that is no dict", payload({ status: "ok", state: [0, 1], data: [good] }), /has no state/],
    ["an npz cut in half", data(0, [good.subarray(0, good.length / 2)]), /no npz/],
    ["a bare npy", data(0, [zeros(4)]), /bare npy/],
    ["an npz whose array is cut", data(0, [npz("T0", new NdArray("|u1", [3], new Uint8Array(3))).subarray(1)]), /npz/],
    ["a deflated array of another size than its header says", data(0, [deflated(zeros(100), 99)]), /stands for/],
    ["a header that promises 2^40 bytes", data(0, [deflated(promise(2 ** 40), 0xffffffff)]), /left of the limit/],
    ["a header that promises 2^63 bytes", data(0, [deflated(promise(2 ** 63), 0xffffffff)]), /longer than 2\^53/],
    ["a safetensors without a header", data(0, [new Uint8Array(4)]), /safetensors/, torch],
    ["a safetensors header longer than the file", data(0, [new Uint8Array(16).fill(255)]), /safetensors/, torch],
    ["a safetensors header that is no JSON", data(0, [header("{")]), /safetensors/, torch],
    [
      "a safetensors with bytes that are not there",
      data(0, [header('{"T0":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}')]),
      /cannot lie at/,
      torch
    ],
    [
      "a safetensors whose tensors overlap",
      data(0, [
        Buffer.concat([
          header(
            '{"T0":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"T1":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}'
          ),
          new Uint8Array(6)
        ])
      ]),
      /share the bytes/,
      torch
    ]
  ]
  for (const [what, reply, expected, offer = numpy] of cases) {
    it.effect(`${what}: the message fails, the source is told`, () =>
      clean(
        Effect.gen(function* () {
          const { got, send, words } = yield* scene(once(reply), {
            offers: [offer],
            payload: dict({ w: range(10), t: new Tensor("U8", [1], new Uint8Array(1)) })
          })
          const error = yield* Fiber.join(yield* send)
          assert.match(error, /DownloadFailed: failed to download from site-1: /)
          assert.match(error, expected)
          assert.lengthOf(got, 0)
          yield* settle
          const isCancellable = reply.payload instanceof Map
          assert.deepStrictEqual(words(), isCancellable ? [[offer.refId, "cancel", undefined]] : [])
        })
      )
    )
  }

  it.effect("a zip bomb is refused by what it would become", () =>
    clean(
      Effect.gen(function* () {
        const bomb = deflated(zeros(4_000_000), 4_000_128)
        assert.isBelow(bomb.length, 10_000)
        const refused = yield* scene(once(data(0, [bomb])), { downloads: { maxModelBytes: 4_000_000 } })
        assert.match(yield* Fiber.join(yield* refused.send), /4000128 bytes, 4000000 are left of the limit/)
        const hidden = yield* scene(once(data(0, [deflated(zeros(4_000_000), 20)])))
        assert.match(yield* Fiber.join(yield* hidden.send), /has 20 bytes, its npy header stands for 4000128/)
      })
    )
  )

  it.effect("maxModelBytes holds for all downloads of a message together, to the byte", () =>
    clean(
      Effect.gen(function* () {
        const items = [0, 1].map((i) => npz(`T${i}`, range(1000)))
        const size = items.reduce((sum, { length }) => sum + length, 0)
        const script: Script = (_, index) =>
          answer(index < 2 ? data(index, items.slice(index, index + 1)) : eof("nonce"))
        const fits = yield* scene(script, { downloads: { maxModelBytes: size } })
        assert.strictEqual(yield* Fiber.join(yield* fits.send), "ok")
        const tooMuch = yield* scene(script, { downloads: { maxModelBytes: size - 1 } })
        assert.include(yield* Fiber.join(yield* tooMuch.send), `${size - 1} bytes (maxModelBytes)`)
        yield* settle
        assert.deepStrictEqual(tooMuch.words(), [["ref", "cancel", undefined]])
      })
    )
  )

  it.effect("a reply larger than what is left is not even taken in", () =>
    clean(
      Effect.gen(function* () {
        const { chunks, send } = yield* scene(once(data(0, [new Uint8Array(8_000_000)])), {
          downloads: { maxModelBytes: 1_000_000 }
        })
        assert.match(yield* Fiber.join(yield* send), /maxModelBytes \(1000000\)/)
        // It is not asked for again either.
        assert.lengthOf(chunks(), 1)
      })
    )
  )

  it.effect("maxItems holds for items, and for the members of one", () =>
    clean(
      Effect.gen(function* () {
        const three = Buffer.concat(Result.getOrThrow(Npz.encode([0, 1, 2].map((i) => [`T${i}`, range(1)] as const))))
        const script =
          (reply: CellReply): Script =>
          (request) =>
            answer(request.has("state") ? eof("nonce") : reply)
        const members = script(data(0, [three]))
        const items = script(
          data(
            0,
            [0, 1, 2].map((i) => npz(`T${i}`, range(1)))
          )
        )
        for (const source of [members, items]) {
          const fits = yield* scene(source, { downloads: { maxItems: 3 } })
          assert.strictEqual(yield* Fiber.join(yield* fits.send), "ok")
          const tooMany = yield* scene(source, { downloads: { maxItems: 2 } })
          assert.match(yield* Fiber.join(yield* tooMany.send), /maxItems|maxMembers/)
        }
      })
    )
  )

  it.effect("maxItems holds over all chunks of all downloads of a message", () =>
    clean(
      Effect.gen(function* () {
        const script: Script = (_, index) =>
          answer(index < 3 ? data(index, [npz(`T${index}`, range(1))]) : eof("nonce"))
        const fits = yield* scene(script, { downloads: { maxItems: 3 } })
        assert.strictEqual(yield* Fiber.join(yield* fits.send), "ok")
        const tooMany = yield* scene(script, { downloads: { maxItems: 2 } })
        assert.match(yield* Fiber.join(yield* tooMany.send), /more than 2 arrays \(maxItems\)/)
      })
    )
  )

  it.effect("messages about downloads don't refer to downloads", () =>
    clean(
      Effect.gen(function* () {
        const { heard, send } = yield* scene(
          once({ returnCode: "ok", payload: dict({ status: "ok", data: new DownloadRef("site-1", "other", "T0", 3) }) })
        )
        assert.match(yield* Fiber.join(yield* send), /refers to downloads/)
        assert.lengthOf(heard, 1)
      })
    )
  )
})
