import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Exit, Fiber, Layer, Scope, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import { TestClock } from "effect/testing"
import { makeEngine } from "../../src/cell/internal/CellEngine.ts"
import { type Driver, Drivers } from "../../src/transport/Drivers.ts"
import * as Frame from "../../src/transport/Frame.ts"
import { BadConfig, NotReady, TransportError } from "../../src/transport/TransportError.ts"
import { type Heard, puppet } from "./puppet.ts"
import { chat, echo, makeFamily, makeWorld, settle, until } from "./support.ts"

const url = "memory://site-1"

/** Every change of `connected`, from the present value on. */
const changesOf = Effect.fnUntraced(function* (connected: Stream.Stream<boolean>) {
  const seen: Array<boolean> = []
  yield* Effect.forkScoped(
    Stream.runForEach(connected, (up) => Effect.sync(() => void seen.push(up))),
    { startImmediately: true }
  )
  return seen
})

const frameTypes = (seen: Array<number>) => ({
  faults: {
    onFrame: ({ bytes }: { readonly bytes: Uint8Array }) => {
      seen.push(bytes[6] ?? 0)
      return Effect.succeed("deliver" as const)
    }
  }
})

describe("a bye", () => {
  it.effect("is not passed on: no child cuts another off from the cell between them", () =>
    Effect.gen(function* () {
      const { job, parent, trainer } = yield* makeFamily()
      const bye = { channel: "cellnet.channel", topic: "bye" }
      const heard: Array<string> = []
      yield* trainer.cell.guard(({ address }) => {
        heard.push(address.topic)
        return "pass"
      })
      yield* trainer.cell.handle(chat("echo"), echo)
      const target = trainer.cell.fqcn
      const said = yield* Effect.forkChild(
        Effect.exit(job.cell.request(target, bye, null, { timeout: "1 second", mode: "plain" }))
      )
      yield* TestClock.adjust("2 seconds")
      assert.isTrue(Exit.isFailure(yield* Fiber.join(said)))
      const reply = yield* job.cell.request(target, chat("echo"), "still here", { timeout: "1 second", mode: "plain" })
      assert.strictEqual(reply.payload, "still here")
      assert.deepStrictEqual(heard, ["echo"])
      assert.lengthOf(yield* parent.cell.peers, 2)
    })
  )
})

describe("connecting", () => {
  it.effect("takes one HELLO and one READY a connection, and nothing else", () =>
    Effect.gen(function* () {
      const seen: Array<number> = []
      yield* makeFamily({ network: frameTypes(seen) })
      yield* TestClock.adjust("1 second")
      const { hello, ready } = Frame.types
      assert.deepStrictEqual(seen, [hello, ready, hello, ready])
    })
  )

  it.effect("connected: the present value first, then each change; a bye is one", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld()
      const parent = yield* world.cell({ fqcn: "site-1" })
      const seen = yield* changesOf(parent.cell.connected("site-1.job"))
      yield* Scope.provide(parent.cell.listen(url), parent.scope)
      for (const _ of [1, 2]) {
        const job = yield* world.cell({ fqcn: "site-1.job" })
        yield* Scope.provide(job.cell.connect(url), job.scope)
        yield* until(parent.cell, "site-1.job")
        yield* job.stop
        yield* until(parent.cell, "site-1.job", false)
      }
      yield* settle
      assert.deepStrictEqual(seen, [false, true, false, true, false])
    })
  )

  it.effect("a second connection of a name evicts the first, without a change", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld()
      const parent = yield* world.cell({ fqcn: "site-1" })
      yield* Scope.provide(parent.cell.listen(url), parent.scope)
      const heard: ReadonlyArray<Array<Heard>> = [[], []]
      yield* puppet(yield* world.driver.connect(url), "site-1.job", heard[0] ?? [], true)
      yield* until(parent.cell, "site-1.job")
      const seen = yield* changesOf(parent.cell.connected("site-1.job"))
      const second = yield* world.driver.connect(url)
      yield* puppet(second, "site-1.job", heard[1] ?? [], true)
      yield* settle
      yield* parent.cell.send("site-1.job", { channel: "client_command", topic: "x" }, 1)
      yield* settle
      assert.deepStrictEqual(
        heard.map((frames) => frames.length),
        [0, 1]
      )
      assert.deepStrictEqual(seen, [true])
    })
  )

  it.effect("a client that says nothing stalls nobody", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld()
      const parent = yield* world.cell({ fqcn: "site-1" })
      yield* parent.cell.handle(chat("echo"), echo)
      yield* Scope.provide(parent.cell.listen(url), parent.scope)
      yield* world.driver.connect(url)
      const job = yield* world.cell({ fqcn: "site-1.job" })
      yield* Scope.provide(job.cell.connect(url), job.scope)
      yield* until(job.cell, "site-1")
      const reply = yield* job.cell.request("site-1", chat("echo"), 1, { timeout: "1 second" })
      assert.strictEqual(reply.payload, 1)
    })
  )

  it.effect("a listener's scope ends the connections it took, with a bye", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld()
      const parent = yield* world.cell({ fqcn: "site-1" })
      const listening = yield* Scope.make()
      yield* Scope.provide(parent.cell.listen(url), listening)
      const heard: Array<Heard> = []
      const job = yield* puppet(yield* world.driver.connect(url), "site-1.job", heard, true)
      yield* until(parent.cell, "site-1.job")
      const closing = yield* Effect.forkChild(Scope.close(listening, Exit.void))
      yield* settle
      assert.strictEqual(heard[0]?.headers.get("cn__topic")?.value, "bye")
      yield* until(parent.cell, "site-1.job").pipe(Effect.timeoutOption("499 millis"), Effect.forkChild)
      yield* TestClock.adjust("499 millis")
      assert.isUndefined(closing.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      yield* Fiber.join(closing)
      assert.isTrue(yield* Effect.isFailure(job.say(new Map(), new Uint8Array(0))))
    })
  )
})

