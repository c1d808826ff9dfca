/**
 * What trainers log: scalars, metrics, parameters, texts.
 *
 * Source: docs/wire/attach.md, section 8; docs/wire/fobs.md, section 5.5.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import { EnumValue, Float } from "../fobs/Values.ts"
import { Dxo } from "./Dxo.ts"
import { toNonNegativeInt, toNumber } from "./internal/scalars.ts"
import { InvalidAnalytics, ModelError } from "./ModelError.ts"

/**
 * The members of the reference's `AnalyticsDataType`, by name.
 *
 * @category constants
 * @since 0.1.0
 */
export const analyticsDataTypes = [
  "SCALARS",
  "SCALAR",
  "IMAGE",
  "TEXT",
  "LOG_RECORD",
  "PARAMETER",
  "PARAMETERS",
  "METRIC",
  "METRICS",
  "MODEL",
  "TAG",
  "TAGS",
  "INIT_DATA"
] as const

/**
 * @category models
 * @since 0.1.0
 */
export type AnalyticsDataType = (typeof analyticsDataTypes)[number]

/**
 * The members of the reference's `LogWriterName`, by name; values on the wire may differ, names travel.
 *
 * @category constants
 * @since 0.1.0
 */
export const logWriterNames = ["TORCH_TB", "MLFLOW", "WANDB"] as const

/**
 * @category models
 * @since 0.1.0
 */
export type LogWriterName = (typeof logWriterNames)[number]

const dataTypeClass = "nvflare.apis.analytix.AnalyticsDataType"
const writerClass = "nvflare.apis.analytix.LogWriterName"
const stepKey = "global_step"
const pathKey = "path"
const writerKey = "writer"
/** Keys of a LOG body that are no keyword values of the record. */
const ownKeys: ReadonlySet<unknown> = new Set(["session_id", "key", "value", "data_type", writerKey])

/**
 * One record. `value` is a number for SCALAR and METRIC, a map of numbers for SCALARS and METRICS, a map for PARAMETERS
 * and TAGS, a text for TEXT, anything for the others. `globalStep` is the training step, `extra` what the trainer
 * gave beside it.
 *
 * @category models
 * @since 0.1.0
 */
export class AnalyticsRecord {
  readonly tag: string
  readonly value: unknown
  readonly dataType: AnalyticsDataType
  /** The tracker whose habits the trainer kept to; absent where it did not say. */
  readonly writer: LogWriterName | undefined
  readonly globalStep: number | undefined
  readonly path: string | undefined
  readonly extra: ReadonlyMap<string, unknown>
  /** Whether a step was there at all: an explicit None counts as a keyword value on the wire. */
  readonly hasStep: boolean
  constructor(fields: {
    readonly tag: string
    readonly value: unknown
    readonly dataType: AnalyticsDataType
    readonly writer?: LogWriterName
    /** `null` is an explicit None. */
    readonly globalStep?: number | null
    readonly path?: string
    readonly extra?: Iterable<readonly [string, unknown]>
  }) {
    this.tag = fields.tag
    this.value = fields.value
    this.dataType = fields.dataType
    this.writer = fields.writer
    this.globalStep = fields.globalStep ?? undefined
    this.hasStep = fields.globalStep !== undefined
    this.path = fields.path
    this.extra = new Map(fields.extra)
  }
}

const invalid = (field: string, message: string): Result.Result<never, ModelError> =>
  Result.fail(new ModelError({ reason: new InvalidAnalytics({ field, message }) }))

// --- checks ---

const isDataType = (name: string): name is AnalyticsDataType => analyticsDataTypes.some((member) => member === name)
const isWriter = (name: string): name is LogWriterName => logWriterNames.some((member) => member === name)
const shown = (text: string): string => JSON.stringify(text.slice(0, 60))

/** The value as records keep it: numbers unwrapped from numpy's scalars. */
const checkValue = (tag: string, dataType: AnalyticsDataType, value: unknown): Result.Result<unknown, ModelError> => {
  const refuse = (wanted: string) => invalid("value", `${dataType} ${shown(tag)} needs ${wanted} as its value`)
  switch (dataType) {
    case "SCALAR":
    case "METRIC": {
      const number = toNumber(value)
      return number === undefined ? refuse("a number") : Result.succeed(number)
    }
    case "SCALARS":
    case "METRICS":
      return value instanceof Map ? checkNumbers(value, refuse) : refuse("a map of numbers")
    case "PARAMETERS":
    case "TAGS":
      return value instanceof Map ? Result.succeed(value) : refuse("a map")
    case "TEXT":
      return typeof value === "string" ? Result.succeed(value) : refuse("a text")
    default:
      return Result.succeed(value)
  }
}

const checkNumbers = (
  map: ReadonlyMap<unknown, unknown>,
  refuse: (wanted: string) => Result.Result<never, ModelError>
): Result.Result<ReadonlyMap<unknown, number>, ModelError> => {
  const numbers = new Map<unknown, number>()
  for (const [name, value] of map) {
    const number = toNumber(value)
    if (number === undefined) return refuse("numbers in the map")
    numbers.set(name, number)
  }
  return Result.succeed(numbers)
}

/** `null` for an explicit None, `undefined` where there is none. */
const checkStep = (step: unknown): Result.Result<number | null | undefined, ModelError> => {
  if (step === undefined || step === null) return Result.succeed(step)
  const checked = toNonNegativeInt(step)
  return checked === undefined ? invalid(stepKey, "global_step is no int from 0") : Result.succeed(checked)
}

