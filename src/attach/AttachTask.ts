/**
 * What a service asks of a trainer, and where the asking stands.
 *
 * @since 0.1.0
 */
import type { Deferred } from "effect"
import type { Shareable } from "../model/Shareable.ts"
import type { AttachError } from "./AttachError.ts"
import type { AttachSession } from "./AttachSession.ts"

/**
 * A task: its name (`train`, `validate`, ...) and what it is about. `FLModel.toShareable` makes the Shareable of a
 * model.
 *
 * @category models
 * @since 0.1.0
 */
export interface AttachTask {
  readonly name: string
  readonly data: Shareable
}

/**
 * The task that a session is working on. `outcome` is its only judge: a result counts if and only if it completed it,
 * and loss, timeout, abort and close complete the same one.
 *
 * @category models
 * @since 0.1.0
 */
export interface ActiveTask {
  readonly id: string
  readonly seq: number
  readonly name: string
  readonly data: Shareable
  readonly session: AttachSession
  readonly outcome: Deferred.Deferred<Shareable, AttachError>
}
