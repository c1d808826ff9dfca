/**
 * Everything a cell needs below it, inside one process: links, locks, files and ids without a socket, a disk or chance.
 *
 * Under a TestClock all of it moves only when the test moves the clock. Ids come from a seed, and so do faults, so that
 * one seed and one commit make one run.
 *
 * @since 0.1.0
 */
import { Clock, Duration, Effect, Layer, Random } from "effect"
import { SecureRandom } from "effect/crypto"
import { TestClock } from "effect/testing"
import { FileLock } from "../platform/FileLock.ts"
import { PrivateFiles } from "../platform/PrivateFiles.ts"
import type { Drivers } from "../transport/Drivers.ts"
import * as MemoryDriver from "../transport/MemoryDriver.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface NetworkOptions extends MemoryDriver.NetworkOptions {
  /** The seed of all ids. Default 1. */
  readonly seed?: number
}

/** Ids need to differ, not to be secret: a generator of 32 bits, seeded, by Vigna's splitmix. */
const seededBytes = (seed: number) => {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x9e3779b9) >>> 0
    let z = state
    z = Math.imul(z ^ (z >>> 16), 0x85ebca6b)
    z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35)
    return (z ^ (z >>> 16)) & 0xff
  }
  return (size: number) => Uint8Array.from({ length: size }, next)
}

/**
 * A network with the driver `memory`, and in-memory locks and files.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (
  options: NetworkOptions = {}
): Layer.Layer<Drivers | FileLock | PrivateFiles | SecureRandom.SecureRandom> =>
  Layer.mergeAll(
    MemoryDriver.layer(options),
    Layer.provideMerge(FileLock.layerMemory, PrivateFiles.layerMemory),
    Layer.sync(SecureRandom.SecureRandom, () => SecureRandom.make(seededBytes(options.seed ?? 1)))
  )

/** A message takes some dozens of turns of the scheduler from one end to the other, its answer as many. */
const turns = 300

/**
 * Lets everything happen that needs no time: what is on its way arrives and is answered. For tests only.
 *
 * @category combinators
 * @since 0.1.0
 */
export const settle: Effect.Effect<void> = Effect.repeat(Effect.yieldNow, { times: turns })

/**
 * Settles the network, then moves the TestClock. `TestClock.adjust` alone may move the time under a message that is
 * still on its way, since it needs no time but turns of the scheduler.
 *
 * @category combinators
 * @since 0.1.0
 */
export const advance = (duration: Duration.Input): Effect.Effect<void> =>
  Effect.andThen(settle, TestClock.adjust(duration))

/**
 * How often what goes wrong. Probabilities are per frame, from 0 to 1, together no more than 1.
 *
 * @category models
 * @since 0.1.0
 */
export interface FaultRates {
  readonly seed: number
  readonly drop?: number
  readonly duplicate?: number
  /** Cuts the connection: within the frame, which is lost, or, half of the times, right behind it. */
  readonly cut?: number
  /** Holds a frame back, alone, for up to `maxDelay`: later ones overtake it. */
  readonly delay?: number
  /** Default 1 second. */
  readonly maxDelay?: Duration.Input
}

/**
 * Faults drawn from a seed, for simulations: the same frame of the same link has the same fate in each run.
 *
 * @category constructors
 * @since 0.1.0
 */
export const seededFaults = (rates: FaultRates): MemoryDriver.Faults => {
  const { cut = 0, delay = 0, drop = 0, duplicate = 0, seed } = rates
  const longest = Duration.toMillis(Duration.fromInputUnsafe(rates.maxDelay ?? "1 second"))
  return {
    onFrame: ({ from, index, link }) =>
      Effect.gen(function* () {
        const draw = yield* Random.next
        if (draw < drop) return "drop" as const
        if (draw < drop + cut) return (yield* Random.nextBoolean) ? ("close" as const) : ("last" as const)
        if (draw < drop + cut + duplicate) return "duplicate" as const
        if (draw < drop + cut + duplicate + delay) return { delay: Duration.millis((yield* Random.next) * longest) }
        return "deliver" as const
        // A generator of its own for each frame: what one end sends does not move the draws of the other.
      }).pipe(Random.withSeed(`${seed}/${link}/${from}/${index}`))
  }
}

/**
 * Faults that a test switches on and off, for all connections to a URL, both ways.
 *
 * @category models
 * @since 0.1.0
 */
export interface Outages {
  /** For {@link NetworkOptions}. */
  readonly faults: MemoryDriver.Faults
  /** Half-open connections: frames vanish, and neither end is told. */
  readonly lose: (url: string) => Effect.Effect<void>
  /** The next frame of each connection cuts it, and so does the first of each new one. */
  readonly cut: (url: string) => Effect.Effect<void>
  /** A frozen peer: frames wait until the time is over, then arrive in order. */
  readonly freeze: (url: string, duration: Duration.Input) => Effect.Effect<void>
  /** Ends whatever was switched on; what a freeze holds back still waits for its end. */
  readonly restore: (url: string) => Effect.Effect<void>
}

const deliverAll: MemoryDriver.Faults = { onFrame: () => Effect.succeed("deliver") }

/**
 * Makes {@link Outages}; `otherwise` decides where nothing is switched on.
 *
 * @category constructors
 * @since 0.1.0
 */
export const makeOutages = (otherwise: MemoryDriver.Faults = deliverAll): Outages => {
  const outages = new Map<string, "drop" | "close" | { readonly until: number }>()
  const become = (url: string, outage: "drop" | "close") => Effect.sync(() => void outages.set(url, outage))
  return {
    faults: {
      onFrame: Effect.fnUntraced(function* (frame) {
        const outage = outages.get(frame.url)
        if (outage === undefined) return yield* otherwise.onFrame(frame)
        if (typeof outage === "string") return outage
        const left = outage.until - (yield* Clock.currentTimeMillis)
        return left > 0 ? { delay: Duration.millis(left) } : yield* otherwise.onFrame(frame)
      })
    },
    lose: (url) => become(url, "drop"),
    cut: (url) => become(url, "close"),
    freeze: (url, duration) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        outages.set(url, { until: now + Duration.toMillis(Duration.fromInputUnsafe(duration)) })
      }),
    restore: (url) => Effect.sync(() => void outages.delete(url))
  }
}
