/**
 * Operations on files, and what they tell of them.
 *
 * @since 0.1.0
 */
import type { Effect } from "effect"
import type { FileError } from "./FileError.ts"

/**
 * What is at a path, links not followed.
 *
 * @category models
 * @since 0.1.0
 */
export interface FileInfo {
  readonly kind: "file" | "directory" | "link" | "other"
  /** The permission bits, `0o7777` at most. */
  readonly mode: number
  /** The owner's user id. */
  readonly owner: number
}

/**
 * A file's bytes, with the facts of the very file that they were read from. The bytes belong to the caller.
 *
 * @category models
 * @since 0.1.0
 */
export interface FileContent {
  readonly info: FileInfo
  readonly bytes: Uint8Array
}

/**
 * What the file is to be like.
 *
 * @category models
 * @since 0.1.0
 */
export interface WriteOptions {
  /** The file's permission bits, exactly: the umask has no say. */
  readonly mode: number
}

/**
 * The service of {@link PrivateFiles}.
 *
 * @category models
 * @since 0.1.0
 */
export interface Files {
  /** What is at the path; a link is described, not followed. */
  readonly lstat: (path: string) => Effect.Effect<FileInfo, FileError>
  /** The content of a regular file of at most `maxFileBytes`; a link is refused. */
  readonly read: (path: string) => Effect.Effect<FileContent, FileError>
  /** See AtomicFile.write: whole or not at all, with exactly this mode. */
  readonly write: (path: string, content: string | Uint8Array, options: WriteOptions) => Effect.Effect<void, FileError>
  /** Makes one directory with exactly this mode; `FileExists` if something is there already. */
  readonly makeDirectory: (path: string, mode: number) => Effect.Effect<void, FileError>
  /** The names in a directory. */
  readonly list: (path: string) => Effect.Effect<ReadonlyArray<string>, FileError>
  readonly rename: (from: string, to: string) => Effect.Effect<void, FileError>
  /** Removes a file or a directory with all that is in it; links are removed, not followed; missing is no error. */
  readonly remove: (path: string) => Effect.Effect<void, FileError>
}
