/** How the model's classes travel, and what of a peer's data they refuse (docs/wire/fobs.md, section 3.3). */
import { Result } from "effect"
import * as Decomposer from "../../fobs/Decomposer.ts"
import { EnumValue, Tuple } from "../../fobs/Values.ts"
import { Dxo, dataKindClass } from "../Dxo.ts"
import { FLContext } from "../FLContext.ts"
import { FLModel, type ParamsType } from "../FLModel.ts"
import { FLModelEnvelope, paramsTypeClass } from "../FLModelEnvelope.ts"
import { Learnable, ModelLearnable } from "../Learnable.ts"
import { headersKey, Shareable } from "../Shareable.ts"

const dictDecomposer = "nvflare.fuel.utils.fobs.decomposer.DictDecomposer"
const flare = "nvflare.apis.utils.decomposers.flare_decomposers"

type Dict = ReadonlyMap<unknown, unknown>

const isDict = (value: unknown): value is Dict => value instanceof Map

const noDict = Result.fail("the data is no dict")

/** Fails with what `name` should have been. */
const expected = (name: string, what: string): Result.Result<never, string> => Result.fail(`${name} is not ${what}`)

/** A dict, `empty` for nil, `undefined` for anything else. */
const dictOr = <A>(value: unknown, empty: A): Dict | A | undefined =>
  value === null ? empty : isDict(value) ? value : undefined

const shareable = Decomposer.make<Shareable>({
  typeName: "nvflare.apis.shareable.Shareable",
  decomposerName: dictDecomposer,
  is: (value) => value instanceof Shareable,
  decompose: ({ entries, headers }) => new Map<unknown, unknown>([[headersKey, headers], ...entries]),
  recompose: (data) => {
    if (!isDict(data)) return noDict
    const headers = data.get(headersKey) ?? new Map()
    if (!isDict(headers)) return expected(headersKey, "a dict")
    for (const name of headers.keys()) if (typeof name !== "string") return expected("the name of a header", "a text")
    const entries = new Map(data)
    entries.delete(headersKey)
    // All keys were seen to be texts.
    return Result.succeed(new Shareable(headers as ReadonlyMap<string, unknown>, entries))
  }
})

const dictObject = <T extends Learnable>(
  typeName: string,
  type: new (entries: Iterable<readonly [unknown, unknown]>) => T
): Decomposer.Decomposer<T> =>
  Decomposer.make<T>({
    typeName,
    decomposerName: dictDecomposer,
    is: (value): value is T => value instanceof Learnable && value.constructor === type,
    decompose: ({ entries }) => entries,
    recompose: (data) => (isDict(data) ? Result.succeed(new type(data)) : noDict)
  })

/** The items of a tuple of exactly `length`; a list is none. */
const tupleOf = (data: unknown, length: number): ReadonlyArray<unknown> | undefined =>
  data instanceof Tuple && data.items.length === length ? data.items : undefined

const dxo = Decomposer.make<Dxo>({
  typeName: "nvflare.apis.dxo.DXO",
  decomposerName: `${flare}.DXODecomposer`,
  is: (value) => value instanceof Dxo,
  decompose: (value) => new Tuple([value.wireKind, value.meta, value.data]),
  recompose: (data) => {
    const items = tupleOf(data, 3)
    if (items === undefined) return expected("the data", "a tuple of 3")
    const [wireKind, rawMeta, rawData] = items
    const isMember = wireKind instanceof EnumValue && wireKind.className === dataKindClass
    const kind = isMember ? wireKind.name : wireKind
    if (typeof kind !== "string" && kind !== null) return expected("kind", "a DataKind or text")
    const meta = dictOr(rawMeta, new Map())
    if (meta === undefined) return expected("meta", "a dict")
    const value = rawData ?? new Map()
    if (kind !== "APP_DEFINED" && !isDict(value)) return expected(`the data of kind ${kind}`, "a dict")
    return Result.succeed(new Dxo({ kind, data: value, meta, kindAsText: !isMember }))
  }
})

const flContext = Decomposer.make<FLContext>({
  typeName: "nvflare.apis.fl_context.FLContext",
  decomposerName: `${flare}.ContextDecomposer`,
  is: (value) => value instanceof FLContext,
  decompose: ({ model, props }) => [model, props],
  recompose: (data) => {
    const items = data instanceof Tuple ? data.items : data
    return Array.isArray(items) && items.length >= 2
      ? Result.succeed(new FLContext(items[0], items[1]))
      : expected("the data", "a list of two")
  }
})

/** A round: nil or an int >= 0. */
const isRound = (value: unknown): value is number | null =>
  value === null || (typeof value === "number" && Number.isSafeInteger(value) && value >= 0 && !Object.is(value, -0))

/** `null` stands for no type at all. */
const toParamsType = (value: unknown, hasParams: boolean): ParamsType | null | undefined => {
  if (value === null) return hasParams ? "FULL" : null
  const name = value instanceof EnumValue && value.className === paramsTypeClass ? value.name : value
  return hasParams && (name === "FULL" || name === "DIFF") ? name : undefined
}

const flModel = Decomposer.make<FLModel | FLModelEnvelope>({
  typeName: "nvflare.app_common.abstract.fl_model.FLModel",
  decomposerName: "nvflare.app_common.decomposers.common_decomposers.FLModelDecomposer",
  is: (value) => value instanceof FLModelEnvelope || value instanceof FLModel,
  decompose: (value) => {
    const model = value instanceof FLModel ? FLModelEnvelope.fromModel(value) : value
    const { currentRound, meta, metrics, optimizerParams, params, startRound, totalRounds } = model
    return new Tuple([
      model.wireParamsType,
      params ?? null,
      optimizerParams ?? null,
      metrics ?? null,
      startRound ?? null,
      currentRound ?? null,
      totalRounds ?? null,
      meta
    ])
  },
  recompose: (data) => {
    const items = tupleOf(data, 8)
    if (items === undefined) return expected("the data", "a tuple of 8")
    const [type, params, optimizerParams, rawMetrics, startRound, currentRound, totalRounds, rawMeta] = items
    const paramsType = toParamsType(type, params !== null)
    if (paramsType === undefined) return Result.fail("params_type is not FULL or DIFF, or there are no params for it")
    if (!isRound(startRound)) return expected("start_round", "an int >= 0")
    if (!isRound(currentRound)) return expected("current_round", "an int >= 0")
    if (!isRound(totalRounds)) return expected("total_rounds", "an int >= 0")
    const metrics = dictOr(rawMetrics, null)
    if (metrics === undefined) return expected("metrics", "a dict")
    const meta = dictOr(rawMeta, new Map())
    if (meta === undefined) return expected("meta", "a dict")
    return Result.succeed(
      new FLModelEnvelope({
        paramsType: paramsType ?? undefined,
        params,
        optimizerParams,
        metrics: metrics ?? undefined,
        startRound: startRound ?? undefined,
        currentRound: currentRound ?? undefined,
        totalRounds: totalRounds ?? undefined,
        meta
      })
    )
  }
})

export const modelDecomposers: ReadonlyArray<Decomposer.Decomposer<unknown>> = [
  shareable,
  dxo,
  flModel,
  flContext,
  dictObject("nvflare.app_common.abstract.learnable.Learnable", Learnable),
  dictObject("nvflare.app_common.abstract.model.ModelLearnable", ModelLearnable)
]
