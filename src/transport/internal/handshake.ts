/** Who is there. Source: docs/wire/transport.md, section 2. */
import { type Duration, Effect, Result } from "effect"
import * as Msgpack from "../../fobs/Msgpack.ts"
import * as Fqcn from "../../identity/Fqcn.ts"
import { formatDuration } from "../../platform/DurationText.ts"
import type { FrameLink } from "../Drivers.ts"
import * as Frame from "../Frame.ts"
import type { TransportError } from "../TransportError.ts"
import type { Complain } from "./complaints.ts"
import { handshakeFailed } from "./errors.ts"
import type { FrameSender } from "./frameSender.ts"

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

const typeNames = new Map<number, string>(Object.entries(Frame.types).map(([name, type]) => [type, name.toUpperCase()]))

/** For people. */
export const typeName = (type: number): string => typeNames.get(type) ?? `type ${type}`

/** One end's part in a handshake. */
export interface Party {
  readonly link: FrameLink
  readonly sender: FrameSender
  readonly complain: Complain
  readonly local: string
  readonly role: "active" | "passive"
}

export interface Greeted {
  readonly peer: string
  /** What came in one go behind the greeting. */
  readonly rest: ReadonlyArray<Uint8Array>
}

/** The name that a frame brings; `undefined` where it brings none and the wait goes on. */
const nameIn = Effect.fnUntraced(function* (party: Party, bytes: Uint8Array) {
  const { complain, link, local, sender } = party
  const frame = Frame.decode(bytes)
  if (Result.isFailure(frame)) {
    yield* complain(`dropped a frame before the handshake: ${frame.failure.message}`)
    return undefined
  }
  const { payload, type } = frame.success
  if (type !== Frame.types.hello && type !== Frame.types.ready) {
    yield* complain(`dropped a ${typeName(type)} frame before the handshake`)
    return undefined
  }
  // READY goes out before the name is judged: that a peer got it means nothing.
  if (type === Frame.types.hello) {
    yield* sender.greet(Frame.types.ready)
  }
  const greeting = readGreeting(payload, local)
  if (greeting.kind === "refused") {
    const target = link.info.peerAddress
    return yield* Effect.fail(handshakeFailed(target, `the ${typeName(type)} of ${target} is refused: ${greeting.why}`))
  }
  if (greeting.kind === "unusable") {
    yield* complain(`ignored a ${typeName(type)}: ${greeting.why}`)
    return undefined
  }
  return greeting.name
})

const exchange = Effect.fnUntraced(function* (party: Party): Effect.fn.Return<Greeted, TransportError> {
  if (party.role === "active") {
    yield* party.sender.greet(Frame.types.hello)
  }
  while (true) {
    const frames = yield* party.link.receive
    for (const [index, bytes] of frames.entries()) {
      const peer = yield* nameIn(party, bytes)
      if (peer !== undefined) {
        return { peer, rest: frames.slice(index + 1) }
      }
    }
  }
})

/** Greets and waits for the peer's name, for as long as the timeout allows. */
export const handshake = (party: Party, timeout: Duration.Duration): Effect.Effect<Greeted, TransportError> =>
  Effect.timeoutOrElse(exchange(party), {
    duration: timeout,
    orElse: () => {
      const target = party.link.info.peerAddress
      const awaited = party.role === "active" ? "READY" : "HELLO"
      const message = `no usable ${awaited} from ${target} within ${formatDuration(timeout)} (handshakeTimeout)`
      return Effect.fail(handshakeFailed(target, message))
    }
  })
