/**
 * What the rooms of a trainer share. Fields change synchronously, by the fibers of one trainer.
 */
import type { Deferred, Latch, Queue } from "effect"
import type { Cell } from "../../cell/Cell.ts"
import type { FLModel } from "../../model/FLModel.ts"
import type { TaskLedger } from "../TaskLedger.ts"
import type { TrainerError } from "../TrainerError.ts"
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
  binding: Binding | undefined
  /** When the CJ was last heard, in monotonic nanoseconds. */
  heardAt: bigint
  /** Whether a result is being sent: the CJ is told so with each heartbeat. */
  sending: boolean
}
