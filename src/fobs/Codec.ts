/**
 * What an encoder and decoder of FOBS messages does, and what it is given.
 *
 * Source: docs/wire/fobs.md, sections 2 and 6.
 *
 * @since 0.1.0
 */
import type { Result } from "effect"
import type { FobsError } from "./FobsError.ts"

/**
 * A download that a message asks its receiver to make: all items of `refId` from the cell `fqcn`.
 *
 * @category models
 * @since 0.1.0
 */
export interface Download {
  readonly dot: 3 | 6
  readonly fqcn: string
  readonly refId: string
}

/**
 * A message cut into its sections; `body` and the datums are views into the input.
 *
 * @category models
 * @since 0.1.0
 */
export interface Sections {
  readonly body: Uint8Array
  readonly datums: ReadonlyMap<string, unknown>
  readonly downloads: ReadonlyArray<Download>
}

/**
 * Takes arrays out of a message while it is encoded. `add` answers the item id that stands for the array, or
 * `undefined` to leave it inline; `downloads` are the references written behind the message.
 *
 * @category models
 * @since 0.1.0
 */
export interface ReferenceSink {
  readonly add: (dot: 3 | 6, value: unknown) => string | undefined
  readonly downloads: () => ReadonlyArray<Download>
}

/**
 * @category models
 * @since 0.1.0
 */
export interface EncodeOptions {
  readonly references?: ReferenceSink
  /** Text and bytes of this length or more leave the body as datums. Default 10 MiB, as the reference. */
  readonly maxInlineSize?: number
}

/**
 * @category models
 * @since 0.1.0
 */
export interface DecodeOptions {
  /** Wraps what a plain number would lose in `Float`. Default false. */
  readonly lossless?: boolean
  /**
   * What becomes of download references: the fetched items by dot and item id, or `"keep"` to leave `DownloadRef`s.
   * Absent: a message with references fails with `MissingReference`.
   */
  readonly items?: ReadonlyMap<3 | 6, ReadonlyMap<string, unknown>> | "keep"
}

/**
 * An encoder and decoder that know a set of types.
 *
 * @category models
 * @since 0.1.0
 */
export interface Codec {
  /**
   * Encodes a value into pieces whose concatenation is the message. Array data is not copied: the pieces are views of
   * the caller's arrays, so don't change those before the pieces are used up.
   */
  readonly encode: (value: unknown, options?: EncodeOptions) => Result.Result<ReadonlyArray<Uint8Array>, FobsError>
  /** Cuts a message into sections, without decoding its body. */
  readonly parse: (message: Uint8Array) => Result.Result<Sections, FobsError>
  /**
   * Decodes a message. Bytes and arrays in the value are views into it and keep it alive; the caller must not change
   * it afterwards.
   */
  readonly decode: (message: Uint8Array | Sections, options?: DecodeOptions) => Result.Result<unknown, FobsError>
}
