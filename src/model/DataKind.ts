/**
 * What a DXO holds.
 *
 * Source: docs/wire/fobs.md, sections 3.3 and 5.2.
 *
 * @since 0.1.0
 */
import { EnumValue } from "../fobs/Values.ts"

/**
 * The members of the reference's `DataKind`, by name (name and value are the same there).
 *
 * @category models
 * @since 0.1.0
 */
export type DataKind =
  | "FL_MODEL"
  | "WEIGHTS"
  | "WEIGHT_DIFF"
  | "METRICS"
  | "ANALYTIC"
  | "COLLECTION"
  | "STATISTICS"
  | "PSI"
  | "APP_DEFINED"

/**
 * The enum class of data kinds on the wire.
 *
 * @category constants
 * @since 0.1.0
 */
export const dataKindClass = "nvflare.apis.dxo.DataKind"

/**
 * A data kind as it travels.
 *
 * @category converting
 * @since 0.1.0
 */
export const toEnum = (kind: DataKind): EnumValue => new EnumValue(dataKindClass, kind)

/**
 * The text of a kind that came: an enum member or, which counts the same, plain text. `undefined` for anything else.
 * Kinds that are not in {@link DataKind} pass: nobody checks them.
 *
 * @category converting
 * @since 0.1.0
 */
export const fromWire = (kind: unknown): string | undefined => {
  if (kind instanceof EnumValue) return kind.name
  return typeof kind === "string" ? kind : undefined
}
