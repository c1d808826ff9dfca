/** A scripted CJ: a bare cell that answers as it is told, and remembers what it heard. */
import { assert } from "@effect/vitest"
import { Clock, Effect, Exit, Fiber, Layer, Option, Queue, Result, Scope, Stream } from "effect"
import * as Cell from "../../src/cell/Cell.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import type { Shareable } from "../../src/model/Shareable.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import * as Trainer from "../../src/trainer/Trainer.ts"
import type { TrainerError } from "../../src/trainer/TrainerError.ts"
import type { TrainerProfile } from "../../src/trainer/TrainerProfile.ts"

export const cjFqcn = "site-1.job-1"
export const trainerFqcn = "site-1.-client_api_gpu-1"
export const sessionId = "session-1"

export type Fields = { readonly [key: string]: unknown }

/** A message of the trainer, and the millisecond at which it came. */
export interface Heard {
  readonly topic: string
  readonly body: ReadonlyMap<unknown, unknown>
  readonly at: number
}

/** Answers the nth message of a topic, counted from 0. */
export type Answer = (body: ReadonlyMap<unknown, unknown>, index: number) => Effect.Effect<Cell.CellReply | undefined>

const { ReplyTopic, Topic } = ClientApi
const spoken = [Topic.resultReady, Topic.resultStatus, Topic.resultSourceSettled, Topic.heartbeat, Topic.log]

export const reply = (fields: Fields) => Effect.succeed(ClientApi.ok(fields))
export const silence: Effect.Effect<never> = Effect.never

export const accept = (body: ReadonlyMap<unknown, unknown>) =>
  reply({
    reply_topic: ReplyTopic.resultAccepted,
    result_id: body.get("result_id"),
    accepted_attempt_id: body.get("attempt_id")
  })

const usual: { readonly [topic: string]: Answer } = {
  [Topic.resultReady.topic]: accept,
  [Topic.resultStatus.topic]: () => reply({ reply_topic: ReplyTopic.resultStatus, result_state: "UNKNOWN" }),
  [Topic.resultSourceSettled.topic]: (body) =>
    reply({ reply_topic: ReplyTopic.resultSourceSettled, task_id: body.get("task_id") }),
  [Topic.heartbeat.topic]: (body) => reply({ reply_topic: ReplyTopic.heartbeat, session_id: body.get("session_id") }),
  [Topic.log.topic]: () => Effect.succeed(undefined)
}

export const exchange: Fields = {
  train_with_eval: false,
  exchange_format: "raw",
  server_expected_format: "numpy",
  transfer_type: "FULL",
  train_task_name: "train",
  eval_task_name: "validate",
  submit_model_task_name: "submit_model",
  launch_once: true
}

export const openBody = (overrides: Fields = {}): ReadonlyMap<string, unknown> =>
  ClientApi.body({
    session_id: sessionId,
    attach_id: "gpu-1",
    job_id: "job-1",
    site_name: "site-1",
    trainer_fqcn: trainerFqcn,
    protocol_version: 1,
    rank: "0",
    heartbeat_interval: 5,
    heartbeat_timeout: 30,
    task_exchange: ClientApi.body(exchange),
    memory_gc_rounds: 0,
    cuda_empty_cache: false,
    ...overrides
  })

export const array = (...values: ReadonlyArray<number>) => NdArray.fromTyped(Float32Array.from(values))

export const model = (...values: ReadonlyArray<number>) => new FLModel({ params: [["w", array(...values)]] })

export const shareable = (source: FLModel): Shareable => Result.getOrThrow(ModelExchange.toShareable(source))

export const modelOf = (value: unknown): FLModel => {
  const found = ClientApi.shareableOf(value)
  assert.isDefined(found, "a Shareable")
  return Result.getOrThrow(ModelExchange.fromShareable(found as Shareable))
}

export const { advance, settle } = MemoryNetwork

export interface JobOptions {
  readonly network?: MemoryNetwork.NetworkOptions
  readonly codec?: NonNullable<Cell.CellOptions["codec"]>
}

