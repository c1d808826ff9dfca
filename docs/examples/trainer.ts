/**
 * A trainer, to copy: it attaches to the service that a profile names, trains what comes, and ends with the service.
 *
 *   node docs/examples/trainer.ts PROFILE.json DIGITS        (for instance 0,1,2,3,4)
 *
 * Put your own model in place of `train`; the rest stays.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect, References } from "effect"
import { AnalyticsRecord, FLModel, NdArray, NodeAttach } from "fl-attach"
import { Trainer, TrainerProfile, TrainerSession } from "fl-attach/trainer"
import { classes, pixels, trainingSet } from "./digits/data.ts"
import { type Softmax, trainEpoch } from "./digits/softmax.ts"

const [profilePath = "profile.json", digits = "0,1,2,3,4,5,6,7,8,9"] = process.argv.slice(2)

const epochs = 2
const learningRate = 0.01
const mine = trainingSet(digits.split(",").map(Number))

/** The elements of one array of the model. */
const floats = Effect.fn("floats")(function* (model: FLModel, name: string) {
  const array = model.arrays.get(name)
  if (array === undefined) return yield* Effect.die(`the service sent a model without "${name}"`)
  return Float32Array.from(yield* Effect.fromResult(array.toTyped()), Number)
})

/** What comes from the service goes in, what training made of it goes back. */
const train = Effect.fn("train")(function* (global: FLModel) {
  const session = yield* TrainerSession
  const round = global.currentRound ?? 0
  let model: Softmax = { weights: yield* floats(global, "weights"), bias: yield* floats(global, "bias") }
  for (let epoch = 0; epoch < epochs; epoch++) {
    const trained = trainEpoch(model, mine, { learningRate, seed: 100 * round + epoch })
    model = trained.model
    yield* session.log(
      new AnalyticsRecord({ tag: "loss", value: trained.loss, dataType: "SCALAR", globalStep: round * epochs + epoch })
    )
  }
  yield* Console.log(`  ${session.attachId}: trained on ${mine.labels.length} digits`)
  return new FLModel({
    params: [
      ["weights", NdArray.fromTyped(model.weights, [pixels, classes])],
      ["bias", NdArray.fromTyped(model.bias)]
    ],
    // The service weighs results by this.
    meta: [["NUM_STEPS_CURRENT_ROUND", epochs * mine.labels.length]]
  })
})

Effect.gen(function* () {
  const profile = yield* TrainerProfile.load(profilePath)
  yield* Trainer.run(profile, train)
}).pipe(
  Effect.provide(NodeAttach.layerPlatform),
  Effect.provideService(References.MinimumLogLevel, "Warn"),
  Effect.tapError((error) => Console.error(`trainer ${profilePath}: ${error.message}`)),
  NodeRuntime.runMain({ disableErrorReporting: true })
)
