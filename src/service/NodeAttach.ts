/**
 * What Node gives to services and trainers, as layers.
 *
 * @since 0.1.0
 */
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { type Duration, Effect, type FileSystem, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import type { AttachError } from "../attach/AttachError.ts"
import { type AttachRoute, layerSharedFile, layerClientParent as routeByParent } from "../attach/AttachRoute.ts"
import { Cell } from "../cell/Cell.ts"
import * as CellCredentials from "../cell/CellCredentials.ts"
import { CellError, CellMisconfigured } from "../cell/CellError.ts"
import { type IdentityRules, rulesOf } from "../identity/CertificateIdentity.ts"
import { FileLock } from "../platform/FileLock.ts"
import { PrivateFiles } from "../platform/PrivateFiles.ts"
import { Drivers, type Resources } from "../transport/Drivers.ts"
import * as GrpcDriver from "../transport/GrpcDriver.ts"
import * as SharedFileDriver from "../transport/SharedFileDriver.ts"
import * as TcpDriver from "../transport/TcpDriver.ts"
import * as WebSocketDriver from "../transport/WebSocketDriver.ts"

/**
 * Everything below a cell. `Trainer.run` needs no more than this.
 *
 * @category models
 * @since 0.1.0
 */
export type Platform = Drivers | FileLock | PrivateFiles | SecureRandom.SecureRandom | FileSystem.FileSystem

/**
 * All of {@link Platform}, with all drivers: shared folders, TCP, WebSocket, gRPC.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerPlatform: Layer.Layer<Platform> = Layer.mergeAll(
  Drivers.layerScoped([
    SharedFileDriver.make(),
    Effect.sync(() => TcpDriver.make()),
    Effect.sync(() => WebSocketDriver.make()),
    Effect.sync(() => GrpcDriver.make())
  ]),
  FileLock.layerNode,
  PrivateFiles.layerNode,
  SecureRandom.layerWebCrypto,
  NodeFileSystem.layer
)

/**
 * The job that a service runs, and the folder that it shares with its trainers.
 *
 * @category models
 * @since 0.1.0
 */
export interface JobOptions {
  /** The site's name: the trainers' profiles name the same one. */
  readonly site: string
  /** The job's id: one part of a cell's name, of A-Z a-z 0-9 _ ~ -. */
  readonly job: string
  /** The absolute path of the folder; it must exist, be no link and not be writable for all users. */
  readonly sharedDir: string
  /** The shared-file driver's settings (docs/wire/transport.md, section 9.2); trainers take them over. */
  readonly tuning?: Resources
}

/**
 * A cell for one job, with a route to trainers over a shared folder: all that `AttachBackend.layer` and
 * `AttachFleet.layer` ask for. Each call makes a cell of its own.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: JobOptions): Layer.Layer<Platform | Cell | AttachRoute, AttachError | CellError> =>
  layerSharedFile({
    root: options.sharedDir,
    ...(options.tuning === undefined ? {} : { tuning: options.tuning })
  }).pipe(Layer.provideMerge(Cell.layer({ fqcn: `${options.site}.${options.job}` })), Layer.provideMerge(layerPlatform))

/**
 * The job that a service runs, and the client parent (CP) that its trainers are connected with, too.
 *
 * @category models
 * @since 0.1.0
 */
export interface ParentJobOptions {
  /** The CP's name: the site's, behind a relay `<relay>.<site>`. The trainers' profiles name the same site. */
  readonly site: string
  /** The job's id: one part of a cell's name, of A-Z a-z 0-9 _ ~ -. */
  readonly job: string
  /** Where the CP listens, for instance `tcp://cp.example:18104`. */
  readonly parentUrl: string
  /**
   * What the driver needs to know: `ca_cert` (the project's rootCA.pem; certificate and key lie beside it),
   * `connection_security`.
   */
  readonly resources?: Resources
  /** The common name of the site's certificate. Default: the last part of the site's name. */
  readonly identity?: string
  /** How long to wait for the first connection. Default 30 seconds. */
  readonly connectTimeout?: Duration.Input
  /**
   * Whether messages are protected end to end, as trainers with `secure_mode` in their profiles want it. Needs `ca_cert`
   * in `resources`, with the site's certificate and key beside it. Default false.
   */
  readonly secure?: boolean
}

/**
 * A cell for one job that is a child of the site's client parent, as its trainers are: all that `AttachBackend.layer`
 * and `AttachFleet.layer` ask for. Each call makes a cell of its own.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerClientParent = (
  options: ParentJobOptions
): Layer.Layer<Platform | Cell | AttachRoute, AttachError | CellError> => {
  const { connectTimeout, job, parentUrl, resources, secure = false, site } = options
  const fqcn = `${site}.${job}`
  const identity = options.identity ?? site.slice(site.lastIndexOf(".") + 1)
  const rules = rulesOf({ local: fqcn, parent: site, identity })
  return routeByParent({
    url: parentUrl,
    rules,
    secure,
    ...(resources === undefined ? {} : { resources }),
    ...(connectTimeout === undefined ? {} : { connectTimeout })
  }).pipe(
    Layer.provideMerge(secure ? layerSecureCell(fqcn, rules, resources?.ca_cert) : Cell.layer({ fqcn })),
    Layer.provideMerge(layerPlatform)
  )
}

const layerSecureCell = (fqcn: string, rules: IdentityRules, caCert: unknown) =>
  Layer.effect(
    Cell,
    Effect.gen(function* () {
      const files = typeof caCert === "string" ? { caCert } : {}
      const credentials = yield* CellCredentials.watch(files, { rules }).pipe(
        Effect.mapError(
          ({ message, setting }) => new CellError({ reason: new CellMisconfigured({ setting, message }) })
        )
      )
      return yield* Cell.make({ fqcn, credentials })
    })
  )
