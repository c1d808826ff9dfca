import { Effect, Exit, Layer, Scope, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import type { Cell, CellOptions, CellRequest } from "../../src/cell/Cell.ts"
import { type CellEngine, makeEngine } from "../../src/cell/internal/CellEngine.ts"
import { type Driver, Drivers } from "../../src/transport/Drivers.ts"
import * as MemoryDriver from "../../src/transport/MemoryDriver.ts"
import { type Loans, lending } from "./lending.ts"

export const chat = (topic: string) => ({ channel: "chat", topic })

export const echo = (request: CellRequest) => Effect.succeed({ returnCode: "ok", payload: request.payload })

/** Waits until `peer` is connected to `cell`, or is not. */
export const until = (cell: Cell["Service"], peer: string, isUp = true) =>
  Effect.asVoid(Stream.runHead(Stream.filter(cell.connected(peer), (up) => up === isUp)))

interface World {
  readonly driver: Driver
  /** The frames that the cells have; what they give back is spoilt. */
  readonly loans: Loans
  /** A cell in a scope of its own, that `stop` closes. */
  readonly cell: (
    options: CellOptions
  ) => Effect.Effect<
    CellEngine & { readonly scope: Scope.Closeable; readonly stop: Effect.Effect<void> },
    never,
    Scope.Scope
  >
}

/** A network of its own, and cells on it. Their scopes close before the network's. */
export const makeWorld = Effect.fnUntraced(function* (options: MemoryDriver.NetworkOptions = {}) {
  const loans: Loans = { open: 0, returned: 0 }
  const driver = lending(yield* MemoryDriver.makeNetwork(options), loans)
  const drivers = Layer.merge(
    Layer.succeed(Drivers, Drivers.of({ forUrl: () => Effect.succeed(driver) })),
    SecureRandom.layerWebCrypto
  )
  const cell: World["cell"] = Effect.fnUntraced(function* (options) {
    const scope = yield* Scope.make()
    const stop = Scope.close(scope, Exit.void)
    yield* Effect.addFinalizer(() => stop)
    const engine = yield* makeEngine(options).pipe(Effect.provide(drivers), Scope.provide(scope), Effect.orDie)
    return { ...engine, scope, stop }
  })
  return { driver, loans, cell } satisfies World
})

/** A parent that listens at `memory://site-1`, and children that have connected to it. */
export const makeFamily = Effect.fnUntraced(function* (
  options: {
    readonly network?: MemoryDriver.NetworkOptions
    readonly parent?: Partial<CellOptions>
    readonly children?: Partial<CellOptions>
  } = {}
) {
  const world = yield* makeWorld(options.network)
  const parent = yield* world.cell({ fqcn: "site-1", ...options.parent })
  const job = yield* world.cell({ fqcn: "site-1.job", ...options.children })
  const trainer = yield* world.cell({ fqcn: "site-1.-client_api_t", ...options.children })
  yield* Scope.provide(parent.cell.listen("memory://site-1"), parent.scope)
  for (const child of [job, trainer]) {
    yield* Scope.provide(child.cell.connect("memory://site-1"), child.scope)
    yield* until(parent.cell, child.cell.fqcn)
    yield* until(child.cell, "site-1")
  }
  return { ...world, parent, job, trainer }
})

/** Lets everything run that needs no time; `TestClock.adjust(0)` yields only a few times. */
export const settle = Effect.repeat(Effect.yieldNow, { times: 100 })
