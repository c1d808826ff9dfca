import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import { AttachFleet } from "../../src/service/AttachFleet.ts"
import * as Rounds from "../../src/service/Rounds.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import { elements, floats, longs } from "../fobs/arrays.ts"
import { layerFleet } from "./fleetSupport.ts"

type Params = ReadonlyArray<readonly [string, unknown]>

const sent: Params = [
  ["w", floats([1, 2])],
  ["n", longs([7n])]
]

/** Rounds with trainers that answer so, each under its letter. */
const rounds = Effect.fnUntraced(function* (
  answers: ReadonlyArray<(received: FLModel) => FLModel>,
  options: { readonly acceptChangedModel?: boolean; readonly model?: Params } = {}
) {
  const fleet = yield* AttachFleet
  const trainers: Array<Parameters<typeof Rounds.awaitTrainers>[0][number]> = []
  for (const [n, answer] of answers.entries()) {
    const attachId = "abc".charAt(n)
    yield* TestTrainer.start({ attachId }, (received) => Effect.succeed(answer(received)))
    trainers.push(yield* fleet.get({ attachId }))
  }
  const events: Array<Rounds.RoundEvent> = []
  const [first, ...others] = trainers
  if (first === undefined) return yield* Effect.die("no trainer")
  const running = yield* Effect.forkChild(
    Effect.result(
      Rounds.run({
        trainers: [first, ...others],
        model: new FLModel({ params: options.model ?? sent }),
        rounds: 1,
        acceptChangedModel: options.acceptChangedModel ?? false,
        onEvent: (event) => Effect.sync(() => void events.push(event))
      })
    )
  )
  yield* TestClock.adjust("20 seconds")
  return { outcome: yield* Fiber.join(running), events }
})

const same = (received: FLModel) => new FLModel({ params: received.params ?? [] })
const answering = (params: Params) => () => new FLModel({ params })

const refusal = (answers: ReadonlyArray<(received: FLModel) => FLModel>) =>
  Effect.map(rounds(answers), ({ outcome }) =>
    outcome._tag === "Failure" ? `${outcome.failure.reason._tag}: ${outcome.failure.message}` : "accepted"
  )

const changed: ReadonlyArray<readonly [string, Params, string]> = [
  [
    "another shape",
    [
      ["w", floats([1, 2, 3])],
      ["n", longs([7n])]
    ],
    '"w" of a: it is <f4 [3], the model that was sent has <f4 [2]'
  ],
  [
    "another dtype",
    [
      ["w", NdArray.fromTyped(Float64Array.of(1, 2))],
      ["n", longs([7n])]
    ],
    '"w" of a: it is <f8 [2], the model that was sent has <f4 [2]'
  ],
  ["a missing parameter", [["w", floats([1, 2])]], '"n" of a: it is missing, the model that was sent has <i8 [1]'],
  [
    "a parameter too many",
    [...sent, ["extra", floats([1])]],
    '"extra" of a: the model that was sent has none of this name'
  ]
]

describe("a result and the model that was sent", () => {
  it.effect.each(changed)("%s is refused with one trainer, with what to do", ([_, params, told]) =>
    Effect.gen(function* () {
      const message = yield* refusal([answering(params)])
      assert.include(message, `WrongParameter: parameter ${told}`)
      assert.include(message, "(acceptChangedModel)")
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("of two trainers the one is named that changed it, in whatever order they stand", () =>
    Effect.gen(function* () {
      const wrong = answering([
        ["w", floats([1])],
        ["n", longs([7n])]
      ])
      assert.include(yield* refusal([wrong, same]), '"w" of a: it is <f4 [1], the model that was sent has <f4 [2]')
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("of two trainers the second", () =>
    Effect.gen(function* () {
      assert.include(
        yield* refusal([
          same,
          answering([
            ["w", floats([1])],
            ["n", longs([7n])]
          ])
        ]),
        '"w" of b: it is <f4 [1]'
      )
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("changes are taken from those who want them, bit for bit", () =>
    Effect.gen(function* () {
      const params: Params = [["other", NdArray.fromTyped(Float64Array.of(0.1)).toBigEndian()]]
      const { outcome } = yield* rounds([answering(params)], { acceptChangedModel: true })
      assert.strictEqual(outcome._tag, "Success")
      if (outcome._tag === "Success") {
        assert.deepStrictEqual([...outcome.success.weights.keys()], ["other"])
        assert.deepStrictEqual(outcome.success.weights.get("other")?.dtype, ">f8")
      }
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("a difference may lack parameters, but not have others", () =>
    Effect.gen(function* () {
      const diff = (params: Params) => () => new FLModel({ params, paramsType: "DIFF" })
      const { outcome } = yield* rounds([diff([["w", floats([1, 1])]])])
      assert.strictEqual(outcome._tag, "Success")
      if (outcome._tag === "Success") assert.deepStrictEqual(elements(outcome.success.arrays.get("w")), [2, 3])
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("NaN and infinity are an event for each trainer, and no failure", () =>
    Effect.gen(function* () {
      const { events, outcome } = yield* rounds([
        same,
        answering([
          ["w", floats([1, Number.NaN])],
          ["n", longs([7n])]
        ])
      ])
      assert.strictEqual(outcome._tag, "Success")
      assert.deepStrictEqual(
        events.filter(({ _tag }) => _tag === "ResultNotFinite"),
        [Rounds.RoundEvent.ResultNotFinite({ round: 0, attachId: "b", parameters: ["w"] })]
      )
    }).pipe(Effect.provide(layerFleet))
  )

  it.effect("each array keeps the byte order that it was sent in", () =>
    Effect.gen(function* () {
      const model: Params = [
        ["big", floats([1, 2]).toBigEndian()],
        ["little", floats([1, 2])]
      ]
      // A trainer computes in the order of its machine, another answers in the other.
      const turned = (received: FLModel) =>
        new FLModel({
          params: [...received.arrays].map(([name, array]) =>
            name === "big" ? [name, array.toLittleEndian()] : [name, array.toBigEndian()]
          )
        })
      for (const answers of [[turned], [turned, same]]) {
        const { outcome } = yield* rounds(answers, { model })
        assert.strictEqual(outcome._tag, "Success")
        if (outcome._tag !== "Success") return
        const [big, little] = ["big", "little"].map((name) => outcome.success.arrays.get(name))
        assert.deepStrictEqual([big?.dtype, little?.dtype], [">f4", "<f4"])
        assert.deepStrictEqual(
          [elements(big), elements(little)],
          [
            [1, 2],
            [1, 2]
          ]
        )
        const fleet = yield* AttachFleet
        const closing = yield* Effect.forkChild(fleet.release("a"))
        yield* TestClock.adjust("20 seconds")
        yield* Fiber.join(closing)
      }
    }).pipe(Effect.provide(layerFleet))
  )
})
