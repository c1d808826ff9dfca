/**
 * How a trainer finds the service: one route a cell, one claim a trainer.
 *
 * Source: docs/wire/attach.md, section 1.
 *
 * @since 0.1.0
 */
import { Context, Effect, Layer, type Scope } from "effect"
import type { SecureRandom } from "effect/crypto"
import { Cell } from "../cell/Cell.ts"
import * as Rendezvous from "../clientapi/Rendezvous.ts"
import type { TrainerName } from "../clientapi/TrainerName.ts"
import type { FileLock } from "../platform/FileLock.ts"
import type { PrivateFiles } from "../platform/PrivateFiles.ts"
import type { Resources } from "../transport/Drivers.ts"
import { type AttachError, attachError, RouteFailed } from "./AttachError.ts"

/**
 * An open route to one trainer.
 *
 * @category models
 * @since 0.1.0
 */
export interface OpenRoute {
  /** Whether messages are protected end to end. */
  readonly secure: boolean
  /** Whether the trainer connects to this very cell, so that its connection is seen here. */
  readonly direct: boolean
  /** Where the trainer connects to, for profiles that name it. */
  readonly connectUrl: string
}

/**
 * Opens the way for trainers.
 *
 * @category services
 * @since 0.1.0
 */
export class AttachRoute extends Context.Service<
  AttachRoute,
  {
    /** Claims the trainer's name and lets it in, until the Scope closes. Fails with `RouteFailed`. */
    readonly open: (trainer: TrainerName) => Effect.Effect<OpenRoute, AttachError, Scope.Scope>
  }
>()("fl-attach/attach/AttachRoute") {}

const failed = (attachId: string, kind: string, message: string): AttachError =>
  attachError(new RouteFailed({ attachId, kind, message }))

/** Both ends of a shared folder poll it; the listener's URL carries this to trainers that can do nothing else. */
const defaultTuning: Resources = { max_poll_interval: "0.05" }

/**
 * Trainers find the service in a folder that both see: one listener, and a claim with a published endpoint for each
 * trainer. `root` is an absolute directory that not everybody may write; `tuning` are the driver's settings
 * (docs/wire/transport.md, section 9.2), which trainers take over.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerSharedFile = (options: {
  readonly root: string
  readonly tuning?: Resources
}): Layer.Layer<AttachRoute, AttachError, Cell | FileLock | PrivateFiles | SecureRandom.SecureRandom> =>
  Layer.effect(
    AttachRoute,
    Effect.gen(function* () {
      const cell = yield* Cell
      const services = yield* Effect.context<FileLock | PrivateFiles | SecureRandom.SecureRandom>()
      const listener = yield* cell
        .listen("shared-file", { root_dir: options.root, ...defaultTuning, ...options.tuning })
        .pipe(Effect.mapError((error) => failed("", error.reason._tag, error.message)))
      return AttachRoute.of({
        open: Effect.fn("AttachRoute.open")(function* ({ attachId, cjFqcn, siteName }: TrainerName) {
          const connectUrl = listener.connectUrl
          yield* Rendezvous.claim({ root: options.root, siteName, attachId }).pipe(
            Effect.flatMap((claim) => claim.publish({ cjFqcn, connectUrl })),
            Effect.mapError((error) => failed(attachId, error.reason._tag, error.message)),
            Effect.provide(services)
          )
          return { secure: false, direct: true, connectUrl }
        })
      })
    })
  )

/**
 * Trainers dial a listener of this cell at a URL that they know from elsewhere, without protection: for tests and for
 * programs that hand the URL on themselves.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerListener = (url: string): Layer.Layer<AttachRoute, AttachError, Cell> =>
  Layer.effect(
    AttachRoute,
    Effect.gen(function* () {
      const cell = yield* Cell
      const { connectUrl } = yield* cell
        .listen(url)
        .pipe(Effect.mapError((error) => failed("", error.reason._tag, error.message)))
      return AttachRoute.of({ open: () => Effect.succeed({ secure: false, direct: true, connectUrl }) })
    })
  )
