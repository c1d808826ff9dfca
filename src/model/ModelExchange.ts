/**
 * Models on their way: an {@link FLModel} as the Shareable that travels, and back; and the difference that training made.
 *
 * Source: docs/wire/fobs.md, sections 5.2 to 5.4.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import type { FobsError } from "../fobs/FobsError.ts"
import { NdArray } from "../fobs/NdArray.ts"
import { Tensor } from "../fobs/Tensor.ts"
import * as TensorMath from "../fobs/TensorMath.ts"
import { EnumValue, Float, NumpyScalar } from "../fobs/Values.ts"
import { Dxo } from "./Dxo.ts"
import { FLModel } from "./FLModel.ts"
import { toNonNegativeInt, toNumber } from "./internal/scalars.ts"
import { InvalidModel, ModelError, NotADxo, ParamsMismatch } from "./ModelError.ts"
import { Header, Shareable } from "./Shareable.ts"

/**
 * Keys of {@link FLModel.meta} that this library or the reference reads.
 *
 * @category constants
 * @since 0.1.0
 */
export const MetaKey = {
  initialMetrics: "initial_metrics",
  numStepsCurrentRound: "NUM_STEPS_CURRENT_ROUND",
  validateType: "validate_type",
  submitModelName: "submit_model_name",
  jobId: "job_id",
  siteName: "site_name"
} as const

const dxoEntry = "DXO"
const dxoContentType = "DXO"

const fail = (reason: ModelError["reason"]): Result.Result<never, ModelError> => Result.fail(new ModelError({ reason }))
const notADxo = (message: string): Result.Result<never, ModelError> => fail(new NotADxo({ message }))
const invalid = (field: string, message: string): Result.Result<never, ModelError> =>
  fail(new InvalidModel({ field, message }))

// --- to the wire ---

/**
 * The Shareable of a model: its parameters or, without any, its metrics as a DXO; rounds as headers. Metrics become
 * float64. A `startRound` that is left out travels as 0, the reference's default. Entries of `meta` win over
 * metrics with parameters (`initial_metrics`), as in the reference: don't send a received model's `meta` back unread.
 *
 * Array data is not copied. Fails with `InvalidModel` when there are neither parameters nor metrics, or a round is not an int from 0.
 *
 * @category converting
 * @since 0.1.0
 */
export const toShareable = (model: FLModel): Result.Result<Shareable, ModelError> =>
  Result.gen(function* () {
    const { meta, metrics, params, paramsType } = model
    const rounds = yield* roundHeaders(model)
    const wireMetrics = metrics === undefined ? undefined : floats(metrics)
    const data = params ?? wireMetrics
    if (data === undefined) return yield* invalid("params", "a model needs params or metrics; this one has neither")
    const weights = paramsType === "DIFF" ? "WEIGHT_DIFF" : "WEIGHTS"
    const initial =
      params === undefined || wireMetrics === undefined ? [] : [[MetaKey.initialMetrics, wireMetrics] as const]
    const kind = new Dxo({ kind: params === undefined ? "METRICS" : weights, data })
    const dxo = new Map<string, unknown>([
      ["kind", kind.wireKind],
      ["data", new Map<unknown, unknown>(data)],
      ["meta", new Map<string, unknown>([...initial, ...meta])]
    ])
    const validateType = meta.get(MetaKey.validateType)
    const headers: Array<readonly [string, unknown]> = [[Header.contentType, dxoContentType], ...rounds]
    if (meta.has(MetaKey.validateType)) headers.push([Header.validateType, validateType])
    return new Shareable(headers, [[dxoEntry, dxo]])
  })

const floats = (metrics: ReadonlyMap<string, number>): Map<string, Float> => {
  const result = new Map<string, Float>()
  for (const [name, value] of metrics) result.set(name, new Float(value))
  return result
}

const roundHeaders = (model: FLModel): Result.Result<ReadonlyArray<readonly [string, number]>, ModelError> => {
  const rounds: ReadonlyArray<readonly [string, number | undefined]> = [
    [Header.startRound, model.startRound ?? 0],
    [Header.currentRound, model.currentRound],
    [Header.totalRounds, model.totalRounds]
  ]
  const headers: Array<readonly [string, number]> = []
  for (const [name, round] of rounds) {
    if (round === undefined) continue
    if (!Number.isSafeInteger(round) || round < 0) return notARound(name, round)
    headers.push([name, round])
  }
  return Result.succeed(headers)
}

const notARound = (name: string, value: unknown): Result.Result<never, ModelError> => {
  const found = value instanceof Float ? `the float ${value.value}` : typeof value === "number" ? value : typeof value
  return invalid(name, `${name} is ${found}, not an int from 0`)
}

