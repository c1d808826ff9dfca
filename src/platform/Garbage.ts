/**
 * The memory of arrays that nobody holds any more.
 *
 * @since 0.1.0
 */
import { Effect, Result } from "effect"

/** V8 looks for garbage when the memory of arrays has grown by some 64 MiB since it last did: less is not worth it. */
const worthIt = 2 ** 26
/** Surely more than that. */
const claim = 2 ** 27

/**
 * Has V8 look for garbage beside what runs, since arrays of so many bytes have just been let go. By itself it does when
 * as much is needed again, and then memory grows until it is done.
 *
 * V8 has no call for this: it counts memory that is set apart. What is never touched takes none.
 *
 * @category resources
 * @since 0.1.0
 */
export const collectArrays = (bytes: number): Effect.Effect<void> =>
  Effect.sync(() => {
    if (bytes < worthIt) return
    // Where no memory is left to be set apart, V8 has looked.
    Result.try(() => new ArrayBuffer(claim).transfer(0))
  })
