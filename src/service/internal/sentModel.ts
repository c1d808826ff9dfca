/** What a trainer's result has to do with the model that was sent to it. */
import { Result } from "effect"
import { NdArray } from "../../fobs/NdArray.ts"
import * as NdMath from "../../fobs/NdMath.ts"
import * as TensorMath from "../../fobs/TensorMath.ts"
import { FLModel } from "../../model/FLModel.ts"
import type { TrainerResult } from "../FedAvg.ts"
import { FedAvgError, WrongParameter } from "../FedAvgError.ts"

const advice = "let it send the parameters back as they came, or allow other ones (acceptChangedModel)"

const wrong = (trainer: string, name: string, what: string): Result.Result<never, FedAvgError> => {
  const message = `parameter ${JSON.stringify(name)} of ${trainer}: ${what}: ${advice}`
  return Result.fail(new FedAvgError({ reason: new WrongParameter({ trainer, name, message }) }))
}

const shown = (value: unknown, array: TensorMath.AnyArray | undefined): string =>
  array === undefined ? `no array but a value of type ${typeof value}` : TensorMath.describe(array)

/**
 * Whether a result has the parameters of the model that was sent, each with its kind, shape and dtype; byte order and
 * element order don't count. A DIFF may lack parameters: those stay as they are.
 */
export const check = (sent: FLModel, { model, trainer }: TrainerResult): Result.Result<void, FedAvgError> => {
  const before = sent.weights
  const after = model.weights
  for (const name of model.params?.keys() ?? []) {
    if (sent.params?.has(name) !== true) return wrong(trainer, name, "the model that was sent has none of this name")
  }
  // A result without any parameters is another matter, with a message of its own.
  if (model.params === undefined || model.params.size === 0) return Result.void
  for (const [name, array] of before) {
    const value = model.params.get(name)
    if (value === undefined) {
      if (model.paramsType === "DIFF") continue
      return wrong(trainer, name, `it is missing, the model that was sent has ${TensorMath.describe(array)}`)
    }
    const other = after.get(name)
    if (other === undefined || !TensorMath.isCompatible(array, other)) {
      const what = `it is ${shown(value, other)}, the model that was sent has ${TensorMath.describe(array)}`
      return wrong(trainer, name, what)
    }
  }
  return Result.void
}

/** The names of the parameters that hold NaN or an infinity. */
export const notFinite = ({ weights }: FLModel): ReadonlyArray<string> =>
  [...weights].flatMap(([name, array]) => (TensorMath.isFinite(array) ? [] : [name]))

/**
 * The model with its arrays in the byte order of the one that was sent: a trainer computes in that of its machine, and
 * a dtype is to stay what it is. Values and everything else stay; arrays that have that order are not copied.
 */
export const inByteOrderOf = (sent: FLModel, model: FLModel): FLModel => {
  const before = sent.weights
  const turned = new Map<string, NdArray>()
  for (const [name, array] of model.weights) {
    const like = before.get(name)
    if (!(array instanceof NdArray && like instanceof NdArray)) continue
    if (array.dtype === like.dtype || !NdMath.isCompatible(array, like)) continue
    turned.set(name, like.isBigEndian ? array.toBigEndian() : array.toLittleEndian())
  }
  if (turned.size === 0) return model
  const params = [...(model.params ?? [])].map(([name, value]) => [name, turned.get(name) ?? value] as const)
  const { currentRound, meta, metrics, paramsType, startRound, totalRounds } = model
  return new FLModel({
    params,
    paramsType,
    meta,
    ...(metrics === undefined ? {} : { metrics }),
    ...(startRound === undefined ? {} : { startRound }),
    ...(currentRound === undefined ? {} : { currentRound }),
    ...(totalRounds === undefined ? {} : { totalRounds })
  })
}
