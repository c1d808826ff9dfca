/**
 * Why a file is not locked by us.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * Another open file description holds a lock that excludes this one.
 *
 * @category errors
 * @since 0.1.0
 */
export class LockBusy extends Schema.TaggedError<LockBusy>()("LockBusy", {
  path: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * There is no flock(2) here: the file system has none, or the `flock` command is not installed.
 *
 * @category errors
 * @since 0.1.0
 */
export class LockUnsupported extends Schema.TaggedError<LockUnsupported>()("LockUnsupported", {
  path: Schema.String,
  problem: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * What is at the path may not serve as a lock: a symbolic link, no regular file, open to other users.
 *
 * @category errors
 * @since 0.1.0
 */
export class LockUnsafe extends Schema.TaggedError<LockUnsafe>()("LockUnsafe", {
  path: Schema.String,
  problem: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * The operating system refused the lock file or the lock for another cause; `code` is its word for it.
 *
 * @category errors
 * @since 0.1.0
 */
export class LockIo extends Schema.TaggedError<LockIo>()("LockIo", {
  path: Schema.String,
  code: Schema.String,
  message: Schema.String
}) {
  /** The file may appear, a network file system may recover; only missing rights stay missing. */
  get isRetryable(): boolean {
    return this.code !== "EACCES" && this.code !== "EPERM" && this.code !== "EROFS"
  }
}

/**
 * @category errors
 * @since 0.1.0
 */
export const FileLockErrorReason = Schema.Union([LockBusy, LockUnsupported, LockUnsafe, LockIo])

/**
 * A lock that was not taken; `reason` says why.
 *
 * @category errors
 * @since 0.1.0
 */
export class FileLockError extends Schema.TaggedError<FileLockError>()("FileLockError", {
  reason: FileLockErrorReason
}) {
  override get message(): string {
    return this.reason.message
  }
  /** Whether the same attempt may succeed later. */
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
}
