/**
 * `fl-attach serve`: rounds of federated averaging with trainers that others started.
 *
 * @since 0.1.0
 */
import * as NodePath from "node:path"
import { Array as Arr, Effect, Fiber, FileSystem, Layer, Result, Schedule, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import type { AttachBackend } from "../attach/AttachBackend.ts"
import { ExchangeFormat } from "../clientapi/ClientApi.ts"
import { PrivateFiles } from "../platform/PrivateFiles.ts"
import { AttachFleet } from "../service/AttachFleet.ts"
import * as ModelFile from "../service/ModelFile.ts"
import * as NodeAttach from "../service/NodeAttach.ts"
import * as Rounds from "../service/Rounds.ts"
import * as EventLog from "./internal/EventLog.ts"
import { failed } from "./internal/Failure.ts"
import * as Flags from "./internal/flags.ts"
import { certs, connectionSecurity, identity, secure } from "./internal/networkFlags.ts"
import { Screen } from "./internal/Screen.ts"
import { makeServeView, plural, type ServeView } from "./internal/ServeView.ts"
import { checkServe, type ServeOptions, type ServePlace } from "./internal/serveCheck.ts"
import { failureInFlags } from "./internal/settingFlags.ts"

const flags = {
  site: Flag.String("site").pipe(Flag.withDescription("The site's name, as in the trainers' profiles (required)")),
  job: Flag.String("job").pipe(Flag.withDescription("The job's id (required)")),
  attachIds: Flag.String("attach-id").pipe(
    Flag.withDescription("A trainer to wait for; once for each trainer (required)"),
    Flag.atLeast(1)
  ),
  sharedDir: Flag.String("shared-dir").pipe(
    Flag.withMetavar("folder"),
    Flag.withDescription("The folder that service and trainers share (this or --parent is required)"),
    Flag.optional
  ),
  parent: Flag.String("parent").pipe(
    Flag.withMetavar("url"),
    Flag.withDescription("Instead of a shared folder: the client parent that service and trainers connect to"),
    Flag.optional
  ),
  connectTimeout: Flags.duration("connect-timeout", "How long to wait for the client parent (30s)").pipe(Flag.optional),
  certs,
  connectionSecurity,
  secure,
  identity,
  model: Flag.String("model").pipe(
    Flag.withMetavar("in.npz"),
    Flag.withDescription("The model to start from, .npz or .safetensors (required)")
  ),
  rounds: Flag.Int("rounds").pipe(Flag.withDescription("How many rounds to run (required)")),
  out: Flag.String("out").pipe(
    Flag.withMetavar("out.npz"),
    Flag.withDescription("Where the trained model goes, .npz or .safetensors (required)")
  ),
  exchangeFormat: Flag.Literals("exchange-format", ExchangeFormat.literals).pipe(
    Flag.withDefault("raw"),
    Flag.withDescription("The form of parameters at the trainers; raw: as the service sends them")
  ),
  serverFormat: Flag.Literals("server-format", ExchangeFormat.literals).pipe(
    Flag.withDefault("numpy"),
    Flag.withDescription("The form in which parameters travel and are averaged: numpy's arrays or torch's tensors")
  ),
  task: Flag.String("task").pipe(Flag.withDefault("train"), Flag.withDescription("The name of the tasks")),
  events: Flag.String("events").pipe(
    Flag.withMetavar("file.jsonl"),
    Flag.withDescription("Write what happens to this file, one JSON object a line"),
    Flag.optional
  ),
  attachTimeout: Flags.duration("attach-timeout", "How long to wait for a trainer; without it: as long as needed").pipe(
    Flag.optional
  ),
  heartbeatInterval: Flags.duration("heartbeat-interval", "How often a trainer tells that it is alive (5s)").pipe(
    Flag.optional
  ),
  heartbeatTimeout: Flags.duration("heartbeat-timeout", "How long a trainer may be silent (30s)").pipe(Flag.optional),
  taskTimeout: Flags.duration("task-timeout", "How long the delivery of a task may take (10m)").pipe(Flag.optional),
  resultTimeout: Flags.duration("result-timeout", "How long a trainer may work on a task; without it: no bound").pipe(
    Flag.optional
  ),
  allowReconnect: Flag.Boolean("allow-reconnect").pipe(
    Flag.withDefault(false),
    Flag.withDescription("Wait for a lost trainer to be started again")
  ),
  acceptChangedModel: Flag.Boolean("accept-changed-model").pipe(
    Flag.withDefault(false),
    Flag.withDescription("Take results whose parameters, shapes or dtypes are not those of the model that was sent")
  ),
  retryRounds: Flag.Int("retry-rounds").pipe(
    Flag.withDefault(0),
    Flag.withDescription("How many rounds, in all, may run again after a failed task; needs --allow-reconnect")
  )
}

/** The job's cell, and its way to the trainers. */
const jobAt = ({ job, site }: ServeOptions, place: ServePlace) =>
  place._tag === "SharedDir"
    ? NodeAttach.layer({ site, job, sharedDir: place.where })
    : NodeAttach.layerClientParent({ site, job, parentUrl: place.where, ...place.more })

/** Tells what a backend does, until it is closed. */
const observe = Effect.fnUntraced(function* (backend: AttachBackend["Service"], view: ServeView) {
  const { attachId } = backend
  yield* Effect.forkScoped(
    Stream.runForEach(backend.analytics, (record) => view.log(attachId, record)),
    { startImmediately: true }
  )
  return yield* Effect.forkScoped(
    backend.sessionChanges.pipe(
      Stream.takeUntil(({ _tag }) => _tag === "Closed"),
      Stream.runForEach((state) => view.session(attachId, state))
    ),
    { startImmediately: true }
  )
})

/** A model that can't go where it was meant to is kept elsewhere: it may have cost days. */
const writeModel = Effect.fnUntraced(function* (
  { out }: ServeOptions,
  weights: ReadonlyMap<string, ModelFile.ModelArray>,
  metadata: ReadonlyMap<string, string>
) {
  const write = (path: string) => ModelFile.write(path, weights, { metadata })
  yield* Effect.catch(
    write(out),
    Effect.fnUntraced(function* (error) {
      const fs = yield* FileSystem.FileSystem
      const spare = yield* Effect.result(
        Effect.gen(function* () {
          const path = NodePath.join(yield* fs.makeTempDirectory({ prefix: "fl-attach-" }), NodePath.basename(out))
          yield* write(path)
          return path
        })
      )
      const rest = Result.isSuccess(spare)
        ? `the trained model is in ${spare.success} instead: take it from there`
        : `and the trained model is lost, since it can't be kept elsewhere: ${spare.failure.message}`
      return yield* failed(`${error.message}; ${rest}`)
    })
  )
})

/** Runs the rounds and writes the model. */
const serve = Effect.fn("serve")(function* (options: ServeOptions) {
  const { metadata, model, place, trainers } = yield* checkServe(options)
  const screen = yield* Screen
  const events = yield* EventLog.open(options.events)
  const view = yield* makeServeView(screen, events, options.attachIds, options.rounds)
  const jobLayer = AttachFleet.layer().pipe(Layer.provide(jobAt(options, place)))
  if (screen.isTerminal) yield* Effect.forkScoped(Effect.repeat(view.refresh, Schedule.spaced("1 second")))

  const observers: Array<Fiber.Fiber<void>> = []
  const rounds = Effect.gen(function* () {
    const fleet = yield* AttachFleet
    const backends = yield* Effect.forEach(trainers, fleet.get, { concurrency: "unbounded" })
    for (const backend of backends) observers.push(yield* observe(backend, view))
    screen.line(
      `waiting for ${plural(backends.length, "trainer")} (${options.attachIds.join(", ")}) of site ${options.site} ${place._tag === "SharedDir" ? "in" : "at"} ${place.where}`
    )
    if (!Arr.isReadonlyArrayNonEmpty(backends)) return yield* failed("there is no trainer")
    yield* Rounds.awaitTrainers(backends)
    yield* view.allAttached
    const trained = yield* Rounds.run({
      trainers: backends,
      model,
      rounds: options.rounds,
      task: options.task,
      retryRounds: options.retryRounds,
      acceptChangedModel: options.acceptChangedModel,
      onEvent: view.round
    })
    yield* writeModel(options, trained.weights, metadata)
    screen.line(`wrote ${options.out} (${plural(trained.weights.size, "array")})`)
  })
  // The observers outlive the fleet, to tell of its closing.
  yield* rounds.pipe(
    Effect.provide(jobLayer),
    Effect.ensuring(Effect.timeoutOption(Fiber.awaitAll(observers), "1 second"))
  )
}, Effect.scoped)

/**
 * @category commands
 * @since 0.1.0
 */
export const command = Command.make("serve", flags, (options) =>
  serve(options).pipe(Effect.provide(PrivateFiles.layerNode), Effect.mapError(failureInFlags))
).pipe(
  Command.withDescription(
    "Wait for trainers that others start, run rounds of federated averaging with them, write the model"
  ),
  Command.withExamples([
    {
      command:
        "fl-attach serve --site site-1 --job job-1 --attach-id a --attach-id b --shared-dir /mnt/fl --model in.npz --rounds 3 --out out.npz",
      description: "Three rounds with two trainers"
    },
    {
      command:
        "fl-attach serve --site site-1 --job job-1 --attach-id a --parent tcp://127.0.0.1:18104 --model in.npz --rounds 3 --out out.npz",
      description: "The same with one, through the site's client parent"
    },
    {
      command:
        "fl-attach serve --site site-1 --job job-1 --attach-id a --shared-dir /mnt/fl --exchange-format pytorch --server-format pytorch --model in.safetensors --rounds 3 --out out.safetensors",
      description: "With a PyTorch trainer, bfloat16 and all"
    }
  ])
)
