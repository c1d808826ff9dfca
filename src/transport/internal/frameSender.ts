/** Numbers frames and sends them over a link. Source: docs/wire/transport.md, sections 1.4 and 2. */
import { Clock, Effect, Result } from "effect"
import * as Msgpack from "../../fobs/Msgpack.ts"
import { Float } from "../../fobs/Values.ts"
import type { FrameLink } from "../Drivers.ts"
import * as Frame from "../Frame.ts"
import type { TransportError } from "../TransportError.ts"
import { handshakeFailed } from "./errors.ts"

export interface FrameSender {
  readonly data: (
    headers: ReadonlyMap<string, unknown>,
    payload: ReadonlyArray<Uint8Array>
  ) => Effect.Effect<void, TransportError>
  /** PING and PONG, whose payload is nil. */
  readonly signal: (type: number) => Effect.Effect<void, TransportError>
  /** HELLO and READY. */
  readonly greet: (type: number) => Effect.Effect<void, TransportError>
}

const greetingStreamId = 1
const controlAppId = 0
const nil = Uint8Array.of(0xc0)

/** `nowMillis` is the wall clock; peers want seconds, as a float even when integral. */
const greeting = (local: string, nowMillis: number): ReadonlyMap<string, unknown> =>
  new Map<string, unknown>([
    ["endpoint_name", local],
    ["timestamp", new Float(nowMillis / 1000)],
    ["fqcn", local]
  ])

export const make = (link: FrameLink, local: string, nextStreamId: () => number): FrameSender => {
  let sequence = 0
  // The numbers are taken when the frame is sent, so that they follow the order on the wire.
  const send = (frame: Omit<Frame.OutgoingFrame, "sequence">): Effect.Effect<void, TransportError> => {
    sequence = (sequence + 1) % 65536
    const encoded = Frame.encode({ ...frame, sequence })
    return Result.isFailure(encoded) ? Effect.fail(encoded.failure) : link.send(encoded.success)
  }
  return {
    data: (headers, payload) =>
      Effect.suspend(() =>
        send({ type: Frame.types.data, appId: Frame.cellAppId, streamId: nextStreamId(), headers, payload })
      ),
    signal: (type) =>
      Effect.suspend(() =>
        send({ type, appId: controlAppId, streamId: nextStreamId(), headers: undefined, payload: [nil] })
      ),
    greet: (type) =>
      Effect.flatMap(Clock.currentTimeMillis, (now) => {
        const payload = Msgpack.encode(greeting(local, now))
        return Result.isFailure(payload)
          ? Effect.fail(handshakeFailed(local, `the name can't be encoded: ${payload.failure.message}`))
          : send({
              type,
              appId: controlAppId,
              streamId: greetingStreamId,
              headers: undefined,
              payload: [payload.success]
            })
      })
  }
}
