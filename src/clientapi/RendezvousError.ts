/**
 * Why a service and its trainer do not find each other in a shared directory.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"
import { LockUnsupported } from "../platform/FileLockError.ts"

/**
 * An argument that can't be used: the root is not absolute, the site or the attach id is no such name.
 *
 * @category errors
 * @since 0.1.0
 */
export class SettingInvalid extends Schema.TaggedError<SettingInvalid>()("SettingInvalid", {
  field: Schema.String,
  /** What came, as JSON and shortened. */
  value: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * The shared root may not be trusted: it is a link, or every user may write there.
 *
 * @category errors
 * @since 0.1.0
 */
export class RootUnsafe extends Schema.TaggedError<RootUnsafe>()("RootUnsafe", {
  path: Schema.String,
  problem: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * A directory or file of the rendezvous is a link, of another kind, or open to other users.
 *
 * @category errors
 * @since 0.1.0
 */
export class PathUnsafe extends Schema.TaggedError<PathUnsafe>()("PathUnsafe", {
  path: Schema.String,
  problem: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * The listener that a record names is outside the root, or one of its parts is a link or open to other users.
 *
 * @category errors
 * @since 0.1.0
 */
export class ListenerUnsafe extends Schema.TaggedError<ListenerUnsafe>()("ListenerUnsafe", {
  path: Schema.String,
  problem: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * A record breaks the rules of docs/wire/attach.md, section 10.2, in `field`.
 *
 * @category errors
 * @since 0.1.0
 */
export class RecordInvalid extends Schema.TaggedError<RecordInvalid>()("RecordInvalid", {
  path: Schema.String,
  field: Schema.String,
  /** What the field holds, as JSON and shortened. */
  value: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * A live process holds the attach id.
 *
 * @category errors
 * @since 0.1.0
 */
export class ClaimHeld extends Schema.TaggedError<ClaimHeld>()("ClaimHeld", {
  path: Schema.String,
  siteName: Schema.String,
  attachId: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The claim is no longer ours: its owner's record is gone, corrupt or another's, or the claim was closed.
 *
 * @category errors
 * @since 0.1.0
 */
export class ClaimLost extends Schema.TaggedError<ClaimLost>()("ClaimLost", {
  path: Schema.String,
  problem: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * No live service published itself within the time allowed; `obstacle` is what the last try met.
 *
 * @category errors
 * @since 0.1.0
 */
export class NotPublished extends Schema.TaggedError<NotPublished>()("NotPublished", {
  root: Schema.String,
  siteName: Schema.String,
  attachId: Schema.String,
  obstacle: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * The operating system refused an operation in the shared directory.
 *
 * @category errors
 * @since 0.1.0
 */
export class RendezvousIo extends Schema.TaggedError<RendezvousIo>()("RendezvousIo", {
  path: Schema.String,
  /** The system's own code, for instance `EACCES`. */
  code: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * @category errors
 * @since 0.1.0
 */
export const RendezvousErrorReason = Schema.Union([
  SettingInvalid,
  RootUnsafe,
  PathUnsafe,
  ListenerUnsafe,
  RecordInvalid,
  ClaimHeld,
  ClaimLost,
  NotPublished,
  RendezvousIo,
  LockUnsupported
])

/**
 * @category errors
 * @since 0.1.0
 */
export type RendezvousErrorReason = typeof RendezvousErrorReason.Type

/**
 * The one error of the rendezvous; `reason` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class RendezvousError extends Schema.TaggedError<RendezvousError>()("RendezvousError", {
  reason: RendezvousErrorReason
}) {
  override get message(): string {
    return this.reason.message
  }
  /** Whether the same attempt may succeed later. */
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
}

/**
 * @category constructors
 * @since 0.1.0
 */
export const rendezvousError = (reason: RendezvousErrorReason): RendezvousError => new RendezvousError({ reason })
