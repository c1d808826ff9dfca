/**
 * The smallest service: three rounds with one trainer that attaches over a shared folder.
 *
 *   node docs/examples/service.ts
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect, Layer } from "effect"
import { AttachBackend, FLModel, ModelFile, NodeAttach, Rounds } from "fl-attach"

const program = Effect.gen(function* () {
  const trainer = yield* AttachBackend
  const model = yield* Rounds.run({
    trainers: [trainer],
    model: Effect.map(ModelFile.read("model.npz"), (params) => new FLModel({ params })),
    rounds: 3,
    onEvent: (event) => Console.log(event._tag)
  })
  yield* ModelFile.write("trained.npz", model.arrays)
})

const Job = NodeAttach.layer({ site: "site-1", job: "job-1", sharedDir: "/data/attach" })
const Trainer = AttachBackend.layer({ attachId: "gpu-1", heartbeatTimeout: "30 seconds" })

program.pipe(Effect.provide(Trainer.pipe(Layer.provideMerge(Job))), NodeRuntime.runMain)
