/**
 * The difference that training made.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import * as NdMath from "../fobs/NdMath.ts"
import { FLModel } from "./FLModel.ts"
import { InvalidModel, ModelError, ParamsMismatch } from "./ModelError.ts"

/**
 * `trained - base`, array by array, as a DIFF model with everything else of `trained`. Parameters that only one of
 * them has are left out, as the reference does; dtypes are kept, ints wrap around.
 *
 * Fails with `ParamsMismatch` when an array differs in shape or dtype, or has no numbers (bools can't be subtracted),
 * with `InvalidModel` when the models have no array in common.
 *
 * @category combinators
 * @since 0.1.0
 */
export const difference = (trained: FLModel, base: FLModel): Result.Result<FLModel, ModelError> =>
  Result.gen(function* () {
    const after = trained.arrays
    const params: Array<readonly [string, unknown]> = []
    for (const [name, before] of base.arrays) {
      const array = after.get(name)
      if (array === undefined) continue
      const changed = yield* Result.mapError(NdMath.subtract(array, before), ({ message }) => mismatch(name, message))
      params.push([name, changed])
    }
    if (params.length === 0) return yield* Result.fail(nothingInCommon)
    const { currentRound, meta, metrics, startRound, totalRounds } = trained
    return new FLModel({
      paramsType: "DIFF",
      params,
      meta,
      ...(metrics === undefined ? {} : { metrics }),
      ...(startRound === undefined ? {} : { startRound }),
      ...(currentRound === undefined ? {} : { currentRound }),
      ...(totalRounds === undefined ? {} : { totalRounds })
    })
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
