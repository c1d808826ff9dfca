import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { TestClock } from "effect/testing"
import * as CellMessage from "../../src/cell/CellMessage.ts"
import * as CertificateExchange from "../../src/cell/CertificateExchange.ts"
import * as Fobs from "../../src/fobs/Fobs.ts"
import { times, within } from "../support/long.ts"
import { watchMemory } from "../support/memory.ts"
import { certificateOf, credentialsOf, toToday } from "./secure.ts"
import { freshSeed, seeded } from "./wire.ts"

const codec = Fobs.make()
const trainer = "site-1.-client_api_t"

const messageOf = (origin: string, payload: Uint8Array, more: ReadonlyArray<readonly [string, unknown]> = []) => ({
  headers: new Map<string, unknown>([
    ["cn__origin", origin],
    ["cn__msg_type", "reply"],
    ["cn__return_code", "ok"],
    ["cn__payload_encoding", "fobs"],
    ...more
  ]),
  payload
})

const encoded = (fields: ReadonlyArray<readonly [string, unknown]>) =>
  CellMessage.concat(Result.getOrThrow(codec.encode(new Map(fields))))

const shows = (folder: string, side: "client" | "server" = "client") =>
  encoded([["cert_content", new Uint8Array(certificateOf(folder, side).certificate)]])

const fingerprint = (folder: string, side: "client" | "server" = "client") =>
  certificateOf(folder, side).checked.fingerprint

const makeExchange = Effect.fnUntraced(function* (answer: () => CellMessage.IncomingMessage) {
  const refused: Array<string> = []
  let asked = 0
  const exchange = yield* CertificateExchange.make({
    fqcn: "site-1",
    credentials: credentialsOf("site-1"),
    request: () =>
      Effect.sync(() => {
        asked += 1
        return answer()
      }),
    onRefused: (kind) =>
      Effect.sync(() => {
        refused.push(kind)
      })
  })
  const code = (message: CellMessage.IncomingMessage) =>
    Effect.map(exchange.answer(message), (reply) => reply?.returnCode)
  const known = Effect.map(exchange.forOpening(trainer), ({ certificates }) => certificates.map((c) => c.fingerprint))
  return { exchange, refused, asked: () => asked, code, known }
})

