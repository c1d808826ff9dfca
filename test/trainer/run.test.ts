import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Deferred, Duration, Effect, Exit, Fiber, Option, Scope } from "effect"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import * as Rendezvous from "../../src/clientapi/Rendezvous.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import { PrivateFiles } from "../../src/platform/PrivateFiles.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import * as Trainer from "../../src/trainer/Trainer.ts"
import { TrainerProfile } from "../../src/trainer/TrainerProfile.ts"
import { TrainerSession } from "../../src/trainer/TrainerSession.ts"
import { Drivers } from "../../src/transport/Drivers.ts"
import { makeListener } from "../clientapi/rendezvousSupport.ts"
import {
  accept,
  advance,
  array,
  bodyOf,
  cjFqcn,
  makeJob,
  model,
  modelOf,
  reasonOf,
  reply,
  settle,
  silence
} from "./support.ts"

const { ReplyTopic, Topic } = ClientApi

const same = (received: FLModel) => Effect.succeed(received)

const returnCodeOf = (result: unknown) => ClientApi.shareableOf(result)?.headers.get("__rc__")

describe("Trainer.run", () => {
  it.effect("answers task after task and ends with SHUTDOWN", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const running = yield* job.run((received) =>
        Effect.gen(function* () {
          const session = yield* TrainerSession
          assert.deepStrictEqual(yield* session.taskName, Option.some("train"))
          return received
        })
      )
      for (const index of [0, 1, 2]) {
        yield* job.task({ task_id: `task-${index}`, task_seq: index + 1 })
        yield* job.message(Topic.resultSourceSettled, index)
      }
      yield* job.shutdown
      yield* Fiber.join(running)
      assert.strictEqual(job.heard(Topic.resultReady).length, 3)
    })
  )

  const failures: ReadonlyArray<readonly [string, (received: FLModel) => Effect.Effect<FLModel, unknown>]> = [
    ["fails", () => Effect.fail("no memory")],
    ["dies", () => Effect.die(new Error("no memory"))],
    [
      "throws outright",
      () => {
        throw new Error("no memory")
      }
    ],
    ["returns a model of nothing", () => Effect.succeed(new FLModel({}))],
    ["returns what can't be encoded", () => Effect.succeed(new FLModel({ params: [["f", Symbol("no value")]] }))]
  ]
  it.effect.each(failures)(
    "training that %s: the service is told EXECUTION_EXCEPTION and the session goes on",
    ([, fails]) =>
      Effect.gen(function* () {
        const job = yield* makeJob()
        let tasks = 0
        const running = yield* job.run((received) => (tasks++ === 0 ? fails(received) : same(received)))
        yield* job.task()
        const told = yield* job.message(Topic.resultReady)
        assert.strictEqual(returnCodeOf(told.body.get("result")), "EXECUTION_EXCEPTION")
        yield* job.message(Topic.resultSourceSettled)
        assert.strictEqual(bodyOf(yield* job.status("task-1")).task_state, "COMPLETE")
        yield* job.task({ task_id: "task-2", task_seq: 2 })
        const result = yield* job.message(Topic.resultReady, 1)
        assert.deepStrictEqual(modelOf(result.body.get("result")).arrays.get("w"), array(1, 2))
        yield* job.shutdown
        yield* Fiber.join(running)
      })
  )

  it.effect("training that interrupts itself is no failure: the trainer ends as interrupted, and nothing is sent", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const running = yield* job.run(() => Effect.interrupt)
      yield* job.task()
      const exit = yield* Fiber.await(running)
      assert.isTrue(Exit.hasInterrupts(exit))
      assert.deepStrictEqual(job.heard(Topic.resultReady), [])
    })
  )

  const interrupted = Effect.fnUntraced(function* (end: (job: Job) => Effect.Effect<unknown>) {
    const job = yield* makeJob()
    const started = yield* Deferred.make<void>()
    const stopped = yield* Deferred.make<void>()
    const running = yield* job.run(() =>
      Deferred.succeed(started, undefined).pipe(
        Effect.andThen(Effect.never),
        Effect.onInterrupt(() => Deferred.succeed(stopped, undefined))
      )
    )
    yield* job.task()
    yield* Deferred.await(started)
    yield* end(job)
    yield* Deferred.await(stopped)
    assert.deepStrictEqual(job.heard(Topic.resultReady), [])
    return yield* Fiber.await(running)
  })
  type Job = Effect.Success<ReturnType<typeof makeJob>>

  it.effect("16.47 ABORT interrupts the training at once, and run fails with its reason", () =>
    Effect.gen(function* () {
      const exit = yield* interrupted((job) => Effect.orDie(job.abort("enough")))
      const reason = yield* reasonOf(exit)
      assert.deepStrictEqual(reason._tag === "SessionEnded" ? [reason.by, reason.reason] : reason, ["abort", "enough"])
    })
  )

  it.effect("16.47 SHUTDOWN interrupts the training at once, and run ends well", () =>
    Effect.gen(function* () {
      assert.isTrue(Exit.isSuccess(yield* interrupted((job) => Effect.orDie(job.shutdown))))
    })
  )

  it.effect("16.52 a service that fell silent interrupts the training when the lease ends", () =>
    Effect.gen(function* () {
      const exit = yield* interrupted((job) => {
        job.answer(Topic.heartbeat, () => silence)
        return advance(30_001)
      })
      const reason = yield* reasonOf(exit)
      assert.strictEqual(reason._tag === "SessionEnded" ? reason.by : reason._tag, "lease")
    })
  )

  it.effect("16.48 SHUTDOWN never interrupts a send: the result is brought home, then run ends", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      job.answer(Topic.resultReady, (body) => Effect.delay(accept(body), "10 seconds"))
      const running = yield* job.run(same)
      yield* job.task()
      yield* job.message(Topic.resultReady)
      assert.deepStrictEqual(bodyOf(yield* job.shutdown), { result_source_live: true })
      yield* advance(9999)
      yield* settle
      assert.isUndefined(running.pollUnsafe())
      yield* advance(1)
      yield* Fiber.join(running)
      assert.strictEqual(job.heard(Topic.resultSourceSettled).length, 1)
    })
  )

  it.effect("16.51 a refused result is a warning, and the next task comes", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const refuse = reply({ reply_topic: ReplyTopic.resultRejected, reason: "no current task" })
      job.answer(Topic.resultReady, (body, index) => (index === 0 ? refuse : accept(body)))
      const running = yield* job.run(same)
      yield* job.task()
      yield* job.message(Topic.resultReady)
      yield* job.task({ task_id: "task-2", task_seq: 2 })
      yield* job.message(Topic.resultSourceSettled)
      yield* job.shutdown
      yield* Fiber.join(running)
      assert.deepStrictEqual(
        job.heard(Topic.resultReady).map(({ body }) => body.get("task_id")),
        ["task-1", "task-2"]
      )
    })
  )

  it.effect("16.51 a result that may be lost fails run, so that the service waits no longer than the lease", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      job.answer(Topic.resultReady, () => Effect.succeed({ returnCode: "process_exception" }))
      const running = yield* job.run(same)
      yield* job.task()
      assert.strictEqual((yield* reasonOf(Fiber.join(running)))._tag, "ResultUncertain")
    })
  )

  it.effect("16.51 after a SHUTDOWN neither is an error", () =>
    Effect.gen(function* () {
      const closing = yield* makeJob()
      const uncertain = Effect.succeed({ returnCode: "process_exception" })
      closing.answer(Topic.resultReady, () => Effect.andThen(Effect.orDie(closing.shutdown), uncertain))
      const ending = yield* closing.run(same)
      yield* closing.task()
      yield* Fiber.join(ending)
    })
  )

  it.effect("interrupting run ends the session, and a task in hand with it", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const running = yield* job.run(() => Effect.never)
      yield* job.task()
      yield* settle
      yield* Fiber.interrupt(running)
      assert.strictEqual((yield* Effect.flip(job.status("task-1"))).reason._tag, "TargetUnreachable")
    })
  )
})

