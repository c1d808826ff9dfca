/**
 * Values that travel beside the body of a message, in sections of their own.
 *
 * Source: docs/wire/fobs.md, sections 2 and 2.1.
 *
 * @since 0.1.0
 */

/**
 * A datum: text or bytes with an id (the text form of a UUID, lower case) and an object type (`dot`, 0 for ordinary
 * values).
 *
 * Big texts and bytes become datums without anyone asking, and come back as what they were. A `Datum` in a value is
 * an application's own: it is written as a section whatever its size, and stays a `Datum` when decoded. Its value must
 * not be empty. The Client API sends none.
 *
 * @category models
 * @since 0.1.0
 */
export class Datum {
  readonly value: string | Uint8Array
  readonly id: string
  readonly dot: number
  constructor(value: string | Uint8Array, id: string, dot = 0) {
    this.value = value
    this.id = id
    this.dot = dot
  }
}
