/**
 * Why bytes did not reach a peer, or what came is no frame.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * The URL or a setting of a connector can't be used: nothing was opened.
 *
 * @category errors
 * @since 0.1.0
 */
export class BadConfig extends Schema.TaggedError<BadConfig>()("BadConfig", {
  setting: Schema.String,
  message: Schema.String
}) {
  /** A retry with the same settings fails again. */
  readonly isRetryable: boolean = false
}

/**
 * The peer is not there (yet): no listener, a missing directory, a refused connection.
 *
 * @category errors
 * @since 0.1.0
 */
export class NotReady extends Schema.TaggedError<NotReady>()("NotReady", {
  target: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The connection has ended; `by` says who ended it.
 *
 * @category errors
 * @since 0.1.0
 */
export class ConnectionClosed extends Schema.TaggedError<ConnectionClosed>()("ConnectionClosed", {
  target: Schema.String,
  by: Schema.Literals(["local", "peer", "lease", "evicted", "io"]),
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * What the peer sent is no frame, or a frame beyond the limits (docs/wire/transport.md, section 3.1).
 *
 * @category errors
 * @since 0.1.0
 */
export class BadData extends Schema.TaggedError<BadData>()("BadData", {
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * The handshake did not end in an endpoint: no READY in time, a name that may not be used, an identity that differs.
 *
 * @category errors
 * @since 0.1.0
 */
export class HandshakeFailed extends Schema.TaggedError<HandshakeFailed>()("HandshakeFailed", {
  target: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * TLS did not come about, or was ended by the peer. `problem` says why:
 *
 * - `expired`: the peer's certificate is outside its validity
 * - `foreign`: it was not issued by the trusted CA
 * - `purpose`: its extended key usage excludes this side of a connection
 * - `hostName`: it does not hold the dialed host (gRPC alone looks at that)
 * - `noCertificate`: the peer showed none
 * - `refused`: the peer refuses this side's certificate
 * - `notTls`: the peer speaks something else
 * - `ended`: the peer went away during the TLS handshake
 * - `version`: no version in common
 * - `other`: what the message says
 *
 * Source: docs/wire/transport.md, section 5.
 *
 * @category errors
 * @since 0.1.0
 */
export class TlsFailed extends Schema.TaggedError<TlsFailed>()("TlsFailed", {
  target: Schema.String,
  problem: Schema.Literals([
    "expired",
    "foreign",
    "purpose",
    "hostName",
    "noCertificate",
    "refused",
    "notTls",
    "ended",
    "version",
    "other"
  ]),
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The operating system refused an operation on a socket or a file.
 *
 * @category errors
 * @since 0.1.0
 */
export class IoFailed extends Schema.TaggedError<IoFailed>()("IoFailed", {
  operation: Schema.String,
  target: Schema.String,
  /** The system's own code, for instance `ENOSPC`. */
  code: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * @category errors
 * @since 0.1.0
 */
export const TransportErrorReason = Schema.Union([
  BadConfig,
  NotReady,
  ConnectionClosed,
  BadData,
  HandshakeFailed,
  TlsFailed,
  IoFailed
])

/**
 * The one error of the transport floor; `reason` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class TransportError extends Schema.TaggedError<TransportError>()("TransportError", {
  reason: TransportErrorReason
}) {
  override get message(): string {
    return this.reason.message
  }
  /** Whether the same attempt may succeed later. */
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
}