describe("ranks", () => {
  it.effect("16.45 rank 1 has no session: it waits for nobody, receives nothing, and what it sends goes nowhere", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      for (const rank of ["1", 1, 7]) {
        const trainer = yield* job.attaching(undefined, { rank })
        const session = yield* Fiber.join(trainer.session)
        assert.isTrue(Option.isNone(yield* session.receive))
        assert.isTrue(Option.isNone(yield* session.receiveWithin("1 hour")))
        assert.isFalse(yield* session.isRunning)
        assert.isFalse(yield* session.isTrain)
        yield* session.send(model(1))
      }
      yield* job.provided(Trainer.run(TestTrainer.profile({ attachId: "gpu-1" }), same, { rank: 1 }))
    })
  )

  it.effect("16.45 the rank comes from RANK where none is given, and is 0 where there is none", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const attach = (env: Record<string, string>) =>
        Effect.gen(function* () {
          const trainer = yield* job.attaching()
          yield* settle
          return trainer.session.pollUnsafe()
        }).pipe(Effect.provide(ConfigProvider.layer(ConfigProvider.fromEnvRecord(env))))
      assert.isDefined(yield* attach({ RANK: "1" }), "rank 1 is done at once")
      assert.isUndefined(yield* attach({ RANK: "0" }), "rank 0 waits for its service")
      assert.isUndefined(yield* attach({}), "so does a trainer without a rank")
    })
  )
})

