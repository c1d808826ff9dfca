import { assert } from "@effect/vitest"
import { Clock, Context, type Duration, Effect, Exit, Fiber, Layer, Queue, Result, Scope, Stream } from "effect"
import { TestClock } from "effect/testing"
import { type AttachBackend, make } from "../../src/attach/AttachBackend.ts"
import type { AttachOptions } from "../../src/attach/AttachConfig.ts"
import type { AttachError, AttachErrorReason } from "../../src/attach/AttachError.ts"
import * as AttachRoute from "../../src/attach/AttachRoute.ts"
import * as Cell from "../../src/cell/Cell.ts"
import type { DownloadSettings } from "../../src/cell/DownloadService.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import type { Codec } from "../../src/fobs/Fobs.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import { Header, Shareable } from "../../src/model/Shareable.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import * as TestService from "../../src/testing/TestService.ts"
import type * as MemoryDriver from "../../src/transport/MemoryDriver.ts"

export const cjFqcn = "site-1.job-1"
export const trainerFqcn = "site-1.-client_api_a"
const url = "memory://service"

// ---- The place: a network, the job's cell, a listener.

const layerRoute = (direct: boolean) =>
  Layer.effect(
    AttachRoute.AttachRoute,
    Effect.map(AttachRoute.AttachRoute, ({ open }) =>
      AttachRoute.AttachRoute.of({ open: (trainer) => Effect.map(open(trainer), (route) => ({ ...route, direct })) })
    )
  ).pipe(Layer.provide(AttachRoute.layerListener(url)))

/** Everything below a backend; its release moves the TestClock. */
const layerJob = ({ direct = true, downloads = {}, ...network }: PlaceOptions) =>
  TestService.movingClock(
    layerRoute(direct).pipe(
      Layer.provideMerge(Cell.layer({ fqcn: cjFqcn, downloads })),
      Layer.provideMerge(MemoryNetwork.layer(network))
    )
  )

/** Everything that needs no time, then a step of time with all that it causes, to the last scheduled task. */
export const pass = (duration: Duration.Input = 0) =>
  Effect.andThen(
    Effect.repeat(Effect.yieldNow, { times: 400 }),
    Effect.andThen(TestClock.adjust(duration), Effect.repeat(Effect.yieldNow, { times: 400 }))
  )

/** Moves the clock until the effect has ended. */
export const advance = Effect.fnUntraced(function* <A, E, R>(effect: Effect.Effect<A, E, R>, step = 50) {
  const fiber = yield* Effect.forkChild(effect, { startImmediately: true })
  while (fiber.pollUnsafe() === undefined) yield* pass(step)
  return yield* Fiber.join(fiber)
})

export interface Opened {
  readonly backend: AttachBackend["Service"]
  /** Begins to close the backend; the fiber ends when it is closed. */
  readonly close: Effect.Effect<Fiber.Fiber<void>>
}

/** A backend that the test closes itself, or leaves to `closingAll`. */
export const openBackend = Effect.fnUntraced(function* (options: Partial<AttachOptions> = {}) {
  const { backends } = yield* Homes
  const scope = yield* Scope.fork(backends)
  const backend = yield* make({ attachId: "a", ...options }).pipe(Scope.provide(scope))
  const close = Effect.forkDetach(Scope.close(scope, Exit.void), { startImmediately: true })
  return { backend, close } satisfies Opened
})

/** Where backends and scripted trainers live: both close, with the clock moving, before the cells do. */
class Homes extends Context.Service<
  Homes,
  { readonly backends: Scope.Closeable; readonly trainers: Scope.Closeable }
>()("test/attach/Homes") {}

const layerHomes = TestService.movingClock(
  Layer.effect(
    Homes,
    Effect.acquireRelease(
      Effect.all({ backends: Scope.make("parallel"), trainers: Scope.make() }),
      // Trainers answer while their backends close.
      ({ backends, trainers }) => Effect.andThen(Scope.close(backends, Exit.void), Scope.close(trainers, Exit.void))
    )
  )
)

/** Closes all backends. */
export const closeBackends = Effect.flatMap(Homes, ({ backends }) => Scope.close(backends, Exit.void))

export interface PlaceOptions extends MemoryNetwork.NetworkOptions {
  /** Whether the job's cell sees the trainers' connections; not so behind a client parent. Default true. */
  readonly direct?: boolean
  /** Of the job's cell. */
  readonly downloads?: Partial<DownloadSettings>
}

