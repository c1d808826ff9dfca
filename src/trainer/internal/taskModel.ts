/** A result as it travels. Source: docs/wire/attach.md, section 7.5. */
import { Result } from "effect"
import type { TaskExchange } from "../../clientapi/ClientApi.ts"
import type { FLModel } from "../../model/FLModel.ts"
import * as ModelExchange from "../../model/ModelExchange.ts"
import type { Shareable } from "../../model/Shareable.ts"
import { convert } from "./paramsFormat.ts"

/** What training changed, in the form that the trainer uses; only arrays and tensors are subtracted. */
const difference = ({ exchange_format: own }: TaskExchange, base: FLModel, trained: FLModel) =>
  Result.gen(function* () {
    const flat = own === "keras_layer_weights" ? "numpy" : own
    const after = yield* convert(trained, own, flat)
    const before = yield* convert(base, own, flat)
    const changed = yield* Result.mapError(ModelExchange.difference(after, before), ({ message }) => message)
    return yield* convert(changed, flat, own)
  })

/** The Shareable that answers a task with a model, or why there is none. `base` is the model that came with the task. */
export const resultOf = (exchange: TaskExchange, base: FLModel, model: FLModel): Result.Result<Shareable, string> =>
  Result.gen(function* () {
    const isDiff =
      exchange.transfer_type === "DIFF" &&
      model.paramsType === "FULL" &&
      model.params !== undefined &&
      base.params !== undefined
    const own = isDiff ? yield* difference(exchange, base, model) : model
    const wire = yield* convert(own, exchange.exchange_format, exchange.server_expected_format)
    return yield* Result.mapError(ModelExchange.toShareable(wire), ({ message }) => message)
  })
