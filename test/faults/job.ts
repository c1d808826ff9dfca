/** A job of three rounds over TCP, through a client parent, with faults on both connections to it. */
import { Context, Effect, Exit, Fiber, Layer, Option, Random } from "effect"
import { SecureRandom } from "effect/crypto"
import * as AttachBackend from "../../src/attach/AttachBackend.ts"
import * as AttachRoute from "../../src/attach/AttachRoute.ts"
import { Cell } from "../../src/cell/Cell.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as NdMath from "../../src/fobs/NdMath.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ClientParent from "../../src/parent/ClientParent.ts"
import { FileLock } from "../../src/platform/FileLock.ts"
import { PrivateFiles } from "../../src/platform/PrivateFiles.ts"
import * as Rounds from "../../src/service/Rounds.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import { Drivers } from "../../src/transport/Drivers.ts"
import * as TcpDriver from "../../src/transport/TcpDriver.ts"
import { faster } from "../support/fastClock.ts"
import { anyFault, type Random as Chance, type Fault, makeFaultProxy } from "../support/faultProxy.ts"
import { makeRandom } from "../transport/support.ts"

/** Ten seconds of backoff and leases pass in one. */
const speed = 10
/** Far more, in real seconds, than what a job may wait for in all. */
const limit = "100 seconds"
const rounds = 3
const elements = 60_000
/** The most that one connection carries in a job, about: faults strike within. */
const traffic = 2 * rounds * elements * 4

/** How a job ended. */
export interface Outcome {
  readonly seed: number
  /** `finished`, or the tag of the reason. */
  readonly service: string
  readonly trainer: string
  /** The rounds that the trainer worked on, and those whose results counted, in order. */
  readonly trained: ReadonlyArray<number>
  readonly counted: ReadonlyArray<number>
  /** Whether the last model is the right one; `undefined` where there is none. */
  readonly exact: boolean | undefined
  /** What was done to connections, and how often it struck. */
  readonly faults: ReadonlyArray<Fault>
  readonly struck: number
  readonly defects: ReadonlyArray<unknown>
}

/** The first connections have faults, the others none, so that most jobs can come to their end. */
const planOf = (chance: Chance) => {
  const faulty = 1 + chance(3)
  return (connection: number): Fault => (connection < faulty ? anyFault(chance, traffic) : { kind: "none" })
}

class Job extends Context.Service<Job, AttachBackend.AttachBackend["Service"]>()("test/faults/Job") {}

const layerService = (url: string, job: string, maxInlineBytes: number) =>
  Layer.effect(
    Job,
    AttachBackend.make({
      attachId: "a",
      attachTimeout: "90 seconds",
      finalizeTimeout: "30 seconds",
      taskWaitTimeout: "120 seconds"
    })
  ).pipe(
    Layer.provide(AttachRoute.layerClientParent({ url, connectTimeout: "90 seconds" })),
    Layer.provide(Cell.layer({ fqcn: `site-1.${job}`, downloads: { maxInlineBytes } }))
  )

const weights = (value: number) => NdArray.fromTyped(new Float32Array(elements).fill(value))

const reasonOf = (exit: Exit.Exit<unknown, { readonly reason: { readonly _tag: string } }>): string =>
  Exit.isSuccess(exit)
    ? "finished"
    : Option.match(Exit.findErrorOption(exit), { onNone: () => "no typed error", onSome: ({ reason }) => reason._tag })

const defectsOf = (exit: Exit.Exit<unknown, unknown>): ReadonlyArray<unknown> =>
  Exit.isSuccess(exit) ? [] : exit.cause.reasons.filter(({ _tag }) => _tag !== "Fail")

const play = Effect.fnUntraced(function* (seed: number) {
  const trained: Array<number> = []
  const counted: Array<number> = []
  const parent = yield* ClientParent.make({ site: "site-1", listeners: [{ url: "tcp://127.0.0.1:0" }] })
  const url = parent.connectUrls[0] ?? ""
  const port = Number(new URL(url).port)
  const above = yield* makeFaultProxy({ port, plan: planOf(makeRandom(seed)) })
  const below = yield* makeFaultProxy({ port, plan: planOf(makeRandom(seed + 0x9e3779b9)) })
  const trainer = yield* TestTrainer.start(
    { attachId: "a", connectUrl: below.through(url), jobWaitTimeout: "90 seconds" },
    (model) =>
      Effect.sync(() => {
        trained.push(model.currentRound ?? -1)
        return new FLModel({ params: [...model.arrays].map(([name, array]) => [name, NdMath.addScalar(array, 1)]) })
      })
  )
  const serving = Effect.gen(function* () {
    const backend = yield* Job
    return yield* Rounds.run({
      trainers: [backend],
      model: new FLModel({ params: [["w", weights(seed % 1000)]] }),
      rounds,
      onEvent: (event) =>
        Effect.sync(() => {
          if (event._tag === "ResultReceived") counted.push(event.round)
        })
    })
  }).pipe(Effect.provide(layerService(above.through(url), "job-1", seed % 2 === 0 ? 0 : 2 ** 30), { local: true }))
  const served = yield* Effect.exit(serving)
  const ended = yield* Effect.exit(Fiber.join(trainer))
  const last = Exit.isSuccess(served) ? served.value.arrays.get("w") : undefined
  const outcome: Outcome = {
    seed,
    service: reasonOf(served),
    trainer: reasonOf(ended),
    trained,
    counted,
    exact: last && Buffer.from(last.bytes).equals(weights((seed % 1000) + rounds).bytes),
    faults: [...above.faults, ...below.faults],
    struck: above.struck() + below.struck(),
    defects: [...defectsOf(served), ...defectsOf(ended)]
  }
  return outcome
})

const layerPlatform = Layer.mergeAll(
  Drivers.layer([TcpDriver.make()]),
  SecureRandom.layerWebCrypto,
  FileLock.layerNode,
  PrivateFiles.layerNode
)

/** Plays a job, and dies where it hangs. */
export const runJob = (seed: number): Effect.Effect<Outcome> =>
  Effect.scoped(play(seed)).pipe(
    faster(speed),
    Effect.provide(layerPlatform),
    Random.withSeed(seed),
    Effect.orDie,
    Effect.timeoutOption(limit),
    Effect.map(
      Option.getOrElse((): Outcome => {
        throw new Error(`the job of seed ${seed} hangs`)
      })
    )
  )