// --- from the wire ---

/**
 * The model of a task or result. A task that asks for a stored model (`submit_model_name`) gives a model without
 * parameters. Metrics that are no numbers are left out of `metrics` (the Shareable still has them).
 *
 * Arrays stay views of the message. Fails with `NotADxo` or `InvalidModel`.
 *
 * @category converting
 * @since 0.1.0
 */
export const fromShareable = (shareable: Shareable): Result.Result<FLModel, ModelError> =>
  Result.gen(function* () {
    const { headers } = shareable
    const submitName = headers.get(Header.submitModelName)
    const fields = isTruthy(submitName)
      ? { meta: [[MetaKey.submitModelName, submitName] as const] }
      : yield* Result.flatMap(readDxo(shareable), dxoFields)
    return new FLModel({
      ...fields,
      ...(yield* readRounds(headers)),
      meta: [...fields.meta, ...headerMeta(headers)]
    })
  })

/** Python's idea of it, for what a header may hold. */
const isTruthy = (value: unknown): boolean =>
  value !== undefined && value !== null && value !== false && value !== "" && value !== 0

interface DxoBody {
  readonly kind: string | undefined
  readonly data: ReadonlyMap<unknown, unknown>
  readonly meta: ReadonlyMap<unknown, unknown>
}

const readDxo = ({ entries, headers }: Shareable): Result.Result<DxoBody, ModelError> =>
  Result.gen(function* () {
    const contentType = headers.get(Header.contentType)
    if (contentType !== dxoContentType) {
      const found = typeof contentType === "string" ? JSON.stringify(contentType.slice(0, 60)) : "missing"
      return yield* notADxo(`the content type of the Shareable is ${found}, not "${dxoContentType}"`)
    }
    const body = entries.get(dxoEntry)
    if (!(body instanceof Map) || body.size === 0) {
      return yield* notADxo(`the Shareable has no "${dxoEntry}" entry that is a dict with content`)
    }
    const data = yield* readDict(body, "data")
    const meta = yield* readDict(body, "meta")
    return { kind: kindText(body.get("kind")), data, meta }
  })

/** A kind may be an enum member or plain text. Unknown ones pass: their data counts as parameters. */
const kindText = (kind: unknown): string | undefined => {
  if (kind instanceof EnumValue) return kind.name
  return typeof kind === "string" ? kind : undefined
}

const readDict = (
  body: ReadonlyMap<unknown, unknown>,
  field: string
): Result.Result<ReadonlyMap<unknown, unknown>, ModelError> => {
  const value = body.get(field) ?? new Map()
  return value instanceof Map ? Result.succeed(value) : notADxo(`${field} of the DXO in the Shareable is no dict`)
}

const dxoFields = ({ data, kind, meta }: DxoBody) =>
  Result.gen(function* () {
    const named = yield* textKeys(meta, "meta")
    if (kind === "METRICS") return { metrics: numbers(data), meta: named }
    const initial = named.get(MetaKey.initialMetrics)
    return {
      paramsType: kind === "WEIGHT_DIFF" ? ("DIFF" as const) : ("FULL" as const),
      params: yield* textKeys(data, "params"),
      ...(initial instanceof Map ? { metrics: numbers(initial) } : {}),
      meta: named
    }
  })

const textKeys = (
  map: ReadonlyMap<unknown, unknown>,
  field: string
): Result.Result<ReadonlyMap<string, unknown>, ModelError> => {
  const result = new Map<string, unknown>()
  for (const [name, value] of map) {
    if (typeof name !== "string") return invalid(field, `a name in ${field} is no text but a ${typeof name}`)
    result.set(name, value)
  }
  return Result.succeed(result)
}

const numbers = (metrics: ReadonlyMap<unknown, unknown>): Map<string, number> => {
  const result = new Map<string, number>()
  for (const [name, value] of metrics) {
    const number = toNumber(value)
    if (typeof name === "string" && number !== undefined) result.set(name, number)
  }
  return result
}

const readRounds = (headers: ReadonlyMap<string, unknown>) =>
  Result.gen(function* () {
    const startRound = yield* readRound(headers, Header.startRound)
    const currentRound = yield* readRound(headers, Header.currentRound)
    const totalRounds = yield* readRound(headers, Header.totalRounds)
    return {
      ...(startRound === undefined ? {} : { startRound }),
      ...(currentRound === undefined ? {} : { currentRound }),
      ...(totalRounds === undefined ? {} : { totalRounds })
    }
  })

