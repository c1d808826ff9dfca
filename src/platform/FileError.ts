/**
 * Why a file or directory could not be used.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * Nothing is at the path, or a directory above it is missing.
 *
 * @category errors
 * @since 0.1.0
 */
export class FileMissing extends Schema.TaggedError<FileMissing>()("FileMissing", {
  path: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * Something is at the path already.
 *
 * @category errors
 * @since 0.1.0
 */
export class FileExists extends Schema.TaggedError<FileExists>()("FileExists", {
  path: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * The operating system refuses this user.
 *
 * @category errors
 * @since 0.1.0
 */
export class FileDenied extends Schema.TaggedError<FileDenied>()("FileDenied", {
  operation: Schema.String,
  path: Schema.String,
  /** `EACCES`, `EPERM` or `EROFS`. */
  code: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * What is at the path is not what may be used there: a symbolic link, no regular file, more bytes than allowed.
 *
 * @category errors
 * @since 0.1.0
 */
export class FileUnsafe extends Schema.TaggedError<FileUnsafe>()("FileUnsafe", {
  path: Schema.String,
  problem: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * Any other failure of the operating system, with its own code, for instance `ESTALE` or `ENOSPC`.
 *
 * @category errors
 * @since 0.1.0
 */
export class FileIo extends Schema.TaggedError<FileIo>()("FileIo", {
  operation: Schema.String,
  path: Schema.String,
  code: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * @category errors
 * @since 0.1.0
 */
export const FileErrorReason = Schema.Union([FileMissing, FileExists, FileDenied, FileUnsafe, FileIo])

/**
 * @category errors
 * @since 0.1.0
 */
export type FileErrorReason = typeof FileErrorReason.Type

/**
 * A failed operation on a file or directory; `reason` says which way.
 *
 * @category errors
 * @since 0.1.0
 */
export class FileError extends Schema.TaggedError<FileError>()("FileError", {
  reason: FileErrorReason
}) {
  override get message(): string {
    return this.reason.message
  }
  /** The system's code: `ENOENT`, `EEXIST`, `EACCES`, `ESTALE`, ...; `ELOOP` for what is unsafe. */
  get code(): string {
    const reason = this.reason
    switch (reason._tag) {
      case "FileMissing":
        return "ENOENT"
      case "FileExists":
        return "EEXIST"
      case "FileUnsafe":
        return "ELOOP"
      default:
        return reason.code
    }
  }
  /** Whether the same operation may succeed later. */
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
}
