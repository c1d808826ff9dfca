/**
 * Why a request between cells has no answer.
 *
 * A reply with a return code other than `ok` is an answer, not an error: these reasons arise where there is none.
 * Source: docs/wire/cellnet.md, sections 5.1, 9.4 and 10.6.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * No answer within the time allowed. `stage` tells how far the request came.
 *
 * @category errors
 * @since 0.1.0
 */
export class RequestTimeout extends Schema.TaggedError<RequestTimeout>()("RequestTimeout", {
  target: Schema.String,
  topic: Schema.String,
  stage: Schema.Literals(["sending", "waiting", "receiving"]),
  millis: Schema.Finite,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * There is no route to the target now: it is not connected, or a forwarding cell returned the message.
 *
 * @category errors
 * @since 0.1.0
 */
export class TargetUnreachable extends Schema.TaggedError<TargetUnreachable>()("TargetUnreachable", {
  target: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The peer could not take the message in: its handler threw, its decoder refused, nobody listens on the topic.
 * The text is the peer's.
 *
 * @category errors
 * @since 0.1.0
 */
export class PeerFailed extends Schema.TaggedError<PeerFailed>()("PeerFailed", {
  target: Schema.String,
  topic: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The payload could not be turned into bytes: nothing was sent, and nothing will be by trying again.
 *
 * @category errors
 * @since 0.1.0
 */
export class EncodeFailed extends Schema.TaggedError<EncodeFailed>()("EncodeFailed", {
  topic: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * The answer came but its bytes could not be decoded.
 *
 * @category errors
 * @since 0.1.0
 */
export class DecodeFailed extends Schema.TaggedError<DecodeFailed>()("DecodeFailed", {
  origin: Schema.String,
  topic: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * A name, URL or setting of the cell can't be used.
 *
 * @category errors
 * @since 0.1.0
 */
export class CellMisconfigured extends Schema.TaggedError<CellMisconfigured>()("CellMisconfigured", {
  setting: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * A stream broke a bound or a rule (docs/wire/cellnet.md, section 10).
 *
 * @category errors
 * @since 0.1.0
 */
export class StreamFailed extends Schema.TaggedError<StreamFailed>()("StreamFailed", {
  peer: Schema.String,
  /** The class name that travels in `sm__et`: `StreamError`, `BlobSizeError`, `StreamTargetUnreachable`. */
  kind: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The arrays that a message refers to could not be fetched from their source, so there is no message. The sender may
 * send it again.
 *
 * @category errors
 * @since 0.1.0
 */
export class DownloadFailed extends Schema.TaggedError<DownloadFailed>()("DownloadFailed", {
  source: Schema.String,
  refId: Schema.String,
  /** The array of the download (`T0` is the first) that failed, or the first of those that were asked for then. */
  itemId: Schema.optionalKey(Schema.String),
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * A message can't be protected, or what came can't be opened: no certificate of the peer could be had, or it is not good,
 * or the bytes were tampered with. `stage` is `exchange`, the kind of a `CertificateError`, or the stage of a
 * `CipherError`.
 *
 * @category errors
 * @since 0.1.0
 */
export class ProtectionFailed extends Schema.TaggedError<ProtectionFailed>()("ProtectionFailed", {
  peer: Schema.String,
  stage: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * @category errors
 * @since 0.1.0
 */
export const CellErrorReason = Schema.Union([
  RequestTimeout,
  TargetUnreachable,
  PeerFailed,
  EncodeFailed,
  DecodeFailed,
  CellMisconfigured,
  StreamFailed,
  DownloadFailed,
  ProtectionFailed
])

/**
 * The one error of the cell floor; `reason` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class CellError extends Schema.TaggedError<CellError>()("CellError", {
  reason: CellErrorReason
}) {
  override get message(): string {
    return this.reason.message
  }
  /** Whether the same request may succeed later. */
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
}
