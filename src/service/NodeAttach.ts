/**
 * What Node gives to services and trainers, as layers.
 *
 * @since 0.1.0
 */
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { type FileSystem, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import type { AttachError } from "../attach/AttachError.ts"
import { type AttachRoute, layerSharedFile } from "../attach/AttachRoute.ts"
import { Cell } from "../cell/Cell.ts"
import type { CellError } from "../cell/CellError.ts"
import { FileLock } from "../platform/FileLock.ts"
import { PrivateFiles } from "../platform/PrivateFiles.ts"
import type { Drivers, Resources } from "../transport/Drivers.ts"
import * as SharedFileDriver from "../transport/SharedFileDriver.ts"

/**
 * Everything below a cell. `Trainer.run` needs no more than this.
 *
 * @category models
 * @since 0.1.0
 */
export type Platform = Drivers | FileLock | PrivateFiles | SecureRandom.SecureRandom | FileSystem.FileSystem

/**
 * @category layers
 * @since 0.1.0
 */
export const layerPlatform: Layer.Layer<Platform> = Layer.mergeAll(
  SharedFileDriver.layer(),
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
