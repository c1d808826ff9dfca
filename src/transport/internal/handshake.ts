/** The payload of HELLO and READY. Source: docs/wire/transport.md, section 2. */
import { Result } from "effect"
import * as Msgpack from "../../fobs/Msgpack.ts"
import { Float } from "../../fobs/Values.ts"
import * as Fqcn from "../../identity/Fqcn.ts"

/** `nowMillis` is the wall clock; peers want seconds, as a float even when integral. */
export const encodeGreeting = (local: string, nowMillis: number): ReadonlyMap<string, unknown> =>
  new Map<string, unknown>([
    ["endpoint_name", local],
    ["timestamp", new Float(nowMillis / 1000)],
    ["fqcn", local]
  ])

/**
 * What a greeting means: a name, nothing (`unusable`: the connection waits on), or a name that ends the connection
 * (`refused`).
 */
export type Greeting =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "unusable"; readonly why: string }
  | { readonly kind: "refused"; readonly why: string }

const isFalsy = (name: unknown): boolean =>
  name === undefined || name === null || name === "" || name === false || name === 0

export const readGreeting = (payload: Uint8Array, local: string): Greeting => {
  const decoded = Msgpack.decode(payload, { keys: "strBytes" })
  if (Result.isFailure(decoded)) {
    return { kind: "unusable", why: `its payload can't be decoded: ${decoded.failure.message}` }
  }
  if (!(decoded.success instanceof Map)) {
    return { kind: "unusable", why: "its payload is no map" }
  }
  const claimed: unknown = decoded.success.get("endpoint_name")
  if (isFalsy(claimed)) {
    return { kind: "unusable", why: "it has no endpoint_name" }
  }
  const name = Fqcn.validate(claimed)
  if (Result.isFailure(name)) {
    return { kind: "refused", why: name.failure.message }
  }
  return name.success === local
    ? { kind: "refused", why: `it has this cell's own name, ${local}: two cells can't share a name` }
    : { kind: "name", name: name.success }
}