const readRound = (
  headers: ReadonlyMap<string, unknown>,
  name: string
): Result.Result<number | undefined, ModelError> => {
  const value = headers.get(name)
  if (value === undefined || value === null) return Result.succeed(undefined)
  const round = toNonNegativeInt(value)
  return round === undefined || typeof value === "boolean" ? notARound(name, value) : Result.succeed(round)
}

const headerMeta = (headers: ReadonlyMap<string, unknown>): ReadonlyArray<readonly [string, unknown]> =>
  [
    [MetaKey.validateType, headers.get(Header.validateType)] as const,
    [MetaKey.jobId, headers.get(Header.jobId)] as const,
    [MetaKey.siteName, headers.get(Header.siteName)] as const
  ].filter(([, value]) => value !== undefined && value !== null)

/**
 * The training steps that a result says went into it (`NUM_STEPS_CURRENT_ROUND` in its `meta`); `undefined` where there
 * is no number.
 *
 * @category getters
 * @since 0.1.0
 */
export const numSteps = (model: FLModel): number | undefined => toNumber(model.meta.get(MetaKey.numStepsCurrentRound))

// --- differences ---

/**
 * `trained - base`, array by array and tensor by tensor, as a DIFF model with everything else of `trained`. Parameters
 * that only one of them has are left out, as the reference does; dtypes are kept, ints wrap around.
 *
 * Fails with `ParamsMismatch` when an array differs in shape or dtype, or has no numbers (bools can't be subtracted),
 * with `InvalidModel` when the models have no array in common.
 *
 * @category combinators
 * @since 0.1.0
 */
export const difference = (trained: FLModel, base: FLModel): Result.Result<FLModel, ModelError> =>
  Result.gen(function* () {
    const after = trained.weights
    const params: Array<readonly [string, unknown]> = []
    for (const [name, before] of base.weights) {
      const array = after.get(name)
      if (array === undefined) continue
      const changed = yield* Result.mapError(TensorMath.subtract(array, before), ({ message }) =>
        mismatch(name, message)
      )
      params.push([name, changed])
    }
    if (params.length === 0) return yield* Result.fail(nothingInCommon)
    return trained.withParams(params, "DIFF")
  })

const mismatch = (name: string, what: string): ModelError =>
  new ModelError({
    reason: new ParamsMismatch({ name, message: `no difference of parameter ${JSON.stringify(name)}: ${what}` })
  })

const nothingInCommon = new ModelError({
  reason: new InvalidModel({
    field: "params",
    message: "the trained model and the one it was trained from have no array in common: check the parameters' names"
  })
})

// --- arrays and tensors ---

/**
 * The model with each numpy array as a torch tensor; tensors stay. Data is not copied, except of big-endian and
 * column-major arrays.
 *
 * Fails with `InvalidModel` for a parameter that is neither, or an array of a dtype that no tensor has.
 *
 * @category converting
 * @since 0.1.0
 */
export const toTensors = (model: FLModel): Result.Result<FLModel, ModelError> => {
  const { weights } = model
  return convertParams(model, "no array, and only arrays become tensors", (name) => {
    const weight = weights.get(name)
    return weight instanceof NdArray ? Tensor.fromArray(weight) : weight && Result.succeed(weight)
  })
}

/**
 * The model with each torch tensor as a numpy array over the same bytes; arrays and numpy scalars stay.
 *
 * Fails with `InvalidModel` for a parameter that is none of these, or a tensor of a dtype that numpy lacks, as bfloat16.
 *
 * @category converting
 * @since 0.1.0
 */
export const toArrays = (model: FLModel): Result.Result<FLModel, ModelError> =>
  convertParams(model, "no tensor, and only tensors become arrays", (_, value) => {
    if (value instanceof Tensor) return value.toArray()
    return value instanceof NdArray || value instanceof NumpyScalar ? Result.succeed(value) : undefined
  })

const convertParams = (
  model: FLModel,
  otherwise: string,
  convert: (name: string, value: unknown) => Result.Result<unknown, FobsError> | undefined
): Result.Result<FLModel, ModelError> => {
  const params: Array<readonly [string, unknown]> = []
  for (const [name, value] of model.params ?? []) {
    const converted = convert(name, value)
    if (converted === undefined) return wrongParam(name, `it is ${otherwise}`)
    if (Result.isFailure(converted)) return wrongParam(name, converted.failure.message)
    params.push([name, converted.success])
  }
  return Result.succeed(model.params === undefined ? model : model.withParams(params))
}

const wrongParam = (name: string, what: string) => invalid("params", `parameter ${JSON.stringify(name)}: ${what}`)
