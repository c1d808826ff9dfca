import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Layer, Scope, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as AttachRoute from "../../src/attach/AttachRoute.ts"
import { Cell } from "../../src/cell/Cell.ts"
import * as ClientParent from "../../src/parent/ClientParent.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import * as Trainer from "../../src/trainer/Trainer.ts"
import {
  attachTrainer,
  collecting,
  moveUntil,
  moving,
  startParent,
  startService,
  startTrainer,
  task,
  untilChild,
  url,
  valuesOf
} from "./support.ts"

const network = MemoryNetwork.layer()

/** A bare child; `cn` is the name in its certificate. */
const child = Effect.fnUntraced(function* (fqcn: string, cn?: string) {
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  const cell = yield* Scope.provide(Cell.make({ fqcn, byeTimeout: 0 }), scope)
  yield* Scope.provide(cell.connect(url, cn === undefined ? {} : { cn }), scope)
  yield* TestClock.adjust("1 millis")
  return { cell, stop: Scope.close(scope, Exit.void) }
})

const names = (parent: ClientParent.ClientParent["Service"]) =>
  Effect.map(parent.status, ({ children }) => children.map(({ name }) => name))

describe("who may connect", () => {
  it.effect.each([
    ["site-1.job-1", true],
    ["site-1.-client_api_gpu-1", true],
    ["site-1.-client_api_", false],
    ["site-1.-client_api_a~b", false],
    ["site-2.job-1", false],
    ["site-2", false],
    ["server", false],
    ["site-1.job-1.worker", false],
    ["relay.site-1", false]
  ] as const)("by name: %s, %s", ([name, isAdmitted]) =>
    Effect.gen(function* () {
      const parent = yield* startParent()
      const seen = yield* collecting(parent.changes)
      yield* child(name)
      assert.deepStrictEqual(yield* names(parent), isAdmitted ? [name] : [])
      const [first] = seen
      assert.deepInclude(first, { _tag: isAdmitted ? "Connected" : "Refused", name })
      if (first?._tag === "Refused") assert.include(first.why, name)
    }).pipe(Effect.provide(network))
  )

  it.effect.each([
    ["site-1.job-1", "site-1", true],
    ["site-1.-client_api_gpu-1", "site-1", true],
    ["site-1.-client_api_gpu-1", "site-2", false],
    ["site-1.job-1", "job-1", false],
    ["site-1.job-1", "N/A", false]
  ] as const)("by certificate: %s with that of %s, %s", ([name, cn, isAdmitted]) =>
    Effect.gen(function* () {
      const parent = yield* startParent()
      const seen = yield* collecting(parent.changes)
      yield* child(name, cn)
      assert.deepStrictEqual(yield* names(parent), isAdmitted ? [name] : [])
      assert.strictEqual(seen[0]?._tag, isAdmitted ? "Connected" : "Refused")
    }).pipe(Effect.provide(network))
  )

  it.effect("a relay's children are sites with certificates of their own", () =>
    Effect.gen(function* () {
      const relay = yield* startParent({ site: "relay", isRelay: true })
      yield* child("relay.site-1", "site-1")
      yield* child("relay.site-2", "site-1")
      assert.deepStrictEqual(yield* names(relay), ["relay.site-1"])
    }).pipe(Effect.provide(network))
  )

  it.effect("a second connection of a name takes the place of the first, and is told of", () =>
    Effect.gen(function* () {
      const parent = yield* startParent()
      const seen = yield* collecting(parent.changes)
      const first = yield* child("site-1.job-1")
      yield* child("site-1.job-1")
      assert.deepStrictEqual(yield* names(parent), ["site-1.job-1"])
      assert.deepStrictEqual(
        seen.map(({ _tag }) => _tag),
        ["Connected", "Replaced"]
      )
      yield* first.stop
    }).pipe(Effect.provide(network))
  )

  it.effect("says when a child left, and why", () =>
    Effect.gen(function* () {
      const parent = yield* startParent()
      const seen = yield* collecting(parent.changes)
      const job = yield* child("site-1.job-1")
      yield* job.stop
      yield* TestClock.adjust("1 millis")
      assert.deepInclude(seen[1], { _tag: "Disconnected", name: "site-1.job-1", why: "it said bye" })
    }).pipe(Effect.provide(network))
  )
})

