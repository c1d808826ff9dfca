import { Effect, Layer, Result } from "effect"
import { layerListener } from "../../src/attach/AttachRoute.ts"
import * as Cell from "../../src/cell/Cell.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import { AttachFleet } from "../../src/service/AttachFleet.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import * as TestService from "../../src/testing/TestService.ts"

/** A fleet of site-1, job-1 on a memory network; closing it moves the TestClock. */
export const layerFleet = TestService.movingClock(
  AttachFleet.layer().pipe(
    Layer.provideMerge(layerListener("memory://service")),
    Layer.provideMerge(Cell.layer({ fqcn: "site-1.job-1" })),
    Layer.provideMerge(MemoryNetwork.layer())
  )
)

export const model = (values: ReadonlyArray<number>, meta: Iterable<readonly [string, unknown]> = []) =>
  new FLModel({ params: [["w", NdArray.fromTyped(Float32Array.from(values))]], meta })

export const valuesOf = (from: FLModel): ReadonlyArray<number> => {
  const typed = from.arrays.get("w")?.toTyped() ?? Result.succeed(new Float32Array())
  return Array.from(Result.getOrThrow(typed), Number)
}

/** A trainer's work: `by` on every value, and how many steps it says it took. */
export const adding = (by: number, steps?: number) => (received: FLModel) =>
  Effect.succeed(
    model(
      valuesOf(received).map((value) => value + by),
      steps === undefined ? [] : [["NUM_STEPS_CURRENT_ROUND", steps]]
    )
  )
