/**
 * Attackers beside a live session: a service's cell and a trainer's, both secure and guarded, below a client parent that,
 * as the reference's, lets anybody speak in any cell's name. Numbers are those of the threat table,
 * docs/wire/security.md, section 8.
 */
import { createPrivateKey, randomBytes } from "node:crypto"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Metric, Result, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as AttachGuard from "../../src/attach/AttachGuard.ts"
import type { Address, CellOptions } from "../../src/cell/Cell.ts"
import { concat } from "../../src/cell/CellMessage.ts"
import * as MessageCipher from "../../src/cell/MessageCipher.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import * as TrainerGuard from "../../src/trainer/TrainerGuard.ts"
import * as Frame from "../../src/transport/Frame.ts"
import type { FrameInfo } from "../../src/transport/MemoryDriver.ts"
import { type Heard, puppet } from "../cell/puppet.ts"
import { certificateOf, credentialsOf, pki, secureCell, toToday, watchedCodec } from "../cell/secure.ts"
import { makeWorld, settle, until } from "../cell/support.ts"

const cp = "site-1"
const cj = "site-1.job"
const trainerName = "site-1.-client_api_t"
const evil = "site-1.-client_api_evil"
const { Topic } = ClientApi
const download = { channel: "download_service__", topic: "download_service__download" }

interface Captured {
  readonly headers: Map<string, unknown>
  readonly payload: Uint8Array
}

const bytesOf = (value: unknown) => concat(Result.getOrThrow(ModelCodec.codec.encode(value)))
const poison = bytesOf(new Map([["attacker", "was here"]]))

const plain = (origin: string, destination: string, { channel, topic }: Address, more: object = {}) =>
  new Map<string, unknown>([
    ["cn__origin", origin],
    ["cn__destination", destination],
    ["cn__from", evil],
    ["cn__to", cp],
    ["cn__msg_type", "req"],
    ["cn__channel", channel],
    ["cn__topic", topic],
    ["cn__req_id", "forged"],
    ["cn__reply_expected", true],
    ["cn__payload_encoding", "fobs"],
    ["cn__secure", false],
    ...Object.entries(more)
  ])

const streamed = (origin: string, destination: string, { channel, topic }: Address, more: object = {}) =>
  plain(
    origin,
    destination,
    { channel: "sm__STREAM", topic: "sm__DATA" },
    {
      cn__reply_expected: false,
      cn__payload_encoding: "bytes",
      sm__ch: channel,
      sm__tp: topic,
      sm__id: 4711,
      sm__dt: 2,
      sm__sq: 0,
      sm__os: 0,
      sm__sz: 0,
      sm__pe: "fobs",
      sm__ri: "forged",
      ...more
    }
  )

/** Marks that don't make a message protected, though the reference's guards take some of them for it. */
const marks: ReadonlyArray<object> = [
  {},
  { cn__secure: true },
  { cn__encrypted: true },
  { cn__secure: 1, cn__encrypted: 1 },
  { cn__secure: "yes", cn__encrypted: "yes" },
  { cn__secure: true, cn__encrypted: 1, cn__clear_payload_len: poison.byteLength }
]