/** The network, the CJ on it, and the trainers that the test starts; all of it ends with the test. */
export const makeJob = Effect.fnUntraced(function* (options: JobOptions = {}) {
  const services = yield* Layer.build(MemoryNetwork.layer(options.network))
  const scope = yield* Effect.scope
  const cell = yield* Cell.make({
    fqcn: cjFqcn,
    byeTimeout: 0,
    ...(options.codec === undefined ? {} : { codec: options.codec })
  }).pipe(Effect.provide(services))
  yield* cell.listen("memory://service")
  const heard: Array<Heard> = []
  const arrivals = yield* Queue.unbounded<void>()
  const answers = new Map<string, Answer>(Object.entries(usual))
  for (const address of spoken) {
    yield* cell.handle(address, ({ payload }) =>
      Effect.gen(function* () {
        const { topic } = address
        const index = heard.filter((each) => each.topic === topic).length
        const body = ClientApi.bodyOf(payload) ?? new Map()
        heard.push({ topic, body, at: yield* Clock.currentTimeMillis })
        yield* Queue.offer(arrivals, undefined)
        return yield* (answers.get(topic) ?? (() => Effect.succeed(undefined)))(body, index)
      })
    )
  }

  const of = (address: Cell.Address) => heard.filter(({ topic }) => topic === address.topic)

  /** The nth message of a topic, counted from 0, as soon as there is one. */
  const message = Effect.fnUntraced(function* (address: Cell.Address, index = 0) {
    while (of(address).length <= index) yield* Queue.take(arrivals)
    return of(address)[index] as Heard
  })

  const ask = (
    address: Cell.Address,
    payload: unknown,
    ask: { readonly mode?: "plain" | "stream"; readonly timeout?: number } = {}
  ) => cell.request(trainerFqcn, address, payload, { timeout: ask.timeout ?? 2000, mode: ask.mode ?? "stream" })

  const connected = Effect.asVoid(Stream.runHead(Stream.filter(cell.connected(trainerFqcn), (up) => up)))

  const open = (overrides: Fields = {}) =>
    Effect.andThen(connected, ask(Topic.sessionOpen, openBody(overrides), { mode: "plain" }))

  const task = (fields: Fields = {}) =>
    ask(
      Topic.taskReady,
      ClientApi.body({
        session_id: sessionId,
        task_id: "task-1",
        task_seq: 1,
        attempt_id: "attempt-1",
        task_name: "train",
        model: shareable(model(1, 2)),
        ...fields
      })
    )

  const control = (address: Cell.Address, fields: Fields = {}) =>
    ask(address, ClientApi.body({ session_id: sessionId, ...fields }))

  const provided = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.provide(effect, services)

  /** Starts a trainer that attaches by itself; its session is there once the CJ has opened it. */
  const attaching = (
    profile: TrainerProfile = TestTrainer.profile({ attachId: "gpu-1" }),
    given?: Trainer.TrainerOptions
  ) =>
    Effect.gen(function* () {
      const own = yield* Scope.make()
      yield* Effect.addFinalizer((exit) => Scope.close(own, exit))
      const session = yield* Effect.forkIn(Scope.provide(provided(Trainer.attach(profile, given)), own), scope)
      return { session, close: Scope.close(own, Exit.void) }
    })

  /** An attached trainer, to be driven by the test. */
  const attach = Effect.fnUntraced(function* (overrides: Fields = {}, given?: Trainer.TrainerOptions) {
    const trainer = yield* attaching(undefined, given)
    assert.strictEqual(bodyOf(yield* open(overrides)).reply_topic, ReplyTopic.sessionAccepted)
    return { session: yield* Fiber.join(trainer.session), close: trainer.close }
  })

  /** An attached trainer that runs by itself. */
  const run = <E, R>(train: (model: FLModel) => Effect.Effect<FLModel, E, R>, overrides: Fields = {}) =>
    Effect.gen(function* () {
      const fiber = yield* Effect.forkScoped(provided(Trainer.run(TestTrainer.profile({ attachId: "gpu-1" }), train)))
      assert.strictEqual(bodyOf(yield* open(overrides)).reply_topic, ReplyTopic.sessionAccepted)
      return fiber
    })

  return {
    cell,
    services,
    provided,
    heard: of,
    message,
    answer: (address: Cell.Address, answer: Answer) => void answers.set(address.topic, answer),
    ask,
    connected,
    open,
    task,
    abort: (reason: string) => control(Topic.abort, { reason }),
    shutdown: control(Topic.shutdown, { reason: "job ended" }),
    status: (taskId: unknown) => control(Topic.taskStatus, { task_id: taskId }),
    attaching,
    attach,
    run
  }
})

/** The map of a reply as an object. */
export const bodyOf = (reply: Cell.CellReply): Fields => Object.fromEntries(ClientApi.bodyOf(reply.payload) ?? [])

/** How a call failed; it must have. */
export const reasonOf = <A>(effect: Effect.Effect<A, TrainerError>) =>
  Effect.map(Effect.flip(effect), ({ reason }) => reason)

export const received = <A>(value: Option.Option<A>): A => {
  assert.isTrue(Option.isSome(value), "something was received")
  return Option.getOrThrow(value)
}
