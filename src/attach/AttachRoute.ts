/**
 * How a trainer finds the service: one route a cell, one claim a trainer.
 *
 * Source: docs/wire/attach.md, section 1.
 *
 * @since 0.1.0
 */
import { Context, Deferred, Duration, Effect, Layer, type Scope, Stream } from "effect"
import { SecureRandom } from "effect/crypto/SecureRandom"
import { Cell } from "../cell/Cell.ts"
import * as Rendezvous from "../clientapi/Rendezvous.ts"
import type { TrainerName } from "../clientapi/TrainerName.ts"
import type { IdentityRules } from "../identity/CertificateIdentity.ts"
import * as Fqcn from "../identity/Fqcn.ts"
import { formatDuration } from "../platform/DurationText.ts"
import { FileLock } from "../platform/FileLock.ts"
import { PrivateFiles } from "../platform/PrivateFiles.ts"
import type { Options as ConnectionOptions } from "../transport/Connection.ts"
import type { Resources } from "../transport/Drivers.ts"
import * as PeerIdentity from "../transport/PeerIdentity.ts"
import { HandshakeFailed, TransportError } from "../transport/TransportError.ts"
import { type AttachError, attachError, RouteFailed } from "./AttachError.ts"
import * as AttachGuard from "./AttachGuard.ts"
import { requireCredentials } from "./internal/protection.ts"

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
}): Layer.Layer<AttachRoute, AttachError, Cell | FileLock | PrivateFiles | SecureRandom> =>
  Layer.effect(
    AttachRoute,
    Effect.gen(function* () {
      const cell = yield* Cell
      // Not all there is here: its Scope is the route's, and a claim ends with its backend.
      const services = Context.pick(
        FileLock,
        PrivateFiles,
        SecureRandom
      )(yield* Effect.context<FileLock | PrivateFiles | SecureRandom>())
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

/**
 * How a service finds its site's client parent (CP).
 *
 * @category models
 * @since 0.1.0
 */
export interface ClientParentOptions {
  /** Where the CP listens; trainers name a URL of the same CP in their profiles. */
  readonly url: string
  /** What the driver of the URL needs to know beside it, certificates for instance. */
  readonly resources?: Resources
  /** Whose certificates the CP and this service may have, where they show any. */
  readonly rules?: IdentityRules
  /** Judges the CP, beside its name and its certificate. */
  readonly verify?: ConnectionOptions["verify"]
  /** How long to wait for the first connection. Default 30 seconds. */
  readonly connectTimeout?: Duration.Input
  /**
   * Whether messages are protected end to end, and only such are taken from trainers. The cell needs `credentials`, and
   * the trainers' profiles `secure_mode`. Default false.
   */
  readonly secure?: boolean
}

/** The names in use on one route: on a cell, a trainer has one backend. */
const makeClaims = () => {
  const taken = new Set<string>()
  return ({ attachId, trainerFqcn }: TrainerName): Effect.Effect<void, AttachError, Scope.Scope> =>
    Effect.suspend(() => {
      if (taken.has(trainerFqcn)) {
        const message = `attach id "${attachId}" is in use on this cell already: close the backend that has it first`
        return Effect.fail(failed(attachId, "AlreadyClaimed", message))
      }
      taken.add(trainerFqcn)
      return Effect.addFinalizer(() => Effect.sync(() => taken.delete(trainerFqcn)))
    })
}

/** Dials the CP, and waits until it is connected for the first time. Later it is dialed again after each loss. */
const joinParent = Effect.fnUntraced(function* (cell: Cell["Service"], options: ClientParentOptions) {
  const parent = Fqcn.parent(cell.fqcn)
  const { resources, rules, url } = options
  const certificate = rules === undefined ? undefined : PeerIdentity.verifyWith(rules)
  const stranger = yield* Deferred.make<never, AttachError>()
  let last = "nothing has answered there yet; check that it is the port of a client parent"
  let isUp = false

  const verify: NonNullable<ConnectionOptions["verify"]> = (peer, info) => {
    if (peer === parent) {
      return Effect.andThen(certificate?.(peer, info) ?? Effect.void, options.verify?.(peer, info) ?? Effect.void)
    }
    const message = `${url} is the client parent ${peer}, but this service is ${cell.fqcn}: check the site's name (--site) and the URL`
    Deferred.doneUnsafe(stranger, Effect.fail(failed("", "WrongParent", message)))
    return Effect.fail(new TransportError({ reason: new HandshakeFailed({ target: url, message }) }))
  }
  const onDown = (error: TransportError) => {
    const isNews = isUp || last !== error.message
    isUp = false
    last = error.message
    return isNews ? Effect.logWarning(`no connection to the client parent ${url}: ${last}`) : Effect.void
  }
  yield* cell
    .connect(url, resources, { verify, onDown, rules })
    .pipe(Effect.mapError((error) => failed("", error.reason._tag, error.message)))
  const connected = Stream.runForEachWhile(cell.connected(parent), (up) => {
    isUp ||= up
    return Effect.succeed(!up)
  })
  const limit = Duration.fromInputUnsafe(options.connectTimeout ?? "30 seconds")
  yield* Effect.timeoutOrElse(Effect.raceFirst(connected, Deferred.await(stranger)), {
    duration: limit,
    orElse: () => {
      const message = `no connection to the client parent ${url} within ${formatDuration(limit)} (connectTimeout): ${last}`
      return Effect.fail(failed("", "NotReady", message))
    }
  })
})

/**
 * Service and trainers are children of the site's client parent (CP), which passes their messages on: no folder is
 * shared, and one URL serves all. The cell dials the CP, and dials again after each loss; what is registered on it stays.
 *
 * The layer waits for the first connection; it fails with `RouteFailed` when there is none within `connectTimeout`, when
 * the URL can't be used (kind `CellMisconfigured`), or when it is another site's (`WrongParent`). It fails with
 * `ConfigInvalid`, before anything is opened, when it is to be secure and the cell has no credentials.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerClientParent = (options: ClientParentOptions): Layer.Layer<AttachRoute, AttachError, Cell> =>
  Layer.effect(
    AttachRoute,
    Effect.gen(function* () {
      const cell = yield* Cell
      if (options.secure === true) yield* requireCredentials(cell)
      yield* joinParent(cell, options)
      const claim = makeClaims()
      return AttachRoute.of({
        open: Effect.fn("AttachRoute.open")(function* (trainer: TrainerName) {
          yield* claim(trainer)
          const { secure = false, url: connectUrl } = options
          if (secure) yield* AttachGuard.claim(cell, trainer)
          return { secure, direct: false, connectUrl }
        })
      })
    })
  )
