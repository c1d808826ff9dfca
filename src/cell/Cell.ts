/**
 * A named peer of an FL system: it asks other cells, answers them, and refuses what its guards refuse.
 *
 * Source: docs/wire/cellnet.md, sections 5, 8, 9.
 *
 * @since 0.1.0
 */
import { Context, type Duration, Effect, Layer, type Scope, type Stream } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import type { Codec, ReferenceSink } from "../fobs/Fobs.ts"
import type { Options as ConnectionOptions } from "../transport/Connection.ts"
import type { Drivers, Resources } from "../transport/Drivers.ts"
import type { TransportError } from "../transport/TransportError.ts"
import type { StreamSettings } from "./ByteStream.ts"
import type { CellCredentials } from "./CellCredentials.ts"
import type { CellError } from "./CellError.ts"
import type { DownloadService, DownloadSettings } from "./DownloadService.ts"
import { makeEngine } from "./internal/CellEngine.ts"

/**
 * What a message is about: the dispatch key of a cell.
 *
 * @category models
 * @since 0.1.0
 */
export interface Address {
  readonly channel: string
  readonly topic: string
}

/**
 * Headers by wire name (`cn__origin`, ...); unknown ones are kept.
 *
 * @category models
 * @since 0.1.0
 */
export type Headers = ReadonlyMap<string, unknown>

/**
 * The codes of docs/wire/cellnet.md, section 5.4; a peer may send others.
 *
 * @category models
 * @since 0.1.0
 */
export type ReturnCode =
  | "ok"
  | "timeout"
  | "invalid_target"
  | "target_unreachable"
  | "comm_error"
  | "msg_too_big"
  | "filter_error"
  | "invalid_request"
  | "process_exception"
  | "authentication_error"
  | "service_unavailable"
  | "invalid_session"
  | "abort_run"
  | "unauthenticated"

/**
 * A request as its handler sees it, decoded. The payload is `null` where none was sent; byte views in it stay valid.
 *
 * @category models
 * @since 0.1.0
 */
export interface CellRequest {
  readonly origin: string
  readonly address: Address
  readonly headers: Headers
  readonly payload: unknown
}

/**
 * An answer. `returnCode` is the peer's word, `ok` or not, and `""` where a peer's streamed reply has none (which the
 * reference doesn't take for `ok`); `payload` is `null` where there is none.
 *
 * @category models
 * @since 0.1.0
 */
export interface CellReply {
  readonly returnCode: string
  readonly error?: string
  readonly headers?: Headers
  readonly payload?: unknown
}

/**
 * Answers a request; `undefined` means that there is no answer (right for one-way messages). A failure or defect
 * reaches the requester as `comm_error` with its text, so a refusal is better returned as a reply.
 *
 * @category models
 * @since 0.1.0
 */
export type Handler = (request: CellRequest) => Effect.Effect<CellReply | undefined, CellError>

/**
 * How a request is sent.
 *
 * @category models
 * @since 0.1.0
 */
export interface RequestOptions {
  /**
   * How long each stage (sending, waiting for the first frame of the reply, receiving it) may pass without progress.
   * Plain requests: the whole wait.
   */
  readonly timeout: Duration.Input
  /** `plain`: one message each way, fails at once without a route. `stream` (the default): a blob each way. */
  readonly mode?: "plain" | "stream"
  /** A forwarding cell that can't deliver an optional message says so at once. */
  readonly optional?: boolean
  /** End-to-end protection of the payload. */
  readonly secure?: boolean
  /** Asked each time `timeout` passes while the peer is at work: `true` allows another `timeout`. */
  readonly extend?: Effect.Effect<boolean>
  /**
   * Asked when the connection towards the target ends before the answer has begun, since both may be lost with it:
   * `true` waits on, for what comes by the next connection, `false` fails with `TargetUnreachable`. Without it the wait
   * goes on, as the reference's. Streamed requests only.
   */
  readonly whenLost?: Effect.Effect<boolean>
  /** The application's own headers; those of the cell win. */
  readonly headers?: Headers
  /** Takes arrays out of the payload while it is encoded; a new one for each attempt. */
  readonly references?: ReferenceSink
}

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

/**
 * How a cell dials.
 *
 * @category models
 * @since 0.1.0
 */
export interface ConnectOptions {
  /** Judges the peer's name, after the cell's own `verify`; a failure ends the connection, and it is dialed again. */
  readonly verify?: ConnectionOptions["verify"]
  /** Told why there is no connection: after each attempt that failed, and after each connection that ended. */
  readonly onDown?: (error: TransportError) => Effect.Effect<void>
}

/**
 * How a cell listens.
 *
 * @category models
 * @since 0.1.0
 */
export interface ListenOptions {
  /** Judges the names of this listener's peers, after the cell's own `verify`; a failure ends the connection. */
  readonly verify?: ConnectionOptions["verify"]
}

/**
 * A cell that is directly connected, with what went over its connection: whole frames, those that only keep it alive
 * included.
 *
 * @category models
 * @since 0.1.0
 */
export interface PeerStatus {
  readonly name: string
  /** Where it is, for people. */
  readonly address: string
  /** Whether this cell dialed it. */
  readonly dialed: boolean
  /** When it connected: the wall clock, in milliseconds since the epoch. */
  readonly since: number
  readonly framesReceived: number
  readonly bytesReceived: number
  readonly framesSent: number
  readonly bytesSent: number
  /** Bytes of others' messages that it has not taken yet. */
  readonly bytesWaiting: number
}

