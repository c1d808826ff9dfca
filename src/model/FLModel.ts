/**
 * A model as trainers and aggregators see it.
 *
 * Source: docs/wire/fobs.md, sections 5.3 and 5.4.
 *
 * @since 0.1.0
 */
import { NdArray } from "../fobs/NdArray.ts"
import { Tensor } from "../fobs/Tensor.ts"
import { NumpyScalar } from "../fobs/Values.ts"

/**
 * Whether parameters stand for themselves, or for the difference to the model they were trained from.
 *
 * @category models
 * @since 0.1.0
 */
export type ParamsType = "FULL" | "DIFF"

/**
 * Parameters, metrics and rounds of one exchange. Metrics always travel as float64, rounds as int.
 *
 * A peer may send anything as a parameter: nested maps, lists, scalars. `params` holds what came; {@link arrays} are
 * the entries that most programs mean.
 *
 * @category models
 * @since 0.1.0
 */
export class FLModel {
  readonly paramsType: ParamsType
  readonly params: ReadonlyMap<string, unknown> | undefined
  readonly metrics: ReadonlyMap<string, number> | undefined
  readonly startRound: number | undefined
  readonly currentRound: number | undefined
  readonly totalRounds: number | undefined
  readonly meta: ReadonlyMap<string, unknown>
  constructor(fields: {
    readonly paramsType?: ParamsType
    readonly params?: Iterable<readonly [string, unknown]>
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

  /**
   * The parameters that are arrays, in their order; empty without parameters. numpy scalars come as arrays without
   * dimensions: they are what Python's arithmetic makes of those. Other entries are left out.
   */
  get arrays(): ReadonlyMap<string, NdArray> {
    const arrays = new Map<string, NdArray>()
    for (const [name, value] of this.params ?? []) {
      if (value instanceof NdArray) arrays.set(name, value)
      else if (value instanceof NumpyScalar) arrays.set(name, fromScalar(value))
    }
    return arrays
  }

  /** {@link arrays} and, at their places, the parameters that are torch tensors. */
  get weights(): ReadonlyMap<string, NdArray | Tensor> {
    const weights = new Map<string, NdArray | Tensor>()
    const arrays = this.arrays
    for (const [name, value] of this.params ?? []) {
      const weight = value instanceof Tensor ? value : arrays.get(name)
      if (weight !== undefined) weights.set(name, weight)
    }
    return weights
  }

  /** Bytes of all {@link weights}. */
  get byteLength(): number {
    return Array.from(this.weights.values()).reduce((sum, { byteLength }) => sum + byteLength, 0)
  }

  /** This model with other parameters, and of another type if one is given; all else is the same. */
  withParams(params: Iterable<readonly [string, unknown]>, paramsType: ParamsType = this.paramsType): FLModel {
    const { currentRound, meta, metrics, startRound, totalRounds } = this
    return new FLModel({
      paramsType,
      params,
      meta,
      ...(metrics === undefined ? {} : { metrics }),
      ...(startRound === undefined ? {} : { startRound }),
      ...(currentRound === undefined ? {} : { currentRound }),
      ...(totalRounds === undefined ? {} : { totalRounds })
    })
  }
}

const fromScalar = ({ dtype, value }: NumpyScalar): NdArray => {
  switch (dtype) {
    case "float64":
      return NdArray.fromTyped(Float64Array.of(Number(value)), [])
    case "float32":
      return NdArray.fromTyped(Float32Array.of(Number(value)), [])
    case "int64":
      return NdArray.fromTyped(BigInt64Array.of(typeof value === "bigint" ? value : BigInt(Math.trunc(value))), [])
    case "int32":
      return NdArray.fromTyped(Int32Array.of(Number(value)), [])
  }
}
