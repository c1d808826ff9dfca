/** Finds a port for a listener. Source: docs/wire/transport.md, section 4.1. */
import { Effect, Random } from "effect"
import type { TransportError } from "../../TransportError.ts"
import { badConfig } from "../errors.ts"
import type { Binding } from "./connector.ts"

/** Larger ranges are not tried port by port. */
const orderedSize = 10
const draws = 20

const candidates = Effect.fnUntraced(function* ([first, last]: readonly [number, number]) {
  const size = last - first + 1
  if (size <= orderedSize) {
    return Array.from({ length: size }, (_, index) => first + index)
  }
  const drawn: Array<number> = []
  for (let draw = 0; draw < draws; draw += 1) {
    drawn.push(yield* Random.nextIntBetween(first, last))
  }
  return drawn
})

const isTaken = (error: TransportError): boolean =>
  error.reason._tag === "IoFailed" && (error.reason.code === "EADDRINUSE" || error.reason.code === "EACCES")

/** Tries the binding's ports until one is free; `open` opens at a port, 0 for any, and answers what it got. */
export const bindPort = Effect.fnUntraced(function* <A, R>(
  binding: Binding,
  open: (port: number) => Effect.Effect<A, TransportError, R>
) {
  const [only, ...others] = binding.ports
  if (only === undefined) {
    return yield* open(0)
  }
  if (others.length === 0 && only[0] === only[1]) {
    return yield* open(only[0])
  }
  for (const range of binding.ports) {
    for (const port of yield* candidates(range)) {
      const opened = yield* Effect.result(open(port))
      if (opened._tag === "Success") {
        return opened.success
      }
      if (!isTaken(opened.failure)) {
        return yield* Effect.fail(opened.failure)
      }
    }
  }
  const ranges = binding.ports.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ")
  const message = `no port of ${ranges} (ports) is free on this machine: give others, or end what uses them`
  return yield* Effect.fail(badConfig("ports", message))
})
