import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Result, Scope } from "effect"
import { TestClock } from "effect/testing"
import type { CellRequest } from "../../src/cell/Cell.ts"
import * as CellCredentials from "../../src/cell/CellCredentials.ts"
import type { CellError } from "../../src/cell/CellError.ts"
import { concat } from "../../src/cell/CellMessage.ts"
import * as Fobs from "../../src/fobs/Fobs.ts"
import * as Frame from "../../src/transport/Frame.ts"
import { type Heard, puppet } from "./puppet.ts"
import { credentialsOf, secureCell, today, toToday } from "./secure.ts"
import { chat, echo, makeWorld, settle, until } from "./support.ts"

const pattern = (size: number) => Uint8Array.from({ length: size }, (_, index) => (index * 7 + 3) & 255)

/** A parent in clear, and below it a job and a trainer that protect their messages. */
const makeSecureFamily = Effect.fnUntraced(function* (
  options: { readonly job?: object; readonly trainer?: object; readonly parent?: object } = {}
) {
  yield* toToday
  const world = yield* makeWorld()
  const parent = yield* world.cell({ fqcn: "site-1", byeTimeout: 0, ...options.parent })
  const job = yield* world.cell(secureCell("site-1.job", options.job))
  const trainer = yield* world.cell(secureCell("site-1.-client_api_t", options.trainer))
  yield* Scope.provide(parent.cell.listen("memory://site-1"), parent.scope)
  for (const child of [job, trainer]) {
    yield* Scope.provide(child.cell.connect("memory://site-1"), child.scope)
    yield* until(parent.cell, child.cell.fqcn)
    yield* until(child.cell, "site-1")
  }
  return { ...world, parent, job, trainer }
})

const reasonOf = (result: Result.Result<unknown, CellError>) =>
  Result.isFailure(result) ? result.failure.reason : undefined