describe("opening a parent", () => {
  const refused = (options: Partial<ClientParent.ParentOptions>) =>
    Effect.flip(Effect.scoped(ClientParent.make({ site: "site-1", listeners: [{ url }], ...options })))

  it.effect("needs a name, a listener, URLs that can be used, and ports that are free", () =>
    Effect.gen(function* () {
      assert.deepInclude({ ...(yield* refused({ site: "a..b" })).reason }, { _tag: "ConfigInvalid", setting: "site" })
      assert.deepInclude(
        { ...(yield* refused({ listeners: [] })).reason },
        { _tag: "ConfigInvalid", setting: "listeners" }
      )
      const unknown = yield* refused({ listeners: [{ url: "quic://x:1" }] })
      assert.deepInclude({ ...unknown.reason }, { _tag: "ConfigInvalid", setting: "listeners" })
      yield* startParent()
      assert.deepInclude({ ...(yield* refused({})).reason }, { _tag: "ListenFailed", url })
      assert.deepInclude(
        { ...(yield* refused({ listeners: [{ url: "memory://other" }], upstream: { url: "quic://x:1" } })).reason },
        { _tag: "UpstreamInvalid", url: "quic://x:1" }
      )
    }).pipe(Effect.provide(network))
  )

  it.effect("several listeners, and children of different ones reach each other", () =>
    Effect.gen(function* () {
      const other = "memory://for-trainers"
      const parent = yield* startParent({ listeners: [{ url }, { url: other }] })
      assert.deepStrictEqual(parent.connectUrls, [url, other])
      yield* TestTrainer.start({ attachId: "a", connectUrl: other }, Effect.succeed)
      const { backends } = yield* startService({ job: "job-1", ids: ["a"] })
      const [backend] = backends
      if (backend === undefined) return assert.fail("no backend")
      const result = yield* moving(Effect.flatMap(task(0, [1]), backend.execute).pipe(Effect.flatMap(valuesOf)))
      assert.deepStrictEqual(result, [1])
    }).pipe(Effect.provide(network))
  )

  it.effect("below a relay: what is not below the site goes up, and the relay is dialed until it is there", () =>
    Effect.gen(function* () {
      const up = "memory://relay"
      const site = yield* startParent({ site: "relay.site-1", upstream: { url: up } })
      const seen = yield* collecting(site.changes)
      yield* TestClock.adjust("2 seconds")
      assert.isTrue(seen.some(({ _tag }) => _tag === "UpstreamDown"))
      const relay = yield* startParent({ site: "relay", isRelay: true, listeners: [{ url: up }] })
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual((yield* site.status).upstream?.name, "relay")
      assert.deepStrictEqual(yield* names(relay), ["relay.site-1"])

      const other = yield* startParent({
        site: "relay.site-2",
        listeners: [{ url: "memory://site-2" }],
        upstream: { url: up }
      })
      yield* TestClock.adjust("1 second")
      const [a, b] = [yield* Cell.make({ fqcn: "relay.site-1.job" }), yield* Cell.make({ fqcn: "relay.site-2.job" })]
      yield* a.connect(url)
      yield* b.connect("memory://site-2")
      yield* b.handle({ channel: "chat", topic: "who" }, () => Effect.succeed({ returnCode: "ok", payload: b.fqcn }))
      yield* untilChild(other, b.fqcn)
      yield* untilChild(site, a.fqcn)
      const reply = yield* moving(a.request(b.fqcn, { channel: "chat", topic: "who" }, null, { timeout: "5 seconds" }))
      assert.strictEqual(reply.payload, b.fqcn)
    }).pipe(Effect.provide(network))
  )
})

