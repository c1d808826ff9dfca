/**
 * Federated averaging: one global model from the results of many trainers.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import type { FobsError } from "../fobs/FobsError.ts"
import { NdArray } from "../fobs/NdArray.ts"
import * as TensorMath from "../fobs/TensorMath.ts"
import { FLModel } from "../model/FLModel.ts"
import * as ModelExchange from "../model/ModelExchange.ts"
import { FedAvgError, NoResults, WrongParameter, WrongResult } from "./FedAvgError.ts"
import * as Blockwise from "./internal/blockwise.ts"
import { unshared } from "./internal/memory.ts"

/**
 * What one trainer made of a round.
 *
 * @category models
 * @since 0.1.0
 */
export interface TrainerResult {
  /** The trainer's name, for errors. */
  readonly trainer: string
  readonly model: FLModel
}

/**
 * @category models
 * @since 0.1.0
 */
export interface AggregateOptions {
  /** The model that the trainers started from; needed when they send differences. */
  readonly global?: FLModel
  /**
   * Whether the memory of the first result may be overwritten, and become that of the average: then the average of large
   * arrays takes none beside that of the results (of 64-bit ints it does). Whatever comes of it, the first result is not
   * to be used any more. What shares memory with another result or `global` is left as it is. Default: false.
   */
  readonly inPlace?: boolean
}

type AnyArray = TensorMath.AnyArray

const failed = (reason: FedAvgError["reason"]): Result.Result<never, FedAvgError> =>
  Result.fail(new FedAvgError({ reason }))

const wrongResult = (trainer: string, what: string): Result.Result<never, FedAvgError> =>
  failed(new WrongResult({ trainer, message: `result of ${trainer}: ${what}` }))

const wrongParameterError = (trainer: string, name: string, what: string): FedAvgError => {
  const message = `parameter ${JSON.stringify(name)} of ${trainer}: ${what}`
  return new FedAvgError({ reason: new WrongParameter({ trainer, name, message }) })
}
const wrongParameter = (trainer: string, name: string, what: string): Result.Result<never, FedAvgError> =>
  Result.fail(wrongParameterError(trainer, name, what))

/**
 * The weighted average of the results as a FULL model. Weights are the steps that trainers report
 * (`ModelExchange.numSteps`) when every result has a positive number of them, else all count the same. FULL results are averaged themselves;
 * of DIFF results the average is added to `options.global`, whose other parameters stay as they are.
 *
 * numpy arrays and torch tensors keep kind and dtype: averages are made in float64 and rounded once; ints and bools to the nearest
 * (halves to even), ints of 64 bits without float64, exactly. An
 * array that is the same in all results passes untouched, whatever its type; so a single result gives exactly that trainer's model.
 * Metrics that all results have are averaged too. Rounds come from `options.global`, else from the first result; `meta` is empty.
 *
 * Fails with `NoResults`; with `WrongResult` for a result without parameters, or DIFF beside FULL or without a global model; with
 * `WrongParameter` when names, kinds, shapes or dtypes differ or an array without numbers does.
 *
 * @category combinators
 * @since 0.1.0
 */
export const aggregate = (
  results: Iterable<TrainerResult>,
  options: AggregateOptions = {}
): Result.Result<FLModel, FedAvgError> =>
  Result.gen(function* () {
    const all = [...results]
    const [first, ...others] = all
    if (first === undefined) return yield* failed(new NoResults({ message: "no trainer gave a result to average" }))
    const weights = weightsOf(all)
    const averages = yield* startAverages(first, weights.exact[0] ?? 1n)
    for (const [n, other] of others.entries()) {
      const share = weights.shares[n + 1] ?? 0
      yield* checkKind(first, other)
      yield* addResult(averages, first, other, { share, weight: weights.exact[n + 1] ?? 1n })
    }
    const isOwn = options.inPlace === true ? ownMemory(averages, others, options.global) : () => false
    const params = yield* finishAverages(averages, first, isOwn)
    const isDiff = first.model.paramsType === "DIFF"
    return build(isDiff ? yield* addToGlobal(params, first, options, isOwn) : params, all, weights, options.global)
  })

// --- weights ---

interface Weights {
  /** How much of the running average each result makes: its weight through the sum of weights up to it. */
  readonly shares: ReadonlyArray<number>
  /** The weights themselves, as ints of the same ratio. */
  readonly exact: ReadonlyArray<bigint>
}

