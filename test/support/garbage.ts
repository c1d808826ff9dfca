/** What is reachable, and what is not. */
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Effect } from "effect"
import type { FLModel } from "../../src/model/FLModel.ts"

/** Collects all garbage, outside of every turn of the event loop that holds some. */
export const collectGarbage = Effect.promise(async () => {
  setFlagsFromString("--expose-gc")
  const collect: () => void = runInNewContext("gc")
  await new Promise((resolve) => setImmediate(resolve))
  collect()
})

/** Remembers the memory of models by name without holding it. */
export const makeWatch = () => {
  const watched: Array<readonly [name: string, memory: WeakRef<ArrayBufferLike>]> = []
  return {
    add: (name: string, { weights }: FLModel): void => {
      for (const { bytes } of weights.values()) watched.push([name, new WeakRef(bytes.buffer)])
    },
    /** The names of the models that are still there, once each. */
    alive: (): ReadonlyArray<string> => [
      ...new Set(watched.flatMap(([name, memory]) => (memory.deref() === undefined ? [] : [name])))
    ]
  }
}
