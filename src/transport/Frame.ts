/**
 * The frame: what travels over a connection, in both directions.
 *
 * Sixteen bytes of prefix (big-endian), a msgpack map of headers, the payload. Pure: no socket, file or clock.
 * Source: docs/wire/transport.md, section 1.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import * as Msgpack from "../fobs/Msgpack.ts"
import { badData } from "./internal/errors.ts"
import type { TransportError } from "./TransportError.ts"

/**
 * The kinds of frame. A peer may send others; they are dropped.
 *
 * @category constants
 * @since 0.1.0
 */
export const types = { data: 1, frag: 2, ack: 3, hello: 4, ready: 5, ping: 6, pong: 7 } as const

/**
 * The application id of all cell traffic.
 *
 * @category constants
 * @since 0.1.0
 */
export const cellAppId = 1

/**
 * Bytes in front of the headers.
 *
 * @category constants
 * @since 0.1.0
 */
export const prefixSize = 16

/**
 * The largest frame in bytes, prefix included: 2 GiB - 2 MiB.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxSize = 2145386496

/**
 * The largest encoded header map in bytes; its length has 16 bits.
 *
 * @category constants
 * @since 0.1.0
 */
export const maxHeaderSize = 65535

/**
 * What all frames say beside their payload. `headers` is `undefined` where there is no header block (an empty map
 * has none on the wire); a peer's map may have byte keys too, which look-ups by text never meet.
 *
 * @category models
 * @since 0.1.0
 */
export interface Envelope {
  readonly type: number
  readonly appId: number
  readonly streamId: number
  readonly sequence: number
  readonly headers: ReadonlyMap<string, unknown> | undefined
}

/**
 * A frame as it came. `payload` is a view into the bytes it was decoded from, empty where there is none.
 *
 * @category models
 * @since 0.1.0
 */
export interface Frame extends Envelope {
  /** The header block as it came, for who passes it on; empty where there is none. */
  readonly block: Uint8Array
  readonly payload: Uint8Array
}

/**
 * A frame to be sent; its payload is the concatenation of pieces.
 *
 * @category models
 * @since 0.1.0
 */
export interface OutgoingFrame extends Envelope {
  readonly payload: ReadonlyArray<Uint8Array>
}

const noHeaders = new Uint8Array(0)

const encodeHeaders = (headers: ReadonlyMap<string, unknown> | undefined): Result.Result<Uint8Array, TransportError> =>
  headers === undefined || headers.size === 0
    ? Result.succeed(noHeaders)
    : Result.mapError(Msgpack.encode(headers), (error) => badData(`the headers can't be encoded: ${error.message}`))

/**
 * Encodes a frame: one new piece with prefix and headers, then the payload's own pieces, not copied. Fails with
 * `BadData` when the headers or the whole are beyond the limits.
 *
 * @category constructors
 * @since 0.1.0
 */
export const encode = (frame: OutgoingFrame): Result.Result<ReadonlyArray<Uint8Array>, TransportError> => {
  const encoded = encodeHeaders(frame.headers)
  if (Result.isFailure(encoded)) {
    return Result.fail(encoded.failure)
  }
  const headers = encoded.success
  if (headers.length > maxHeaderSize) {
    return Result.fail(
      badData(`the headers of a message have ${headers.length} bytes, ${maxHeaderSize} fit: move data into the payload`)
    )
  }
  let length = prefixSize + headers.length
  for (const piece of frame.payload) {
    length += piece.byteLength
  }
  if (length > maxSize) {
    return Result.fail(badData(`a frame of ${length} bytes is too large, ${maxSize} fit: send it as a stream`))
  }
  const head = new Uint8Array(prefixSize + headers.length)
  const view = new DataView(head.buffer)
  view.setUint32(0, length)
  view.setUint16(4, headers.length)
  view.setUint8(6, frame.type)
  view.setUint16(10, frame.appId)
  view.setUint16(12, frame.streamId)
  view.setUint16(14, frame.sequence)
  head.set(headers, prefixSize)
  return Result.succeed([head, ...frame.payload])
}

// A peer may send nil for "no headers"; what is no map breaks later in the reference, here at once.
const decodeHeaders = (block: Uint8Array): Result.Result<ReadonlyMap<string, unknown> | undefined, TransportError> => {
  const decoded = Msgpack.decode(block, { keys: "strBytes" })
  if (Result.isFailure(decoded)) {
    return Result.fail(badData(`the header block can't be decoded: ${decoded.failure.message}`))
  }
  const headers = decoded.success
  if (headers === null) {
    return Result.succeed(undefined)
  }
  return headers instanceof Map ? Result.succeed(headers) : Result.fail(badData("the header block is no map"))
}

/**
 * Decodes a whole frame; never throws, whatever the bytes. Fails with `BadData` on fewer than 16 bytes and on a header
 * block that is no msgpack map. Flags and the reserved byte are not looked at; a declared length that differs from the
 * bytes at hand is treated as the reference does.
 *
 * The payload is a view of `bytes`; so are the header block and what is bytes in the headers, unless `ownHeaders` is
 * true: then they are copied, and `bytes` may change once the payload is done with.
 *
 * @category constructors
 * @since 0.1.0
 */
export const decode = (bytes: Uint8Array, ownHeaders = false): Result.Result<Frame, TransportError> => {
  if (bytes.length < prefixSize) {
    return Result.fail(badData(`a frame of ${bytes.length} bytes is shorter than its ${prefixSize} bytes of prefix`))
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const length = view.getUint32(0)
  const payloadAt = prefixSize + view.getUint16(4)
  const block = ownHeaders ? bytes.slice(prefixSize, payloadAt) : bytes.subarray(prefixSize, payloadAt)
  const headers = payloadAt === prefixSize ? Result.succeed(undefined) : decodeHeaders(block)
  return Result.map(headers, (headers) => ({
    type: view.getUint8(6),
    appId: view.getUint16(10),
    streamId: view.getUint16(12),
    sequence: view.getUint16(14),
    headers,
    block,
    payload: bytes.subarray(length > payloadAt ? payloadAt : bytes.length)
  }))
}