/** Floats are fractions of a power of two: doubled often enough, all are ints. */
const asInts = (weights: ReadonlyArray<number>): ReadonlyArray<bigint> => {
  let doublings = 0n
  let fractions = weights
  // A weight too large to double is an int: what is an int stays apart.
  while (!fractions.every(Number.isInteger)) {
    fractions = fractions.map((weight) => (Number.isInteger(weight) ? weight : weight * 2))
    doublings += 1n
  }
  return doublings === 0n ? weights.map(BigInt) : weights.map((weight) => scaled(weight, doublings))
}

const scaled = (weight: number, doublings: bigint): bigint => {
  let left = doublings
  let value = weight
  while (!Number.isInteger(value)) {
    value *= 2
    left -= 1n
  }
  return BigInt(value) << left
}

const weightsOf = (all: ReadonlyArray<TrainerResult>): Weights => {
  const steps = all.map(({ model }) => ModelExchange.numSteps(model) ?? 0)
  const isWeighted = steps.every((count) => Number.isFinite(count) && count > 0)
  let sum = 0
  const weights = steps.map((count) => (isWeighted ? count : 1))
  const shares = weights.map((weight) => {
    sum += weight
    return weight / sum
  })
  return { shares, exact: asInts(weights) }
}

// --- arrays ---

interface Average {
  readonly first: AnyArray
  /** The arrays from the first one on that differs from all before: what is averaged with them. */
  readonly others: Array<Blockwise.Share>
  /** All arrays so far, where they are ints of 64 bits: float64 can't hold their average. */
  readonly parts: [TensorMath.Weighted, ...Array<TensorMath.Weighted>]
  /** Whether one of them differs from the first. */
  isMixed: boolean
}

/** How much a result counts: as a part of the running average, and as an int beside those of the others. */
interface Weight {
  readonly share: number
  readonly weight: bigint
}

const checkKind = (first: TrainerResult, other: TrainerResult): Result.Result<void, FedAvgError> =>
  first.model.paramsType === other.model.paramsType
    ? Result.void
    : wrongResult(
        other.trainer,
        `it is ${other.model.paramsType}, that of ${first.trainer} is ${first.model.paramsType}: all trainers of a round must use the same transfer type`
      )

const arraysOf = ({ model, trainer }: TrainerResult): Result.Result<ReadonlyMap<string, AnyArray>, FedAvgError> => {
  if (model.params === undefined || model.params.size === 0) return wrongResult(trainer, "it has no parameters")
  const arrays = model.weights
  const other = [...model.params.keys()].find((name) => !arrays.has(name))
  return other === undefined
    ? Result.succeed(arrays)
    : wrongParameter(trainer, other, "it is neither a numpy array nor a tensor")
}

const startAverages = (
  first: TrainerResult,
  weight: bigint
): Result.Result<ReadonlyMap<string, Average>, FedAvgError> =>
  Result.map(arraysOf(first), (arrays) => {
    const averages = new Map<string, Average>()
    for (const [name, array] of arrays) {
      averages.set(name, { first: array, others: [], parts: [{ array, weight }], isMixed: false })
    }
    return averages
  })

const addResult = (
  averages: ReadonlyMap<string, Average>,
  first: TrainerResult,
  result: TrainerResult,
  weight: Weight
): Result.Result<void, FedAvgError> =>
  Result.gen(function* () {
    const { trainer } = result
    const arrays = yield* arraysOf(result)
    for (const name of arrays.keys()) {
      if (!averages.has(name)) return yield* wrongParameter(trainer, name, `${first.trainer} has none of this name`)
    }
    for (const [name, average] of averages) {
      const array = arrays.get(name)
      if (array === undefined) {
        return yield* wrongParameter(
          trainer,
          name,
          `it is missing, ${first.trainer} has ${TensorMath.describe(average.first)}`
        )
      }
      if (!TensorMath.isCompatible(array, average.first)) {
        const what = `it is ${TensorMath.describe(array)}, ${first.trainer} has ${TensorMath.describe(average.first)}`
        return yield* wrongParameter(trainer, name, what)
      }
      yield* Result.mapError(addArray(average, array, weight), ({ message }) =>
        wrongParameterError(trainer, name, `it differs from that of ${first.trainer} and can't be averaged: ${message}`)
      )
    }
  })

const orderOf = (array: AnyArray) => (array instanceof NdArray ? array.order : "C")

