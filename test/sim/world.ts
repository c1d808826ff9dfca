/** Plays a scenario with a real service and real trainers on a memory network, and looks for broken promises. */
import {
  Cause,
  Clock,
  Deferred,
  Duration,
  Effect,
  Exit,
  Fiber,
  Layer,
  Logger,
  Metric,
  Option,
  Random,
  References,
  Result,
  Scope,
  Stream
} from "effect"
import { TestClock } from "effect/testing"
import { type AttachBackend, make as makeBackend } from "../../src/attach/AttachBackend.ts"
import type { AttachError } from "../../src/attach/AttachError.ts"
import * as AttachRoute from "../../src/attach/AttachRoute.ts"
import type { SessionState } from "../../src/attach/SessionState.ts"
import * as Cell from "../../src/cell/Cell.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import type { Shareable } from "../../src/model/Shareable.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import * as Trainer from "../../src/trainer/Trainer.ts"
import type { TrainerError } from "../../src/trainer/TrainerError.ts"
import type { Faults } from "../../src/transport/MemoryDriver.ts"
import type { Scenario, Task, TrainerPlan } from "./scenario.ts"

/** How far the clock moves at a time. */
const step = 50
/** A run that is not over by then hangs. */
const patience = 4 * 3_600_000
/** Longer than any wait of a service that closes under these settings. */
const closingBound = 25_000
/** What a trainer may take beyond its lease to notice that its service is gone: a result that waits to be fetched. */
const transferGrace = 30_000
/** ... and to close. */
const slack = 2000
const jobWaitTimeout = 15_000
const parentUrl = "memory://job"
const readyTimeout = 20_000
const taskWaitTimeout = 20_000
/** Waiting for a trainer, delivery, training, and a result that is sent twice, with the CJ asked after each. */
const executeBound = readyTimeout + taskWaitTimeout + 4000 + 2 * 32_000 + 10_000
/** A question for arrays that vanishes while both connections stay up is asked again after 600 s, three times at most. */
const fetchStall = 3 * 620_000
/** Elements of a model that travels inside its message. */
const inlineSize = 16_000

export interface Outcome {
  readonly trace: ReadonlyArray<string>
  /** What was promised and not kept; empty in a good run. */
  readonly violations: ReadonlyArray<string>
  readonly counts: { readonly tasks: number; readonly results: number; readonly lives: number; readonly frames: number }
}

type Ended = Exit.Exit<Shareable, AttachError>

/** One call of `execute`. Its number is what its model holds, so that it is known again wherever it appears. */
interface Call {
  readonly number: number
  readonly task: Task
  exit: Ended | undefined
}

const modelOf = (number: number, size: number) =>
  new FLModel({ params: [["w", NdArray.fromTyped(new Float32Array(size).fill(number))]] })

const firstOf = (model: FLModel): number => {
  const elements = Result.getOrThrow(model.arrays.get("w")?.toTyped() ?? Result.succeed(new Float32Array()))
  return Number(elements[0])
}

const describe = (exit: Exit.Exit<unknown, AttachError | TrainerError>): string => {
  if (Exit.isSuccess(exit)) return "success"
  const error = Option.getOrUndefined(Cause.findErrorOption(exit.cause))
  if (error !== undefined) return error.reason._tag
  return Cause.hasInterruptsOnly(exit.cause) ? "interrupted" : `a defect: ${Cause.pretty(exit.cause)}`
}

/** Counts the fibers that run, wherever they were started; timers, claims and transfers are held by fibers. */
const makeCensus = () => {
  let alive = 0
  const service: Metric.FiberRuntimeMetricsService = {
    recordFiberStart: () => {
      alive += 1
    },
    recordFiberEnd: () => {
      alive -= 1
    }
  }
  return { service, alive: () => alive }
}

/**
 * How a session moves; the first diagram of docs/protocol.md. `Over` is told as `Opening`, with the old session's id and
 * the reason of its end; another session follows.
 */
const ways: { readonly [from: string]: ReadonlyArray<string> } = {
  Opening: ["Ready", "Failed", "Closed"],
  Ready: ["Silent", "Over", "Failed", "Closed"],
  Silent: ["Ready", "Over", "Closed"],
  Over: ["Opening", "Closed"],
  Failed: ["Closed"],
  Closed: []
}

