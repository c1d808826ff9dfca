/**
 * Parameters in the form that the other end understands. Source: docs/wire/attach.md, sections 4, 7.3 and 7.5.
 *
 * `raw` on either side means "as they are"; `numpy` is an NdArray by name, `pytorch` a Tensor by name, and
 * `keras_layer_weights` a list of NdArrays by layer, which travels flat, as `<layer>_nvf_<index>`.
 */
import { Result } from "effect"
import type { ExchangeFormat } from "../../clientapi/ClientApi.ts"
import type { FLModel } from "../../model/FLModel.ts"
import * as ModelExchange from "../../model/ModelExchange.ts"

type Params = ReadonlyMap<string, unknown>
type Entries = ReadonlyArray<readonly [string, unknown]>
/** A failure is the reason in words. */
type Converted<A> = Result.Result<A, string>

const refuse = (name: string, what: string): Result.Result<never, string> =>
  Result.fail(`parameter ${JSON.stringify(name)} ${what}`)

const describe = (value: unknown): string =>
  typeof value === "object" && value !== null ? value.constructor?.name || "a map" : typeof value

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

const inWords = Result.mapError(({ message }: { readonly message: string }) => message)

/**
 * The model with its parameters converted; itself where there is nothing to do. Data is not copied, except big-endian
 * or column-major arrays that become tensors.
 */
export const convert = (model: FLModel, from: ExchangeFormat, to: ExchangeFormat): Converted<FLModel> => {
  const { params } = model
  if (params === undefined || from === "raw" || to === "raw") return Result.succeed(model)
  // An array that a trainer made is taken where tensors are sent.
  if (to === "pytorch" && from !== "keras_layer_weights") return inWords(ModelExchange.toTensors(model))
  if (from === to) return Result.succeed(model)
  if (from === "pytorch" && to === "numpy") return inWords(ModelExchange.toArrays(model))
  if (from === "keras_layer_weights" && to === "numpy")
    return Result.map(flatten(params), (flat) => model.withParams(flat))
  if (from === "numpy" && to === "keras_layer_weights") {
    return Result.map(unflatten(params), (layers) => model.withParams(layers))
  }
  return Result.fail(`parameters can't be converted from ${from} to ${to}`)
}
