/**
 * One session with a trainer: offered until accepted, alive while the trainer is heard.
 *
 * A backend has one session at a time; under `allowReconnect` a lost one is followed by a fresh one with a new id and
 * a new budget. Source: docs/wire/attach.md, sections 3.1 and 6.1.
 *
 * @since 0.1.0
 */
import { Clock, Deferred, Duration, Effect, Latch, Option, Stream } from "effect"
import type { Cell, CellReply } from "../cell/Cell.ts"
import * as ClientApi from "../clientapi/ClientApi.ts"
import type { TrainerName } from "../clientapi/TrainerName.ts"
import { type AttachConfig, sourceGrace } from "./AttachConfig.ts"
import { type AttachError, AttachTimeout, attachError, SessionLost, SessionRejected } from "./AttachError.ts"
import * as AttachMetrics from "./AttachMetrics.ts"
import type { ResultAuthority } from "./ResultAuthority.ts"

/**
 * What all sessions of a backend share.
 *
 * @category models
 * @since 0.1.0
 */
export interface SessionContext {
  readonly cell: Cell["Service"]
  readonly config: AttachConfig
  readonly trainer: TrainerName
  readonly authority: ResultAuthority
  /** Whether messages are protected end to end. */
  readonly secure: boolean
  /** Whether the trainer's own connection is seen here; not so behind a client parent. */
  readonly direct: boolean
}

/**
 * A session. Fields change synchronously, by the fibers of one backend.
 *
 * @category models
 * @since 0.1.0
 */
export class AttachSession {
  readonly id: string
  /** Fails once, with the reason for which the session can serve no more. */
  readonly ended: Deferred.Deferred<never, AttachError> = Deferred.makeUnsafe()
  /** Whether a SESSION_OPEN left: from then on somebody may hold the session, and is owed a SHUTDOWN. */
  offered = false
  accepted = false
  /** When the trainer was last heard, in monotonic nanoseconds. */
  heardAt = 0n
  private seq = 0
  private delivering = false
  private readonly heard = Latch.makeUnsafe(false)
  private readonly answered = Latch.makeUnsafe(true)

  constructor(id: string) {
    this.id = id
  }

  /** Whether tasks can be given to it. */
  get isUsable(): boolean {
    return this.accepted && !Deferred.isDoneUnsafe(this.ended)
  }

  /** The next task's number; the first is 1. */
  nextSeq(): number {
    this.seq += 1
    return this.seq
  }

  /** The trainer was heard at `now`, by a message of its own that named this session. */
  touch(now: bigint): void {
    this.heardAt = now
    Latch.openUnsafe(this.heard)
  }

  /** Ends when the trainer is heard again. */
  get nextWord(): Effect.Effect<void> {
    return Effect.suspend(() => {
      Latch.closeUnsafe(this.heard)
      return this.heard.await
    })
  }

  /** Whether the trainer has yet to answer a TASK_READY: it may be busy with taking the task in. */
  get isDelivering(): boolean {
    return this.delivering
  }

  /** Ends when no TASK_READY is unanswered. */
  get deliveryOver(): Effect.Effect<void> {
    return this.answered.await
  }

