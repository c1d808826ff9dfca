/** Everything about `serve` that can be wrong before anything is opened. */
import * as NodeFs from "node:fs/promises"
import * as NodePath from "node:path"
import { type Duration, Effect, FileSystem, Option, Result } from "effect"
import { type AttachOptions, decodeAttachConfig } from "../../attach/AttachConfig.ts"
import type { ExchangeFormat } from "../../clientapi/ClientApi.ts"
import { checkSharedRoot } from "../../clientapi/Rendezvous.ts"
import { parseJobName, siteName, trainerName } from "../../clientapi/TrainerName.ts"
import { NdArray } from "../../fobs/NdArray.ts"
import { FLModel } from "../../model/FLModel.ts"
import * as ModelExchange from "../../model/ModelExchange.ts"
import * as ModelFile from "../../service/ModelFile.ts"
import type { ParentJobOptions } from "../../service/NodeAttach.ts"
import { wrongUsage } from "./Failure.ts"
import { checkCerts, checkScheme, type NetworkOptions, resourcesOf } from "./networkFlags.ts"
import { inFlags } from "./settingFlags.ts"

export interface ServeOptions extends NetworkOptions {
  readonly site: string
  readonly job: string
  readonly attachIds: ReadonlyArray<string>
  readonly sharedDir: Option.Option<string>
  readonly parent: Option.Option<string>
  readonly connectTimeout: Option.Option<Duration.Duration>
  readonly secure: boolean
  readonly identity: Option.Option<string>
  readonly model: string
  readonly rounds: number
  readonly out: string
  readonly exchangeFormat: ExchangeFormat
  readonly serverFormat: ExchangeFormat
  readonly task: string
  readonly events: Option.Option<string>
  readonly attachTimeout: Option.Option<Duration.Duration>
  readonly heartbeatInterval: Option.Option<Duration.Duration>
  readonly heartbeatTimeout: Option.Option<Duration.Duration>
  readonly taskTimeout: Option.Option<Duration.Duration>
  readonly resultTimeout: Option.Option<Duration.Duration>
  readonly allowReconnect: boolean
  readonly acceptChangedModel: boolean
  readonly retryRounds: number
}

/** Where service and trainers meet. */
export type ServePlace =
  | { readonly _tag: "SharedDir"; readonly where: string }
  | {
      readonly _tag: "Parent"
      readonly where: string
      readonly more: Pick<ParentJobOptions, "resources" | "connectTimeout" | "secure" | "identity">
    }

const checkNames = Effect.fnUntraced(function* ({ attachIds, job, site }: ServeOptions) {
  if (job === site) return yield* wrongUsage(`--job ${job} is the site's name, too: give the job an id of its own`)
  yield* Effect.fromResult(
    Result.gen(function* () {
      yield* siteName(site, "--site")
      const { cjFqcn } = yield* parseJobName(`${site}.${job}`, { cpFqcn: site }, "--site and --job")
      for (const id of attachIds) yield* trainerName(cjFqcn, id)
    })
  ).pipe(Effect.mapError(({ message }) => wrongUsage(message.replace("attach_id", "--attach-id"))))
  const twice = attachIds.find((id, n) => attachIds.indexOf(id) !== n)
  if (twice !== undefined) {
    return yield* wrongUsage(`--attach-id ${twice} is given twice: each trainer needs an id of its own`)
  }
})

const checkCounts = Effect.fnUntraced(function* ({ allowReconnect, retryRounds, rounds }: ServeOptions) {
  if (rounds < 1) return yield* wrongUsage(`--rounds ${rounds}: give at least 1`)
  if (retryRounds < 0) return yield* wrongUsage(`--retry-rounds ${retryRounds}: give 0 or more`)
  if (retryRounds > 0 && !allowReconnect) {
    return yield* wrongUsage(
      `--retry-rounds ${retryRounds} needs --allow-reconnect: a session that was lost or aborted takes no further task, so a round can only run again with a trainer that is started again`
    )
  }
})

