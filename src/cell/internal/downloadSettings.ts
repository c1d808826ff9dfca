import { Duration, Effect } from "effect"
import type { CellError } from "../CellError.ts"
import type { DownloadSettings } from "../DownloadTypes.ts"
import { misconfigured } from "./errors.ts"

/** The settings as they are used: bytes and milliseconds, complete. */
export interface Settings {
  readonly chunkSize: number
  readonly threshold: number
  readonly maxInlineBytes: number
  readonly idleTimeout: number
  readonly receiverAcquireTimeout: number | undefined
  readonly receiverIdleTimeout: number | undefined
  readonly confirm: boolean
  readonly requestTimeout: Duration.Duration
  readonly sourceGrace: Duration.Duration
  readonly maxModelBytes: number
  readonly maxItems: number
}

const kibi = 1024
const gibi = kibi * kibi * kibi

/** Milliseconds of a limit that may be off. */
export const optionalMillis = (input: Duration.Input | undefined): number | undefined =>
  input === undefined ? undefined : Duration.toMillis(input)

/** Completes settings with the reference's defaults (docs/wire/fobs.md, section 6.3). */
export const resolveSettings = Effect.fnUntraced(function* (
  given: Partial<DownloadSettings>
): Effect.fn.Return<Settings, CellError> {
  const settings: Settings = {
    chunkSize: given.chunkSize ?? 2 * kibi * kibi,
    threshold: given.threshold ?? 64 * kibi,
    maxInlineBytes: given.maxInlineBytes ?? gibi,
    idleTimeout: optionalMillis(given.idleTimeout) ?? 600_000,
    receiverAcquireTimeout: optionalMillis(given.receiverAcquireTimeout),
    receiverIdleTimeout: optionalMillis(given.receiverIdleTimeout),
    confirm: given.confirm ?? true,
    requestTimeout: Duration.fromInputUnsafe(given.requestTimeout ?? "600 seconds"),
    sourceGrace: Duration.fromInputUnsafe(given.sourceGrace ?? "10 seconds"),
    maxModelBytes: given.maxModelBytes ?? 16 * gibi,
    maxItems: given.maxItems ?? 1_000_000
  }
  const positive = [
    ["idleTimeout", settings.idleTimeout],
    ["receiverAcquireTimeout", settings.receiverAcquireTimeout ?? 1],
    ["receiverIdleTimeout", settings.receiverIdleTimeout ?? 1],
    ["requestTimeout", Duration.toMillis(settings.requestTimeout)],
    ["maxModelBytes", settings.maxModelBytes],
    ["maxItems", settings.maxItems]
  ] as const
  for (const [name, value] of positive) {
    if (!(value > 0)) {
      return yield* Effect.fail(misconfigured(name, `${name} is ${value}: it must be greater than 0`))
    }
  }
  if (!(Number.isSafeInteger(settings.maxInlineBytes) && settings.maxInlineBytes >= 0)) {
    const message = `maxInlineBytes is ${settings.maxInlineBytes}: it must be a whole number of bytes, 0 or more`
    return yield* Effect.fail(misconfigured("maxInlineBytes", message))
  }
  return settings
})
