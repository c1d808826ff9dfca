/**
 * Which results count, and whether the source of one is still alive.
 *
 * A trainer whose RESULT_ACCEPTED got lost asks again or sends again; the ledger answers the same each time, across
 * sessions. The latch says that a trainer still serves an accepted result: while it is set the ledger is not trimmed
 * (short of sixteen times its bound, so that a latch that sticks costs no memory without end) and closing waits.
 *
 * Source: docs/wire/attach.md, sections 6.4 to 6.6. All methods are synchronous, so that no other fiber comes between
 * a decision and its record.
 *
 * @since 0.1.0
 */
import { type Effect, Latch } from "effect"

interface Accepted {
  readonly resultId: string
  readonly attemptId: string
}

/**
 * @category models
 * @since 0.1.0
 */
export class ResultAuthority {
  private readonly bound: number
  private readonly ledger = new Map<string, Accepted>()
  private readonly idleLatch = Latch.makeUnsafe(true)
  private readonly settledLatch = Latch.makeUnsafe(true)
  private sourceTask: string | undefined
  private unsettledTask: string | undefined

  /** `bound` is the number of entries kept; 256 in the reference. */
  constructor(bound = 256) {
    this.bound = bound
  }

  /** The result that counts for a task. */
  canonical(taskId: string): Accepted | undefined {
    return this.ledger.get(taskId)
  }

  /** The number of entries, for tests and metrics. */
  get size(): number {
    return this.ledger.size
  }

  /** Whether a trainer still serves a result. */
  get live(): boolean {
    return !Latch.isOpen(this.idleLatch)
  }

  /** Ends when no trainer serves a result any more. */
  get idle(): Effect.Effect<void> {
    return this.idleLatch.await
  }

  /** Ends when the trainer has said that its last accepted result is settled. */
  get settled(): Effect.Effect<void> {
    return this.settledLatch.await
  }

  accept(taskId: string, resultId: string, attemptId: string): void {
    this.ledger.set(taskId, { resultId, attemptId })
    this.sourceTask = taskId
    this.unsettledTask = taskId
    this.trim()
    Latch.closeUnsafe(this.idleLatch)
    Latch.closeUnsafe(this.settledLatch)
  }

  /** What a heartbeat, or the reply to SHUTDOWN, says of the source. */
  reportLive(live: boolean): void {
    if (live) Latch.closeUnsafe(this.idleLatch)
    else this.clear()
  }

  /** RESULT_SOURCE_SETTLED; false where the task is not the one that is waited for. */
  settle(taskId: string): boolean {
    if (this.sourceTask !== taskId && this.unsettledTask !== taskId) return false
    this.unsettledTask = undefined
    Latch.openUnsafe(this.settledLatch)
    this.clear()
    return true
  }

  /** The source is gone: nobody is left to wait for. */
  abandon(): void {
    this.unsettledTask = undefined
    Latch.openUnsafe(this.settledLatch)
    this.clear()
  }

  private clear(): void {
    this.sourceTask = undefined
    Latch.openUnsafe(this.idleLatch)
    this.trim()
  }

  private trim(): void {
    const bound = this.live ? this.bound * 16 : this.bound
    for (const taskId of this.ledger.keys()) {
      if (this.ledger.size <= bound) return
      this.ledger.delete(taskId)
    }
  }
}