describe("a service's way through a parent", () => {
  const route = (fqcn: string, options: Partial<AttachRoute.ClientParentOptions> = {}) =>
    Layer.build(
      AttachRoute.layerClientParent({ url, ...options }).pipe(Layer.provideMerge(Cell.layer({ fqcn, byeTimeout: 0 })))
    )

  it.effect("another site's parent, nobody there, a URL that can't be used: each its own error", () =>
    Effect.gen(function* () {
      const absent = yield* Effect.forkChild(Effect.flip(route("site-1.job-1", { connectTimeout: "7 seconds" })))
      yield* TestClock.adjust("6999 millis")
      assert.isUndefined(absent.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      const error = yield* Fiber.join(absent)
      assert.deepInclude({ ...error.reason }, { _tag: "RouteFailed", kind: "NotReady" })
      assert.include(error.message, "connectTimeout): nobody listens at memory://site-1")

      yield* startParent()
      const wrong = yield* Effect.flip(route("site-2.job-1"))
      assert.deepInclude({ ...wrong.reason }, { _tag: "RouteFailed", kind: "WrongParent" })
      assert.include(wrong.message, "is the client parent site-1, but this service is site-2.job-1")

      const unusable = yield* Effect.flip(route("site-1.job-1", { url: "nothing://x" }))
      assert.deepInclude({ ...unusable.reason }, { _tag: "RouteFailed", kind: "CellMisconfigured" })
    }).pipe(Effect.provide(network))
  )

  it.effect("one backend a trainer on a cell; a closed one lets go of the name", () =>
    Effect.gen(function* () {
      yield* startParent()
      const twice = yield* Effect.flip(startService({ job: "job-1", ids: ["a", "a"] }))
      assert.include(twice.message, 'attach id "a" is in use on this cell already')
      yield* startService({ job: "job-1", ids: ["a"] })
    }).pipe(Effect.provide(network))
  )

  it.effect("a trainer of another site is told so at once", () =>
    Effect.gen(function* () {
      yield* startParent()
      const error = yield* Effect.flip(
        Trainer.attach(TestTrainer.profile({ attachId: "a", siteName: "site-2", connectUrl: url }))
      )
      assert.deepInclude({ ...error.reason }, { _tag: "RouteFailed", kind: "WrongParent" })
      assert.include(error.message, "memory://site-1 is the cell site-1")
    }).pipe(Effect.provide(network))
  )

  it.effect("a trainer whom no service wants says what to check, and one without a parent why", () =>
    Effect.gen(function* () {
      const waiting = (limit: string) =>
        Effect.flip(
          Trainer.attach(TestTrainer.profile({ attachId: "b", connectUrl: url, jobWaitTimeout: limit as "1 second" }))
        )
      const alone = yield* moving(waiting("3 seconds"))
      assert.include(alone.message, "nobody listens at memory://site-1")
      yield* startParent()
      yield* startService({ job: "job-1", ids: ["a"] })
      const unwanted = yield* moving(waiting("3 seconds"))
      assert.include(unwanted.message, "check that a service waits for this attach id")
    }).pipe(Effect.provide(network))
  )
})

describe("the trainer's life, seen through a parent", () => {
  it.effect("heartbeats keep the session, not a connection: it is lost by silence alone", () =>
    Effect.gen(function* () {
      yield* startParent()
      const scope = yield* Scope.make()
      yield* Effect.forkChild(Scope.provide(attachTrainer("a"), scope))
      const { backends, cell } = yield* startService({ job: "job-1", ids: ["a"] })
      const [backend] = backends
      if (backend === undefined) return assert.fail("no backend")
      yield* TestClock.adjust("10 minutes")
      assert.strictEqual((yield* backend.session)._tag, "Ready")
      const isSeen = yield* Stream.runHead(cell.connected("site-1.-client_api_a"))
      assert.deepStrictEqual(isSeen, yield* Stream.runHead(Stream.succeed(false)))
      yield* moving(Scope.close(scope, Exit.void))
      // heartbeatTimeout is 30 seconds, and the last heartbeat is at most 5 seconds old.
      yield* TestClock.adjust("24 seconds")
      assert.strictEqual((yield* backend.session)._tag, "Ready")
      yield* TestClock.adjust("7 seconds")
      assert.strictEqual((yield* backend.session)._tag, "Failed")
    }).pipe(Effect.provide(network))
  )

  it.effect("a service closes in time though its parent is gone", () =>
    Effect.gen(function* () {
      const parent = yield* startParent()
      const trainer = yield* startTrainer("a", 1)
      const scope = yield* Scope.make()
      const { backends } = yield* Scope.provide(startService({ job: "job-1", ids: ["a"] }), scope)
      const [backend] = backends
      if (backend === undefined) return assert.fail("no backend")
      yield* moving(Effect.flatMap(task(0, [1]), backend.execute))
      yield* parent.stop
      yield* Scope.close(scope, Exit.void)
      // The trainer's lease ends, too.
      yield* Effect.exit(moveUntil(trainer, 120))
    }).pipe(Effect.provide(network))
  )
})