/** Looks at what the sessions of a backend say: each step is a known one, ids are used once, each end has its reason. */
const makeWitness = (id: string, promise: (isKept: boolean, what: string) => void) => {
  const ids = new Set<string>()
  let last = "Over"
  return ({ _tag, sessionId, why }: SessionState) => {
    const isNew = !ids.has(sessionId)
    ids.add(sessionId)
    const state = _tag === "Opening" && !isNew ? "Over" : _tag
    const step = `${id}: ${last} -> ${state} (${why})`
    promise(ways[last]?.includes(state) === true, `${step} is no way that a session goes`)
    promise(why !== "", `${step} without a reason`)
    promise(isNew === (state === "Opening"), `${step} with ${isNew ? "a new" : "an old"} session id`)
    last = state
  }
}

/** The cell, with what is registered and offered at it counted. */
const makeCounted = (cell: Cell.Cell["Service"]) => {
  const held = { offers: 0, handlers: 0, guards: 0 }
  const counting =
    (what: keyof typeof held) =>
    <A, E, R>(effect: Effect.Effect<A, E, R>) =>
      Effect.tap(effect, () => {
        held[what] += 1
        return Effect.addFinalizer(() => Effect.sync(() => (held[what] -= 1)))
      })
  const counted = Cell.Cell.of({
    ...cell,
    offer: (options) => counting("offers")(cell.offer(options)),
    handle: (address, handler, options) => counting("handlers")(cell.handle(address, handler, options)),
    guard: (rule) => counting("guards")(cell.guard(rule))
  })
  return { cell: counted, held }
}

export const simulate = (scenario: Scenario): Effect.Effect<Outcome> => {
  const census = makeCensus()
  return Effect.gen(function* () {
    const outcome = yield* Effect.provideService(play(scenario), Metric.FiberRuntimeMetrics, census.service)
    if (census.alive() === 0) return outcome
    return { ...outcome, violations: [...outcome.violations, `${census.alive()} fibers outlive the end`] }
  }).pipe(
    // Pauses before dialing again are drawn, too.
    Random.withSeed(scenario.seed),
    Effect.provide(Logger.layer([])),
    Effect.provideService(References.MinimumLogLevel, "None")
  )
}

