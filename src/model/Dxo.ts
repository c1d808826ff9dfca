/**
 * A data exchange object: what a task or result holds, and of which kind it is.
 *
 * Inside a Shareable it is a plain dict (docs/wire/fobs.md, section 5.2); nested in other values, as in a collection of
 * DXOs, it travels as an object of its own (section 3.3). This class stands for both.
 *
 * @since 0.1.0
 */
import { EnumValue } from "../fobs/Values.ts"

/**
 * The Python class of the kinds.
 *
 * @category constants
 * @since 0.1.0
 */
export const dataKindClass = "nvflare.apis.dxo.DataKind"

/**
 * The kinds that the reference knows.
 *
 * @category constants
 * @since 0.1.0
 */
export const dataKinds = [
  "FL_MODEL",
  "WEIGHTS",
  "WEIGHT_DIFF",
  "METRICS",
  "ANALYTIC",
  "COLLECTION",
  "STATISTICS",
  "PSI",
  "APP_DEFINED"
] as const

/**
 * @category models
 * @since 0.1.0
 */
export type DataKind = (typeof dataKinds)[number]

/**
 * @category guards
 * @since 0.1.0
 */
export const isDataKind = (kind: unknown): kind is DataKind => dataKinds.some((known) => known === kind)

/**
 * Data with its kind. A peer may send any text as the kind, or none (`null`). `data` is a map unless the kind is
 * APP_DEFINED.
 *
 * @category models
 * @since 0.1.0
 */
export class Dxo {
  readonly kind: DataKind | (string & {}) | null
  readonly data: unknown
  readonly meta: ReadonlyMap<unknown, unknown>
  /** The kind travels as a plain text, not as an Enum member. Receivers take both. */
  readonly kindAsText: boolean
  constructor(fields: {
    readonly kind: DataKind | (string & {}) | null
    readonly data: unknown
    readonly meta?: Iterable<readonly [unknown, unknown]>
    readonly kindAsText?: boolean
  }) {
    this.kind = fields.kind
    this.data = fields.data
    this.meta = new Map(fields.meta)
    this.kindAsText = fields.kindAsText ?? !isDataKind(fields.kind)
  }

  /** The kind as it travels. */
  get wireKind(): EnumValue | string | null {
    return this.kindAsText || this.kind === null ? this.kind : new EnumValue(dataKindClass, this.kind)
  }
}
