/**
 * A service with many trainers, each of which gets a task at the same time as the others; then it is idle for a while.
 *
 *   crowdService.ts URL COUNT BYTES ROUNDS [IDLE_SECONDS]
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, Layer, References, Result } from "effect"
import { type AttachBackend, AttachFleet, FLModel, NdArray, Rounds } from "fl-attach"
import { ModelExchange } from "fl-attach/model"
import { layerJob } from "./jobs.ts"

const [url = "", count = "1", bytes = "1024", rounds = "1", idle = "0"] = process.argv.slice(2)

const say = (event: Record<string, unknown>) => Effect.sync(() => console.log(JSON.stringify(event)))

const elements = Float32Array.from({ length: Number(bytes) / 4 }, (_, n) => n % 1000)

const task = (currentRound: number) =>
  Effect.fromResult(
    ModelExchange.toShareable(new FLModel({ params: [["w", NdArray.fromTyped(elements)]], currentRound }))
  )

const isSame = (model: FLModel): boolean =>
  Buffer.from(model.arrays.get("w")?.bytes ?? []).equals(Buffer.from(elements.buffer))

/** Milliseconds from the start of all to this trainer's result. */
const execute = Effect.fnUntraced(function* (backend: AttachBackend["Service"], round: number, started: number) {
  const result = yield* backend.execute({ name: "train", data: yield* task(round) })
  const ms = performance.now() - started
  if (!isSame(Result.getOrThrow(ModelExchange.fromShareable(result)))) throw new Error(`${backend.attachId}: wrong`)
  return ms
})

const program = Effect.gen(function* () {
  const fleet = yield* AttachFleet
  const began = performance.now()
  const ids = Array.from({ length: Number(count) }, (_, n) => `trainer_${n}`)
  const backends = yield* Effect.forEach(ids, (attachId) => fleet.get({ attachId }), { concurrency: "unbounded" })
  yield* Rounds.awaitTrainers(backends)
  yield* say({ event: "attached", ms: performance.now() - began })
  for (let round = 0; round < Number(rounds); round++) {
    const started = performance.now()
    const times = yield* Effect.forEach(backends, (backend) => execute(backend, round, started), {
      concurrency: "unbounded"
    })
    yield* say({ event: "round", round, times })
  }
  yield* Effect.sleep(`${Number(idle)} seconds`)
})

program.pipe(
  Effect.provide(AttachFleet.layer().pipe(Layer.provide(layerJob(url, undefined)))),
  Effect.provideService(References.MinimumLogLevel, "Warn"),
  NodeRuntime.runMain
)