const play = Effect.fnUntraced(function* (scenario: Scenario) {
  const trace: Array<string> = []
  const violations: Array<string> = []
  const say = (line: string) =>
    Effect.map(Clock.currentTimeMillis, (now) => void trace.push(`${String(now).padStart(7)} ${line}`))
  const promise = (isKept: boolean, what: string) => {
    if (!isKept && !violations.includes(what)) violations.push(what)
  }

  const frames = { count: 0 }
  const seeded = MemoryNetwork.seededFaults({ seed: scenario.seed, ...scenario.rates, maxDelay: scenario.maxDelay })
  const outages = MemoryNetwork.makeOutages(seeded)
  const faults: Faults = {
    onFrame: (frame) => {
      frames.count += 1
      return outages.faults.onFrame(frame)
    }
  }
  const network = yield* Scope.make()
  const services = yield* Layer.buildWithScope(
    MemoryNetwork.layer({ seed: scenario.seed, latency: scenario.latency, faults }),
    network
  )
  const urlOf = ({ id }: TrainerPlan) => `memory://${id}`

  if (scenario.isBehindParent) {
    yield* Effect.gen(function* () {
      const parent = yield* Cell.make({ fqcn: "site-1" })
      for (const url of [parentUrl, ...scenario.trainers.map(urlOf)]) yield* parent.listen(url)
    }).pipe(Effect.provide(services), Scope.provide(network), Effect.orDie)
  }

  /** Whether messages can get lost while the connections of their sender and receiver stay up. */
  const vanishes =
    scenario.rates.drop > 0 ||
    scenario.isBehindParent ||
    scenario.serviceRestart?.isKill === true ||
    scenario.trainers.some(({ troubles }) => troubles.some(({ kind }) => kind === "lose" || kind === "kill"))

  // ---- The service.

  const calls = new Map<number, Call>()
  let number = 0

  const openService = Effect.fnUntraced(function* () {
    const scope = yield* Scope.make()
    const inside = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
      Effect.orDie(Scope.provide(Effect.provide(effect, services), scope))
    const arrays = scenario.isFetched ? { downloads: { maxInlineBytes: 0 } } : { streaming: { chunkSize: 64 * 1024 } }
    const { cell, held } = makeCounted(yield* inside(Cell.make({ fqcn: "site-1.job-1", ...arrays })))
    if (scenario.isBehindParent) yield* inside(cell.connect(parentUrl))
    else for (const plan of scenario.trainers) yield* inside(cell.listen(urlOf(plan)))
    const route = AttachRoute.AttachRoute.of({
      open: ({ attachId }) =>
        Effect.succeed({ secure: false, direct: !scenario.isBehindParent, connectUrl: `memory://${attachId}` })
    })
    const backends = new Map<string, AttachBackend["Service"]>()
    for (const { id } of scenario.trainers) {
      const backend = yield* inside(
        makeBackend({
          attachId: id,
          allowReconnect: scenario.allowReconnect,
          heartbeatInterval: Duration.millis(scenario.heartbeatInterval),
          heartbeatTimeout: Duration.millis(scenario.heartbeatTimeout),
          readyTimeout: Duration.millis(readyTimeout),
          taskWaitTimeout: Duration.millis(taskWaitTimeout),
          finalizeTimeout: "5 seconds",
          ...(scenario.resultWaitTimeout === undefined
            ? {}
            : { resultWaitTimeout: Duration.millis(scenario.resultWaitTimeout) })
        }).pipe(Effect.provideService(Cell.Cell, cell), Effect.provideService(AttachRoute.AttachRoute, route))
      )
      backends.set(id, backend)
      const witness = makeWitness(id, promise)
      yield* Stream.runForEach(backend.sessionChanges, (state) => Effect.sync(() => witness(state))).pipe(
        Effect.forkDetach({ startImmediately: true })
      )
    }
    yield* say("service open")
    // Whoever closes it a second time waits for the first.
    const close = yield* Effect.cached(
      Effect.gen(function* () {
        const began = yield* Clock.currentTimeMillis
        const closing = yield* Effect.forkDetach(Scope.close(scope, Exit.void), { startImmediately: true })
        yield* Fiber.await(closing)
        const took = (yield* Clock.currentTimeMillis) - began
        promise(took <= closingBound, `closing the service took ${took} ms`)
        for (const [id, backend] of backends) {
          const { _tag, why } = yield* backend.session
          promise(_tag === "Closed" && why !== "", `the session of ${id} is ${_tag} after its close: ${why}`)
        }
        for (const [what, count] of Object.entries(held)) promise(count === 0, `${count} ${what} outlive their service`)
        yield* say(`service closed after ${took} ms`)
      })
    )
    return { backends, close, held }
  })

  /** The service that tasks go to, or `undefined` between two. */
  let service = yield* openService()
  let isClosing = false

  const execute = Effect.fnUntraced(function* (plan: TrainerPlan, task: Task) {
    const backend = service.backends.get(plan.id)
    if (backend === undefined) return
    const call: Call = { number: ++number, task, exit: undefined }
    calls.set(call.number, call)
    yield* say(`${plan.id} execute ${call.number}`)
    const data = Result.getOrThrow(ModelExchange.toShareable(modelOf(call.number, task.size)))
    const running = yield* Effect.forkChild(backend.execute({ name: "train", data }), { startImmediately: true })
    if (task.interruptAfter !== undefined) {
      yield* Fiber.interrupt(running).pipe(Effect.delay(task.interruptAfter), Effect.forkChild)
    }
    const began = yield* Clock.currentTimeMillis
    call.exit = yield* Fiber.await(running)
    const took = (yield* Clock.currentTimeMillis) - began
    promise(
      took <= executeBound + (vanishes && task.size > inlineSize ? fetchStall : 0),
      `execute ${call.number} took ${took} ms`
    )
    yield* say(`${plan.id} execute ${call.number}: ${describe(call.exit)}`)
  })

  const drive = Effect.fnUntraced(function* (plan: TrainerPlan) {
    for (const task of plan.tasks) {
      if (isClosing) return
      yield* execute(plan, task)
      // Not all at once after a failure: the next trainer needs its time.
      yield* Effect.sleep(200)
    }
  })

  // ---- The trainers.

  const trained = new Set<string>()
  let lives = 0

  const busy = new Map<number, number>()
  /** One handler at a time in a life. */
  const alone = <A, E, R>(life: number, effect: Effect.Effect<A, E, R>) =>
    Effect.acquireUseRelease(
      Effect.sync(() => {
        busy.set(life, (busy.get(life) ?? 0) + 1)
        promise(busy.get(life) === 1, `life ${life} trains ${busy.get(life)} tasks at a time`)
      }),
      () => effect,
      () => Effect.sync(() => busy.set(life, (busy.get(life) ?? 0) - 1))
    )

  const live = Effect.fnUntraced(function* (plan: TrainerPlan, life: number) {
    const profile = TestTrainer.profile({
      attachId: plan.id,
      connectUrl: urlOf(plan),
      jobWaitTimeout: Duration.millis(jobWaitTimeout)
    })
    const session = yield* Trainer.attach(profile)
    yield* say(`${plan.id} life ${life} attached`)
    const recording = {
      ...session,
      send: (model: FLModel) =>
        Effect.flatMap(Effect.exit(session.send(model)), (exit) => {
          const sent = Math.floor(firstOf(model))
          if (Exit.isSuccess(exit)) delivered.push({ number: sent, life })
          return Effect.andThen(say(`${plan.id} life ${life} send ${sent}: ${describe(exit)}`), exit)
        })
    }
    yield* Trainer.serveTasks(recording, (model) =>
      Effect.gen(function* () {
        const received = firstOf(model)
        const key = `${life}/${received}`
        promise(!trained.has(key), `life ${life} trained task ${received} twice`)
        trained.add(key)
        yield* say(`${plan.id} life ${life} trains ${received}`)
        const task = calls.get(received)?.task
        promise(task !== undefined, `life ${life} was given ${received}, which nobody sent`)
        yield* alone(life, Effect.sleep(task?.train ?? 0))
        if (task?.fails === true) return yield* Effect.fail("training fails")
        return modelOf(received + 0.5, model.arrays.get("w")?.size ?? 0)
      })
    )
  }, Effect.scoped)

  const delivered: Array<{ readonly number: number; readonly life: number }> = []
  const alive = new Map<string, Fiber.Fiber<void, TrainerError>>()
  const stopping = yield* Deferred.make<void>()

  const supervise = Effect.fnUntraced(function* (plan: TrainerPlan) {
    yield* Effect.sleep(plan.startsAt)
    for (let start = 0; start <= plan.restarts && !isClosing; start++) {
      const life = ++lives
      const fiber = yield* Effect.forkDetach(Effect.provide(live(plan, life), services), { startImmediately: true })
      alive.set(plan.id, fiber)
      const exit = yield* Fiber.await(fiber)
      alive.delete(plan.id)
      yield* say(`${plan.id} life ${life} ended: ${describe(exit)}`)
      promise(!describe(exit).startsWith("a defect"), `life ${life} ended with ${describe(exit)}`)
      // A restarted process finds its network whole.
      yield* outages.restore(urlOf(plan))
      yield* Effect.raceFirst(Effect.sleep(plan.restartAfter), Deferred.await(stopping))
    }
  })

  const trouble = Effect.fnUntraced(function* (plan: TrainerPlan) {
    let now = 0
    for (const each of plan.troubles) {
      yield* Effect.sleep(Math.max(0, each.at - now))
      now = Math.max(now, each.at)
      if (isClosing) return
      yield* say(`${plan.id} ${each.kind} for ${each.for} ms`)
      const url = urlOf(plan)
      if (each.kind === "freeze") {
        yield* outages.freeze(url, each.for)
      } else if (each.kind === "lose" || each.kind === "cut") {
        yield* outages[each.kind](url)
        yield* Effect.sleep(each.for)
        now += each.for
        yield* outages.restore(url)
      } else {
        yield* each.kind === "kill" ? outages.lose(url) : outages.cut(url)
        const victim = alive.get(plan.id)
        if (victim !== undefined) yield* Fiber.interrupt(victim)
        yield* outages.restore(url)
      }
    }
  })

  const restartService = Effect.gen(function* () {
    const plan = scenario.serviceRestart
    if (plan === undefined) return
    yield* Effect.sleep(plan.at)
    if (isClosing) return
    yield* say(plan.isKill ? "service killed" : "service closing, to open again")
    const urls = scenario.isBehindParent ? [parentUrl] : scenario.trainers.map(urlOf)
    if (plan.isKill) yield* Effect.forEach(urls, outages.lose)
    yield* service.close
    yield* Effect.forEach(urls, outages.restore)
    if (!isClosing) service = yield* openService()
  })

  // ---- What holds after each step.

  const accepted = new Set<number>()
  const inspect = () => {
    const { offers } = service.held
    promise(offers <= scenario.trainers.length, `${offers} tasks are on offer to ${scenario.trainers.length} trainers`)
    for (const { life, number } of delivered.splice(0)) {
      const call = calls.get(number)
      promise(!accepted.has(number), `two results of task ${number} were accepted`)
      accepted.add(number)
      const exit = call?.exit
      const isReturned = exit !== undefined && (Exit.isSuccess(exit) || describe(exit) === "interrupted")
      promise(isReturned, `the result of task ${number} of life ${life} was accepted, but execute ended otherwise`)
    }
  }

  // ---- The play.

  const acts = Effect.gen(function* () {
    const keeping = yield* Effect.forEach(scenario.trainers, (plan) =>
      Effect.forkDetach(supervise(plan), { startImmediately: true })
    )
    const troubles = yield* Effect.forkChild(
      Effect.forEach(scenario.trainers, trouble, { concurrency: "unbounded", discard: true })
    )
    const restarting = yield* Effect.forkChild(restartService)
    const driving = Effect.forEach(scenario.trainers, drive, { concurrency: "unbounded", discard: true })
    if (scenario.closeAt === undefined) {
      yield* driving
      isClosing = true
    } else {
      const fiber = yield* Effect.forkChild(driving)
      yield* Effect.sleep(scenario.closeAt)
      isClosing = true
      yield* Effect.forkChild(service.close)
      yield* Fiber.join(fiber)
    }
    yield* Fiber.interrupt(troubles)
    yield* Effect.forEach(scenario.trainers, (plan) => outages.restore(urlOf(plan)))
    yield* Fiber.await(restarting)
    yield* service.close
    yield* Deferred.succeed(stopping, undefined)
    // Whoever had a session notices within its lease; whoever waited for one gives up.
    const bound = Math.max(scenario.heartbeatTimeout + transferGrace, jobWaitTimeout) + slack
    const ended = yield* Effect.timeoutOption(
      Effect.forEach(keeping, (fiber) => Fiber.await(fiber), { concurrency: "unbounded", discard: true }),
      bound
    )
    promise(Option.isSome(ended), `${[...alive.keys()]} still alive ${bound} ms after the service closed`)
    yield* Effect.forEach([...alive.values()], Fiber.interrupt)
  })

  const playing = yield* Effect.forkDetach(Effect.exit(acts), { startImmediately: true })
  for (let now = 0; playing.pollUnsafe() === undefined; now += step) {
    if (now > patience) {
      promise(false, "the run hangs")
      break
    }
    yield* TestClock.adjust(step)
    inspect()
    if (violations.length > 0) break
  }
  const exit = playing.pollUnsafe()
  if (exit !== undefined && Exit.isSuccess(exit) && Exit.isFailure(exit.value)) {
    promise(false, `the run failed: ${Cause.pretty(exit.value.cause)}`)
  }

  // ---- After it: each call ended, with what it should.

  for (const { exit, number, task } of calls.values()) {
    if (exit === undefined) {
      promise(false, `execute ${number} never ended`)
      continue
    }
    promise(!describe(exit).startsWith("a defect"), `execute ${number} ended with ${describe(exit)}`)
    promise(
      describe(exit) !== "interrupted" || task.interruptAfter !== undefined,
      `execute ${number} was interrupted by nobody`
    )
    if (Exit.isFailure(exit)) continue
    const times = [...trained].filter((key) => key.endsWith(`/${number}`)).length
    promise(times > 0, `execute ${number} has a result that nobody made`)
    if (exit.value.returnCode !== "OK") {
      promise(task.fails, `execute ${number} has the code ${exit.value.returnCode}`)
      continue
    }
    const result = firstOf(Result.getOrThrow(ModelExchange.fromShareable(exit.value)))
    promise(result === number + 0.5, `execute ${number} returned the result ${result}`)
  }
  inspect()

  // Nothing moves any more, however long one waits.
  const before = frames.count
  yield* TestClock.adjust("1 hour")
  promise(frames.count === before, `${frames.count - before} frames were sent after the end`)
  yield* Scope.close(network, Exit.void)

  const results = [...calls.values()].filter(({ exit }) => exit !== undefined && Exit.isSuccess(exit)).length
  return { trace, violations, counts: { tasks: calls.size, results, lives, frames: frames.count } } satisfies Outcome
})
