import { Context, Effect, Exit, Fiber, Layer, Result, Scope, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as AttachBackend from "../../src/attach/AttachBackend.ts"
import type { AttachOptions } from "../../src/attach/AttachConfig.ts"
import * as AttachRoute from "../../src/attach/AttachRoute.ts"
import { Cell } from "../../src/cell/Cell.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import type { Shareable } from "../../src/model/Shareable.ts"
import * as ClientParent from "../../src/parent/ClientParent.ts"
import { movingClock } from "../../src/testing/TestService.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import * as Trainer from "../../src/trainer/Trainer.ts"

export const url = "memory://site-1"

const floats = (array: NdArray | undefined): ReadonlyArray<number> => {
  const typed = array?.toTyped()
  return typed === undefined || Result.isFailure(typed) ? [] : Array.from(typed.success as Float32Array)
}

const model = (values: ReadonlyArray<number>, currentRound?: number): FLModel =>
  new FLModel({
    params: [["w", NdArray.fromTyped(Float32Array.from(values), [values.length])]],
    ...(currentRound === undefined ? {} : { currentRound })
  })

export const task = (round: number, values: ReadonlyArray<number>) =>
  Effect.map(Effect.fromResult(ModelExchange.toShareable(model(values, round))), (data) => ({ name: "train", data }))

export const valuesOf = (result: Shareable) =>
  Effect.map(Effect.fromResult(ModelExchange.fromShareable(result)), (got) => floats(got.arrays.get("w")))

/** What a trainer makes of a model: `by` more in each place. */
const adding = (by: number) => (received: FLModel) =>
  Effect.succeed(model(floats(received.arrays.get("w")).map((x) => x + by)))

/** Moves the clock until a fiber has ended, for at most `limit` of its time. */
export const moveUntil = Effect.fnUntraced(function* <A, E>(fiber: Fiber.Fiber<A, E>, limit = 1_000) {
  for (let step = 0; step < limit * 10; step += 1) {
    if (fiber.pollUnsafe() !== undefined) return yield* Fiber.join(fiber)
    yield* TestClock.adjust("100 millis")
  }
  return yield* Effect.die(new Error(`still not over after ${limit} seconds`))
})

/** Runs an effect to its end, moving the clock. */
export const moving = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.flatMap(Effect.forkChild(effect, { startImmediately: true }), (fiber) => moveUntil(fiber))

/** A parent that can be stopped, before its Scope closes. */
export const startParent = Effect.fnUntraced(function* (
  options: Partial<ClientParent.ParentOptions> = {}
): Effect.fn.Return<
  ClientParent.ClientParent["Service"] & { readonly stop: Effect.Effect<void> },
  Effect.Error<ReturnType<typeof ClientParent.make>>,
  Effect.Services<ReturnType<typeof ClientParent.make>>
> {
  const scope = yield* Scope.make()
  const stop = moving(Scope.close(scope, Exit.void))
  yield* Effect.addFinalizer(() => stop)
  const parent = yield* Scope.provide(ClientParent.make({ site: "site-1", listeners: [{ url }], ...options }), scope)
  return { ...parent, stop }
})

class Backends extends Context.Service<Backends, ReadonlyArray<AttachBackend.AttachBackend["Service"]>>()(
  "test/parent/Backends"
) {}

export interface ServiceOptions extends Omit<AttachOptions, "attachId"> {
  readonly job: string
  readonly ids: ReadonlyArray<string>
  readonly site?: string
  readonly route?: Partial<AttachRoute.ClientParentOptions>
}

/** A service below the parent, with a backend for each id; its closing moves the clock. */
export const startService = Effect.fnUntraced(function* (options: ServiceOptions) {
  const { ids, job, route, site = "site-1", ...attach } = options
  const layer = Layer.effect(
    Backends,
    Effect.forEach(ids, (attachId) => AttachBackend.make({ attachId, ...attach }))
  ).pipe(
    Layer.provideMerge(AttachRoute.layerClientParent({ url, ...route })),
    Layer.provideMerge(Cell.layer({ fqcn: `${site}.${job}` })),
    movingClock
  )
  const context = yield* Layer.build(layer)
  return { backends: Context.get(context, Backends), cell: Context.get(context, Cell) }
})

export const startTrainer = (attachId: string, by: number, siteName = "site-1") =>
  TestTrainer.start({ attachId, siteName, connectUrl: url }, adding(by))

export const attachTrainer = (attachId: string) => Trainer.attach(TestTrainer.profile({ attachId, connectUrl: url }))

/** Ends when a parent's child is connected, or is not. */
export const untilChild = (parent: ClientParent.ClientParent["Service"], name: string, isUp = true) =>
  Effect.repeat(
    Effect.flatMap(parent.status, ({ children }) =>
      Effect.as(Effect.yieldNow, children.some((child) => child.name === name) === isUp)
    ),
    { until: (done) => done }
  )

/** Collects what a stream tells from now on. */
export const collecting = Effect.fnUntraced(function* <A>(stream: Stream.Stream<A>) {
  const seen: Array<A> = []
  yield* Effect.forkScoped(
    Stream.runForEach(stream, (item) => Effect.sync(() => void seen.push(item))),
    { startImmediately: true }
  )
  return seen
})
