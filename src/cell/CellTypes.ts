/**
 * What goes into a cell and comes out of it: addresses, requests, replies, peers, verdicts.
 *
 * Source: docs/wire/cellnet.md, sections 5 and 8.
 *
 * @since 0.1.0
 */
import type { Duration, Effect } from "effect"
import type { ReferenceSink } from "../fobs/Codec.ts"
import type { IdentityRules } from "../identity/CertificateIdentity.ts"
import type { Options as ConnectionOptions } from "../transport/Connection.ts"
import type { TransportError } from "../transport/TransportError.ts"
import type { CellError } from "./CellError.ts"

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
 * What a handler serves, and what it is told beside requests.
 *
 * @category models
 * @since 0.1.0
 */
export interface HandleOptions {
  /** Only messages of this cell. */
  readonly origin?: string
  /**
   * Told of a streamed request that can't be read: what it refers to can't be fetched, or it can't be decoded. It is
   * logged, and its sender hears of it, in any case.
   */
  readonly onUnreadable?: (error: CellError) => Effect.Effect<void>
}

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
  /** Told how many bytes of the request the peer has taken, each time it says so. Streamed requests only. */
  readonly onTaken?: (bytes: number) => void
  /** The application's own headers; those of the cell win. */
  readonly headers?: Headers
  /** Takes arrays out of the payload while it is encoded; a new one for each attempt. */
  readonly references?: ReferenceSink
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
  /** Where a certificate is shown to the peer, it must be one of this cell's by these rules, or `connect` fails. */
  readonly rules?: IdentityRules | undefined
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
