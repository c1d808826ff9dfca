import { Duration, Effect } from "effect"
import type { CellError } from "../CellError.ts"
import type { StreamSettings, UsedStreamSettings } from "../StreamTypes.ts"
import { misconfigured } from "./errors.ts"

const mebi = 1024 * 1024

/** Completes settings with the reference's defaults (docs/wire/cellnet.md, section 10.8). */
export const resolveSettings = Effect.fnUntraced(function* (
  given: Partial<StreamSettings>
): Effect.fn.Return<UsedStreamSettings, CellError> {
  const windowSize = given.windowSize ?? 64 * mebi
  const millis = (input: Duration.Input | undefined, seconds: number) =>
    input === undefined ? seconds * 1000 : Duration.toMillis(input)
  const settings: UsedStreamSettings = {
    chunkSize: given.chunkSize ?? mebi,
    windowSize,
    ackInterval: given.ackInterval ?? 16 * mebi,
    defaultAckInterval: 4 * mebi,
    ackWait: millis(given.ackWait, 300),
    ackProgressTimeout: millis(given.ackProgressTimeout, 60),
    ackProgressCheckInterval: millis(given.ackProgressCheckInterval, 5),
    readTimeout: millis(given.readTimeout, 300),
    retryWait: millis(given.retryWait, 5),
    retryTimeout: millis(given.retryTimeout, 60),
    retryMaxPendingBytes: given.retryMaxPendingBytes ?? Math.max(128 * mebi, 2 * windowSize),
    maxOutOfSequenceChunks: given.maxOutOfSequenceChunks,
    maxBlobSize: given.maxBlobSize ?? 4096 * mebi,
    reliable: given.reliable ?? false
  }
  for (const [name, value] of Object.entries(settings)) {
    const isLimit = name === "maxBlobSize"
    if (typeof value === "number" && !(isLimit || value > 0)) {
      return yield* Effect.fail(misconfigured(name, `${name} is ${value}: it must be greater than 0`))
    }
    if (typeof value === "number" && /Size|Interval$|Bytes|Chunks/.test(name) && !Number.isSafeInteger(value)) {
      return yield* Effect.fail(misconfigured(name, `${name} is ${value}: it must be a whole number`))
    }
  }
  return settings
})