describe("CertificateExchange", () => {
  it.effect("what was shown is not believed for sealing; what was answered is, until its day", () =>
    Effect.gen(function* () {
      yield* toToday
      const { asked, code, exchange, known } = yield* makeExchange(() => messageOf(trainer, shows("site-1")))
      assert.strictEqual(yield* code(messageOf(trainer, shows("site-1-listener", "server"))), "ok")
      assert.deepStrictEqual(yield* known, [fingerprint("site-1-listener", "server")])
      assert.isFalse((yield* exchange.forOpening(trainer)).isCertain)
      assert.strictEqual((yield* exchange.forSealing(trainer)).fingerprint, fingerprint("site-1"))
      assert.strictEqual(asked(), 1)
      assert.isTrue((yield* exchange.forOpening(trainer)).isCertain)
      yield* exchange.forSealing(trainer)
      assert.strictEqual(asked(), 1)
      // Somebody shows another one: it may open, it does not replace.
      yield* code(messageOf(trainer, shows("site-1-listener", "server")))
      assert.strictEqual((yield* exchange.forSealing(trainer)).fingerprint, fingerprint("site-1"))
      // Until its key has signed something.
      const other = (yield* exchange.forOpening(trainer)).certificates.at(-1)
      exchange.proved(trainer, other ?? assert.fail("no other"))
      assert.strictEqual((yield* exchange.forSealing(trainer)).fingerprint, fingerprint("site-1-listener", "server"))
      yield* TestClock.setTime(Date.UTC(2055, 0, 1))
      assert.deepStrictEqual(yield* known, [])
      const late = yield* Effect.flip(exchange.forSealing(trainer))
      assert.deepInclude(late.reason, { _tag: "ProtectionFailed", stage: "validity" })
    })
  )

  it.effect("bad certificates are refused one by one, and nothing is forgotten for them", () =>
    Effect.gen(function* () {
      yield* toToday
      const { code, exchange, known, refused } = yield* makeExchange(() => messageOf(trainer, shows("site-1")))
      yield* exchange.forSealing(trainer)
      const folders = ["foreign", "site-2", "expired", "notyet", "ec", "rsa1024", "rsa3072", "no-cn", "leaf-issued"]
      for (const folder of folders) {
        assert.strictEqual(yield* code(messageOf(trainer, shows(folder))), "process_exception", folder)
      }
      const kinds = ["chain", "name", "validity", "validity", "key", "key", "key", "name", "chain"]
      assert.deepStrictEqual(refused, kinds)
      for (const fields of [[], [["cert_content", "text"]], [["cert_content", new Uint8Array(3)]]] as const) {
        assert.strictEqual(yield* code(messageOf(trainer, encoded(fields))), "process_exception")
      }
      assert.isUndefined(yield* code(messageOf(trainer, new Uint8Array([1, 2, 3]))))
      assert.isUndefined(yield* code(messageOf(trainer, new Uint8Array(300_000))))
      assert.isUndefined(yield* code(messageOf(trainer, shows("site-1"), [["cn__payload_encoding", "bytes"]])))
      assert.deepStrictEqual(yield* known, [fingerprint("site-1")])
    })
  )

  it.effect("bad answers fail with what is wrong, and the next question is a new one", () =>
    Effect.gen(function* () {
      yield* toToday
      let answer = messageOf(trainer, encoded([["cert_error", "no certificates here"]]))
      const { asked, exchange } = yield* makeExchange(() => answer)
      const reasonOf = Effect.map(Effect.flip(exchange.forSealing(trainer)), ({ message, reason }) => ({
        ...reason,
        message
      }))
      assert.match((yield* reasonOf).message, /no certificates here/)
      answer = messageOf(trainer, new Uint8Array(0), [["cn__return_code", "process_exception"]])
      assert.deepInclude(yield* reasonOf, { _tag: "PeerFailed" })
      answer = messageOf("site-1", new Uint8Array(0), [["cn__msg_type", "return"]])
      assert.deepInclude(yield* reasonOf, { _tag: "TargetUnreachable" })
      answer = messageOf(trainer, new Uint8Array([0xc1]))
      assert.deepInclude(yield* reasonOf, { _tag: "ProtectionFailed", stage: "exchange" })
      answer = messageOf(trainer, encoded([]))
      assert.deepInclude(yield* reasonOf, { _tag: "ProtectionFailed", stage: "pem" })
      for (const [folder, stage] of [
        ["foreign", "chain"],
        ["site-2", "name"],
        ["rsa3072", "key"]
      ] as const) {
        answer = messageOf(trainer, shows(folder))
        assert.deepInclude(yield* reasonOf, { _tag: "ProtectionFailed", stage })
      }
      answer = messageOf(trainer, shows("site-1"))
      assert.strictEqual((yield* exchange.forSealing(trainer)).fingerprint, fingerprint("site-1"))
      assert.strictEqual(asked(), 9)
    })
  )

  it.effect("a cell that merely seems to have sent something is not asked again and again", () =>
    Effect.gen(function* () {
      yield* toToday
      const { asked, exchange } = yield* makeExchange(() => messageOf(trainer, encoded([["cert_error", "none"]])))
      for (let i = 0; i < 50; i += 1) yield* Effect.flip(exchange.askInDoubt(trainer))
      assert.strictEqual(asked(), 1)
      yield* TestClock.adjust("1 second")
      yield* Effect.flip(exchange.askInDoubt(trainer))
      assert.strictEqual(asked(), 2)
      yield* Effect.flip(exchange.forSealing(trainer))
      assert.strictEqual(asked(), 3)
    })
  )

  const seed = freshSeed()
  const mutations = times(50_000, 20)
  it.effect(
    `${mutations} mutated exchange messages are answered or refused, seed ${seed}`,
    () =>
      Effect.gen(function* () {
        yield* toToday
        const next = seeded(seed)
        const pick = (below: number) => Math.floor(next() * below)
        const { exchange, known, refused } = yield* makeExchange(() => messageOf(trainer, shows("site-1")))
        const originals = [shows("site-1"), shows("chained"), shows("site-1-listener", "server"), encoded([["x", 1]])]
        const codes = new Set<string>()
        const memory = watchMemory(mutations)
        for (let i = 0; i < mutations; i += 1) {
          memory.at(i)
          const original = originals[pick(originals.length)] ?? new Uint8Array(0)
          const bytes = original.slice(0, next() < 0.1 ? pick(original.byteLength) : original.byteLength)
          for (let flips = 1 + pick(3); flips > 0 && bytes.byteLength > 0; flips -= 1) {
            const at = pick(bytes.byteLength)
            bytes[at] = next() < 0.5 ? pick(256) : (bytes[at] ?? 0) ^ (1 << pick(8))
          }
          codes.add((yield* exchange.answer(messageOf(trainer, bytes)))?.returnCode ?? "silence")
          // The test's own notes would count as memory.
          refused.length = 0
        }
        memory.check()
        for (const code of codes) assert.include(["ok", "process_exception", "silence"], code)
        // Changed white space, or bytes behind the certificate, don't matter; no other certificate came of it.
        const good = [fingerprint("site-1"), fingerprint("chained"), fingerprint("site-1-listener", "server")]
        for (const name of yield* known) assert.include(good, name)
      }),
    within(60_000)
  )
})
