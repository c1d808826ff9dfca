import { readFileSync } from "node:fs"
import { Effect, Logger } from "effect"
import { Float } from "../../src/fobs/Values.ts"

/** A captured file of test/fixtures (see the README there). */
export const fixture = (name: string) =>
  JSON.parse(readFileSync(new URL(`../fixtures/${name}`, import.meta.url), "utf8"))

export const fromHex = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, "hex"))

export const toHex = (...pieces: ReadonlyArray<Uint8Array>): string => Buffer.concat(pieces).toString("hex")

/** A typed value of the fixtures; `float` says how a float64 is shown: as it is encoded, or as it is decoded. */
// biome-ignore lint/suspicious/noExplicitAny: JSON of the fixtures
export const typed = (json: any, float: (value: number) => unknown): unknown => {
  if (json === null || typeof json !== "object") {
    return json
  }
  if (Array.isArray(json)) {
    return json.map((item) => typed(item, float))
  }
  if ("$float" in json) {
    return float(Number(json.$float))
  }
  if ("$int" in json) {
    return BigInt(json.$int)
  }
  if ("$hex" in json) {
    return fromHex(json.$hex)
  }
  return new Map(json.$map.map(([key, value]: [string, unknown]) => [key, typed(value, float)]))
}

export const asEncoded = (value: number): unknown => new Float(value)
export const asDecoded = (value: number): unknown => value

/** A small generator for seeded tests (mulberry32). */
export const makeRandom = (seed: number): ((below: number) => number) => {
  let state = seed >>> 0
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296) * below)
  }
}

/** For tests in which a peer does much wrong: nobody reads the warnings. */
export const silently = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.provide(self, Logger.layer([]))
