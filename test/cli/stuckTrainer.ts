// A trainer that takes a task and never answers it: `node stuckTrainer.ts PROFILE.json`. Ends with 1 on a failure.
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import * as NodeAttach from "../../src/service/NodeAttach.ts"
import * as Trainer from "../../src/trainer/Trainer.ts"
import { TrainerProfile } from "../../src/trainer/TrainerProfile.ts"

const main = Effect.gen(function* () {
  const profile = yield* TrainerProfile.load(process.argv[2] ?? "")
  // Told after a while: by then the service knows that the task has arrived.
  yield* Trainer.run(profile, () => Console.log("busy").pipe(Effect.delay("300 millis"), Effect.andThen(Effect.never)))
})

main.pipe(
  Effect.provide(NodeAttach.layerPlatform),
  Effect.tapError(({ message }) => Console.error(message)),
  NodeRuntime.runMain({ disableErrorReporting: true })
)