const makeScene = Effect.fnUntraced(function* (
  options: {
    readonly parent?: Partial<CellOptions>
    readonly job?: Partial<CellOptions>
    readonly boundCj?: string
  } = {}
) {
  yield* toToday
  const frames: Array<FrameInfo> = []
  const world = yield* makeWorld({
    faults: {
      onFrame: (frame) =>
        Effect.sync(() => {
          // A copy: who receives a frame may use its memory again.
          frames.push({ ...frame, bytes: frame.bytes.slice() })
          return "deliver" as const
        })
    }
  })
  const codecs = { job: watchedCodec(), trainer: watchedCodec() }
  const parent = yield* world.cell({ fqcn: cp, byeTimeout: 0, bindOrigins: false, ...options.parent })
  const job = yield* world.cell(secureCell(cj, { codec: codecs.job, ...options.job }))
  const trainer = yield* world.cell(secureCell(trainerName, { codec: codecs.trainer }))
  yield* AttachGuard.claim(job.cell, { cjFqcn: cj, trainerFqcn: trainerName })
  const boundCj = "boundCj" in options ? options.boundCj : cj
  yield* trainer.cell.guard(TrainerGuard.rule({ cpFqcn: cp, secure: true, boundCj: () => boundCj }))
  const served: Array<string> = []
  const serve = (name: string, address: Address, cell: typeof job.cell) =>
    cell.handle(address, ({ payload }) =>
      Effect.sync(() => {
        served.push(name)
        return { returnCode: "ok", payload }
      })
    )
  yield* serve("result", Topic.resultReady, job.cell)
  yield* serve("task", Topic.taskReady, trainer.cell)
  yield* serve("open", Topic.sessionOpen, trainer.cell)
  yield* Scope.provide(parent.cell.listen("memory://site-1"), parent.scope)
  for (const child of [job, trainer]) {
    yield* Scope.provide(child.cell.connect("memory://site-1"), child.scope)
    yield* until(parent.cell, child.cell.fqcn)
    yield* until(child.cell, cp)
  }
  const heard: Array<Heard> = []
  const attacker = yield* puppet(yield* world.driver.connect("memory://site-1"), evil, heard, true)
  yield* until(parent.cell, evil)

  let round = 0
  /** A task and its result, as a session has them. */
  const work = Effect.gen(function* () {
    round += 1
    const body = new Map([["round", round]])
    const secure = { timeout: "10 seconds", secure: true } as const
    const task = yield* job.cell.request(trainerName, Topic.taskReady, body, secure)
    assert.deepStrictEqual(task.payload, body)
    const result = yield* trainer.cell.request(cj, Topic.resultReady, body, secure)
    assert.deepStrictEqual(result.payload, body)
  })

  /** Nothing of the attack is decoded or served, no connection is lost, and the session goes on. */
  const harmless = Effect.fnUntraced(function* (attack: Effect.Effect<unknown, unknown>) {
    yield* work
    const before = { job: codecs.job.seen.length, trainer: codecs.trainer.seen.length, served: served.length }
    const links = new Set(frames.map(({ link }) => link)).size
    yield* Effect.orDie(attack)
    yield* settle
    const after = { job: codecs.job.seen.length, trainer: codecs.trainer.seen.length, served: served.length }
    assert.deepStrictEqual(after, before, "decoded or served")
    yield* work
    yield* settle
    assert.strictEqual(new Set(frames.map(({ link }) => link)).size, links, "connections")
  })

  const captured = (): ReadonlyArray<Captured> =>
    frames.flatMap(({ bytes }) => {
      const frame = Frame.decode(bytes)
      return Result.isSuccess(frame) && frame.success.headers !== undefined
        ? [{ headers: new Map(frame.success.headers), payload: frame.success.payload }]
        : []
    })
  /** Protected messages that went from one cell to another. */
  const envelopes = (origin: string, destination: string) =>
    captured().filter(
      ({ headers }) =>
        headers.get("cn__encrypted") === true &&
        headers.get("cn__origin") === origin &&
        headers.get("cn__destination") === destination
    )
  return { ...world, parent, job, trainer, attacker, heard, work, harmless, envelopes, captured, served, codecs }
})

const refusals = (reason: string) =>
  Effect.map(Metric.snapshot, (all) =>
    all
      .filter(({ attributes, id }) => id === "fl_attach_cell_refusals" && attributes?.reason === reason)
      .reduce((sum, { state }) => sum + ("count" in state ? Number(state.count) : 0), 0)
  )

/** Five seconds, in which a slow answer is given. */
const pass = TestClock.adjust("5 seconds")

const secureTo = { service: cj, trainer: trainerName } as const