/**
 * What ended a connection when it was neither end's wish: an error of the system, a stream that is no longer one.
 *
 * @category models
 * @since 0.1.0
 */
export interface LinkFailure {
  readonly message: string
  /** When: the monotonic clock, in nanoseconds. */
  readonly at: bigint
}

/**
 * A connection that came, took the place of an older one of the same name, or ended.
 *
 * @category models
 * @since 0.1.0
 */
export type PeerChange =
  | { readonly _tag: "Connected"; readonly name: string; readonly address: string }
  | { readonly _tag: "Replaced"; readonly name: string; readonly address: string; readonly before: string }
  | { readonly _tag: "Disconnected"; readonly name: string; readonly address: string; readonly why: string }

/**
 * A verdict on a message by its headers alone, before a byte of its payload is decrypted or decoded:
 * `pass` = not this rule's concern, `admit` = wanted, `refuse` = unwanted, by a reason of few words that is counted. A
 * message is refused when some rule refuses and none admits.
 *
 * @category models
 * @since 0.1.0
 */
export type GuardVerdict = "pass" | "admit" | "refuse" | { readonly refuse: string }

/**
 * Judges messages by their headers alone; see {@link GuardVerdict}.
 *
 * @category models
 * @since 0.1.0
 */
export type GuardRule = (message: {
  readonly origin: string
  /** The application's address: inside a stream frame, that of the stream; in a reply, that of its request. */
  readonly address: Address
  readonly isReply: boolean
  readonly headers: Headers
}) => GuardVerdict

/**
 * @category services
 * @since 0.1.0
 */
export class Cell extends Context.Service<
  Cell,
  {
    readonly fqcn: string
    /** Asks `target` and waits for its answer, whatever its return code; fails where there is none. */
    readonly request: (
      target: string,
      address: Address,
      payload: unknown,
      options: RequestOptions
    ) => Effect.Effect<CellReply, CellError>
    /** One-way: ends when the message was handed to the transport; delivery is not known. */
    readonly send: (
      target: string,
      address: Address,
      payload: unknown,
      options?: { readonly optional?: boolean; readonly secure?: boolean; readonly headers?: Headers }
    ) => Effect.Effect<void, CellError>
    /**
     * Serves an address, on the plain and the streamed path, until the Scope closes. With `origin`, only messages of
     * that cell; a message whose origin has no handler of its own goes to the newest handler of the address.
     */
    readonly handle: (
      address: Address,
      handler: Handler,
      options?: { readonly origin?: string }
    ) => Effect.Effect<void, never, Scope.Scope>
    /**
     * Offers the arrays of one message for download instead of sending them in it: its `references` go into the
     * request. Closing the Scope withdraws the offer, so keep it open until the arrays have been fetched.
     */
    readonly offer: DownloadService["offer"]
    /** Fails the downloads that run from a source, for `reason`, and so the messages that refer to them. */
    readonly cancelDownloads: DownloadService["cancel"]
    /** The progress of all downloads, to this cell and from it, from now on. A slow reader misses some. */
    readonly transfers: DownloadService["transfers"]
    /** Adds a rule to the cell's guard until the Scope closes. */
    readonly guard: (rule: GuardRule) => Effect.Effect<void, never, Scope.Scope>
    /** Whether a direct connection to `peer` is up: the present value first, then each change. */
    readonly connected: (peer: string) => Stream.Stream<boolean>
    /**
     * Waits until every answer this cell owes `peer` has been computed and acknowledged by it, so that a route may be
     * taken down behind it. Not bounded by itself.
     */
    readonly flush: (peer: string) => Effect.Effect<void>
    /** Opens a listener for other cells until the Scope closes. */
    readonly listen: (
      schemeOrUrl: string,
      resources?: Resources,
      options?: ListenOptions
    ) => Effect.Effect<{ readonly connectUrl: string }, CellError, Scope.Scope>
    /** Dials `url` now and again after each loss, until the Scope closes. */
    readonly connect: (
      url: string,
      resources?: Resources,
      options?: ConnectOptions
    ) => Effect.Effect<void, CellError, Scope.Scope>
    /** The cells that are directly connected now, the oldest connection first. */
    readonly peers: Effect.Effect<ReadonlyArray<PeerStatus>>
    /** Connections that come and go, from the time of subscription on; a slow subscriber loses the oldest. */
    readonly peerChanges: Stream.Stream<PeerChange>
    /**
     * Of the connections with `peer`, and of those that this cell dials, the last that an error of the system or broken
     * data ended: what may have made a later request or lease fail. Kept after the connection is there again.
     */
    readonly linkFailure: (peer: string) => Effect.Effect<LinkFailure | undefined>
  }
>()("fl-attach/cell/Cell") {
  /**
   * @see {@link make}
   * @since 0.1.0
   */
  static readonly make = (options: CellOptions) => make(options)
  /**
   * @see {@link layer}
   * @since 0.1.0
   */
  static readonly layer = (options: CellOptions) => layer(options)
}

/**
 * Makes a cell. Closing the Scope says bye to its peers, closes its connections, then interrupts its handlers.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (
  options: CellOptions
): Effect.Effect<Cell["Service"], CellError, Drivers | SecureRandom | Scope.Scope> =>
  Effect.map(makeEngine(options), (engine) => engine.cell)

/**
 * A cell as a layer. It is a function, since a constant layer is built only once in a graph.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: CellOptions): Layer.Layer<Cell, CellError, Drivers | SecureRandom> =>
  Layer.effect(Cell, make(options))
