/**
 * The dict-like model objects of server-side workflows.
 *
 * Source: docs/wire/fobs.md, section 3.3.
 *
 * @since 0.1.0
 */

/**
 * A dict with a class name.
 *
 * @category models
 * @since 0.1.0
 */
export class Learnable {
  readonly entries: ReadonlyMap<unknown, unknown>
  constructor(entries?: Iterable<readonly [unknown, unknown]>) {
    this.entries = new Map(entries)
  }
}

/**
 * A {@link Learnable} that holds model weights and meta.
 *
 * @category models
 * @since 0.1.0
 */
export class ModelLearnable extends Learnable {}