/** For two that are compatible: whether their bytes say it, too. */
const isSame = (a: AnyArray, b: AnyArray): boolean =>
  a.dtype === b.dtype && orderOf(a) === orderOf(b) && Buffer.compare(a.bytes, b.bytes) === 0

const addArray = (average: Average, array: AnyArray, { share, weight }: Weight): Result.Result<void, FobsError> =>
  Result.gen(function* () {
    if (TensorMath.isLongInts(array)) {
      average.parts.push({ array, weight })
      average.isMixed ||= !isSame(average.first, array)
      return
    }
    if (average.others.length === 0 && isSame(average.first, array)) return
    yield* Blockwise.checkNumbers(array)
    average.others.push({ array, share })
  })

/** Whether memory of the average's first arrays is nobody else's. */
type IsOwn = (bytes: Uint8Array) => boolean

const ownMemory = (
  averages: ReadonlyMap<string, Average>,
  others: ReadonlyArray<TrainerResult>,
  global: FLModel | undefined
): IsOwn => {
  const models = [...others.map(({ model }) => model), ...(global === undefined ? [] : [global])]
  const arrays = [
    ...Array.from(averages.values(), ({ first }) => first),
    ...models.flatMap(({ weights }) => [...weights.values()])
  ]
  const alone = unshared(arrays.map(({ bytes }) => bytes))
  return (bytes) => alone.has(bytes)
}

const finishAverages = (
  averages: ReadonlyMap<string, Average>,
  { trainer }: TrainerResult,
  isOwn: IsOwn
): Result.Result<ReadonlyMap<string, AnyArray>, FedAvgError> =>
  Result.gen(function* () {
    const params = new Map<string, AnyArray>()
    for (const [name, { first, isMixed, others, parts }] of averages) {
      const whole = isMixed ? TensorMath.meanOfLongInts(parts) : Result.succeed(first)
      const mean = others.length === 0 ? whole : Blockwise.mean(first, others, isOwn(first.bytes))
      params.set(name, yield* Result.mapError(mean, ({ message }) => wrongParameterError(trainer, name, message)))
    }
    return params
  })

const addToGlobal = (
  differences: ReadonlyMap<string, AnyArray>,
  { trainer }: TrainerResult,
  { global }: AggregateOptions,
  isOwn: IsOwn
): Result.Result<ReadonlyMap<string, unknown>, FedAvgError> =>
  Result.gen(function* () {
    if (global?.params === undefined) {
      return yield* wrongResult(trainer, "it is a DIFF, and there is no global model with parameters to add it to")
    }
    const params = new Map(global.params)
    const arrays = global.weights
    for (const [name, difference] of differences) {
      const base = arrays.get(name)
      if (base === undefined) return yield* wrongParameter(trainer, name, "the global model has no array of this name")
      if (!TensorMath.isCompatible(base, difference)) {
        const what = `it is ${TensorMath.describe(difference)}, the global model has ${TensorMath.describe(base)}`
        return yield* wrongParameter(trainer, name, what)
      }
      const sum = Blockwise.add(base, difference, isOwn(difference.bytes))
      params.set(name, yield* Result.mapError(sum, ({ message }) => wrongParameterError(trainer, name, message)))
    }
    return params
  })

// --- the model ---

const averageMetrics = (all: ReadonlyArray<TrainerResult>, { shares }: Weights): ReadonlyMap<string, number> => {
  const averages = new Map(all[0]?.model.metrics)
  for (const [n, { model }] of all.entries()) {
    for (const [name, average] of averages) {
      const value = model.metrics?.get(name)
      if (value === undefined) averages.delete(name)
      else averages.set(name, Blockwise.towards(average, value, shares[n] ?? 0))
    }
  }
  return averages
}

const build = (
  params: ReadonlyMap<string, unknown>,
  all: ReadonlyArray<TrainerResult>,
  weights: Weights,
  global: FLModel | undefined
): FLModel => {
  const metrics = averageMetrics(all, weights)
  const { currentRound, startRound, totalRounds } = global ?? all[0]?.model ?? {}
  return new FLModel({
    params,
    ...(metrics.size === 0 ? {} : { metrics }),
    ...(startRound === undefined ? {} : { startRound }),
    ...(currentRound === undefined ? {} : { currentRound }),
    ...(totalRounds === undefined ? {} : { totalRounds })
  })
}
