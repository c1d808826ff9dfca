/**
 * What the rooms of a trainer share. Fields change synchronously, by the fibers of one trainer.
 */
import { Clock, Deferred, Duration, Effect, Exit, type Latch, type Queue, Stream } from "effect"
import type { Cell } from "../../cell/Cell.ts"
import type { Offer } from "../../cell/DownloadService.ts"
import type { FLModel } from "../../model/FLModel.ts"
import type { TaskLedger } from "../TaskLedger.ts"
import { SessionEnded, type TrainerError, trainerError } from "../TrainerError.ts"
import type { Binding, Expected } from "./binding.ts"

/** A task that waits to be received, or is being worked on. */
export interface TrainerTask {
  readonly id: string
  readonly name: string
  readonly model: FLModel
}

export interface TrainerState {
  readonly cell: Cell["Service"]
  readonly expected: Expected
  readonly secure: boolean
  readonly ledger: TaskLedger
  readonly tasks: Queue.Queue<TrainerTask>
  /** Succeeds with the first accepted session. */
  readonly bound: Deferred.Deferred<Binding>
  /** Fails once, when the session can do no more: abort, lease, close. */
  readonly ended: Deferred.Deferred<never, TrainerError>
  /** Open once SHUTDOWN came: no further task will. */
  readonly stopped: Latch.Latch
  /** Closed while a result is being sent: the CJ is told so with each heartbeat. */
  readonly idle: Latch.Latch
  /** The results' arrays that are on offer to the CJ. */
  readonly offers: Set<Offer>
  binding: Binding | undefined
  /** When the CJ was last heard, in monotonic nanoseconds. */
  heardAt: bigint
}

/** A CJ that still has to fetch a result, or to take in what it fetched, may be so much longer silent. */
export const transferGrace = Duration.seconds(30)

/** The session's lease begins anew, whatever was before. */
export const hear = (state: TrainerState): Effect.Effect<void> =>
  Effect.map(Clock.monotonicTimeNanos, (now) => {
    state.heardAt = now
  })

/**
 * Whether the lease is over, though nothing has ended it yet: a process that was stopped for long gets what was sent
 * meanwhile before its timers go off.
 */
export const isLate = ({ binding, heardAt, offers }: TrainerState): Effect.Effect<boolean> =>
  Effect.map(Clock.monotonicTimeNanos, (now) => {
    if (binding === undefined || Duration.isZero(binding.heartbeatTimeout)) return false
    const limit = Duration.sum(binding.heartbeatTimeout, offers.size === 0 ? Duration.zero : transferGrace)
    return now - heardAt > Duration.toNanosUnsafe(limit)
  })

/** The CJ was heard: its silence is counted from now, unless it was too long already. */
export const touch = (state: TrainerState): Effect.Effect<void> =>
  Effect.flatMap(isLate(state), (late) => (late ? Effect.void : hear(state)))

/** Ends the session for good; the first reason stays. */
export const end = (state: TrainerState, by: SessionEnded["by"], reason: string, message: string): void => {
  Deferred.doneUnsafe(state.ended, Exit.fail(trainerError(new SessionEnded({ by, reason, message }))))
}

/** Says in each log line which trainer and session it is about. */
export const annotated = <A, E, R>(state: TrainerState, effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.suspend(() =>
    Effect.annotateLogs(effect, {
      attach_id: state.expected.attachId,
      ...(state.binding === undefined ? {} : { session_id: state.binding.sessionId })
    })
  )

/** Whether the connection that carries the session is up: to the CJ itself, or to the client parent before it. */
export const linked = ({ cell, expected }: TrainerState, { cjFqcn }: Binding): Stream.Stream<boolean> =>
  Stream.zipLatestWith(cell.connected(cjFqcn), cell.connected(expected.cpFqcn), (cj, cp) => cj || cp)
