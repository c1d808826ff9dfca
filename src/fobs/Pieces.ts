/**
 * Bytes in several places that travel as one value.
 *
 * @since 0.1.0
 */

/**
 * Is encoded like one `Uint8Array` that holds all parts, without joining them: the parts must stay unchanged until the
 * encoded message is used up. Decoding yields a `Uint8Array`.
 *
 * @category models
 * @since 0.1.0
 */
export class Pieces {
  readonly parts: ReadonlyArray<Uint8Array>
  readonly byteLength: number
  constructor(parts: ReadonlyArray<Uint8Array>) {
    this.parts = parts
    this.byteLength = parts.reduce((sum, part) => sum + part.byteLength, 0)
  }
}
