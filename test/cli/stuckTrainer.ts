// A trainer that takes a task and never answers it: `node stuckTrainer.ts PROFILE.json [MILLISECONDS]`. With a time it
// answers after so long: each array one higher. Ends with 1 on a failure.
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as NdMath from "../../src/fobs/NdMath.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as NodeAttach from "../../src/service/NodeAttach.ts"
import * as Trainer from "../../src/trainer/Trainer.ts"
import { TrainerProfile } from "../../src/trainer/TrainerProfile.ts"

const [path = "", millis] = process.argv.slice(2)

const answer = (model: FLModel) =>
  new FLModel({
    params: [...model.arrays].map(
      ([name, array]) => [name, array instanceof NdArray ? NdMath.addScalar(array, 1) : array] as const
    )
  })

const main = Effect.gen(function* () {
  const profile = yield* TrainerProfile.load(path)
  yield* Trainer.run(profile, (model) =>
    // Told after a while: by then the service knows that the task has arrived.
    Console.log("busy").pipe(
      Effect.delay("300 millis"),
      Effect.andThen(millis === undefined ? Effect.never : Effect.sleep(Number(millis))),
      Effect.as(answer(model))
    )
  )
})

main.pipe(
  Effect.provide(NodeAttach.layerPlatform),
  Effect.tapError(({ message }) => Console.error(message)),
  NodeRuntime.runMain({ disableErrorReporting: true })
)