describe("the way to a service", () => {
  const profile = (seconds?: number) =>
    new TrainerProfile({
      attachId: "gpu-1",
      siteName: "site-1",
      source: { _tag: "Rendezvous", root: "/jobs" },
      secureMode: false,
      ...(seconds === undefined ? {} : { jobWaitTimeout: Duration.seconds(seconds) })
    })

  /** A trainer that looks for its service in a folder, and what publishes the service there. */
  const atFolder = Effect.gen(function* () {
    const job = yield* makeJob()
    const driver = yield* job.provided(Effect.flatMap(Drivers, (drivers) => drivers.forUrl("memory")))
    const anyScheme = Drivers.of({ forUrl: () => Effect.succeed(driver) })
    const attached = yield* Trainer.attach(profile(10)).pipe(
      Effect.provideService(Drivers, anyScheme),
      job.provided,
      Effect.forkScoped
    )
    const publish = (listener?: string) =>
      Effect.gen(function* () {
        const files = yield* PrivateFiles
        yield* Effect.ignore(files.makeDirectory("/jobs", 0o770))
        const url = yield* makeListener("/jobs", listener)
        const claim = yield* Rendezvous.claim({ root: "/jobs", siteName: "site-1", attachId: "gpu-1" })
        yield* claim.publish({ cjFqcn, connectUrl: url })
        yield* job.cell.listen(url.replace("shared-file", "memory"))
      }).pipe(job.provided)
    return { job, attached, publish }
  })

  it.effect("16.29 a rendezvous profile finds the listener and pins the CJ that published it", () =>
    Effect.gen(function* () {
      const { attached, job, publish } = yield* atFolder
      yield* settle
      yield* publish()
      yield* advance("2 seconds")
      assert.strictEqual(bodyOf(yield* job.open()).reply_topic, ReplyTopic.sessionAccepted)
      assert.strictEqual((yield* Fiber.join(attached)).jobId, "job-1")
    })
  )

  it.effect("16.76 the waits for an endpoint and for SESSION_OPEN share one deadline", () =>
    Effect.gen(function* () {
      const { attached, job, publish } = yield* atFolder
      yield* advance("7 seconds")
      yield* publish()
      yield* advance("1 second")
      yield* job.connected
      yield* advance(1999)
      yield* settle
      assert.isUndefined(attached.pollUnsafe())
      yield* advance(1)
      const reason = yield* reasonOf(Fiber.join(attached))
      assert.strictEqual(reason._tag === "NoSession" ? reason.stage : reason._tag, "session")
    })
  )

  it.effect("a service that is gone before it opened a session: the trainer goes on to the next one there", () =>
    Effect.gen(function* () {
      const { attached, job, publish } = yield* atFolder
      const first = yield* Scope.make()
      yield* Scope.provide(publish("lst_00000001"), first)
      yield* advance("1 second")
      yield* job.connected
      yield* Scope.close(first, Exit.void)
      yield* advance("1 second")
      assert.isUndefined(attached.pollUnsafe())
      yield* publish("lst_00000002")
      yield* advance("3 seconds")
      assert.strictEqual(bodyOf(yield* job.open()).reply_topic, ReplyTopic.sessionAccepted)
      assert.strictEqual((yield* Fiber.join(attached)).jobId, "job-1")
    })
  )

  it.effect("16.30 an endless wait for an endpoint ends by interruption", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const trainer = yield* job.attaching(profile())
      yield* advance("5 minutes")
      assert.isUndefined(trainer.session.pollUnsafe())
      yield* Fiber.interrupt(trainer.session)
    })
  )

  it.effect("16.76 no endpoint within job_wait_timeout: NoSession, after one last look", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const trainer = yield* job.attaching(profile(10))
      yield* advance(9999)
      yield* settle
      assert.isUndefined(trainer.session.pollUnsafe())
      yield* advance(1)
      const reason = yield* reasonOf(Fiber.join(trainer.session))
      assert.strictEqual(reason._tag === "NoSession" ? reason.stage : reason._tag, "rendezvous")
    })
  )

  it.effect(
    "16.36 a protected profile without its key files fails before a cell exists, and never attaches in clear",
    () =>
      Effect.gen(function* () {
        const job = yield* makeJob()
        const secure = new TrainerProfile({
          attachId: "gpu-1",
          siteName: "site-1",
          source: {
            _tag: "Url",
            connectUrl: "memory://service",
            security: "clear",
            cpFqcn: "site-1",
            authIdentity: "site-1"
          },
          secureMode: true,
          caCert: "/ca.crt"
        })
        const trainer = yield* job.attaching(secure)
        const reason = yield* reasonOf(Fiber.join(trainer.session))
        assert.strictEqual(reason._tag, "RouteFailed")
      })
  )

  it.effect("16.45 a failed attach can be tried again", () =>
    Effect.gen(function* () {
      const job = yield* makeJob()
      const first = yield* job.attaching(TestTrainer.profile({ attachId: "gpu-1", jobWaitTimeout: "1 second" }))
      yield* advance("1 second")
      assert.isTrue((yield* Effect.flip(Fiber.join(first.session))).isRetryable)
      yield* first.close
      yield* job.attach()
    })
  )
})
