/**
 * `fl-attach probe`: a trainer that answers each task with the model it got, to test a deployment with.
 *
 * @since 0.1.0
 */
import { Effect, Option } from "effect"
import { Argument, CliError, Command, Flag } from "effect/cli"
import { NdArray } from "../fobs/NdArray.ts"
import { Tensor } from "../fobs/Tensor.ts"
import * as TensorMath from "../fobs/TensorMath.ts"
import { Tuple } from "../fobs/Values.ts"
import { FLModel } from "../model/FLModel.ts"
import * as NodeAttach from "../service/NodeAttach.ts"
import * as Trainer from "../trainer/Trainer.ts"
import { TrainerProfile } from "../trainer/TrainerProfile.ts"
import { TrainerSession } from "../trainer/TrainerSession.ts"
import { toFailure } from "./internal/Failure.ts"
import { Screen } from "./internal/Screen.ts"
import { plural } from "./internal/ServeView.ts"

/** An int of any size, or a float. */
const parseNumber = (text: string): number | bigint | undefined => {
  if (/^[+-]?\d+$/.test(text)) {
    const int = BigInt(text)
    return BigInt.asIntN(54, int) === int ? Number(int) : int
  }
  const float = text.trim() === "" ? Number.NaN : Number(text)
  return Number.isFinite(float) ? float : undefined
}

const addFlag = Flag.String("add").pipe(
  Flag.mapEffect((text) => {
    const number = parseNumber(text)
    return number === undefined
      ? Effect.fail(new CliError.InvalidValue({ option: "add", value: text, expected: "a number", kind: "flag" }))
      : Effect.succeed(number)
  }),
  Flag.withMetavar("number"),
  Flag.withDescription("Add this to every numeric array; dtypes are kept. A negative number: --add=-1"),
  Flag.withDefault(0)
)

/** The value with `addend` added to every numeric array in it, however deep. */
const addToArrays = (value: unknown, addend: number | bigint): unknown => {
  if (value instanceof NdArray || value instanceof Tensor) return TensorMath.addScalar(value, addend)
  if (value instanceof Map) return new Map([...value].map(([key, item]) => [key, addToArrays(item, addend)]))
  if (value instanceof Tuple) return new Tuple(value.items.map((item) => addToArrays(item, addend)))
  if (Array.isArray(value)) return value.map((item) => addToArrays(item, addend))
  return value
}

const describe = (value: unknown): string => {
  if (value instanceof NdArray || value instanceof Tensor) {
    return `${value.dtype.slice(0, 40)}[${value.shape.join(", ")}]`
  }
  if (value instanceof Map) return `dict of ${value.size}`
  if (Array.isArray(value)) return `list of ${value.length}`
  return typeof value
}

const shownParams = 8

const describeModel = (model: FLModel): string => {
  const round = model.currentRound === undefined ? "" : `, round ${model.currentRound} of ${model.totalRounds ?? "?"}`
  const params = [...(model.params ?? [])].map(([name, value]) => `${name} ${describe(value)}`)
  const more = params.length > shownParams ? `, and ${params.length - shownParams} more` : ""
  const metrics = [...(model.metrics ?? [])].map(([name, value]) => `${name} ${value}`)
  const what = params.length === 0 ? "no parameters" : `${params.slice(0, shownParams).join(", ")}${more}`
  return `${model.paramsType}${round}: ${what}${metrics.length === 0 ? "" : `; metrics ${metrics.join(", ")}`}`
}

/** A task without parameters (it asks for a stored model, say) gets metrics, since an answer must hold something. */
const answer = (model: FLModel, addend: number | bigint): FLModel =>
  new FLModel({
    paramsType: model.paramsType,
    ...(model.params === undefined
      ? {}
      : { params: [...model.params].map(([name, value]) => [name, addToArrays(value, addend)] as const) }),
    metrics: model.metrics ?? (model.params === undefined ? [["probe", 1] as const] : [])
  })

/** Attaches and answers until the service ends the session. */
const probe = Effect.fn("probe")(function* (options: { readonly profile: string; readonly add: number | bigint }) {
  const screen = yield* Screen
  const profile = yield* TrainerProfile.load(options.profile)
  screen.line(`attaching as ${profile.attachId} of site ${profile.siteName}`)
  let tasks = 0
  yield* Effect.scoped(
    Effect.gen(function* () {
      const session = yield* Trainer.attach(profile)
      screen.line(`attached to job ${session.jobId}`)
      yield* Trainer.serveTasks(
        session,
        Effect.fnUntraced(function* (model) {
          tasks++
          const name = Option.getOrElse(yield* (yield* TrainerSession).taskName, () => "?")
          screen.line(`task ${tasks} (${name}) ${describeModel(model)}`)
          return answer(model, options.add)
        })
      )
    })
  )
  screen.line(`the service ended the session after ${plural(tasks, "task")}`)
})

/**
 * @category commands
 * @since 0.1.0
 */
export const command = Command.make(
  "probe",
  {
    profile: Argument.String("profile.json").pipe(Argument.withDescription("The trainer's profile")),
    add: addFlag
  },
  (options) => probe(options).pipe(Effect.provide(NodeAttach.layerPlatform), Effect.mapError(toFailure))
).pipe(
  Command.withDescription("Attach as a trainer and answer each task with the model it brings"),
  Command.withExamples([
    { command: "fl-attach probe profile.json --add 1", description: "Answer with every array one higher" }
  ])
)
