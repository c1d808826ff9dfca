/**
 * What Node has and Effect lacks: locks, and files whose modes matter.
 *
 * @since 0.1.0
 */
export * as AtomicFile from "./AtomicFile.ts"
export * from "./FileError.ts"
export * from "./FileLock.ts"
export * from "./FileLockError.ts"
export * from "./PrivateFiles.ts"
