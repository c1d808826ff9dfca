/**
 * An FLModel as an object inside other values.
 *
 * Tasks and results carry models in another form (a DXO in a Shareable), so the Client API doesn't need this one; it is
 * for values that hold whole FLModel objects.
 *
 * Source: docs/wire/fobs.md, section 3.3.
 *
 * @since 0.1.0
 */
import { EnumValue, Float } from "../fobs/Values.ts"
import type { FLModel, ParamsType } from "./FLModel.ts"

/**
 * The Python class of params types.
 *
 * @category constants
 * @since 0.1.0
 */
export const paramsTypeClass = "nvflare.app_common.abstract.fl_model.ParamsType"

/**
 * What a peer's FLModel object held, without loss: `params`, `optimizerParams` and the values of `metrics` and `meta`
 * are unchecked. An `FLModel` may be encoded as it is, and comes back as this.
 *
 * @category models
 * @since 0.1.0
 */
export class FLModelEnvelope {
  readonly paramsType: ParamsType | undefined
  readonly params: unknown
  readonly optimizerParams: unknown
  readonly metrics: ReadonlyMap<unknown, unknown> | undefined
  readonly startRound: number | undefined
  readonly currentRound: number | undefined
  readonly totalRounds: number | undefined
  readonly meta: ReadonlyMap<unknown, unknown>
  constructor(fields: {
    readonly paramsType?: ParamsType | undefined
    readonly params?: unknown
    readonly optimizerParams?: unknown
    readonly metrics?: ReadonlyMap<unknown, unknown> | undefined
    readonly startRound?: number | undefined
    readonly currentRound?: number | undefined
    readonly totalRounds?: number | undefined
    readonly meta?: ReadonlyMap<unknown, unknown>
  }) {
    this.paramsType = fields.paramsType
    this.params = fields.params ?? undefined
    this.optimizerParams = fields.optimizerParams ?? undefined
    this.metrics = fields.metrics
    this.startRound = fields.startRound
    this.currentRound = fields.currentRound
    this.totalRounds = fields.totalRounds
    this.meta = fields.meta ?? new Map()
  }

  /** The params type as it travels. */
  get wireParamsType(): EnumValue | null {
    return this.paramsType === undefined ? null : new EnumValue(paramsTypeClass, this.paramsType)
  }

  /** The object that stands for a model; metrics become float64. */
  static fromModel(model: FLModel): FLModelEnvelope {
    const { currentRound, meta, metrics, params, paramsType, startRound, totalRounds } = model
    return new FLModelEnvelope({
      paramsType: params === undefined ? undefined : paramsType,
      params,
      metrics:
        metrics === undefined ? undefined : new Map(Array.from(metrics, ([name, value]) => [name, new Float(value)])),
      startRound,
      currentRound,
      totalRounds,
      meta
    })
  }
}
