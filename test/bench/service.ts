/**
 * The service of a benchmark: sends a model to its trainers, round after round, and tells how long each took.
 *
 *   service.ts PLACE BYTES ARRAYS ROUNDS TRAINERS [CERTS]
 *
 * PLACE is a shared folder, or the URL of a client parent; with a folder of certificates, messages are protected. With
 * one trainer its answer is the next model. With more, their answers are averaged.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Duration, Effect, Layer, References, Result } from "effect"
import { type AttachBackend, AttachFleet, FLModel, NdArray, Rounds } from "fl-attach"
import { ModelExchange } from "fl-attach/model"
import { layerJob } from "./jobs.ts"

const [place = "", bytes = "1024", arrays = "1", rounds = "1", trainers = "1", certs] = process.argv.slice(2)

const makeModel = (): FLModel => {
  const each = Number(bytes) / Number(arrays) / 4
  const params = Array.from({ length: Number(arrays) }, (_, n) => {
    const elements = new Float32Array(each)
    for (let i = 0; i < each; i++) elements[i] = (i % 1000) + n
    return [`layer_${n}`, NdArray.fromTyped(elements)] as const
  })
  return new FLModel({ params })
}

const say = (event: Record<string, unknown>) => Effect.sync(() => console.log(JSON.stringify(event)))

const sameParams = (a: FLModel, b: FLModel): boolean => {
  const others = b.arrays
  return [...a.arrays].every(([name, { bytes, dtype }]) => {
    const other = others.get(name)
    return other?.dtype === dtype && Buffer.compare(other.bytes, bytes) === 0
  })
}

/** What a service does that keeps the current model only. */
const echoRounds = Effect.fn("echoRounds")(function* (backend: AttachBackend["Service"]) {
  const totalRounds = Number(rounds)
  let model = makeModel()
  for (let round = 0; round < totalRounds; round++) {
    const data = yield* Effect.fromResult(
      ModelExchange.toShareable(
        new FLModel({ params: model.params ?? [], startRound: 0, currentRound: round, totalRounds })
      )
    )
    const started = performance.now()
    const result = yield* backend.execute({ name: "train", data })
    const ms = performance.now() - started
    const next = Result.getOrThrow(ModelExchange.fromShareable(result))
    const isSame = sameParams(model, next)
    model = new FLModel({ params: next.params ?? [] })
    yield* say({ event: "round", round, ms, ok: isSame })
  }
})

const averagedRounds = Effect.fn("averagedRounds")(function* (
  backends: readonly [AttachBackend["Service"], ...ReadonlyArray<AttachBackend["Service"]>]
) {
  yield* Rounds.run({
    trainers: backends,
    model: Effect.sync(makeModel),
    rounds: Number(rounds),
    onEvent: (event) =>
      event._tag === "RoundDone"
        ? say({
            event: "round",
            round: event.round,
            ms: Duration.toMillis(event.duration),
            ok: event.results === backends.length
          })
        : Effect.void
  })
})

const program = Effect.gen(function* () {
  const fleet = yield* AttachFleet
  const get = (n: number) => fleet.get({ attachId: `trainer_${n}` })
  const backends = [yield* get(0)] as [AttachBackend["Service"], ...Array<AttachBackend["Service"]>]
  for (let n = 1; n < Number(trainers); n++) backends.push(yield* get(n))
  yield* Rounds.awaitTrainers(backends)
  yield* say({ event: "attached" })
  if (backends.length === 1) yield* echoRounds(backends[0])
  else yield* averagedRounds(backends)
})

program.pipe(
  Effect.provide(AttachFleet.layer().pipe(Layer.provide(layerJob(place, certs)))),
  Effect.provideService(References.MinimumLogLevel, "Warn"),
  NodeRuntime.runMain
)
