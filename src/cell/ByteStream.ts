/**
 * Streams of bytes between cells: large payloads in chunks, with flow control, acknowledgement and retry.
 *
 * Source: docs/wire/cellnet.md, section 10.
 *
 * @since 0.1.0
 */
import { Effect } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import type { CoreCell, StreamFrames } from "./CoreCell.ts"
import { makeReceiver } from "./internal/StreamReceiver.ts"
import { makeSender } from "./internal/StreamSender.ts"
import type { ByteStream, UsedStreamSettings } from "./StreamTypes.ts"

export type * from "./StreamTypes.ts"

/**
 * Makes the streams of a cell. `frames` are to be given to the core, which asks for them at each message.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fnUntraced(function* (
  core: Pick<CoreCell, "fqcn" | "post" | "background" | "serving">,
  random: SecureRandom["Service"],
  settings: UsedStreamSettings
): Effect.fn.Return<{ readonly streams: ByteStream; readonly frames: StreamFrames }> {
  const sender = yield* makeSender(core, random, settings)
  const receiver = yield* makeReceiver(core, settings)
  return {
    streams: { settings, send: sender.send, handle: receiver.handle },
    frames: {
      data: receiver.data,
      ack: sender.ack,
      error: sender.error,
      undeliverable: receiver.undeliverable
    }
  }
})