describe("attackers who can reach the client parent", () => {
  for (const [who, target] of Object.entries(secureTo)) {
    const [origin, topic] = who === "service" ? [trainerName, Topic.resultReady] : [cj, Topic.taskReady]
    it.effect(`8, 10, 17: clear messages to the ${who} in its partner's name`, () =>
      Effect.gen(function* () {
        const { attacker, harmless } = yield* makeScene()
        const before = yield* refusals("not protected")
        for (const mark of marks) {
          for (const address of [topic, download]) {
            yield* harmless(
              Effect.gen(function* () {
                yield* attacker.say(plain(origin, target, address, mark), poison)
                yield* attacker.say(streamed(origin, target, address, mark), poison)
              })
            )
          }
        }
        // By the guard, each of them: none was lost elsewhere.
        assert.strictEqual((yield* refusals("not protected")) - before, marks.length * 2 * 2)
      })
    )

    it.effect(`10: envelopes for the ${who} by who knows public certificates only`, () =>
      Effect.gen(function* () {
        const { attacker, harmless } = yield* makeScene()
        const cipher = yield* MessageCipher.MessageCipher
        const { publicKey } = certificateOf("site-1").checked
        const content = yield* Effect.fromResult(MessageCipher.wrap(randomBytes(32), publicKey))
        const bad = yield* refusals("signature")
        for (const folder of ["foreign", "site-2", "expired"]) {
          const key = createPrivateKey(readFileSync(join(pki, folder, "client.key")))
          const envelope = concat((yield* cipher.seal(key, content, randomBytes(12), [poison])).pieces)
          const mark = { cn__secure: true, cn__encrypted: true, cn__clear_payload_len: poison.byteLength }
          yield* harmless(attacker.say(plain(origin, target, topic, mark), envelope))
          yield* harmless(attacker.say(streamed(origin, target, topic, mark), envelope))
          yield* harmless(attacker.say(streamed(origin, target, topic, mark), randomBytes(700)))
          yield* harmless(attacker.say(streamed(origin, target, topic, mark), new Uint8Array(0)))
        }
        assert.strictEqual((yield* refusals("signature")) - bad, 6)
      })
    )

    it.effect(`3: what the ${who} has taken is not taken again, under whatever headers`, () =>
      Effect.gen(function* () {
        const { attacker, envelopes, harmless, work } = yield* makeScene()
        yield* work
        const repeats = yield* refusals("repeat")
        const all = envelopes(origin, target)
        assert.isAtLeast(all.length, 2)
        for (const { headers, payload } of all) {
          yield* harmless(
            Effect.gen(function* () {
              yield* attacker.say(headers, payload)
              yield* attacker.say(new Map(headers).set("sm__id", 99).set("sm__ri", "other"), payload)
              yield* attacker.say(new Map(headers).set("sm__tp", Topic.log.topic), payload)
            })
          )
        }
        assert.strictEqual((yield* refusals("repeat")) - repeats, 3 * all.length)
      })
    )

    it.effect(`2: altered envelopes on their way to the ${who}`, () =>
      Effect.gen(function* () {
        const { attacker, envelopes, harmless, work } = yield* makeScene()
        yield* work
        const [first] = envelopes(origin, target)
        const { headers, payload } = first ?? assert.fail("no envelope")
        for (const at of [0, 1, 12, 13, 268, 269, 524, 525, payload.byteLength - 17, payload.byteLength - 1]) {
          const altered = payload.slice()
          altered[at] = (altered[at] ?? 0) ^ 1
          const again = new Map(headers).set("sm__id", 1000 + at)
          yield* harmless(attacker.say(again, altered))
        }
        for (const size of [0, 540, payload.byteLength - 1]) {
          yield* harmless(attacker.say(new Map(headers).set("sm__id", 5000 + size), payload.slice(0, size)))
        }
      })
    )

    it.effect(`4: the ${who}'s own envelopes, sent back to it in its partner's name`, () =>
      Effect.gen(function* () {
        const { attacker, envelopes, harmless, work } = yield* makeScene()
        yield* work
        const reflections = yield* refusals("reflection")
        const own = envelopes(target, origin)
        assert.isAtLeast(own.length, 2)
        for (const { headers, payload } of own) {
          const turned = new Map(headers).set("cn__origin", origin).set("cn__destination", target).set("sm__id", 77)
          yield* harmless(attacker.say(turned.set("sm__tp", topic.topic).set("sm__ch", topic.channel), payload))
        }
        assert.strictEqual((yield* refusals("reflection")) - reflections, own.length)
      })
    )

    it.effect(`11, 12: bad and foreign certificates shown to the ${who} in its partner's name, and a bye`, () =>
      Effect.gen(function* () {
        const { attacker, harmless, heard } = yield* makeScene()
        const exchange = { channel: "credential_manager", topic: "key_exchange" }
        const show = (content: unknown) =>
          attacker.say(plain(origin, target, exchange), bytesOf(new Map([["cert_content", content]])))
        const folders = ["foreign", "foreign-full", "site-2", "expired", "notyet", "ec", "rsa1024", "rsa3072", "no-cn"]
        for (const folder of folders) yield* harmless(show(new Uint8Array(certificateOf(folder).certificate)))
        // Somebody else's good certificate, of the same site: public, and with the right name.
        yield* harmless(show(new Uint8Array(certificateOf("site-1-listener", "server").certificate)))
        yield* harmless(show("-----BEGIN CERTIFICATE-----"))
        yield* harmless(show(new Uint8Array(0)))
        yield* harmless(attacker.say(plain(origin, target, exchange), new Uint8Array([0xc1, 1, 2])))
        yield* harmless(attacker.say(plain(evil, target, exchange), bytesOf(new Map([["cert_content", 1]]))))
        const bye = { channel: "cellnet.channel", topic: "bye" }
        yield* harmless(attacker.say(plain(evil, target, bye, { cn__payload_encoding: "none" }), new Uint8Array(0)))
        const codes = heard.map(({ headers }) => headers.get("cn__return_code")?.value)
        assert.include(codes, "process_exception")
      })
    )

    it.effect(`19: other channels of the ${who} decode nothing`, () =>
      Effect.gen(function* () {
        const { attacker, codecs, harmless, job, trainer } = yield* makeScene()
        const codec = who === "service" ? codecs.job : codecs.trainer
        // What has a handler is decoded: the attacker's messages do arrive.
        const { cell } = who === "service" ? job : trainer
        yield* cell.handle({ channel: "chat", topic: "x" }, () => Effect.succeed(undefined))
        yield* attacker.say(plain(evil, target, { channel: "chat", topic: "x" }), poison)
        yield* attacker.say(streamed(evil, target, { channel: "chat", topic: "x" }), poison)
        yield* settle
        assert.lengthOf(codec.seen, 2)
        for (const channel of ["aux_communication", "cellnet.channel", "", "credential_manager", "client_apix"]) {
          const address = { channel, topic: "bulk" }
          yield* harmless(attacker.say(plain(evil, target, address), poison))
          yield* harmless(
            attacker.say(streamed(evil, target, address, { sm__id: randomBytes(4).readUInt32LE() }), poison)
          )
        }
      })
    )

    it.effect(`18: clear replies to a secure request of the ${who}`, () =>
      Effect.gen(function* () {
        const { attacker, captured, codecs, job, trainer, work } = yield* makeScene()
        yield* work
        const asking = who === "service" ? job : trainer
        const answering = who === "service" ? trainer : job
        const codec = who === "service" ? codecs.job : codecs.trainer
        const slow = { channel: "client_api", topic: "client_api.slow" }
        yield* answering.cell.handle(slow, ({ payload }) =>
          Effect.delay(Effect.succeed({ returnCode: "ok", payload }), 5000)
        )
        for (const mode of ["stream", "plain"] as const) {
          const body = new Map([["mode", mode]])
          const asked = yield* Effect.forkScoped(
            asking.cell.request(origin, slow, body, { timeout: "10 seconds", mode, secure: true }),
            { startImmediately: true }
          )
          yield* settle
          const requests = captured().filter(
            ({ headers }) => (headers.get("sm__tp") ?? headers.get("cn__topic")) === slow.topic
          )
          const request = requests.at(-1)?.headers ?? assert.fail("no request")
          const decoded = codec.seen.length
          for (const mark of marks) {
            const reply = mode === "plain" ? plain(origin, target, slow, mark) : undefined
            const headers =
              reply?.set("cn__msg_type", "reply").set("cn__req_id", request.get("cn__req_id")) ??
              streamed(origin, target, { channel: "return_only", topic: `client_api:${slow.topic}` }, mark).set(
                "sm__ri",
                request.get("sm__ri")
              )
            yield* attacker.say(headers.set("cn__return_code", "ok"), poison)
            yield* settle
          }
          assert.isUndefined(asked.pollUnsafe())
          assert.strictEqual(codec.seen.length, decoded)
          yield* Effect.andThen(pass, settle)
          assert.deepStrictEqual((yield* Fiber.join(asked)).payload, body)
        }
      })
    )
  }

  it.effect("13: another trainer of the site, with the site's key, to the service; 4: the service's task to it", () =>
    Effect.gen(function* () {
      const { cell, harmless, parent } = yield* makeScene()
      const fqcn = "site-1.-client_api_zz"
      const other = yield* cell({ fqcn, credentials: credentialsOf(fqcn), byeTimeout: 0 })
      yield* Scope.provide(other.cell.connect("memory://site-1"), other.scope)
      yield* until(parent.cell, fqcn)
      yield* until(other.cell, cp)
      const options = { timeout: "1 second", secure: true } as const
      yield* harmless(other.cell.send(cj, Topic.resultReady, new Map([["x", 1]]), options))
      yield* harmless(other.cell.send(trainerName, Topic.taskReady, new Map([["x", 1]]), options))
      yield* harmless(other.cell.send(cj, download, new Map([["x", 1]]), options))
    })
  )

  for (const first of ["task", "result"] as const) {
    it.effect(`11: certificates shown before the cells have met, the first message a ${first}`, () =>
      Effect.gen(function* () {
        const { attacker, codecs, job, trainer, work } = yield* makeScene()
        const exchange = { channel: "credential_manager", topic: "key_exchange" }
        for (const [folder, side] of [
          ["site-1-listener", "server"],
          ["site-1-listener", "client"],
          ["chained", "client"]
        ] as const) {
          const shown = bytesOf(new Map([["cert_content", new Uint8Array(certificateOf(folder, side).certificate)]]))
          yield* attacker.say(plain(trainerName, cj, exchange), shown)
          yield* attacker.say(plain(cj, trainerName, exchange), shown)
        }
        yield* settle
        const secure = { timeout: "10 seconds", secure: true } as const
        if (first === "result") yield* trainer.cell.request(cj, Topic.resultReady, new Map(), secure)
        else yield* job.cell.request(trainerName, Topic.taskReady, new Map(), secure)
        yield* work
        assert.isAtLeast(codecs.job.seen.length, 2)
      })
    )
  }

  it.effect("14: another trainer opens no session", () =>
    Effect.gen(function* () {
      const { cell, parent, served, codecs, trainer } = yield* makeScene({ boundCj: undefined as never })
      const fqcn = "site-1.-client_api_zz"
      const other = yield* cell({ fqcn, credentials: credentialsOf(fqcn), byeTimeout: 0 })
      yield* Scope.provide(other.cell.connect("memory://site-1"), other.scope)
      yield* until(parent.cell, fqcn)
      yield* until(other.cell, cp)
      yield* other.cell.send(trainer.cell.fqcn, Topic.sessionOpen, new Map([["x", 1]]), { secure: true })
      yield* settle
      assert.lengthOf(served, 0)
      assert.lengthOf(codecs.trainer.seen, 0)
    })
  )

  it.effect("9: a parent of ours never seals what it passes on, so that the mark alone is refused", () =>
    Effect.gen(function* () {
      // This parent has the site's key, as the reference's.
      const { attacker, captured, harmless } = yield* makeScene({ parent: { credentials: credentialsOf(cp) } })
      const forged = streamed(trainerName, cj, Topic.resultReady, { cn__secure: true })
      yield* harmless(attacker.say(forged, poison))
      const passed = captured().filter(({ headers }) => headers.get("sm__ri") === "forged")
      assert.isAtLeast(passed.length, 2)
      for (const { headers, payload } of passed) {
        assert.isFalse(headers.has("cn__encrypted"))
        assert.deepEqual(new Uint8Array(payload), new Uint8Array(poison))
      }
    })
  )

  it.effect("8, 9, 20: by default a secure parent passes on nothing that a child says in another's name", () =>
    Effect.gen(function* () {
      const { attacker, captured, codecs, harmless, heard, job, trainer, work } = yield* makeScene({
        parent: { credentials: credentialsOf(cp), bindOrigins: true }
      })
      yield* harmless(attacker.say(streamed(trainerName, cj, Topic.resultReady, { cn__secure: true }), poison))
      // Acknowledgements and errors of streams are never protected.
      const slow = { channel: "client_api", topic: "client_api.slow" }
      yield* trainer.cell.handle(slow, () => Effect.delay(Effect.succeed({ returnCode: "ok" }), 5000))
      const asked = yield* Effect.forkScoped(
        job.cell.request(trainerName, slow, new Map(), { timeout: "10 seconds", secure: true }),
        { startImmediately: true }
      )
      yield* settle
      const request = captured().findLast(({ headers }) => headers.get("sm__tp") === slow.topic)?.headers
      const error = plain(trainerName, cj, { channel: "sm__STREAM", topic: "sm__ERROR" })
      for (const key of ["sm__id", "sm__ch", "sm__tp", "sm__ri"]) error.set(key, request?.get(key))
      yield* attacker.say(error.set("sm__em", "forged").set("sm__dt", 6), new Uint8Array(0))
      yield* Effect.andThen(pass, settle)
      assert.strictEqual((yield* Fiber.join(asked)).returnCode, "ok")
      yield* work
      const others = captured().filter(({ headers }) => headers.get("sm__ri") === "forged")
      assert.lengthOf(others, 1)
      assert.lengthOf(heard, 0)
      assert.isAtLeast(codecs.job.seen.length, 1)
    })
  )

  it.effect("a flood of refusals is counted one by one, and told of now and then", () =>
    Effect.gen(function* () {
      const lines: Array<string> = []
      const logger = Logger.make<unknown, void>(({ logLevel, message }) => {
        if (logLevel === "Warn") lines.push(String(message))
      })
      yield* Effect.gen(function* () {
        const { attacker } = yield* makeScene()
        const before = yield* refusals("not protected")
        for (let i = 0; i < 200; i += 1) yield* attacker.say(plain(trainerName, cj, Topic.resultReady), poison)
        yield* settle
        assert.strictEqual((yield* refusals("not protected")) - before, 200)
      }).pipe(Effect.provide(Layer.mergeAll(Logger.layer([logger]))))
      assert.lengthOf(
        lines.filter((line) => line.includes("not protected")),
        1
      )
    })
  )
})