/** A driver whose dials end as told, and that notes when they were made. */
const scripted = (
  outcome: (attempt: number) => Effect.Effect<never, TransportError>
): { readonly driver: Driver; readonly dials: Array<number> } => {
  const dials: Array<number> = []
  const driver: Driver = {
    schemes: ["memory"],
    connect: () =>
      Effect.gen(function* () {
        dials.push(yield* Clock.currentTimeMillis)
        return yield* outcome(dials.length)
      }),
    listen: () => Effect.never
  }
  return { driver, dials }
}

const notReady = new TransportError({ reason: new NotReady({ target: url, message: "not there" }) })

const engineOn = (driver: Driver) =>
  makeEngine({ fqcn: "site-1.job" }).pipe(
    Effect.provide(
      Layer.merge(
        Layer.succeed(Drivers, Drivers.of({ forUrl: () => Effect.succeed(driver) })),
        SecureRandom.layerWebCrypto
      )
    )
  )

describe("dialing again", () => {
  it.effect("after 1, 2, 4, 8, 10, 10 s, a fifth more or less; at once when told", () =>
    Effect.gen(function* () {
      const { dials, driver } = scripted(() => Effect.fail(notReady))
      const engine = yield* engineOn(driver)
      yield* engine.cell.connect(url)
      yield* TestClock.adjust("50 seconds")
      const waits = dials.slice(1).map((time, index) => (time - (dials[index] ?? 0)) / 1000)
      for (const [index, seconds] of [1, 2, 4, 8, 10, 10].entries()) {
        const wait = waits[index] ?? 0
        assert.isTrue(wait >= 0.8 * seconds && wait <= 1.2 * seconds, `wait ${index}: ${wait}`)
      }
      const before = dials.length
      yield* engine.core.links.redial
      yield* settle
      assert.strictEqual(dials.length, before + 1)
    })
  )

  it.effect("from the start after a connection of more than 10 s; not after a shorter one", () =>
    Effect.gen(function* () {
      for (const [lasting, wait] of [
        [9_500, 2],
        [10_100, 1]
      ] as const) {
        const world = yield* makeWorld()
        const dials: Array<number> = []
        const driver: Driver = {
          ...world.driver,
          connect: (url) =>
            Effect.andThen(
              Effect.flatMap(Clock.currentTimeMillis, (now) => Effect.sync(() => void dials.push(now))),
              world.driver.connect(url)
            )
        }
        const parent = yield* world.cell({ fqcn: "site-1" })
        const listen = Effect.tap(Scope.make(), (scope) => Scope.provide(parent.cell.listen(url), scope))
        let listening = yield* listen
        const engine = yield* engineOn(driver)
        yield* engine.cell.connect(url)
        for (const expected of [1, wait]) {
          yield* until(engine.cell, "site-1")
          yield* TestClock.adjust(lasting)
          yield* Scope.close(listening, Exit.void)
          listening = yield* listen
          const lostAt = yield* Clock.currentTimeMillis
          dials.length = 0
          yield* settle
          yield* TestClock.adjust(1200 * expected)
          const waited = ((dials[0] ?? 0) - lostAt) / 1000
          assert.isTrue(waited >= 0.8 * expected && waited <= 1.2 * expected, `${lasting}: ${waited}, not ${expected}`)
        }
      }
    })
  )

  it.effect("a URL that its driver refuses fails at once", () =>
    Effect.gen(function* () {
      const refused = new TransportError({ reason: new BadConfig({ setting: "port", message: "no port" }) })
      const { driver } = scripted(() => Effect.fail(refused))
      const engine = yield* engineOn(driver)
      const error = yield* Effect.flip(engine.cell.connect(url))
      assert.deepStrictEqual([error.reason._tag, error.message], ["CellMisconfigured", "no port"])
    })
  )
})

