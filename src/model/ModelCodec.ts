/**
 * The FOBS codec that knows the values of federated learning.
 *
 * Source: docs/wire/fobs.md, section 3.3.
 *
 * @since 0.1.0
 */
import type { Decomposer } from "../fobs/Decomposer.ts"
import * as Fobs from "../fobs/Fobs.ts"
import { modelDecomposers } from "./internal/decomposers.ts"

/**
 * Shareable, Dxo, FLModel (as an object), FLContext, Learnable and ModelLearnable.
 *
 * @category constants
 * @since 0.1.0
 */
export const decomposers: ReadonlyArray<Decomposer<unknown>> = modelDecomposers

/**
 * A codec that knows these, the core types, and types of your own, which come first.
 *
 * ```ts
 * const codec = ModelCodec.make([points])
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (extra: ReadonlyArray<Decomposer<unknown>> = []): Fobs.Codec =>
  Fobs.make({ decomposers: [...extra, ...decomposers] })

/**
 * The codec of a cell where nobody registered a type.
 *
 * @category constants
 * @since 0.1.0
 */
export const codec: Fobs.Codec = make()
