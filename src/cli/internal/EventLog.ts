/** The file of events: one JSON object a line, for programs. */
import { Effect, FileSystem, Option, type PlatformError, type Scope, Semaphore } from "effect"
import { NdArray } from "../../fobs/NdArray.ts"
import type { AnalyticsRecord } from "../../model/Analytics.ts"
import { type Failure, wrongUsage } from "./Failure.ts"
import { fileHint } from "./fileHint.ts"

type LogEvent = { readonly event: string } & { readonly [field: string]: unknown }

export type EventLog = (event: LogEvent) => Effect.Effect<void>

/** Maps and arrays as JSON has them; big integers as text, arrays by their kind. */
const plain = (_key: string, value: unknown): unknown => {
  if (value instanceof Map) return Object.fromEntries(value)
  if (value instanceof Set) return [...value]
  if (value instanceof NdArray) return { dtype: value.dtype, shape: value.shape }
  if (value instanceof Uint8Array) return { bytes: value.length }
  return typeof value === "bigint" ? String(value) : value
}

/** The fields of an analytics record. */
export const logFields = ({ dataType, extra, globalStep, tag, value }: AnalyticsRecord) => ({
  tag,
  value,
  data_type: dataType,
  ...(globalStep === undefined ? {} : { global_step: globalStep }),
  ...(extra.size === 0 ? {} : { extra })
})

/** A file that is made anew is missing only where its folder is. */
const openHint = (error: PlatformError.PlatformError, path: string): string =>
  fileHint(error, path).replace("it is not there: check the path", "its folder is not there: make it first")

/** Opens the file anew; without a path, events go nowhere. The first write that fails is a warning: training goes on. */
export const open = Effect.fn("EventLog.open")(function* (
  path: Option.Option<string>
): Effect.fn.Return<EventLog, Failure, FileSystem.FileSystem | Scope.Scope> {
  if (Option.isNone(path)) return () => Effect.void
  const fs = yield* FileSystem.FileSystem
  const file = yield* Effect.mapError(fs.open(path.value, { flag: "w" }), (error) =>
    wrongUsage(`--events ${path.value} can't be written: ${openHint(error, path.value)}`)
  )
  const encoder = new TextEncoder()
  const turn = Semaphore.makeUnsafe(1)
  const state = { isWarned: false }
  return (event) =>
    Effect.sync(() => encoder.encode(`${JSON.stringify(event, plain)}\n`)).pipe(
      Effect.flatMap((line) => file.writeAll(line)),
      Effect.catch((error) => {
        if (state.isWarned) return Effect.void
        state.isWarned = true
        return Effect.logWarning(`--events ${path.value} lacks events from now on: ${fileHint(error, path.value)}`)
      }),
      turn.withPermit
    )
})