const checkPath = (path: unknown): Result.Result<string | undefined, ModelError> => {
  if (path === undefined || path === null) return Result.succeed(undefined)
  return typeof path === "string" ? Result.succeed(path) : invalid(pathKey, "path is no text")
}

// --- a LOG message ---

/**
 * The record of a LOG body, checked as the reference does. A `writer` that is no member is ignored.
 *
 * Fails with `InvalidAnalytics` where the reference drops the record.
 *
 * @category converting
 * @since 0.1.0
 */
export const fromLog = (body: ReadonlyMap<unknown, unknown>): Result.Result<AnalyticsRecord, ModelError> =>
  Result.gen(function* () {
    const tag = body.get("key")
    const dataType = body.get("data_type")
    const writer = body.get(writerKey)
    if (typeof tag !== "string") return yield* invalid("key", "key is no text")
    if (!(dataType instanceof EnumValue) || dataType.className !== dataTypeClass || !isDataType(dataType.name)) {
      return yield* invalid("data_type", `data_type of ${shown(tag)} is no member of AnalyticsDataType`)
    }
    const value = yield* checkValue(tag, dataType.name, body.get("value"))
    const globalStep = yield* checkStep(body.get(stepKey))
    const path = yield* checkPath(body.get(pathKey))
    const extra = yield* extraValues(body)
    return new AnalyticsRecord({
      tag,
      value,
      dataType: dataType.name,
      ...(writer instanceof EnumValue && writer.className === writerClass && isWriter(writer.name)
        ? { writer: writer.name }
        : {}),
      ...(globalStep === undefined ? {} : { globalStep }),
      ...(path === undefined ? {} : { path }),
      extra
    })
  })

const extraValues = (
  body: ReadonlyMap<unknown, unknown>
): Result.Result<ReadonlyArray<readonly [string, unknown]>, ModelError> => {
  const extra: Array<readonly [string, unknown]> = []
  for (const [name, value] of body) {
    if (ownKeys.has(name) || name === stepKey || name === pathKey) continue
    if (typeof name !== "string") return invalid("extra", "the name of a keyword value is no text")
    extra.push([name, value])
  }
  return Result.succeed(extra)
}

/**
 * The LOG body that a trainer sends for a record; numbers of SCALAR, METRIC, SCALARS and METRICS become float64.
 *
 * Fails with `InvalidAnalytics` when the receiver would drop the record, or an extra value has the name of a field.
 *
 * @category converting
 * @since 0.1.0
 */
export const toLog = (
  sessionId: string,
  record: AnalyticsRecord
): Result.Result<ReadonlyMap<string, unknown>, ModelError> =>
  Result.gen(function* () {
    const { dataType, extra, globalStep, hasStep, path, tag, writer } = record
    const value = yield* checkValue(tag, dataType, record.value)
    const step = (yield* checkStep(globalStep)) ?? (hasStep ? null : undefined)
    const clash = [...extra.keys()].find((name) => ownKeys.has(name) || name === stepKey || name === pathKey)
    if (clash !== undefined) return yield* invalid("extra", `an extra value of ${shown(tag)} is named ${clash}`)
    return new Map<string, unknown>([
      ["session_id", sessionId],
      ["key", tag],
      ["value", wireValue(dataType, value)],
      ["data_type", new EnumValue(dataTypeClass, dataType)],
      ...entry(stepKey, step),
      ...entry(writerKey, writer === undefined ? undefined : new EnumValue(writerClass, writer)),
      ...entry(pathKey, path),
      ...extra
    ])
  })

const entry = (name: string, value: unknown): ReadonlyArray<readonly [string, unknown]> =>
  value === undefined ? [] : [[name, value]]

const wireValue = (dataType: AnalyticsDataType, value: unknown): unknown => {
  if (dataType === "SCALAR" || dataType === "METRIC") return asFloat(value)
  if ((dataType === "SCALARS" || dataType === "METRICS") && value instanceof Map) {
    return new Map([...value].map(([name, each]) => [name, asFloat(each)] as const))
  }
  return value
}

const asFloat = (value: unknown): unknown => (typeof value === "number" ? new Float(value) : value)

// --- the DXO of FL events ---

/**
 * The DXO that the reference fires as an event for a record.
 *
 * @category converting
 * @since 0.1.0
 */
export const toDxo = (record: AnalyticsRecord): Dxo => {
  const { dataType, extra, globalStep, hasStep, path, tag, writer } = record
  const step = entry(stepKey, hasStep ? (globalStep ?? null) : undefined)
  const kwargs = new Map([...step, ...entry(pathKey, path), ...extra])
  return new Dxo({
    kind: "ANALYTIC",
    data: new Map<string, unknown>([
      ["track_key", tag],
      ["track_value", wireValue(dataType, record.value)],
      ...entry(stepKey, globalStep),
      ...entry(pathKey, path === "" ? undefined : path),
      ...entry("analytics_kwargs", kwargs.size === 0 ? undefined : kwargs)
    ]),
    meta: new Map([
      ["analytics_data_type", new EnumValue(dataTypeClass, dataType)],
      ["tracker_key", new EnumValue(writerClass, writer ?? "TORCH_TB")]
    ])
  })
}
