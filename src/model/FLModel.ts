/**
 * A model as trainers and aggregators see it.
 *
 * Source: docs/wire/fobs.md, sections 5.3 and 5.4.
 *
 * @since 0.1.0
 */
import type { NdArray } from "../fobs/NdArray.ts"

/**
 * Parameters, metrics and rounds of one exchange. Metrics always travel as float64, rounds as int; `params` may nest
 * maps of arrays, or hold whatever the peer put there.
 *
 * @category models
 * @since 0.1.0
 */
export class FLModel {
  readonly paramsType: "FULL" | "DIFF"
  readonly params: ReadonlyMap<string, NdArray> | undefined
  readonly metrics: ReadonlyMap<string, number> | undefined
  readonly startRound: number | undefined
  readonly currentRound: number | undefined
  readonly totalRounds: number | undefined
  readonly meta: ReadonlyMap<string, unknown>
  constructor(fields: {
    readonly paramsType?: "FULL" | "DIFF"
    readonly params?: Iterable<readonly [string, NdArray]>
    readonly metrics?: Iterable<readonly [string, number]>
    readonly startRound?: number
    readonly currentRound?: number
    readonly totalRounds?: number
    readonly meta?: Iterable<readonly [string, unknown]>
  }) {
    this.paramsType = fields.paramsType ?? "FULL"
    this.params = fields.params === undefined ? undefined : new Map(fields.params)
    this.metrics = fields.metrics === undefined ? undefined : new Map(fields.metrics)
    this.startRound = fields.startRound
    this.currentRound = fields.currentRound
    this.totalRounds = fields.totalRounds
    this.meta = new Map(fields.meta)
  }
}
