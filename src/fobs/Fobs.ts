/**
 * FOBS: values to bytes and back.
 *
 * The codec is pure: no socket, file or clock. A message that holds download references is decoded in three steps, so
 * that fetching stays outside: `parse` the sections, fetch what they name, then decode with the items.
 *
 * Source: docs/wire/fobs.md, sections 2 to 4.
 *
 * @since 0.1.0
 */
import type { Codec } from "./Codec.ts"
import type { Decomposer } from "./Decomposer.ts"
import { makeCodec, typeTable } from "./internal/codec.ts"
import { coreTypes } from "./internal/coreTypes.ts"

export type { Codec, DecodeOptions, Download, EncodeOptions, ReferenceSink, Sections } from "./Codec.ts"

/**
 * The types that every codec knows: tuple, set, OrderedDict, datetime, the four numpy scalars, numpy.ndarray,
 * torch.Tensor, forwarded references, and the enums that a receiver takes without registration. References to datums
 * and {@link Datum}s are no types but part of the format.
 *
 * @category constants
 * @since 0.1.0
 */
export const coreDecomposers: ReadonlyArray<Decomposer<unknown>> = coreTypes

/**
 * A codec that knows the core types and `decomposers`; these come first, so a decomposer of the same type name
 * replaces a core one. All other types are refused, both ways.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options?: { readonly decomposers?: ReadonlyArray<Decomposer<unknown>> }): Codec =>
  makeCodec(typeTable(options?.decomposers ?? [], coreTypes))
