/**
 * Many trainers in one process, each with a cell and a connection of its own; they echo.
 *
 *   crowdTrainers.ts URL COUNT
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, References } from "effect"
import { FLModel, NodeAttach } from "fl-attach"
import { Trainer, TrainerProfile } from "fl-attach/trainer"
import { atParent, profileOf } from "./processes.ts"

const [url = "", count = "1"] = process.argv.slice(2)

const trainer = Effect.fnUntraced(function* (n: number) {
  const profile = yield* Effect.fromResult(TrainerProfile.decode(profileOf(`trainer_${n}`, atParent(url))))
  yield* Trainer.run(profile, (model) => Effect.succeed(new FLModel({ params: model.params ?? [] })))
})

Effect.forEach(
  Array.from({ length: Number(count) }, (_, n) => n),
  trainer,
  { concurrency: "unbounded", discard: true }
).pipe(
  Effect.provide(NodeAttach.layerPlatform),
  Effect.provideService(References.MinimumLogLevel, "Error"),
  NodeRuntime.runMain
)
