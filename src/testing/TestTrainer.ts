/**
 * A real trainer of this library, started inside a test.
 *
 * @since 0.1.0
 */
import { Duration, Effect, type Fiber, type Scope } from "effect"
import type { FLModel } from "../model/FLModel.ts"
import * as Trainer from "../trainer/Trainer.ts"
import type { TrainerError } from "../trainer/TrainerError.ts"
import { TrainerProfile } from "../trainer/TrainerProfile.ts"
import type { TrainerSession } from "../trainer/TrainerSession.ts"

/**
 * Where the trainer attaches; the defaults are those of `TestService.layer`.
 *
 * @category models
 * @since 0.1.0
 */
export interface TestTrainerOptions {
  readonly attachId: string
  /** Default `site-1`. */
  readonly siteName?: string
  /** Default `memory://service`. */
  readonly connectUrl?: string
  readonly jobWaitTimeout?: Duration.Input
}

/**
 * The profile of a trainer that dials a URL in clear.
 *
 * @category constructors
 * @since 0.1.0
 */
export const profile = (options: TestTrainerOptions): TrainerProfile => {
  const { attachId, connectUrl = "memory://service", jobWaitTimeout, siteName = "site-1" } = options
  return new TrainerProfile({
    attachId,
    siteName,
    source: { _tag: "Url", connectUrl, security: "clear", cpFqcn: siteName, authIdentity: siteName },
    secureMode: false,
    ...(jobWaitTimeout === undefined ? {} : { jobWaitTimeout: Duration.fromInputUnsafe(jobWaitTimeout) })
  })
}

/**
 * Starts a trainer as a fiber of the test; it stops with the test's Scope. Join the fiber to see how it ended: well after
 * the service's SHUTDOWN, by a `TrainerError` otherwise. A `train` that fails tells the service, and the next task comes.
 *
 * @category constructors
 * @since 0.1.0
 */
export const start = <E, R>(
  options: TestTrainerOptions,
  train: (model: FLModel) => Effect.Effect<FLModel, E, R>
): Effect.Effect<
  Fiber.Fiber<void, TrainerError>,
  never,
  Exclude<R, TrainerSession> | Trainer.Requirements | Scope.Scope
> => Effect.forkScoped(Trainer.run(profile(options), train))
