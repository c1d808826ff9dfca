/**
 * What a trainer remembers of the tasks it was given, so that a repeated delivery never runs one twice.
 *
 * Pure and synchronous. Source: docs/wire/attach.md, section 7.3.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import type { TaskState } from "../clientapi/ClientApi.ts"

/**
 * A task that the ledger knows. `attemptId` is that of the delivery that was accepted first.
 *
 * @category models
 * @since 0.1.0
 */
export interface LedgerEntry {
  readonly taskId: string
  readonly seq: number
  readonly attemptId: string
  readonly state: TaskState
}

/**
 * One session's tasks. It is kept for the life of a trainer, which never has a second session.
 *
 * @category models
 * @since 0.1.0
 */
export class TaskLedger {
  private readonly bound: number
  private readonly entries = new Map<string, LedgerEntry>()
  private highest = 0
  /** The highest number that was forgotten after its task was complete: what is not above it is stale. */
  private watermark = 0
  /** The one task that was given up before it was queued, and that may come again. */
  private retryable: { readonly taskId: string; readonly seq: number } | undefined

  /** `bound` is the number of entries kept beside those still in work; 256 in the reference. */
  constructor(bound = 256) {
    this.bound = bound
  }

  /** The number of entries. */
  get size(): number {
    return this.entries.size
  }

  /** What is known of a task; `undefined` for one never seen, given up, or forgotten since. */
  get(taskId: string): LedgerEntry | undefined {
    return this.entries.get(taskId)
  }

  /**
   * A delivery came: succeeds with the known entry of a repeat, or `undefined` when the task is new and now reserved
   * (state UNKNOWN until it {@link advance}s to QUEUED); fails with the reason for a refusal.
   */
  reserve(taskId: string, seq: number, attemptId: string): Result.Result<LedgerEntry | undefined, string> {
    const known = this.entries.get(taskId)
    if (known !== undefined) {
      return known.seq === seq
        ? Result.succeed(known)
        : Result.fail(`task_seq mismatch for task ${taskId}: ${seq}, known as ${known.seq}`)
    }
    const again = this.retryable?.taskId === taskId && this.retryable.seq === seq
    if (seq <= this.watermark || (seq <= this.highest && !again)) {
      return Result.fail(`stale task_seq ${seq}: ${Math.max(this.highest, this.watermark)} was the last`)
    }
    if (again) this.retryable = undefined
    this.entries.set(taskId, { taskId, seq, attemptId, state: "UNKNOWN" })
    this.highest = Math.max(this.highest, seq)
    return Result.succeed(undefined)
  }

  /** Gives a reserved task up; the same task and number may come once more. */
  forget(taskId: string): void {
    const entry = this.entries.get(taskId)
    if (entry === undefined) return
    this.entries.delete(taskId)
    this.retryable = { taskId, seq: entry.seq }
  }

  /** Moves a task on; completing one lets the oldest complete ones beyond the bound be forgotten. */
  advance(taskId: string, state: TaskState): void {
    const entry = this.entries.get(taskId)
    if (entry === undefined) return
    this.entries.set(taskId, { ...entry, state })
    if (state === "COMPLETE") this.evict()
  }

  private evict(): void {
    for (const [taskId, entry] of this.entries) {
      if (this.entries.size <= this.bound || entry.state !== "COMPLETE") return
      this.entries.delete(taskId)
      this.watermark = Math.max(this.watermark, entry.seq)
    }
  }
}
