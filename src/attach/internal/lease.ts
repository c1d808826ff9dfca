/** How long an accepted session lives. Source: docs/wire/attach.md, section 6.1. */
import { Clock, Deferred, Duration, Effect, Stream } from "effect"
import { formatDuration } from "../../platform/DurationText.ts"
import { sourceGrace } from "../AttachConfig.ts"
import { type AttachError, attachError, SessionLost } from "../AttachError.ts"
import * as AttachMetrics from "../AttachMetrics.ts"
import type { AttachSession, SessionContext } from "../AttachSession.ts"
import { connectionAge, departure, faultSince, isUp, nextConnection } from "./connection.ts"

/**
 * Ends when the trainer has been disconnected for `sourceGrace` without a break. Behind a client parent its connection
 * can't be seen from here, so its silence counts instead.
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

/** For how many nanoseconds the trainer has been silent. */
const silence = (session: AttachSession) => Effect.map(Clock.monotonicTimeNanos, (now) => now - session.heardAt)

const leaseLeft = (session: AttachSession, lease: Duration.Duration) =>
  Effect.map(silence(session), (silent) => Duration.toNanosUnsafe(lease) - silent)

const lost = Effect.fnUntraced(function* (context: SessionContext, session: AttachSession, hadGrace: boolean) {
  const { decodeGrace, heartbeatInterval, heartbeatTimeout: limit } = context.config
  const nanos = yield* silence(session)
  const silent = Duration.nanos(nanos)
  const missed = Number(nanos / Duration.toNanosUnsafe(heartbeatInterval))
  // A fault a heartbeat before the silence or in it is taken for its reason.
  const fault = yield* faultSince(context, session.heardAt - Duration.toNanosUnsafe(heartbeatInterval))
  const grace = hadGrace ? ` and decodeGrace ${formatDuration(decodeGrace)}, for it was taking a task in` : ""
  yield* AttachMetrics.count(AttachMetrics.heartbeatsMissed, {}, missed)
  return yield* attachError(
    new SessionLost({
      attachId: context.trainer.attachId,
      sessionId: session.id,
      limit,
      silent,
      message: `trainer ${context.trainer.trainerFqcn} is lost: heartbeatTimeout is ${formatDuration(limit)}${grace}, silent for ${formatDuration(silent)}${fault}`
    })
  )
})

/** The lease ends when silence is longer than the timeout: one step beyond it. */
const beyond = (left: bigint) => Effect.sleep(Duration.sum(Duration.nanos(left), Duration.millis(1)))

/**
 * Ends when the lease is over. A trainer that takes a task in may be too busy to send heartbeats: it has `decodeGrace`
 * more, until TASK_READY is answered or fails, or it disconnects, as far as that can be seen; answers whether it had.
 */
const leaseOver = Effect.fnUntraced(function* (context: SessionContext, session: AttachSession) {
  const { decodeGrace, heartbeatTimeout } = context.config
  const gone = context.direct ? departure(context) : Effect.never
  let hadGrace = false
  while (true) {
    const left = yield* leaseLeft(session, heartbeatTimeout)
    if (left >= 0n) {
      hadGrace = false
      yield* beyond(left)
      continue
    }
    const isBusy = session.isDelivering && (!context.direct || (yield* isUp(context)))
    const more = isBusy ? left + Duration.toNanosUnsafe(decodeGrace) : -1n
    if (more < 0n) return hadGrace
    hadGrace = true
    yield* Effect.raceFirst(beyond(more), Effect.raceFirst(session.deliveryOver, gone))
  }
})

/**
 * Ends when the trainer's connection began after its last word and has not brought one for a whole lease: whoever has it
 * is another process, which knows nothing of this session.
 */
const takenOver = Effect.fnUntraced(function* (context: SessionContext, session: AttachSession) {
  const { heartbeatTimeout } = context.config
  while (true) {
    const age = yield* connectionAge(context)
    const silent = Duration.nanos(yield* silence(session))
    if (age === undefined || Duration.isGreaterThanOrEqualTo(age, silent)) {
      yield* nextConnection(context)
    } else if (Duration.isGreaterThanOrEqualTo(age, heartbeatTimeout)) {
      return
    } else {
      yield* Effect.sleep(Duration.subtract(heartbeatTimeout, age))
    }
  }
})

/** Bytes that the trainer brings or takes are words of it: on a slow link heartbeats wait behind them. */
const listen = ({ cell, trainer }: SessionContext, session: AttachSession): Effect.Effect<void> =>
  cell.transfers.pipe(
    Stream.filter(({ peer, state }) => peer === trainer.trainerFqcn && (state === "active" || state === "completed")),
    Stream.runForEach(() => Effect.map(Clock.monotonicTimeNanos, (now) => session.touch(now)))
  )

/** What comes of a silent session whose result is still being served: `true` = the trainer spoke. */
const outlive = (context: SessionContext, session: AttachSession) =>
  Effect.raceFirst(
    Effect.as(session.nextWord, true),
    Effect.raceFirst(
      Effect.as(context.authority.idle, false),
      Effect.andThen(
        Effect.raceFirst(disconnected(context, session), takenOver(context, session)),
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
 */
export const watch = (
  context: SessionContext,
  session: AttachSession,
  onSilent: (silent: boolean) => Effect.Effect<void>
): Effect.Effect<never, AttachError> => {
  const liveness = Effect.gen(function* () {
    while (true) {
      const hadGrace = yield* leaseOver(context, session)
      if (!(context.config.allowReconnect && context.authority.live)) return yield* lost(context, session, hadGrace)
      yield* onSilent(true)
      if (!(yield* outlive(context, session))) return yield* lost(context, session, hadGrace)
      yield* onSilent(false)
    }
  })
  const listening = Effect.andThen(listen(context, session), Effect.never)
  return Effect.raceFirst(Effect.raceFirst(liveness, listening), Deferred.await(session.ended))
}
