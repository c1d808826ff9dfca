import { Effect, Result } from "effect"
import type { Codec, ReferenceSink, Sections } from "../../fobs/Fobs.ts"
import type { CellError } from "../CellError.ts"
import type { Headers } from "../CellTypes.ts"
import { decodeFailed, encodeFailed, withArrayName } from "./errors.ts"
import { nameOf } from "./referenceNames.ts"

/** A payload as it travels; docs/wire/cellnet.md, section 2.2. */
export interface Encoded {
  readonly encoding: "none" | "bytes" | "fobs"
  readonly pieces: ReadonlyArray<Uint8Array>
}

/** What a payload came in, for errors and for fetching what it refers to. */
export interface Arrival {
  readonly origin: string
  readonly topic: string
  readonly headers: Headers
}

/** The arrays that a message refers to, fetched; or `"keep"` to leave the references. */
type Items = ReadonlyMap<3 | 6, ReadonlyMap<string, unknown>> | "keep"

/** What was fetched for a message. `settle` tells its sources whether the message could be decoded with it. */
export interface Fetched {
  readonly items: Items
  readonly settle: (isUsable: boolean) => Effect.Effect<void>
}

/** Fetches what a message refers to, before it is decoded. */
export type Resolve = (sections: Sections, arrival: Arrival) => Effect.Effect<Fetched, CellError>

export interface Payloads {
  readonly encode: (topic: string, payload: unknown, references?: ReferenceSink) => Effect.Effect<Encoded, CellError>
  readonly decode: (encoding: string, bytes: Uint8Array, arrival: Arrival) => Effect.Effect<unknown, CellError>
}

export const none: Encoded = { encoding: "none", pieces: [] }

/** `resolve` is asked at each message, so that it can be set later. */
export const makePayloads = (codec: Codec, resolve: () => Resolve | undefined): Payloads => {
  const encode: Payloads["encode"] = (topic, payload, references) =>
    Effect.suspend(() => {
      if (payload === undefined || payload === null) {
        return Effect.succeed(none)
      }
      if (payload instanceof Uint8Array) {
        return Effect.succeed({ encoding: "bytes", pieces: [payload] } as const)
      }
      return Result.match(codec.encode(payload, references === undefined ? {} : { references }), {
        onFailure: (error) =>
          Effect.fail(encodeFailed(topic, `the payload for ${topic} can't be encoded: ${error.message}`)),
        onSuccess: (pieces) => Effect.succeed({ encoding: "fobs", pieces } as const)
      })
    })

  const decodeFobs = Effect.fnUntraced(function* (bytes: Uint8Array, arrival: Arrival) {
    const failed = (error: { readonly message: string }) =>
      decodeFailed(
        arrival.origin,
        arrival.topic,
        `the payload of ${arrival.topic} from ${arrival.origin} can't be decoded: ${error.message}`
      )
    const sections = yield* Effect.mapError(Effect.fromResult(codec.parse(bytes)), failed)
    const fetch = sections.downloads.length === 0 ? undefined : resolve()
    if (fetch === undefined) {
      return yield* Effect.mapError(Effect.fromResult(codec.decode(sections)), failed)
    }
    const { items, settle } = yield* Effect.mapError(fetch(sections, arrival), (error) =>
      withArrayName(error, (refId, itemId) =>
        Result.match(codec.decode(sections, { items: "keep" }), {
          onFailure: () => undefined,
          onSuccess: (kept) => nameOf(kept, refId, itemId)
        })
      )
    )
    const value = codec.decode(sections, { items })
    yield* settle(Result.isSuccess(value))
    return yield* Effect.mapError(Effect.fromResult(value), failed)
  })

  const decode: Payloads["decode"] = (encoding, bytes, arrival) => {
    switch (encoding) {
      case "fobs":
        return decodeFobs(bytes, arrival)
      case "none":
        return Effect.succeed(null)
      case "":
        return Effect.succeed(bytes.byteLength === 0 ? null : bytes)
      default:
        return Effect.succeed(bytes)
    }
  }

  return { encode, decode }
}
