/**
 * Parameters in the form that the other end understands. Source: docs/wire/attach.md, sections 4, 7.3 and 7.5.
 *
 * `raw` on either side means "as they are"; `numpy` is an NdArray by name, `pytorch` a Tensor by name, and
 * `keras_layer_weights` a list of NdArrays by layer, which travels flat, as `<layer>_nvf_<index>`.
 */
import { Result } from "effect"
import type { ExchangeFormat } from "../../clientapi/ClientApi.ts"
import { NdArray } from "../../fobs/NdArray.ts"
import { Tensor, type TensorDtype } from "../../fobs/Tensor.ts"
import { NumpyScalar } from "../../fobs/Values.ts"
import { FLModel } from "../../model/FLModel.ts"

type Params = ReadonlyMap<string, unknown>
type Entries = ReadonlyArray<readonly [string, unknown]>
/** A failure is the reason in words. */
type Converted<A> = Result.Result<A, string>

/** What both formats have, by numpy's name without byte order. */
const dtypes: ReadonlyMap<string, TensorDtype> = new Map([
  ["b1", "BOOL"],
  ["u1", "U8"],
  ["i1", "I8"],
  ["i2", "I16"],
  ["u2", "U16"],
  ["f2", "F16"],
  ["i4", "I32"],
  ["u4", "U32"],
  ["f4", "F32"],
  ["f8", "F64"],
  ["i8", "I64"],
  ["u8", "U64"]
])
const numpyNames: ReadonlyMap<TensorDtype, string> = new Map([...dtypes].map(([name, dtype]) => [dtype, name]))

const refuse = (name: string, what: string): Result.Result<never, string> =>
  Result.fail(`parameter ${JSON.stringify(name)} ${what}`)

const describe = (value: unknown): string =>
  typeof value === "object" && value !== null ? value.constructor?.name || "a map" : typeof value

const toTensor = (name: string, value: unknown): Converted<readonly [string, unknown]> => {
  if (value instanceof Tensor) return Result.succeed([name, value])
  if (!(value instanceof NdArray)) return refuse(name, `is ${describe(value)}: only arrays become tensors`)
  const dtype = dtypes.get(value.dtype.slice(1))
  if (dtype === undefined) return refuse(name, `has dtype ${value.dtype}, which no tensor has`)
  const { bytes, shape } = value.toC().toLittleEndian()
  return Result.succeed([name, new Tensor(dtype, shape, bytes)])
}

const toArray = (name: string, value: unknown): Converted<readonly [string, unknown]> => {
  if (value instanceof NdArray || value instanceof NumpyScalar) return Result.succeed([name, value])
  if (!(value instanceof Tensor)) return refuse(name, `is ${describe(value)}: only tensors become arrays`)
  const dtype = numpyNames.get(value.dtype)
  if (dtype === undefined) return refuse(name, `is a ${value.dtype} tensor, and numpy has no such type`)
  return Result.succeed([name, new NdArray(`${dtype.endsWith("1") ? "|" : "<"}${dtype}`, value.shape, value.bytes)])
}

const layerMark = "_nvf_"

const flatten = (params: Params): Converted<Entries> => {
  const flat: Array<readonly [string, unknown]> = []
  for (const [layer, weights] of params) {
    if (!Array.isArray(weights)) return refuse(layer, `is ${describe(weights)}: a layer is a list of arrays`)
    for (const [index, each] of weights.entries()) flat.push([`${layer}${layerMark}${index}`, each])
  }
  return Result.succeed(flat)
}

const unflatten = (params: Params): Converted<Entries> => {
  const layers = new Map<string, Array<unknown>>()
  for (const [name, value] of params) {
    const [layer, index, ...more] = name.split(layerMark)
    if (layer === undefined || index === undefined || more.length > 0) {
      return refuse(name, `names no layer: <layer>${layerMark}<index> is expected`)
    }
    const weights = layers.get(layer)
    if (weights === undefined) layers.set(layer, [value])
    else weights.push(value)
  }
  return Result.succeed([...layers])
}

const each = (
  params: Params,
  convertOne: (name: string, value: unknown) => Converted<readonly [string, unknown]>
): Converted<Entries> => Result.all([...params].map(([name, value]) => convertOne(name, value)))

const convertParams = (
  { arrays }: FLModel,
  params: Params,
  from: ExchangeFormat,
  to: ExchangeFormat
): Converted<Entries> => {
  if (to === "pytorch" && from !== "keras_layer_weights") {
    // numpy scalars count as arrays without dimensions.
    return each(params, (name, value) => toTensor(name, arrays.get(name) ?? value))
  }
  if (from === to) return Result.succeed([...params])
  if (from === "pytorch" && to === "numpy") return each(params, toArray)
  if (from === "keras_layer_weights" && to === "numpy") return flatten(params)
  if (from === "numpy" && to === "keras_layer_weights") return unflatten(params)
  return Result.fail(`parameters can't be converted from ${from} to ${to}`)
}

/**
 * The model with its parameters converted; itself where there is nothing to do. Data is not copied, except big-endian
 * or column-major arrays that become tensors.
 */
export const convert = (model: FLModel, from: ExchangeFormat, to: ExchangeFormat): Converted<FLModel> =>
  model.params === undefined || from === "raw" || to === "raw"
    ? Result.succeed(model)
    : Result.map(convertParams(model, model.params, from, to), (params) => withParams(model, params))

const withParams = (model: FLModel, params: Entries): FLModel => {
  const { currentRound, meta, metrics, paramsType, startRound, totalRounds } = model
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