  /** Counts as delivering while the effect runs. */
  readonly during = <A, E>(attempt: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.acquireUseRelease(
      Effect.sync(() => this.setDelivering(true)),
      () => attempt,
      () => Effect.sync(() => this.setDelivering(false))
    )

  private setDelivering(value: boolean): void {
    this.delivering = value
    if (value) Latch.closeUnsafe(this.answered)
    else Latch.openUnsafe(this.answered)
  }
}

const sessionOpen = (context: SessionContext, session: AttachSession) => {
  const { config, trainer } = context
  return ClientApi.body({
    session_id: session.id,
    attach_id: trainer.attachId,
    job_id: trainer.jobId,
    site_name: trainer.siteName,
    trainer_fqcn: trainer.trainerFqcn,
    protocol_version: ClientApi.protocolVersion,
    rank: "0",
    heartbeat_interval: ClientApi.seconds(config.heartbeatInterval),
    heartbeat_timeout: ClientApi.seconds(config.heartbeatTimeout),
    task_exchange: ClientApi.body({
      train_with_eval: config.trainWithEvaluation,
      exchange_format: config.paramsExchangeFormat,
      server_expected_format: config.serverExpectedFormat,
      transfer_type: config.paramsTransferType,
      train_task_name: config.trainTaskName,
      eval_task_name: config.evaluateTaskName,
      submit_model_task_name: config.submitModelTaskName,
      launch_once: true
    }),
    memory_gc_rounds: config.memoryGcRounds,
    cuda_empty_cache: config.cudaEmptyCache
  })
}

const rejected = (context: SessionContext, reason: string) =>
  attachError(
    new SessionRejected({
      attachId: context.trainer.attachId,
      reason,
      message: `trainer ${context.trainer.trainerFqcn} refused the session: ${reason}. Check its profile (attach_id, site_name) against this service`
    })
  )

/**
 * Whether the trainer's own connection is up, as far as it can be seen from here.
 *
 * @category combinators
 * @since 0.1.0
 */
export const isUp = (context: SessionContext): Effect.Effect<boolean> =>
  Effect.map(
    Stream.runHead(context.cell.connected(context.trainer.trainerFqcn)),
    Option.getOrElse(() => false)
  )

/** Ends when the trainer's cell connects anew, seen from a time when it was connected or not. */
const arrival = (context: SessionContext, wasUp: boolean) =>
  context.cell.connected(context.trainer.trainerFqcn).pipe(
    Stream.dropWhile((up) => wasUp && up),
    Stream.filter((up) => up),
    Stream.runHead
  )

/** Ends when the trainer's cell is not connected. */
const departure = (context: SessionContext) =>
  context.cell.connected(context.trainer.trainerFqcn).pipe(
    Stream.filter((up) => !up),
    Stream.runHead
  )

/**
 * The pause between two tries; it ends early when the trainer's cell connects anew, seen from the time of `wasUp`.
 *
 * @category combinators
 * @since 0.1.0
 */
export const pause = (context: SessionContext, limit: Duration.Duration, wasUp: boolean): Effect.Effect<void> =>
  Effect.asVoid(Effect.raceFirst(Effect.sleep(limit), arrival(context, wasUp)))

const offer = Effect.fnUntraced(function* (context: SessionContext, session: AttachSession) {
  session.offered = true
  return yield* context.cell
    .request(context.trainer.trainerFqcn, ClientApi.Topic.sessionOpen, sessionOpen(context, session), {
      // Clear sessions are opened by a plain message: it fails at once while there is no trainer.
      mode: context.secure ? "stream" : "plain",
      secure: context.secure,
      optional: true,
      timeout: context.config.controlTimeout
    })
    .pipe(Effect.option)
})

/** What an answer to SESSION_OPEN means; `None` = none that counts, offer again. */
const judge = (
  context: SessionContext,
  session: AttachSession,
  reply: Option.Option<CellReply>
): Option.Option<Effect.Effect<void, AttachError>> => {
  if (Option.isNone(reply) || reply.value.returnCode !== "ok") return Option.none()
  const refuse = (reason: string) => Option.some(Effect.fail(rejected(context, reason)))
  const body = ClientApi.read(ClientApi.Body.sessionReply)(reply.value.payload)
  if (Option.isNone(body)) return refuse("its answer is no session reply")
  const { reply_topic, reason, session_id } = body.value
  if (reply_topic === ClientApi.ReplyTopic.sessionRejected) {
    // A trainer that was silent for longer than its lease may still hold the old session: it lets go in time.
    const isHeld = context.config.allowReconnect && reason?.includes("already bound") === true
    return isHeld ? Option.none() : refuse(reason ?? "no reason given")
  }
  if (reply_topic !== ClientApi.ReplyTopic.sessionAccepted || session_id !== session.id) {
    return refuse(`it answered ${reply_topic} for session ${session_id}`)
  }
  // Python compares by number: true and 1.0 are 1.
  const version = ClientApi.bodyOf(reply.value.payload)?.get("protocol_version") ?? ClientApi.protocolVersion
  return version === ClientApi.protocolVersion || version === true
    ? Option.some(Effect.void)
    : refuse(`it speaks protocol version ${String(version)}, not ${ClientApi.protocolVersion}`)
}

/**
 * Offers the session until the trainer accepts it: every `controlRetry`, and at once when the trainer's cell connects.
 * Fails with `AttachTimeout` after `attachTimeout`, and with `SessionRejected`.
 *
 * @category combinators
 * @since 0.1.0
 */
export const open = Effect.fn("AttachSession.open")(function* (context: SessionContext, session: AttachSession) {
  const { attachTimeout, controlRetry } = context.config
  const offerUntilJudged = Effect.gen(function* () {
    while (true) {
      const wasUp = yield* isUp(context)
      const verdict = judge(context, session, yield* offer(context, session))
      if (Option.isSome(verdict)) return yield* verdict.value
      yield* pause(context, controlRetry, wasUp)
    }
  })
  yield* attachTimeout === undefined
    ? offerUntilJudged
    : Effect.timeoutOrElse(offerUntilJudged, {
        duration: attachTimeout,
        orElse: () =>
          Effect.fail(
            attachError(
              new AttachTimeout({
                attachId: context.trainer.attachId,
                setting: "attachTimeout",
                limit: attachTimeout,
                message: `no trainer attached as ${context.trainer.trainerFqcn} within attachTimeout (${Duration.format(attachTimeout)}). Start one with attach_id "${context.trainer.attachId}", or allow more time`
              })
            )
          )
      })
  session.accepted = true
  session.touch(yield* Clock.monotonicTimeNanos)
})

/**
 * Ends when the trainer has been disconnected for `sourceGrace` without a break. Behind a client parent its connection
 * can't be seen from here, so its silence counts instead.
 *
 * @category combinators
 * @since 0.1.0
 */
export const disconnected = (context: SessionContext, session: AttachSession): Effect.Effect<void> => {
  const grace = sourceGrace(context.config)
  if (!context.direct) {
    const lease = Duration.sum(context.config.heartbeatTimeout, grace)
    return Effect.gen(function* () {
      while (true) {
        const left = yield* leaseLeft(session, lease)
        if (left <= 0n) return
        yield* Effect.sleep(Duration.nanos(left))
      }
    })
  }
  return context.cell.connected(context.trainer.trainerFqcn).pipe(
    Stream.switchMap((up) => (up ? Stream.never : Stream.fromEffect(Effect.sleep(grace)))),
    Stream.runHead,
    Effect.asVoid
  )
}

const leaseLeft = Effect.fnUntraced(function* (session: AttachSession, lease: Duration.Duration) {
  const silent = (yield* Clock.monotonicTimeNanos) - session.heardAt
  return Duration.toNanosUnsafe(lease) - silent
})

const lost = Effect.fnUntraced(function* (context: SessionContext, session: AttachSession) {
  const { heartbeatInterval, heartbeatTimeout: limit } = context.config
  const silence = (yield* Clock.monotonicTimeNanos) - session.heardAt
  const silent = Duration.nanos(silence)
  const missed = Number(silence / Duration.toNanosUnsafe(heartbeatInterval))
  yield* AttachMetrics.count(AttachMetrics.heartbeatsMissed, {}, missed)
  return yield* attachError(
    new SessionLost({
      attachId: context.trainer.attachId,
      sessionId: session.id,
      limit,
      silent,
      message: `trainer ${context.trainer.trainerFqcn} is lost: heartbeatTimeout is ${Duration.format(limit)}, silent for ${Duration.format(silent)}`
    })
  )
})

/** The lease ends when silence is longer than the timeout: one step beyond it. */
const beyond = (left: bigint) => Effect.sleep(Duration.sum(Duration.nanos(left), Duration.millis(1)))

/**
 * Ends when the lease is over. A trainer that takes a task in may be too busy to send heartbeats; while it is connected,
 * as far as that can be seen, it has `decodeGrace` more.
 */
const leaseOver = Effect.fnUntraced(function* (context: SessionContext, session: AttachSession) {
  const { decodeGrace, heartbeatTimeout } = context.config
  const gone = context.direct ? departure(context) : Effect.never
  while (true) {
    const left = yield* leaseLeft(session, heartbeatTimeout)
    if (left >= 0n) {
      yield* beyond(left)
      continue
    }
    const isBusy = session.isDelivering && (!context.direct || (yield* isUp(context)))
    const more = isBusy ? left + Duration.toNanosUnsafe(decodeGrace) : -1n
    if (more < 0n) return
    yield* Effect.raceFirst(beyond(more), Effect.raceFirst(session.deliveryOver, gone))
  }
})

/** What comes of a silent session whose result is still being served: `true` = the trainer spoke. */
const outlive = (context: SessionContext, session: AttachSession) =>
  Effect.raceFirst(
    Effect.as(session.nextWord, true),
    Effect.raceFirst(
      Effect.as(context.authority.idle, false),
      Effect.andThen(
        disconnected(context, session),
        Effect.sync(() => {
          context.authority.abandon()
          return false
        })
      )
    )
  )

/**
 * Watches an accepted session; fails when it can serve no more. Between looks it sleeps until the lease would end.
 * A silent trainer that still serves an accepted result is kept under `allowReconnect`, until the result is served or
 * the trainer is disconnected for good; `onSilent` is told of the change, true or false.
 *
 * @category combinators
 * @since 0.1.0
 */
export const watch = (
  context: SessionContext,
  session: AttachSession,
  onSilent: (silent: boolean) => Effect.Effect<void>
): Effect.Effect<never, AttachError> => {
  const liveness = Effect.gen(function* () {
    while (true) {
      yield* leaseOver(context, session)
      if (!(context.config.allowReconnect && context.authority.live)) return yield* lost(context, session)
      yield* onSilent(true)
      if (!(yield* outlive(context, session))) return yield* lost(context, session)
      yield* onSilent(false)
    }
  })
  return Effect.raceFirst(liveness, Deferred.await(session.ended))
}
