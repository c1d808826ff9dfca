/**
 * The trainer of a benchmark: answers each task with the model that it brings, every array one higher when asked to.
 *
 *   trainer.ts PROFILE.json [ADDEND]
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, References } from "effect"
import { FLModel, NodeAttach } from "fl-attach"
import { NdMath } from "fl-attach/fobs"
import { Trainer, TrainerProfile } from "fl-attach/trainer"

const [profilePath = "", addend = "0"] = process.argv.slice(2)

const train = (model: FLModel): FLModel =>
  addend === "0"
    ? new FLModel({ params: model.params ?? [] })
    : new FLModel({
        params: [...model.arrays].map(([name, array]) => [name, NdMath.addScalar(array, Number(addend))] as const)
      })

Effect.gen(function* () {
  const profile = yield* TrainerProfile.load(profilePath)
  yield* Trainer.run(profile, (model) => Effect.sync(() => train(model)))
}).pipe(
  Effect.provide(NodeAttach.layerPlatform),
  Effect.provideService(References.MinimumLogLevel, "Warn"),
  NodeRuntime.runMain
)
