/**
 * Two trainers, each a process of its own that knows only half of the digits, and a service that makes one model of
 * what they learn.
 *
 *   npm run demo [-- --json]
 *
 * The service starts the trainers here so that one command shows all; to it they are strangers that attach.
 */
import * as NodePath from "node:path"
import { fileURLToPath } from "node:url"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Clock, Console, Duration, Effect, FileSystem, Layer, References } from "effect"
import { ChildProcess, type ChildProcessSpawner } from "effect/process"
import { AttachFleet, FLModel, NdArray, NodeAttach, Rounds } from "fl-attach"
import { TrainerProfile } from "fl-attach/trainer"
import { classes, pixels, testSet } from "./data.ts"
import { accuracy, initial, type Softmax } from "./softmax.ts"

const rounds = 5
const site = "site-1"
const trainers = [
  { attachId: "small-digits", digits: "0,1,2,3,4" },
  { attachId: "large-digits", digits: "5,6,7,8,9" }
]
const asJson = process.argv.includes("--json")
const trainerProgram = fileURLToPath(new URL("../trainer.ts", import.meta.url))

/** Starts a trainer; it ends with the Scope, if it has not ended before. */
const startTrainer = Effect.fn("startTrainer")(function* (folder: string, shared: string, n: number) {
  const trainer = trainers[n]
  if (trainer === undefined) return yield* Effect.die(`there is no trainer ${n}`)
  const profilePath = NodePath.join(folder, `${trainer.attachId}.json`)
  yield* TrainerProfile.write(
    profilePath,
    new TrainerProfile({
      attachId: trainer.attachId,
      siteName: site,
      source: { _tag: "Rendezvous", root: shared },
      secureMode: false,
      jobWaitTimeout: Duration.seconds(30)
    })
  )
  const args = ["--conditions=fl-attach-source", trainerProgram, profilePath, trainer.digits]
  const child = yield* ChildProcess.make(process.execPath, args, {
    stdin: "ignore",
    stdout: "inherit",
    stderr: "inherit",
    forceKillAfter: "5 seconds"
  })
  yield* Console.log(`trainer ${trainer.attachId}: process ${child.pid}, digits ${trainer.digits}`)
  return child
})

/** Fails when a trainer fails: no need to wait until its lease is over. */
const firstFailure = (children: ReadonlyArray<ChildProcessSpawner.ChildProcessHandle>) =>
  Effect.forEach(
    children,
    (child) =>
      Effect.flatMap(child.exitCode, (code) =>
        code === 0 ? Effect.never : Effect.fail(new Error(`a trainer ended with exit code ${code}`))
      ),
    { concurrency: "unbounded", discard: true }
  ).pipe(Effect.andThen(Effect.never))

/** As the arrays that travel. */
const toModel = ({ bias, weights }: Softmax): FLModel =>
  new FLModel({
    params: [
      ["weights", NdArray.fromTyped(weights, [pixels, classes])],
      ["bias", NdArray.fromTyped(bias)]
    ]
  })

const fromModel = Effect.fn("fromModel")(function* (model: FLModel) {
  const floats = Effect.fnUntraced(function* (name: string) {
    const array = model.arrays.get(name)
    if (array === undefined) return yield* Effect.die(`the model has no ${name}`)
    return Float32Array.from(yield* Effect.fromResult(array.toTyped()), Number)
  })
  return { weights: yield* floats("weights"), bias: yield* floats("bias") } satisfies Softmax
})

const percent = (share: number): string => `${(100 * share).toFixed(1)} %`

const demo = Effect.gen(function* () {
  const started = yield* Clock.currentTimeMillis
  const fs = yield* FileSystem.FileSystem
  const folder = yield* fs.makeTempDirectoryScoped({ prefix: "fl-attach-demo-" })
  const shared = NodePath.join(folder, "shared")
  yield* fs.makeDirectory(shared, { mode: 0o770 })
  const test = testSet()

  const children = yield* Effect.forEach(trainers.keys(), (n) => startTrainer(folder, shared, n))

  const training = Effect.gen(function* () {
    const fleet = yield* AttachFleet
    const [first, ...others] = yield* Effect.forEach(trainers, ({ attachId }) =>
      fleet.get({ attachId, attachTimeout: "30 seconds" })
    )
    if (first === undefined) return yield* Effect.die("there are no trainers")
    yield* Rounds.awaitTrainers([first, ...others])
    yield* Console.log("both have attached")
    return yield* Rounds.run({
      trainers: [first, ...others],
      model: toModel(initial()),
      rounds,
      onEvent: Effect.fnUntraced(function* (event) {
        if (event._tag !== "RoundDone") return
        const reached = accuracy(yield* fromModel(event.model), test)
        const seconds = Duration.toSeconds(event.duration).toFixed(1)
        yield* Console.log(`round ${event.round + 1}/${rounds}: ${percent(reached)} of held-out digits in ${seconds} s`)
      }, Effect.orDie)
    })
  })
  const service = AttachFleet.layer().pipe(Layer.provide(NodeAttach.layer({ site, job: "digits", sharedDir: shared })))
  const model = yield* Effect.raceFirst(Effect.provide(training, service), firstFailure(children))

  // The service has said goodbye: the trainers end by themselves.
  yield* Effect.forEach(children, (child) => child.exitCode)
  const reached = accuracy(yield* fromModel(model), test)
  const seconds = ((yield* Clock.currentTimeMillis) - started) / 1000
  yield* Console.log(`done: ${percent(reached)} after ${rounds} rounds, ${seconds.toFixed(1)} s in all`)
  if (asJson) {
    const result = { rounds, trainers: trainers.length, accuracy: reached, seconds }
    yield* Console.log(JSON.stringify(result))
  }
}).pipe(Effect.scoped)

demo.pipe(
  Effect.provide(Layer.merge(NodeServices.layer, NodeAttach.layerPlatform)),
  Effect.provideService(References.MinimumLogLevel, "Error"),
  NodeRuntime.runMain
)
