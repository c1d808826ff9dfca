/**
 * Plain msgpack, as headers and handshakes use it.
 *
 * Encoding: a safe integer travels as int, any other number as float64, a bigint as int, `Float` forces float64; lists
 * and `Tuple`s as arrays, `Map`s and plain objects as maps in their order. Decoding: maps are `Map`s, integers beyond
 * 2^53 are bigint, bytes are views of the input.
 *
 * Source: docs/wire/transport.md, section 1.3.
 *
 * @since 0.1.0
 */
import type { Result } from "effect"
import type { FobsError } from "./FobsError.ts"
import { Reader } from "./internal/reader.ts"
import { attempt } from "./internal/refusal.ts"
import { KeyMemo, knownTexts } from "./internal/texts.ts"
import { concat, Writer } from "./internal/writer.ts"
import { Tuple } from "./Values.ts"

/** Keys that nearly every header holds. */
const known = knownTexts([
  "cn__channel",
  "cn__destination",
  "cn__from",
  "cn__msg_type",
  "cn__optional",
  "cn__origin",
  "cn__payload_encoding",
  "cn__payload_len",
  "cn__req_id",
  "cn__reply_expected",
  "cn__return_code",
  "cn__route",
  "cn__secure",
  "cn__send_time",
  "cn__to",
  "cn__topic",
  "sm__ai",
  "sm__ch",
  "sm__cs",
  "sm__dt",
  "sm__id",
  "sm__op",
  "sm__os",
  "sm__pe",
  "sm__ri",
  "sm__sq",
  "sm__sz",
  "sm__tp"
])

/**
 * The msgpack bytes of one value, which {@link encode} writes as they are, wherever the value stands: what a forwarder
 * has not understood stays what it was, to the last bit.
 *
 * @category models
 * @since 0.1.0
 */
export class Encoded {
  readonly bytes: Uint8Array
  constructor(bytes: Uint8Array) {
    this.bytes = bytes
  }
}

/** A cache, no state: with it and without it, decoding answers the same. */
const memo = new KeyMemo()

class PlainWriter extends Writer {
  protected override typed(value: object, depth: number): boolean {
    if (value instanceof Encoded) {
      this.raw(value.bytes)
      return true
    }
    if (!(value instanceof Tuple)) return false
    this.list(value.items, depth)
    return true
  }
}

/**
 * The msgpack bytes of a value, in a buffer of their own; fails with `NotEncodable`.
 *
 * @category encoding
 * @since 0.1.0
 */
export const encode = (value: unknown): Result.Result<Uint8Array, FobsError> =>
  attempt(() => {
    const writer = new PlainWriter()
    writer.write(value, 0)
    return concat(writer.finish())
  })

/**
 * How keys are checked. `"strBytes"` refuses map keys other than text and bytes, as the reference does for frame
 * headers; `"any"` (the default) takes every key that Python could hash.
 *
 * @category models
 * @since 0.1.0
 */
export interface DecodeOptions {
  readonly keys?: "any" | "strBytes"
  /** Keeps floats of integer value, and NaNs with a payload, apart from ints and NaN: as `Float`. Default false. */
  readonly lossless?: boolean
}

/**
 * The one value that `bytes` hold; fails with `Malformed`. Byte values are views of `bytes`.
 *
 * @category decoding
 * @since 0.1.0
 */
export const decode = (bytes: Uint8Array, options?: DecodeOptions): Result.Result<unknown, FobsError> =>
  attempt(() => {
    const strictKeys = options?.keys === "strBytes"
    return new Reader(bytes, { known, memo, strictKeys, lossless: options?.lossless ?? false }).read()
  })

/**
 * The entries of the map that `bytes` hold, their values undecoded: views of `bytes`. Keys are text or bytes, as in frame
 * headers; of a text key that stands twice, the last value counts. Fails with `Malformed`.
 *
 * @category decoding
 * @since 0.1.0
 */
export const entries = (bytes: Uint8Array): Result.Result<Map<string | Uint8Array, Encoded>, FobsError> =>
  attempt(() => {
    const found = new Map<string | Uint8Array, Encoded>()
    new Reader(bytes, { known, memo, strictKeys: true }).entries((key, value) => found.set(key, new Encoded(value)))
    return found
  })