describe("stopping", () => {
  it.effect("waits for an answer to its bye no longer than 0.5 s", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld()
      const job = yield* world.cell({ fqcn: "site-1.job" })
      const listener = yield* world.driver.listen(url)
      yield* Scope.provide(job.cell.connect(url), job.scope)
      const heard: Array<Heard> = []
      yield* puppet(yield* listener.accept, "site-1", heard, false)
      yield* until(job.cell, "site-1")
      // Closed by the interruption of the fiber that it belongs to, as when a program is told to stop.
      const fiber = yield* Effect.forkChild(
        Effect.onExit(Effect.never, () => job.stop),
        { startImmediately: true }
      )
      const stopping = yield* Effect.forkChild(Fiber.interrupt(fiber))
      yield* TestClock.adjust("499 millis")
      assert.strictEqual(heard[0]?.headers.get("cn__topic")?.value, "bye")
      assert.isUndefined(stopping.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.isDefined(stopping.pollUnsafe())
    })
  )

  it.effect("waits no more for a peer that is gone", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld()
      const job = yield* world.cell({ fqcn: "site-1.job" })
      const listener = yield* world.driver.listen(url)
      yield* Scope.provide(job.cell.connect(url), job.scope)
      const peer = yield* Scope.make()
      yield* Scope.provide(
        Effect.flatMap(listener.accept, (link) => puppet(link, "site-1", [], false)),
        peer
      )
      yield* until(job.cell, "site-1")
      const stopping = yield* Effect.forkChild(job.stop, { startImmediately: true })
      yield* TestClock.adjust("100 millis")
      assert.isUndefined(stopping.pollUnsafe())
      yield* Scope.close(peer, Exit.void)
      yield* settle
      assert.isDefined(stopping.pollUnsafe())
    })
  )

  it.effect("two cells that close at the same time need no clock", () =>
    Effect.gen(function* () {
      const { job, parent, trainer } = yield* makeFamily()
      yield* Effect.all([parent.stop, job.stop, trainer.stop], { concurrency: "unbounded" })
    })
  )

  it.effect("handlers end with the cell", () =>
    Effect.gen(function* () {
      const { job, parent } = yield* makeFamily()
      let ended = 0
      yield* parent.cell.handle(chat("never"), () =>
        Effect.onInterrupt(Effect.never, () => Effect.sync(() => void ended++))
      )
      for (const mode of ["plain", "stream"] as const) {
        yield* Effect.forkChild(job.cell.request("site-1", chat("never"), 1, { timeout: "1 hour", mode }))
      }
      yield* settle
      yield* parent.stop
      assert.strictEqual(ended, 2)
    })
  )
})