const attachOptions = (options: ServeOptions, attachId: string): AttachOptions => {
  const bounds = {
    attachTimeout: options.attachTimeout,
    heartbeatInterval: options.heartbeatInterval,
    heartbeatTimeout: options.heartbeatTimeout,
    taskWaitTimeout: options.taskTimeout,
    resultWaitTimeout: options.resultTimeout
  }
  const given = Object.entries(bounds).flatMap(([name, value]) => (Option.isSome(value) ? [[name, value.value]] : []))
  return {
    ...Object.fromEntries(given),
    attachId,
    allowReconnect: options.allowReconnect,
    trainTaskName: options.task,
    paramsExchangeFormat: options.exchangeFormat,
    serverExpectedFormat: options.serverFormat
  }
}

const checkShared = Effect.fnUntraced(function* (given: string) {
  const root = NodePath.resolve(given)
  yield* checkSharedRoot(root).pipe(
    Effect.mapError(({ message, reason }) =>
      reason._tag === "RendezvousIo" && reason.code === "ENOENT"
        ? wrongUsage(`--shared-dir ${given} is not there: make it, for instance by "mkdir -m 770 ${root}"`)
        : wrongUsage(`--shared-dir ${message}`)
    )
  )
  return root
})

/** Flags that say something of the way to a client parent. */
const networkFlags = (options: ServeOptions): ReadonlyArray<string> => [
  ...(Option.isSome(options.certs) ? ["--certs"] : []),
  ...(Option.isSome(options.connectionSecurity) ? ["--connection-security"] : []),
  ...(Option.isSome(options.connectTimeout) ? ["--connect-timeout"] : []),
  ...(options.secure ? ["--secure"] : []),
  ...(Option.isSome(options.identity) ? ["--identity"] : [])
]

const checkPlace = Effect.fnUntraced(function* (options: ServeOptions) {
  const { connectTimeout, parent, sharedDir } = options
  if (Option.isSome(sharedDir) === Option.isSome(parent)) {
    return yield* wrongUsage("give exactly one of --shared-dir and --parent: where service and trainers meet")
  }
  if (Option.isSome(parent)) {
    if (options.secure && Option.isNone(options.certs)) {
      return yield* wrongUsage("--secure needs --certs: the folder with the site's certificate and key")
    }
    yield* checkCerts(options)
    yield* checkScheme("--parent", parent.value, options)
    const bound = Option.isSome(connectTimeout) ? { connectTimeout: connectTimeout.value } : {}
    const named = Option.isSome(options.identity) ? { identity: options.identity.value } : {}
    const place: ServePlace = {
      _tag: "Parent",
      where: parent.value,
      more: { resources: resourcesOf(options), secure: options.secure, ...bound, ...named }
    }
    return place
  }
  const [useless] = networkFlags(options)
  if (useless !== undefined) return yield* wrongUsage(`${useless} goes with --parent, not with --shared-dir`)
  const place: ServePlace = { _tag: "SharedDir", where: yield* checkShared(Option.getOrElse(sharedDir, () => "")) }
  return place
})

/** Model files hold arrays by name, and that is what is averaged: lists by layer have no place there. */
const checkFormats = Effect.fnUntraced(function* ({ exchangeFormat, serverFormat }: ServeOptions) {
  const keras: ExchangeFormat = "keras_layer_weights"
  if (serverFormat === keras || (serverFormat === "raw" && exchangeFormat === keras)) {
    return yield* wrongUsage(
      `--server-format ${serverFormat} with --exchange-format ${exchangeFormat}: layer weights are no arrays by name, which serve averages: give --server-format numpy`
    )
  }
})

/** Whether parameters travel as tensors: "raw" at the service leaves them as the trainer wants them. */
const sendsTensors = ({ exchangeFormat, serverFormat }: ServeOptions): boolean =>
  serverFormat === "pytorch" || (serverFormat === "raw" && exchangeFormat === "pytorch")