/** A job that says no more to its trainers than NVFlare's: their arrays are fetched. */
export const asReference: PlaceOptions = { downloads: { maxInlineBytes: 0 } }

/** The place with room for backends and scripted trainers. */
export const layer = (options: PlaceOptions = {}) => Layer.provideMerge(layerHomes, layerJob(options))

// ---- A trainer that says what it is told to.

type Body = ReadonlyMap<unknown, unknown>

/** A message that the trainer got. `at` is in milliseconds of the clock. */
export interface Heard {
  readonly topic: string
  readonly at: number
  readonly body: Body
  readonly request: Cell.CellRequest
}

type Answer = (body: Body, request: Cell.CellRequest) => Effect.Effect<Cell.CellReply | undefined>

const topics = ["sessionOpen", "taskReady", "taskStatus", "abort", "shutdown"] as const
type Topic = (typeof topics)[number]

export const ok = (fields: Readonly<Record<string, unknown>>) => Effect.succeed(ClientApi.ok(fields))
export const reply = (reply_topic: keyof typeof ClientApi.ReplyTopic, fields: Readonly<Record<string, unknown>> = {}) =>
  ok({ reply_topic: ClientApi.ReplyTopic[reply_topic], ...fields })

/** What a good trainer that never has a result says. */
const habits = (): Record<Topic, Answer> => ({
  sessionOpen: (body) => reply("sessionAccepted", { session_id: body.get("session_id"), protocol_version: 1 }),
  taskReady: (body) => reply("taskAccepted", { task_id: body.get("task_id") }),
  taskStatus: (body) =>
    reply("taskStatus", { task_id: body.get("task_id"), task_state: "UNKNOWN", accepted_attempt_id: null }),
  abort: () => Effect.succeed({ returnCode: "ok" }),
  shutdown: () => ok({ result_source_live: false })
})

/** Answers that change from one message to the next; the last one stays. */
export const inTurn = (...answers: readonly [Answer, ...ReadonlyArray<Answer>]): Answer => {
  let turn = 0
  return (body, request) => {
    const answer = answers[Math.min(turn, answers.length - 1)] ?? answers[0]
    turn += 1
    return answer(body, request)
  }
}

/** No answer at all. */
export const silence: Answer = () => Effect.never

export interface ScriptedTrainer {
  readonly cell: Cell.Cell["Service"]
  /** What it says to each topic; to be changed at will. */
  readonly answers: Record<Topic, Answer>
  /** All that it heard so far. */
  readonly heard: ReadonlyArray<Heard>
  readonly of: (topic: Topic) => ReadonlyArray<Heard>
  /** Waits for the next message on a topic that nobody has waited for yet. */
  readonly next: (topic: Topic) => Effect.Effect<Heard>
  /** The session that it last accepted. */
  readonly sessionId: () => string
  readonly ask: (
    topic: keyof typeof ClientApi.Topic,
    payload: unknown,
    timeout?: Duration.Input
  ) => Effect.Effect<Cell.CellReply>
  /** Without an argument it says `false`. */
  readonly heartbeat: (...live: readonly [] | readonly [unknown]) => Effect.Effect<Cell.CellReply>
  readonly settle: (task: Heard) => Effect.Effect<Cell.CellReply>
  readonly result: (task: Heard, fields?: Readonly<Record<string, unknown>>) => Effect.Effect<Cell.CellReply>
  readonly stop: Effect.Effect<void>
}

