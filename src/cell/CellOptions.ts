/**
 * What a cell is made of.
 *
 * @since 0.1.0
 */
import type { Duration } from "effect"
import type { Codec } from "../fobs/Codec.ts"
import type { Options as ConnectionOptions } from "../transport/Connection.ts"
import type { CellCredentials } from "./CellCredentials.ts"
import type { DownloadSettings } from "./DownloadTypes.ts"
import type { StreamSettings } from "./StreamTypes.ts"

/**
 * What a cell is made of.
 *
 * @category models
 * @since 0.1.0
 */
export interface CellOptions {
  /** The cell's name, for instance `site-1.job-7`. */
  readonly fqcn: string
  /** What turns payloads into bytes. Default: the codec of the Client API's values. */
  readonly codec?: Codec
  readonly streaming?: Partial<StreamSettings>
  /** How arrays are offered and fetched. */
  readonly downloads?: Partial<DownloadSettings>
  /** Judges the name of a peer that connects, for instance by its certificate. */
  readonly verify?: ConnectionOptions["verify"]
  /** How long a peer may take to say its name. Default 30 seconds. */
  readonly handshakeTimeout?: Duration.Input
  /** After so much silence of a peer it is sent a PING. Default 60 seconds. */
  readonly heartbeatInterval?: Duration.Input
  /**
   * How long a closing cell waits at most until its peers have answered its bye. The wait ends sooner when all have
   * answered or are gone; a peer that does neither holds it up for so long of Effect's clock. Default 0.5 seconds.
   */
  readonly byeTimeout?: Duration.Input
  /** The largest payload of one plain message or frame, in bytes. Default 2144337904. */
  readonly maxMessageSize?: number
  /** Bytes that may wait to be forwarded to one peer before senders are held back. Default 256 MiB. */
  readonly forwardBytes?: number
  /**
   * Bytes that may wait to be forwarded to all peers together; beyond it, peers that have taken all but 1 MiB of theirs
   * still get what is for them. Default 1 GiB.
   */
  readonly forwardTotalBytes?: number
  /** Makes a secure cell: it protects messages where that is asked for, and opens protected ones. */
  readonly credentials?: CellCredentials
  readonly protection?: ProtectionSettings
  /**
   * Whether a cell that dialed this one may only speak for itself and the cells below it; others' messages by its
   * connection are dropped. Default: in secure cells.
   */
  readonly bindOrigins?: boolean
}

/**
 * How a secure cell protects messages. All of it is the cell's own affair, and fits any peer.
 *
 * @category models
 * @since 0.1.0
 */
export interface ProtectionSettings {
  /** How long a peer may take to show its certificate. Default 10 seconds. */
  readonly exchangeTimeout?: Duration.Input
  /** Messages under one content key. Default 2^20. */
  readonly rotateMessages?: number
  /** How long a content key is used. Default 1 hour. */
  readonly rotateAfter?: Duration.Input
  /** How many envelopes are remembered, so that none is taken twice; 0: none. Default 65536. */
  readonly repeatMemory?: number
  /** Whether what carries a content key of this cell's own making is refused. Default true. */
  readonly refuseReflections?: boolean
}
