/**
 * Why a protected payload is refused, or can't be made.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * `stage` is the check that failed, in the order of docs/wire/security.md, section 1.3: `length`, `version`,
 * `reflection` (it carries a key that this cell made), `signature`, `unwrap` (the content key is not for this cell, or
 * no key of 32 bytes), `gcm`, `repeat` (the envelope was taken before); `seal` = the payload can't be protected.
 *
 * @category errors
 * @since 0.1.0
 */
export class CipherError extends Schema.TaggedError<CipherError>()("CipherError", {
  stage: Schema.Literals(["length", "version", "reflection", "signature", "unwrap", "gcm", "repeat", "seal"]),
  message: Schema.String
}) {}
