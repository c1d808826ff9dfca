/**
 * Why a text names no cell.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * A name that no cell may have. `problem` is the reference's own word for it: `not a string`, `empty`,
 * `invalid char`, `empty part` or `dup '<part>'`. Source: docs/wire/cellnet.md, section 1.
 *
 * @category errors
 * @since 0.1.0
 */
export class FqcnError extends Schema.TaggedError<FqcnError>()("FqcnError", {
  /** The name as it came, shortened. */
  name: Schema.String,
  problem: Schema.String,
  message: Schema.String
}) {}