describe("malformed messages", () => {
  const good = (): Map<string, unknown> =>
    new Map<string, unknown>([
      ["cn__msg_type", "req"],
      ["cn__origin", "site-1.job"],
      ["cn__destination", "site-1"],
      ["cn__channel", "chat"],
      ["cn__topic", "echo"],
      ["cn__req_id", "r-1"],
      ["cn__reply_expected", true]
    ])
  const without = (key: string) => {
    const headers = good()
    headers.delete(key)
    return headers
  }
  const bad: ReadonlyArray<readonly [string, Map<string, unknown>, Uint8Array?]> = [
    ["no type", without("cn__msg_type")],
    ["no origin", without("cn__origin")],
    ["no destination", without("cn__destination")],
    ["a type that is a number", good().set("cn__msg_type", 1)],
    ["a route of texts", good().set("cn__route", ["site-1.job"])],
    ["a route with an empty pair", good().set("cn__route", [[]])],
    ["a route that is a text", good().set("cn__route", "site-1.job")],
    ["undecodable", good().set("cn__payload_encoding", "fobs"), new Uint8Array([100, 0, 0])],
    ["no payload where fobs is said", good().set("cn__payload_encoding", "fobs")],
    ["encrypted", good().set("cn__encrypted", true)],
    ["a reply without an id", good().set("cn__msg_type", "reply").set("cn__req_id", null)],
    ["a reply that nobody waits for", good().set("cn__msg_type", "reply")],
    ["a return without original headers", good().set("cn__msg_type", "return")],
    ["an unknown type", good().set("cn__msg_type", "what")],
    ["no headers", new Map()],
    ["a destination that is no name", good().set("cn__destination", "a..b").set("cn__reply_expected", false)],
    ["an unknown stream topic", good().set("cn__channel", "sm__STREAM").set("cn__topic", "sm__CERT")],
    ["an ACK of nothing", good().set("cn__channel", "sm__STREAM").set("cn__topic", "sm__ACK")],
    ["an ERROR of nothing", good().set("cn__channel", "sm__STREAM").set("cn__topic", "sm__ERROR").set("sm__id", 5)],
    ["DATA without an id", good().set("cn__channel", "sm__STREAM").set("cn__topic", "sm__DATA").set("sm__sq", 0)],
    [
      "DATA with a text for an id",
      good().set("cn__channel", "sm__STREAM").set("cn__topic", "sm__DATA").set("sm__id", "x").set("sm__sq", 0)
    ],
    ["DATA without a sequence", good().set("cn__channel", "sm__STREAM").set("cn__topic", "sm__DATA").set("sm__id", 5)],
    [
      "DATA of a negative sequence",
      good().set("cn__channel", "sm__STREAM").set("cn__topic", "sm__DATA").set("sm__id", 5).set("sm__sq", -1)
    ],
    [
      "a sender's error for an unknown stream",
      good().set("cn__channel", "sm__STREAM").set("cn__topic", "sm__DATA").set("sm__id", 5).set("sm__em", "x")
    ]
  ]

  it.effect("are dropped without an answer, and the connection stays", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld()
      const parent = yield* world.cell({ fqcn: "site-1" })
      yield* parent.cell.handle(chat("echo"), echo)
      yield* Scope.provide(parent.cell.listen(url), parent.scope)
      const heard: Array<Heard> = []
      const peer = yield* puppet(yield* world.driver.connect(url), "site-1.job", heard, true)
      yield* until(parent.cell, "site-1.job")
      for (const [name, headers, payload] of bad) {
        yield* peer.say(headers, payload ?? new Uint8Array(0))
        yield* settle
        assert.strictEqual(heard.length, 0, name)
      }
      // The least that is served (docs/wire/cellnet.md, section 3).
      yield* peer.say(good(), new Uint8Array([1, 2]))
      yield* settle
      assert.deepStrictEqual(
        heard.map(({ headers, payload }) => [
          headers.get("cn__req_id")?.value,
          headers.get("cn__return_code")?.value,
          [...payload]
        ]),
        [["r-1", "ok", [1, 2]]]
      )
    })
  )

  it.effect("a request that can't be forwarded comes back, one with an id of another kind too", () =>
    Effect.gen(function* () {
      const world = yield* makeWorld()
      const parent = yield* world.cell({ fqcn: "site-1" })
      yield* Scope.provide(parent.cell.listen(url), parent.scope)
      const heard: Array<Heard> = []
      const peer = yield* puppet(yield* world.driver.connect(url), "site-1.job", heard, true)
      yield* until(parent.cell, "site-1.job")
      const loop = [["site-1.job", 1.5]]
      const cases: ReadonlyArray<Map<string, unknown>> = [
        good().set("cn__destination", "site-1.absent"),
        good().set("cn__destination", "site-1.absent").set("cn__req_id", ["r-1", "r-2"]),
        good().set("cn__destination", "site-1.job.x").set("cn__route", loop),
        good().set("cn__destination", "site-1.job").set("cn__server_transit_required", true)
      ]
      for (const headers of cases) {
        yield* peer.say(headers, new Uint8Array(0))
      }
      yield* settle
      assert.deepStrictEqual(
        heard.map(({ headers }) => [headers.get("cn__msg_type")?.value, headers.get("cn__req_id")?.value]),
        [
          ["return", ["r-1"]],
          ["return", ["r-1", "r-2"]],
          ["return", ["r-1"]],
          ["return", ["r-1"]]
        ]
      )
    })
  )
})
