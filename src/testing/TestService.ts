/**
 * Services for tests under TestClock.
 *
 * @since 0.1.0
 */
import { Duration, Effect, Fiber, Layer, Scope } from "effect"
import type { SecureRandom } from "effect/crypto"
import { TestClock } from "effect/testing"
import { AttachBackend } from "../attach/AttachBackend.ts"
import type { AttachOptions } from "../attach/AttachConfig.ts"
import type { AttachError } from "../attach/AttachError.ts"
import * as AttachRoute from "../attach/AttachRoute.ts"
import * as Cell from "../cell/Cell.ts"
import type { CellError } from "../cell/CellError.ts"
import type { FileLock } from "../platform/FileLock.ts"
import type { PrivateFiles } from "../platform/PrivateFiles.ts"
import type { Drivers } from "../transport/Drivers.ts"
import * as MemoryNetwork from "./MemoryNetwork.ts"

/** How far the clock moves at a time while a layer closes. */
const step = Duration.millis(100)

/**
 * A layer whose release moves the TestClock. Closing waits for a trainer's answers, with bounds in time; under a
 * TestClock nobody would move that time, since the test is over by then. For tests only: a live clock can't be moved.
 *
 * @category combinators
 * @since 0.1.0
 */
export const movingClock = <A, E, R>(layer: Layer.Layer<A, E, R>): Layer.Layer<A, E, R> =>
  Layer.effectContext(
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      yield* Effect.addFinalizer((exit) =>
        Effect.gen(function* () {
          const closing = yield* Effect.forkDetach(Scope.close(scope, exit), { startImmediately: true })
          while (closing.pollUnsafe() === undefined) yield* TestClock.adjust(step)
          yield* Fiber.await(closing)
        })
      )
      return yield* Layer.buildWithScope(layer, scope)
    })
  ) as Layer.Layer<A, E, R>

/**
 * @category models
 * @since 0.1.0
 */
export interface TestServiceOptions extends AttachOptions {
  /** Default `site-1`. */
  readonly siteName?: string
  /** Default `job-1`. */
  readonly jobId?: string
  readonly network?: MemoryNetwork.NetworkOptions
}

/**
 * A backend on a network of its own, for one trainer: see `TestTrainer.start`. Its release moves the TestClock.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (
  options: TestServiceOptions
): Layer.Layer<
  AttachBackend | Cell.Cell | Drivers | FileLock | PrivateFiles | SecureRandom.SecureRandom,
  AttachError | CellError
> => {
  const { jobId = "job-1", network, siteName = "site-1", ...attach } = options
  return movingClock(
    AttachBackend.layer(attach).pipe(
      Layer.provide(AttachRoute.layerListener("memory://service")),
      Layer.provideMerge(Cell.layer({ fqcn: `${siteName}.${jobId}` })),
      Layer.provideMerge(MemoryNetwork.layer(network))
    )
  )
}
