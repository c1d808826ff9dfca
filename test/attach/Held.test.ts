/** What a backend holds of its cell and its route, counted: nothing is left when its layer is released. */
import { chmodSync, mkdtempSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, References, Scope } from "effect"
import { AttachBackend } from "../../src/attach/AttachBackend.ts"
import * as AttachRoute from "../../src/attach/AttachRoute.ts"
import * as Cell from "../../src/cell/Cell.ts"
import * as CellCredentials from "../../src/cell/CellCredentials.ts"
import { rulesOf } from "../../src/identity/CertificateIdentity.ts"
import { inFolder } from "../../src/identity/Credentials.ts"
import * as ClientParent from "../../src/parent/ClientParent.ts"
import { FileLock } from "../../src/platform/FileLock.ts"
import { PrivateFiles } from "../../src/platform/PrivateFiles.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import { Drivers } from "../../src/transport/Drivers.ts"
import * as SharedFileDriver from "../../src/transport/SharedFileDriver.ts"
import { pki } from "../cell/secure.ts"

const cj = "site-1.job-1"

/** How many of each are held of a cell now. */
interface Held {
  handlers: number
  rules: number
  listeners: number
  connectors: number
}

/** The same cell, with what is held of it counted. */
const counting = (cell: Cell.Cell["Service"]) => {
  const held: Held = { handlers: 0, rules: 0, listeners: 0, connectors: 0 }
  const hold =
    (what: keyof Held) =>
    <A, E, R>(acquire: Effect.Effect<A, E, R>) =>
      Effect.andThen(
        acquire,
        (value): Effect.Effect<A, never, Scope.Scope> =>
          Effect.acquireRelease(
            Effect.sync(() => {
              held[what] += 1
              return value
            }),
            () =>
              Effect.sync(() => {
                held[what] -= 1
              })
          )
      )
  const counted = Cell.Cell.of({
    ...cell,
    handle: (...args) => hold("handlers")(cell.handle(...args)),
    guard: (rule) => hold("rules")(cell.guard(rule)),
    listen: (...args) => hold("listeners")(cell.listen(...args)),
    connect: (...args) => hold("connectors")(cell.connect(...args))
  })
  return { counted, held }
}

class Counter extends Context.Service<Counter, Held>()("test/attach/Counter") {}

const layerCounting = <E, R>(cell: Effect.Effect<Cell.Cell["Service"], E, R>) =>
  Layer.unwrap(
    Effect.map(cell, (made) => {
      const { counted, held } = counting(made)
      return Layer.merge(Layer.succeed(Cell.Cell, counted), Layer.succeed(Counter, held))
    })
  )

/**
 * Opens three backends one after the other and closes them in another order, then closes the route: after each step the
 * cell holds what it held before, and `each` backend's part.
 */
const countAll = Effect.fnUntraced(
  function* <E, R>(
    layer: Layer.Layer<Cell.Cell | AttachRoute.AttachRoute | Counter, E, R>,
    ofRoute: Partial<Held>,
    ofEach: Partial<Held>,
    check: (backends: number) => Effect.Effect<void> = () => Effect.void
  ) {
    const place = yield* Scope.make()
    const services = yield* Layer.buildWithScope(layer, place)
    const held = Context.get(services, Counter)
    const before = { handlers: 0, rules: 0, listeners: 0, connectors: 0, ...ofRoute }
    assert.deepStrictEqual(held, before)
    yield* check(0)
    const open = Effect.fnUntraced(function* (attachId: string) {
      const scope = yield* Scope.fork(place)
      const backend = AttachBackend.layer({ attachId, settleLinger: "50 millis" })
      yield* Layer.buildWithScope(backend, scope).pipe(Effect.provide(services))
      return scope
    })
    const first = yield* open("a")
    const { handlers } = held
    assert.isAbove(handlers, 0)
    const holds = Effect.fnUntraced(function* (backends: number) {
      const rules = (ofEach.rules ?? 0) * backends
      assert.deepStrictEqual({ ...held }, { ...before, handlers: handlers * backends, rules })
      yield* check(backends)
    })
    yield* holds(1)
    const second = yield* open("b")
    yield* holds(2)
    const third = yield* open("c")
    yield* holds(3)
    for (const [left, scope] of [second, first, third].entries()) {
      yield* Scope.close(scope, Exit.void)
      yield* holds(2 - left)
    }
    // The names are free again.
    yield* open("b")
    yield* holds(1)
    yield* Scope.close(place, Exit.void)
    assert.deepStrictEqual({ ...held }, { handlers: 0, rules: 0, listeners: 0, connectors: 0 })
  },
  Effect.provideService(References.MinimumLogLevel, "Warn")
)

const temporary = Effect.acquireRelease(
  Effect.sync(() => {
    const folder = mkdtempSync(join(tmpdir(), "fl-attach-held-"))
    chmodSync(folder, 0o700)
    return folder
  }),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
)

describe("what backends on one cell hold", () => {
  it.live("over a shared folder: handlers, and a claim each; the listener is the route's", () =>
    Effect.gen(function* () {
      const root = yield* temporary
      const claims = Effect.sync(() => {
        const names = readdirSync(root, { recursive: true, encoding: "utf8" })
        return names.filter((name) => name.endsWith("owner.json")).length
      })
      const layer = AttachRoute.layerSharedFile({ root }).pipe(
        Layer.provideMerge(layerCounting(Cell.make({ fqcn: cj })))
      )
      const check = (backends: number) => Effect.map(claims, (count) => assert.strictEqual(count, backends))
      yield* countAll(layer, { listeners: 1 }, {}, check)
      assert.strictEqual(yield* claims, 0)
    }).pipe(
      Effect.provide(
        Layer.mergeAll(
          Layer.provideMerge(Drivers.layerScoped([SharedFileDriver.make()]), MemoryNetwork.layer()),
          FileLock.layerNode,
          PrivateFiles.layerNode
        )
      )
    )
  )

  it.live("below a client parent in secure mode: handlers, and a rule of the guard each", () =>
    Effect.gen(function* () {
      const url = "memory://site-1"
      yield* ClientParent.make({ site: "site-1", listeners: [{ url }] })
      const cell = Effect.gen(function* () {
        const rules = rulesOf({ local: cj, parent: "site-1", identity: "site-1" })
        const credentials = yield* CellCredentials.watch(inFolder(join(pki, "site-1")), { rules })
        return yield* Cell.make({ fqcn: cj, credentials })
      })
      const layer = AttachRoute.layerClientParent({ url, secure: true }).pipe(Layer.provideMerge(layerCounting(cell)))
      yield* countAll(layer, { connectors: 1 }, { rules: 1 })
    }).pipe(Effect.provide(MemoryNetwork.layer()))
  )
})
