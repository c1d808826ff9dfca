/**
 * Why a model file could not be read or written.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * The file is no npz of arrays, or the arrays can't be written as one.
 *
 * @category errors
 * @since 0.1.0
 */
export class ModelFileInvalid extends Schema.TaggedError<ModelFileInvalid>()("ModelFileInvalid", {
  path: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * The file has more bytes than the reader allows.
 *
 * @category errors
 * @since 0.1.0
 */
export class ModelFileTooLarge extends Schema.TaggedError<ModelFileTooLarge>()("ModelFileTooLarge", {
  path: Schema.String,
  /** Bytes. */
  size: Schema.Number,
  /** Bytes. */
  limit: Schema.Number,
  message: Schema.String
}) {
  readonly isRetryable: boolean = false
}

/**
 * The operating system refused: a missing folder, a full disk, no permission.
 *
 * @category errors
 * @since 0.1.0
 */
export class ModelFileIo extends Schema.TaggedError<ModelFileIo>()("ModelFileIo", {
  path: Schema.String,
  operation: Schema.Literals(["read", "write"]),
  /** The system's own code, for instance `ENOSPC`, or what is known instead. */
  code: Schema.String,
  message: Schema.String
}) {
  readonly isRetryable: boolean = true
}

/**
 * @category errors
 * @since 0.1.0
 */
export const ModelFileErrorReason = Schema.Union([ModelFileInvalid, ModelFileTooLarge, ModelFileIo])

/**
 * The one error of model files; `reason` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class ModelFileError extends Schema.TaggedError<ModelFileError>()("ModelFileError", {
  reason: ModelFileErrorReason
}) {
  override get message(): string {
    return this.reason.message
  }
  /** Whether the same attempt may succeed later. */
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
}
