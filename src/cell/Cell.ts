/**
 * A named peer of an FL system: it asks other cells, answers them, and refuses what its guards refuse.
 *
 * Source: docs/wire/cellnet.md, sections 5, 8, 9.
 *
 * @since 0.1.0
 */
import { Context, Effect, Layer, type Scope } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import type { Drivers } from "../transport/Drivers.ts"
import type { CellError } from "./CellError.ts"
import type { CellOptions } from "./CellOptions.ts"
import type { CellService } from "./CellService.ts"
import { makeEngine } from "./internal/CellEngine.ts"

export type * from "./CellOptions.ts"
export type * from "./CellService.ts"
export type * from "./CellTypes.ts"

/**
 * @category services
 * @since 0.1.0
 */
export class Cell extends Context.Service<Cell, CellService>()("fl-attach/cell/Cell") {
  /**
   * @see {@link make}
   * @since 0.1.0
   */
  static readonly make = (options: CellOptions) => make(options)
  /**
   * @see {@link layer}
   * @since 0.1.0
   */
  static readonly layer = (options: CellOptions) => layer(options)
}

/**
 * Makes a cell. Closing the Scope says bye to its peers, closes its connections, then interrupts its handlers.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (
  options: CellOptions
): Effect.Effect<Cell["Service"], CellError, Drivers | SecureRandom | Scope.Scope> =>
  Effect.map(makeEngine(options), (engine) => engine.cell)

/**
 * A cell as a layer. It is a function, since a constant layer is built only once in a graph.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: CellOptions): Layer.Layer<Cell, CellError, Drivers | SecureRandom> =>
  Layer.effect(Cell, make(options))