describe("secure cells", () => {
  for (const mode of ["plain", "stream"] as const) {
    it.effect(`${mode}: requests and replies are protected, in both directions, by one exchange`, () =>
      Effect.gen(function* () {
        const { job, trainer } = yield* makeSecureFamily()
        const requests: Array<CellRequest> = []
        const answer = (request: CellRequest) =>
          Effect.sync(() => {
            requests.push(request)
            return { returnCode: "ok", payload: request.payload }
          })
        yield* trainer.cell.handle(chat("echo"), answer)
        yield* job.cell.handle(chat("echo"), answer)
        const options = { timeout: "10 seconds", mode, secure: true } as const
        for (const size of [0, 1, 1000, 70_000, 3 * 1024 * 1024]) {
          const data = pattern(size)
          const reply = yield* job.cell.request(trainer.cell.fqcn, chat("echo"), data, options)
          assert.strictEqual(reply.returnCode, "ok")
          assert.deepStrictEqual(new Uint8Array(reply.payload as Uint8Array), data)
          const back = yield* trainer.cell.request(job.cell.fqcn, chat("echo"), data, options)
          assert.deepStrictEqual(new Uint8Array(back.payload as Uint8Array), data)
        }
        assert.lengthOf(requests, 10)
        for (const { headers } of requests) {
          assert.strictEqual(headers.get("cn__secure"), true)
          assert.isFalse(headers.has("cn__encrypted"))
        }
      })
    )
  }

  it.effect("on the wire: every DATA frame an envelope, empty ones too, acknowledgements in clear", () =>
    Effect.gen(function* () {
      yield* toToday
      const world = yield* makeWorld()
      const job = yield* world.cell(secureCell("site-1", { streaming: { chunkSize: 1000 } }))
      const peer = yield* world.cell(secureCell("site-1.-client_api_t", { streaming: { chunkSize: 1000 } }))
      const frames: Array<readonly [string, number, unknown, unknown]> = []
      yield* Scope.provide(job.cell.listen("memory://site-1"), job.scope)
      yield* peer.cell.handle(chat("echo"), echo)
      // The guard sees every message for its cell before it is opened.
      for (const { cell } of [job, peer]) {
        yield* cell.guard(({ headers }) => {
          frames.push([
            String(headers.get("cn__topic")),
            Number(headers.get("cn__payload_len")),
            headers.get("cn__secure"),
            headers.get("cn__encrypted")
          ])
          return "pass"
        })
      }
      yield* Scope.provide(peer.cell.connect("memory://site-1"), peer.scope)
      yield* until(job.cell, peer.cell.fqcn)
      const options = { timeout: "10 seconds", secure: true } as const
      yield* job.cell.request(peer.cell.fqcn, chat("echo"), pattern(1500), options)
      yield* job.cell.request(peer.cell.fqcn, chat("echo"), undefined, options)
      const data = frames.filter(([topic]) => topic === "sm__DATA")
      assert.deepStrictEqual(
        data.map(([, length]) => length),
        [1000, 500, 1000, 500, 0, 0]
      )
      for (const [, , secure, encrypted] of data) assert.deepStrictEqual([secure, encrypted], [true, true])
      const others = frames.filter(([topic]) => topic !== "sm__DATA")
      assert.deepStrictEqual(
        others.map(([topic]) => topic),
        ["key_exchange", "key_exchange"]
      )
      for (const [, , secure, encrypted] of others) assert.deepStrictEqual([secure, encrypted], [false, undefined])
    })
  )

  it.effect("a peer without certificates, or with bad ones, gets nothing, and the sender is told why", () =>
    Effect.gen(function* () {
      const { cell, job, parent } = yield* makeSecureFamily()
      const folders = [
        "expired",
        "notyet",
        "foreign-full",
        "site-2",
        "ec",
        "rsa1024",
        "rsa3072",
        "no-cn",
        "leaf-issued"
      ]
      const kinds = ["validity", "validity", "chain", "name", "key", "key", "key", "name", "chain"]
      for (const [index, folder] of folders.entries()) {
        const fqcn = `site-1.-client_api_${index}`
        const bad = yield* cell({ fqcn, credentials: credentialsOf(fqcn, folder), byeTimeout: 0 })
        let served = 0
        yield* bad.cell.handle(chat("x"), () =>
          Effect.sync(() => {
            served += 1
            return { returnCode: "ok" }
          })
        )
        yield* Scope.provide(bad.cell.connect("memory://site-1"), bad.scope)
        yield* until(parent.cell, fqcn)
        const asked = yield* Effect.result(job.cell.request(fqcn, chat("x"), 1, { timeout: "1 second", secure: true }))
        const reason = reasonOf(asked)
        // The bad cell's own root may be another one: then it refuses first, by its return code.
        if (reason?._tag === "PeerFailed") assert.strictEqual(folder, "foreign-full")
        else assert.deepInclude(reason, { _tag: "ProtectionFailed", peer: fqcn, stage: kinds[index] ?? "" }, folder)
        assert.strictEqual(served, 0)
        yield* bad.stop
      }
      const clear = yield* Effect.result(
        job.cell.request("site-1", chat("x"), 1, { timeout: "1 second", mode: "plain", secure: true })
      )
      assert.deepInclude(reasonOf(clear), { _tag: "ProtectionFailed", peer: "site-1", stage: "exchange" })
      assert.match(Result.isFailure(clear) ? clear.failure.message : "", /site-1 has no certificate to give/)
    })
  )

  it.effect("an exchange ends after ten seconds, and is asked once for all who wait", () =>
    Effect.gen(function* () {
      yield* toToday
      const world = yield* makeWorld()
      const job = yield* world.cell(secureCell("site-1"))
      yield* Scope.provide(job.cell.listen("memory://site-1"), job.scope)
      const heard: Array<Heard> = []
      yield* puppet(yield* world.driver.connect("memory://site-1"), "site-1.mute", heard, true)
      yield* until(job.cell, "site-1.mute")
      const ask = job.cell.send("site-1.mute", chat("x"), 1, { secure: true })
      const asking = yield* Effect.forkScoped(
        Effect.all(
          [1, 2, 3].map(() => Effect.result(ask)),
          { concurrency: "unbounded" }
        ),
        { startImmediately: true }
      )
      yield* TestClock.adjust("9999 millis")
      assert.isUndefined(asking.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      for (const result of yield* Fiber.join(asking)) {
        assert.deepInclude(reasonOf(result), { _tag: "RequestTimeout", target: "site-1.mute" })
      }
      const topics = heard.map(({ headers }) => headers.get("cn__topic")?.value)
      assert.deepStrictEqual(topics, ["key_exchange"])
    })
  )

  it.effect("content keys change by count and by time", () =>
    Effect.gen(function* () {
      const { job, trainer } = yield* makeSecureFamily({
        job: { protection: { rotateMessages: 3, rotateAfter: "1 minute" } }
      })
      const seen: Array<string> = []
      const { open } = trainer.hooks.protection ?? assert.fail("no protection")
      trainer.hooks.protection = {
        ...(trainer.hooks.protection ?? assert.fail("no protection")),
        open: (message) => {
          seen.push(Buffer.from(message.payload.subarray(13, 269)).toString("hex").slice(0, 8))
          return open(message)
        }
      }
      yield* trainer.cell.handle(chat("x"), () => Effect.succeed({ returnCode: "ok" }))
      const options = { timeout: "1 second", mode: "plain", secure: true } as const
      const ask = job.cell.request(trainer.cell.fqcn, chat("x"), pattern(3), options)
      for (let i = 0; i < 7; i += 1) yield* ask
      const names = [...new Set(seen)]
      assert.deepStrictEqual(
        seen.map((name) => names.indexOf(name)),
        [0, 0, 0, 1, 1, 1, 2]
      )
      yield* TestClock.adjust("59 seconds")
      yield* ask
      assert.strictEqual(seen.at(-1), names[2])
      yield* TestClock.adjust("1 second")
      yield* ask
      assert.notInclude(names, seen.at(-1))
    })
  )

  it.effect("a certificate that expires while it is known is asked for anew, and refused", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld()
      const fqcn = "site-1.-client_api_t"
      yield* TestClock.setTime(Date.UTC(2024, 11, 31))
      const job = yield* world.cell(secureCell("site-1"))
      const old = yield* world.cell({ fqcn, credentials: credentialsOf(fqcn, "expired"), byeTimeout: 0 })
      yield* old.cell.handle(chat("x"), echo)
      yield* Scope.provide(job.cell.listen("memory://site-1"), job.scope)
      yield* Scope.provide(old.cell.connect("memory://site-1"), old.scope)
      yield* until(job.cell, fqcn)
      const options = { timeout: "1 second", mode: "plain", secure: true } as const
      yield* job.cell.request(fqcn, chat("x"), 1, options)
      yield* TestClock.setTime(Date.UTC(2025, 0, 2))
      const late = yield* Effect.result(job.cell.request(fqcn, chat("x"), 1, options))
      assert.deepInclude(reasonOf(late), { _tag: "ProtectionFailed", stage: "validity" })
    })
  )

  it.effect(
    "a renewed certificate is shown to peers before it is used, and what the old key was meant for is read",
    () =>
      Effect.gen(function* () {
        yield* toToday
        const world = yield* makeWorld()
        const [before, after] = [credentialsOf("site-1"), credentialsOf("site-1", "site-1-listener", "server")]
        let current = before.current()
        const job = yield* world.cell(secureCell("site-1", { credentials: { ...before, current: () => current } }))
        const trainer = yield* world.cell(secureCell("site-1.-client_api_t"))
        yield* Scope.provide(job.cell.listen("memory://site-1"), job.scope)
        yield* Scope.provide(trainer.cell.connect("memory://site-1"), trainer.scope)
        yield* until(job.cell, trainer.cell.fqcn)
        yield* trainer.cell.handle(chat("x"), echo)
        yield* job.cell.handle(chat("x"), echo)
        const options = { timeout: "1 second", mode: "plain", secure: true } as const
        yield* job.cell.request(trainer.cell.fqcn, chat("x"), 1, options)
        current = after.current()
        // Still for the old key: the trainer has not heard of the new one.
        assert.strictEqual((yield* trainer.cell.request("site-1", chat("x"), 2, options)).payload, 2)
        assert.strictEqual((yield* job.cell.request(trainer.cell.fqcn, chat("x"), 3, options)).payload, 3)
        assert.strictEqual((yield* trainer.cell.request("site-1", chat("x"), 4, options)).payload, 4)
      })
  )

  it.effect("a cell that was started anew asks who sent it something, though another certificate was shown", () =>
    Effect.gen(function* () {
      const { cell, driver, job, parent, trainer } = yield* makeSecureFamily()
      const options = { timeout: "10 seconds", secure: true } as const
      yield* job.cell.handle(chat("x"), echo)
      yield* trainer.cell.request("site-1.job", chat("x"), 1, options)
      yield* job.stop
      const again = yield* cell(secureCell("site-1.job"))
      yield* again.cell.handle(chat("x"), echo)
      yield* Scope.provide(again.cell.connect("memory://site-1"), again.scope)
      yield* until(again.cell, "site-1")
      const heard: Array<Heard> = []
      const attacker = yield* puppet(yield* driver.connect("memory://site-1"), "site-1.evil", heard, true)
      yield* until(parent.cell, "site-1.evil")
      const { certificate } = credentialsOf("site-1", "site-1-listener", "server").current()
      const shown = Result.getOrThrow(Fobs.make().encode(new Map([["cert_content", new Uint8Array(certificate)]])))
      const headers = new Map<string, unknown>([
        ["cn__origin", trainer.cell.fqcn],
        ["cn__destination", "site-1.job"],
        ["cn__msg_type", "req"],
        ["cn__channel", "credential_manager"],
        ["cn__topic", "key_exchange"],
        ["cn__payload_encoding", "fobs"]
      ])
      yield* attacker.say(headers, concat(shown))
      yield* settle
      assert.strictEqual((yield* trainer.cell.request("site-1.job", chat("x"), 2, options)).payload, 2)
    })
  )

  it.effect("an envelope whose mark of security was taken off on the way is not opened", () =>
    Effect.gen(function* () {
      yield* toToday
      const stolen: Array<{ readonly headers: Map<string, unknown>; readonly payload: Uint8Array }> = []
      const world = yield* makeWorld({
        faults: {
          onFrame: ({ bytes, link }) =>
            Effect.sync(() => {
              const frame = Result.getOrThrow(Frame.decode(bytes))
              // The trainer's connection is the first.
              if (link > 0 || frame.headers?.get("cn__encrypted") !== true) return "deliver" as const
              stolen.push({ headers: new Map(frame.headers), payload: frame.payload })
              return "drop" as const
            })
        }
      })
      const job = yield* world.cell(secureCell("site-1", { bindOrigins: false }))
      const trainer = yield* world.cell(secureCell("site-1.-client_api_t"))
      let served = 0
      yield* job.cell.handle(chat("x"), () =>
        Effect.sync(() => {
          served += 1
          return { returnCode: "ok" }
        })
      )
      yield* Scope.provide(job.cell.listen("memory://site-1"), job.scope)
      yield* Scope.provide(trainer.cell.connect("memory://site-1"), trainer.scope)
      yield* until(trainer.cell, "site-1")
      const attacker = yield* puppet(yield* world.driver.connect("memory://site-1"), "site-1.evil", [], true)
      for (const marks of [
        { cn__secure: false },
        { cn__secure: 1 },
        { cn__encrypted: 1 },
        { cn__encrypted: "yes" },
        { cn__clear_payload_len: 0 },
        {}
      ]) {
        yield* trainer.cell.send("site-1", chat("x"), 1, { secure: true })
        const { headers, payload } = stolen.pop() ?? assert.fail("nothing was sent")
        for (const [name, value] of Object.entries(marks)) headers.set(name, value)
        yield* attacker.say(headers, payload)
        yield* settle
        // As it was, it is opened and served.
        assert.strictEqual(served, Object.keys(marks).length === 0 ? 1 : 0, JSON.stringify(marks))
      }
    })
  )

  it.effect("without any guard: clear frames don't get into a protected stream, and clear replies don't answer", () =>
    Effect.gen(function* () {
      yield* toToday
      const sent: Array<ReadonlyMap<string, unknown>> = []
      const world = yield* makeWorld({
        faults: {
          onFrame: ({ bytes, link }) =>
            Effect.sync(() => {
              const headers = Result.getOrThrow(Frame.decode(bytes)).headers ?? new Map<string, unknown>()
              if (link > 0) return "deliver" as const
              sent.push(headers)
              return headers.get("sm__sq") === 1 && headers.get("sm__ch") === "chat"
                ? { delay: "1 second" }
                : ("deliver" as const)
            })
        }
      })
      const chunked = { streaming: { chunkSize: 1000 } }
      const job = yield* world.cell(secureCell("site-1", { bindOrigins: false, ...chunked }))
      const trainer = yield* world.cell(secureCell("site-1.-client_api_t", chunked))
      yield* Scope.provide(job.cell.listen("memory://site-1"), job.scope)
      yield* Scope.provide(trainer.cell.connect("memory://site-1"), trainer.scope)
      yield* until(job.cell, trainer.cell.fqcn)
      yield* until(trainer.cell, "site-1")
      const attacker = yield* puppet(yield* world.driver.connect("memory://site-1"), "site-1.evil", [], true)
      const got: Array<Uint8Array> = []
      yield* job.cell.handle(chat("x"), ({ payload }) =>
        Effect.sync(() => {
          got.push(new Uint8Array(payload as Uint8Array))
          return { returnCode: "ok" }
        })
      )
      const lie = new Uint8Array(1000).fill(255)
      const sending = yield* Effect.forkScoped(
        trainer.cell.send("site-1", chat("x"), pattern(2500), { secure: true }),
        {
          startImmediately: true
        }
      )
      yield* settle
      const stream = sent.find((headers) => headers.get("sm__ch") === "chat" && headers.get("sm__sq") === 0)
      const forged = new Map(stream).set("sm__sq", 1).set("sm__os", 1000)
      forged.delete("cn__encrypted")
      yield* attacker.say(forged, lie)
      yield* attacker.say(new Map(forged).set("sm__em", "given up").set("sm__dt", 6), new Uint8Array(0))
      yield* settle
      assert.lengthOf(got, 0)
      yield* Effect.andThen(TestClock.adjust("1 second"), settle)
      yield* Fiber.join(sending)
      assert.deepStrictEqual(got, [pattern(2500)])

      yield* trainer.cell.handle(chat("slow"), () =>
        Effect.delay(Effect.succeed({ returnCode: "ok", payload: 1 }), 5000)
      )
      const ask = job.cell.request(trainer.cell.fqcn, chat("slow"), undefined, { timeout: "9 seconds", secure: true })
      const asked = yield* Effect.forkScoped(ask, { startImmediately: true })
      yield* settle
      const request = sent.findLast((headers) => headers.get("sm__tp") === "slow")
      const reply = new Map(stream)
        .set("sm__ch", "return_only")
        .set("sm__tp", "chat:slow")
        .set("sm__dt", 2)
        .set("sm__id", 9)
      reply.delete("cn__encrypted")
      reply.set("sm__ri", request?.get("sm__ri")).set("sm__pe", "bytes").set("sm__sz", lie.byteLength)
      yield* attacker.say(reply.set("cn__return_code", "ok"), lie)
      yield* settle
      assert.isUndefined(asked.pollUnsafe())
      yield* Effect.andThen(TestClock.adjust("5 seconds"), settle)
      assert.strictEqual((yield* Fiber.join(asked)).payload, 1)

      const plain = job.cell.request(trainer.cell.fqcn, chat("slow"), undefined, {
        timeout: "9 seconds",
        mode: "plain",
        secure: true
      })
      const waiting = yield* Effect.forkScoped(plain, { startImmediately: true })
      yield* settle
      const question = sent.findLast((headers) => headers.get("cn__topic") === "slow")
      const answer = new Map<string, unknown>([
        ["cn__origin", trainer.cell.fqcn],
        ["cn__destination", "site-1"],
        ["cn__msg_type", "reply"],
        ["cn__req_id", question?.get("cn__req_id")],
        ["cn__return_code", "ok"],
        ["cn__payload_encoding", "bytes"],
        ["cn__secure", true]
      ])
      yield* attacker.say(answer, lie)
      yield* settle
      assert.isUndefined(waiting.pollUnsafe())
      yield* Effect.andThen(TestClock.adjust("5 seconds"), settle)
      assert.strictEqual((yield* Fiber.join(waiting)).payload, 1)
    })
  )

  it.effect("what a cell sends to itself is not sealed, and answered", () =>
    Effect.gen(function* () {
      yield* toToday
      const { cell } = yield* makeWorld()
      const one = yield* cell(secureCell("site-1"))
      yield* one.cell.handle(chat("x"), echo)
      for (const mode of ["plain", "stream"] as const) {
        const reply = yield* one.cell.request("site-1", chat("x"), 5, { timeout: "1 second", mode, secure: true })
        assert.strictEqual(reply.payload, 5)
      }
    })
  )

  it.effect("own certificates are checked as peers will", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(today)
      for (const [folder, kind] of [
        ["expired", "validity"],
        ["foreign", "chain"],
        ["ec", "key"]
      ] as const) {
        const own = credentialsOf("site-1", folder).current()
        const error = yield* Effect.flip(CellCredentials.make(own))
        assert.strictEqual(error.kind, kind)
      }
      yield* settle
      assert.strictEqual((yield* CellCredentials.make(credentialsOf("site-1").current())).checked.commonName, "site-1")
    })
  )
})