/** Starts a bare cell in the trainer's place; it does what its answers say and nothing by itself. */
export const startTrainer = Effect.fnUntraced(function* (
  answers: Partial<Record<Topic, Answer>> = {},
  options: { readonly fqcn?: string; readonly codec?: Codec } = {}
) {
  const { trainers } = yield* Homes
  const scope = yield* Scope.fork(trainers)
  const { codec, fqcn = trainerFqcn } = options
  const made = Cell.make({ fqcn, byeTimeout: "1 millis", ...(codec === undefined ? {} : { codec }) })
  const cell = yield* Scope.provide(made, scope)
  const says: Record<Topic, Answer> = { ...habits(), ...answers }
  const heard: Array<Heard> = []
  const inboxes = new Map<Topic, Queue.Queue<Heard>>()
  for (const topic of topics) inboxes.set(topic, yield* Queue.unbounded<Heard>())
  const of = (topic: Topic) => heard.filter((message) => message.topic === ClientApi.Topic[topic].topic)
  for (const topic of topics) {
    yield* cell
      .handle(ClientApi.Topic[topic], (request) =>
        Effect.gen(function* () {
          const body = ClientApi.bodyOf(request.payload) ?? new Map()
          const message = { topic: request.address.topic, at: yield* Clock.currentTimeMillis, body, request }
          heard.push(message)
          yield* Queue.offer(inboxes.get(topic) as Queue.Queue<Heard>, message)
          return yield* says[topic](body, request)
        })
      )
      .pipe(Scope.provide(scope))
  }
  yield* Scope.provide(cell.connect(url), scope)

  const sessionId = () => String(of("sessionOpen").at(-1)?.body.get("session_id"))
  const ask: ScriptedTrainer["ask"] = (topic, payload, timeout = "2 seconds") =>
    Effect.orDie(cell.request(cjFqcn, ClientApi.Topic[topic], payload, { timeout }))
  const trainer: ScriptedTrainer = {
    cell,
    answers: says,
    heard,
    of,
    next: (topic) => Queue.take(inboxes.get(topic) as Queue.Queue<Heard>),
    sessionId,
    ask,
    heartbeat: (...live) =>
      ask(
        "heartbeat",
        ClientApi.body({ session_id: sessionId(), result_source_live: live.length === 0 ? false : live[0] })
      ),
    settle: (task) =>
      ask(
        "resultSourceSettled",
        ClientApi.body({ session_id: task.body.get("session_id"), task_id: task.body.get("task_id") })
      ),
    result: (task, fields = {}) =>
      ask(
        "resultReady",
        ClientApi.body({
          session_id: task.body.get("session_id"),
          task_id: task.body.get("task_id"),
          result_id: "r1",
          attempt_id: "try1",
          result: new Shareable([["start_round", 0]]),
          ...fields
        })
      ),
    stop: Scope.close(scope, Exit.void)
  }
  return trainer
})

// ---- Tasks and what is said of them.

const model = (values: ReadonlyArray<number>, currentRound?: number) =>
  new FLModel({
    params: [["w", NdArray.fromTyped(Float32Array.from(values), [values.length])]],
    ...(currentRound === undefined ? {} : { currentRound })
  })

/** A task with a small model. */
export const task = (currentRound = 0, name = "train") => ({
  name,
  data: Result.getOrThrow(ModelExchange.toShareable(model([1, 2], currentRound)))
})

export const failedResult = (returnCode: string) => new Shareable([[Header.returnCode, returnCode]])

export const bodyOf = (reply: Cell.CellReply): Record<string, unknown> =>
  Object.fromEntries(reply.payload instanceof Map ? reply.payload : [])

export const topicOf = (reply: Cell.CellReply): unknown => bodyOf(reply).reply_topic

/** Starts a task in the background. */
export const start = (backend: AttachBackend["Service"], given = task()) =>
  Effect.forkChild(backend.execute(given), { startImmediately: true })

/** The failure of a fiber, moved on until it ends. */
export const reasonOf = Effect.fnUntraced(function* <Tag extends AttachErrorReason["_tag"]>(
  fiber: Fiber.Fiber<unknown, AttachError>,
  tag: Tag
) {
  const error = yield* Effect.flip(Fiber.join(fiber))
  assert.strictEqual(error.reason._tag, tag, error.message)
  return error.reason as Extract<AttachErrorReason, { readonly _tag: Tag }>
})

/** Whether a fiber has ended. */
export const isOver = (fiber: Fiber.Fiber<unknown, unknown>): boolean => fiber.pollUnsafe() !== undefined

export const untilState = (backend: AttachBackend["Service"], tag: string) =>
  Effect.asVoid(Stream.runHead(Stream.filter(backend.sessionChanges, (state) => state._tag === tag)))

/** The clock, in milliseconds. */
export const now = Clock.currentTimeMillis

/** A task of 20 chunks of a stream. */
export const bigTask = {
  name: "train",
  data: new Shareable([], [["blob", new Uint8Array(20 * 1024 * 1024)]])
}

/** Each big frame takes so long, one after the other, from the service to the trainer. */
export const slowFrames = (each: Duration.Input): MemoryDriver.Faults => ({
  onFrame: ({ bytes }) =>
    bytes.byteLength > 500_000 ? Effect.as(Effect.sleep(each), "deliver" as const) : Effect.succeed("deliver" as const)
})
