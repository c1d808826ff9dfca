/**
 * One session with a trainer: offered until accepted, alive while the trainer is heard.
 *
 * A backend has one session at a time; under `allowReconnect` a lost one is followed by a fresh one with a new id and
 * a new budget. Source: docs/wire/attach.md, sections 3.1 and 6.1.
 *
 * @since 0.1.0
 */
import { Deferred, Effect, Latch } from "effect"
import type { Cell } from "../cell/Cell.ts"
import type { TrainerName } from "../clientapi/TrainerName.ts"
import type { AttachConfig } from "./AttachConfig.ts"
import type { AttachError } from "./AttachError.ts"
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
  /** Its end has been told: another session may follow. */
  readonly told: Deferred.Deferred<void> = Deferred.makeUnsafe()
  accepted = false
  /** The bytes of arrays that the trainer takes inside one message. */
  inlineBytes = 0
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
