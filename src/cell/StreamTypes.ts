/**
 * Byte streams between cells: what is sent, what arrives, and their bounds.
 *
 * Source: docs/wire/cellnet.md, section 10.
 *
 * @since 0.1.0
 */
import type { Duration, Effect, Scope } from "effect"
import type { CellError } from "./CellError.ts"
import type { Address, Headers } from "./CellTypes.ts"

/**
 * How streams are sent and received. Bytes where no unit is said; the defaults are the reference's.
 *
 * @category models
 * @since 0.1.0
 */
export interface StreamSettings {
  /** Payload of a frame. Default 1 MiB. */
  readonly chunkSize: number
  /** What may be under way without being consumed. Default 64 MiB. */
  readonly windowSize: number
  /** How much the receiver consumes between acknowledgements. Default 16 MiB. */
  readonly ackInterval: number
  /** The longest single wait for room in the window. Default 300 seconds. */
  readonly ackWait: Duration.Input
  /** The longest wait in which nothing more is consumed. Default 60 seconds. */
  readonly ackProgressTimeout: Duration.Input
  /** The shortest wait before the timeout above strikes. Default 5 seconds. */
  readonly ackProgressCheckInterval: Duration.Input
  /** How long a receiver waits for the next chunk. Default 300 seconds. */
  readonly readTimeout: Duration.Input
  /** After so long without acknowledgement a reliable stream sends a frame again. Default 5 seconds. */
  readonly retryWait: Duration.Input
  /** So long after its first repetition a frame fails its stream. Default 60 seconds. */
  readonly retryTimeout: Duration.Input
  /** What a reliable stream may hold unacknowledged. Default 128 MiB, or two windows if that is more. */
  readonly retryMaxPendingBytes: number
  /** Chunks that may wait for earlier ones. Default: as the sender's window holds, from 16 to 1024. */
  readonly maxOutOfSequenceChunks: number
  /** The largest blob taken in. Default 4 GiB; 0 or less: no limit. */
  readonly maxBlobSize: number
  /** Whether requests are sent reliably (replies always are). Default false. */
  readonly reliable: boolean
}

/**
 * The settings as they are used: bytes and milliseconds, complete.
 *
 * @category models
 * @since 0.1.0
 */
export interface UsedStreamSettings {
  readonly chunkSize: number
  readonly windowSize: number
  readonly ackInterval: number
  readonly defaultAckInterval: number
  readonly ackWait: number
  readonly ackProgressTimeout: number
  readonly ackProgressCheckInterval: number
  readonly readTimeout: number
  readonly retryWait: number
  readonly retryTimeout: number
  readonly retryMaxPendingBytes: number
  readonly maxOutOfSequenceChunks: number | undefined
  readonly maxBlobSize: number
  readonly reliable: boolean
}

/**
 * How one stream is sent.
 *
 * @category models
 * @since 0.1.0
 */
export interface StreamOptions {
  /** Repeated on every frame; those of the stream win. */
  readonly headers?: Headers
  /** Frames are kept and sent again until acknowledged. Default false. */
  readonly reliable?: boolean
  readonly optional?: boolean
  readonly secure?: boolean
  /** The size to declare, in bytes; 0 for unknown. Default: that of the blob. */
  readonly size?: number
  /** Told each time the transport has taken a frame. */
  readonly onProgress?: () => void
  /** Told how many bytes the receiver has consumed, each time it says that there are more. */
  readonly onConsumed?: (bytes: number) => void
  /** Told when the receiver, or a cell on the way, reports the stream's failure, up to 300 s after its end. */
  readonly onPeerError?: (error: CellError) => void
}

/**
 * A stream on its way in.
 *
 * @category models
 * @since 0.1.0
 */
export interface IncomingStream {
  readonly origin: string
  readonly address: Address
  /** Those of the stream's first frame. */
  readonly headers: Headers
  /** The size declared, in bytes; 0 for unknown. */
  readonly size: number
  /** Whether all its frames came protected. */
  readonly isProtected: boolean
  /**
   * The next chunk, a view that the reader owns; `undefined` behind the last. Reading opens the sender's window. Fails
   * when the sender gives up, when nothing comes in `readTimeout`, and when a bound is broken.
   */
  readonly read: Effect.Effect<Uint8Array | undefined, CellError>
  /**
   * Says that nobody will look at a chunk any more, nor at a view of it: where its memory was lent by the connection, it
   * is used again. Nobody has to say that.
   */
  readonly release: (chunk: Uint8Array) => void
  /** A chunk to be kept for long: a copy where its memory was lent, which is given back; else the chunk itself. */
  readonly keep: (chunk: Uint8Array) => Uint8Array
}

/**
 * Takes a stream in, on a fiber of its own. A failure is reported to the sender; what is left unread is discarded.
 *
 * @category models
 * @since 0.1.0
 */
export type StreamHandler = (incoming: IncomingStream) => Effect.Effect<void, CellError>

/**
 * @category models
 * @since 0.1.0
 */
export interface ByteStream {
  readonly settings: UsedStreamSettings
  /**
   * Sends a blob, given in pieces that must not be changed before the end. Ends when the transport has taken the last
   * frame, if reliable when it is acknowledged. Interrupting it tells the receiver.
   */
  readonly send: (
    target: string,
    address: Address,
    blob: ReadonlyArray<Uint8Array>,
    options?: StreamOptions
  ) => Effect.Effect<void, CellError>
  /** Takes in the streams of an address (topic and channel may be `*`), of one origin or all, until the Scope closes. */
  readonly handle: (
    address: Address,
    handler: StreamHandler,
    origin?: string
  ) => Effect.Effect<void, never, Scope.Scope>
}
