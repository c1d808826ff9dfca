import { Effect, FiberSet, type Scope } from "effect"
import { SecureRandom } from "effect/crypto"
import * as ByteStream from "../../src/cell/ByteStream.ts"
import type { CellError } from "../../src/cell/CellError.ts"
import { byteLength, concat } from "../../src/cell/CellMessage.ts"
import type { CoreCell } from "../../src/cell/CoreCell.ts"
import { unreachable } from "../../src/cell/internal/errors.ts"
import { resolveSettings } from "../../src/cell/internal/streamSettings.ts"

/** A frame that streams handed to their cell. */
export interface Sent {
  readonly from: string
  readonly target: string
  readonly topic: string
  readonly headers: ReadonlyMap<string, unknown>
  readonly pieces: ReadonlyArray<Uint8Array>
  readonly optional: boolean
}

/** What becomes of a frame: how often it arrives, and after how many milliseconds each time. */
export type Fate = (frame: Sent) => ReadonlyArray<number> | "unreachable"

export const arrives: Fate = () => [0]
export const vanishes: Fate = () => []

/** The streams of some cells, with nothing but `fate` between them. */
export const makeWire = Effect.fnUntraced(function* (
  names: ReadonlyArray<string>,
  settings: Partial<ByteStream.StreamSettings> = {},
  fate: Fate = arrives
): Effect.fn.Return<
  {
    readonly sent: Array<Sent>
    readonly fate: { current: Fate }
    readonly streams: (name: string) => ByteStream.ByteStream
    readonly inject: (
      from: string,
      target: string,
      topic: string,
      headers: ReadonlyArray<readonly [string, unknown]>,
      payload?: Uint8Array
    ) => Effect.Effect<void>
  },
  CellError,
  Scope.Scope
> {
  const random = yield* Effect.provide(SecureRandom.SecureRandom, SecureRandom.layerWebCrypto)
  const fibers = yield* FiberSet.make<unknown, unknown>()
  const resolved = yield* resolveSettings(settings)
  const sent: Array<Sent> = []
  const ends = new Map<string, Effect.Success<ReturnType<typeof ByteStream.make>>>()
  const current = { current: fate }

  const deliver = (frame: Sent) =>
    Effect.suspend(() => {
      const headers = new Map(frame.headers)
        .set("cn__origin", frame.from)
        .set("cn__destination", frame.target)
        .set("cn__optional", frame.optional)
      const frames = ends.get(frame.target)?.frames
      // Each payload is lent, and spoilt when it is given back.
      const payload = concat(frame.pieces).slice()
      const message = { headers, payload, release: () => void payload.fill(0xdb) }
      const handler = { sm__DATA: frames?.data, sm__ACK: frames?.ack, sm__ERROR: frames?.error }[frame.topic]
      return handler?.(message) ?? Effect.void
    })

  const core = (fqcn: string): Pick<CoreCell, "fqcn" | "post" | "background" | "serving"> => ({
    fqcn,
    post: (target, { topic }, { encoded, headers = new Map(), optional = false }) =>
      Effect.suspend(() => {
        const frame = { from: fqcn, target, topic, headers, pieces: encoded.pieces, optional }
        const times = current.current(frame)
        if (times === "unreachable") {
          return Effect.fail(unreachable(target, "no route"))
        }
        sent.push(frame)
        return Effect.forEach(times, (millis) => FiberSet.run(fibers, Effect.delay(deliver(frame), millis)), {
          discard: true
        })
      }),
    background: (effect) => Effect.asVoid(FiberSet.run(fibers, effect)),
    serving: (effect) => Effect.as(FiberSet.run(fibers, effect, { startImmediately: false }), true)
  })

  for (const name of names) {
    ends.set(name, yield* ByteStream.make(core(name), random, resolved))
  }
  return {
    sent,
    fate: current,
    streams: (name) => {
      const end = ends.get(name)
      if (end === undefined) {
        throw new Error(`no cell ${name}`)
      }
      return end.streams
    },
    inject: (from, target, topic, headers, payload) =>
      deliver({
        from,
        target,
        topic,
        headers: new Map(headers),
        pieces: payload === undefined ? [] : [payload],
        optional: false
      })
  }
})

export const sizes = (sent: ReadonlyArray<Sent>): ReadonlyArray<number> => sent.map(({ pieces }) => byteLength(pieces))

/** Numbers from 0 to below 1, the same for the same seed. */
export const seeded = (seed: number): (() => number) => {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

/** Another one each run, unless SEED says which; put it in the test's name. */
export const freshSeed = (): number => Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31))