const checkModel = Effect.fnUntraced(function* (options: ServeOptions) {
  const path = options.model
  const arrays = yield* Effect.mapError(ModelFile.read(path), ({ message, reason }) => {
    const isNpz = reason._tag === "ModelFileInvalid" && ModelFile.formatOf(path) !== "safetensors"
    return wrongUsage(`--model: ${message}${isNpz ? "; numpy.savez writes one" : ""}`)
  })
  if (arrays.size === 0) return yield* wrongUsage(`--model ${path} holds no arrays: there is nothing to train`)
  const model = new FLModel({ params: arrays })
  if (sendsTensors(options)) {
    return yield* Effect.mapError(Effect.fromResult(ModelExchange.toTensors(model)), ({ message }) =>
      wrongUsage(`--model ${path}: ${message}: give --server-format numpy, or another model`)
    )
  }
  // What numpy knows is read as its arrays.
  for (const [name, array] of arrays) {
    if (array instanceof NdArray) continue
    return yield* wrongUsage(
      `--model ${path}: array ${JSON.stringify(name)} is ${array.dtype}, which numpy lacks: give --exchange-format pytorch --server-format pytorch, or another model`
    )
  }
  return model
})

/** An output that can't be written shall not cost hours of training. */
const checkOut = Effect.fnUntraced(function* (path: string) {
  const fs = yield* FileSystem.FileSystem
  const folder = NodePath.dirname(NodePath.resolve(path))
  if (ModelFile.formatOf(path) === undefined) {
    return yield* wrongUsage(`--out ${path}: only .npz and .safetensors files can be written; name it so`)
  }
  const there = yield* Effect.option(fs.stat(folder))
  if (Option.isNone(there) || there.value.type !== "Directory") {
    return yield* wrongUsage(`--out ${path}: the folder ${folder} is not there: make it first`)
  }
  const target = yield* Effect.option(fs.stat(path))
  if (Option.isSome(target) && target.value.type === "Directory") {
    return yield* wrongUsage(`--out ${path} is a folder: name a file`)
  }
  yield* Effect.mapError(fs.access(folder, { writable: true }), () =>
    wrongUsage(`--out ${path}: this user may not write to ${folder}: change its permissions or choose another folder`)
  )
})

const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`

/** As far as the system tells: a disk that is too full now shall not cost hours of training either. */
const checkSpace = Effect.fnUntraced(function* (out: string, model: FLModel) {
  const folder = NodePath.dirname(NodePath.resolve(out))
  const found = yield* Effect.option(Effect.tryPromise(() => NodeFs.statfs(folder)))
  // Some file systems don't count.
  if (Option.isNone(found) || found.value.blocks === 0) return
  const free = found.value.bavail * found.value.bsize
  const needed = model.byteLength
  if (free < needed || free === 0) {
    return yield* wrongUsage(
      `--out ${out}: the model takes ${mebibytes(needed)}, and ${folder} has ${mebibytes(free)} left: free space there, or choose another folder`
    )
  }
})

/** Gives the model away, once: nobody holds on to it while rounds make others of it. */
const handedOver = (model: FLModel): Effect.Effect<FLModel> => {
  const left = [model]
  return Effect.orDie(Effect.suspend(() => Effect.fromNullishOr(left.pop())))
}

/** Checks all and reads the model; the first thing that is wrong is a Failure with exit code 2. */
export const checkServe = Effect.fn("checkServe")(function* (options: ServeOptions) {
  yield* checkNames(options)
  yield* checkCounts(options)
  const trainers = options.attachIds.map((id) => attachOptions(options, id))
  yield* Effect.forEach(trainers, decodeAttachConfig).pipe(
    Effect.mapError(({ message }) => wrongUsage(inFlags(message)))
  )
  yield* checkFormats(options)
  const place = yield* checkPlace(options)
  yield* checkOut(options.out)
  const model = yield* checkModel(options)
  yield* Effect.mapError(Effect.fromResult(ModelFile.check(options.out, model.weights)), ({ message }) =>
    wrongUsage(`--out: ${message}`)
  )
  yield* checkSpace(options.out, model)
  const metadata = yield* Effect.mapError(ModelFile.readMetadata(options.model), ({ message }) =>
    wrongUsage(`--model: ${message}`)
  )
  return { trainers, place, model: handedOver(model), metadata }
})
