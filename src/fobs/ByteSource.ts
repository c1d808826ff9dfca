/**
 * Files as the readers and writers of models see them: bytes at a place, bytes at the end.
 *
 * @since 0.1.0
 */
import type { Effect } from "effect"

/**
 * Bytes that can be read at any place, for instance an open file.
 *
 * @category models
 * @since 0.1.0
 */
export interface ByteSource<E = never, R = never> {
  /** Bytes in all. */
  readonly size: number
  /** Fills `target` with the bytes from `offset` on; fails where they are not all there. */
  readonly readInto: (offset: number, target: Uint8Array) => Effect.Effect<void, E, R>
}

/**
 * Takes bytes, each behind the last. They may be views of arrays, and stay unchanged until the Effect ends.
 *
 * @category models
 * @since 0.1.0
 */
export type ByteSink<E = never, R = never> = (bytes: Uint8Array) => Effect.Effect<void, E, R>
