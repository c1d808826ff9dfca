/**
 * Messages between cells: a header map and payload bytes.
 *
 * Pure: names of headers, and how to read what a peer may have put there. Source: docs/wire/cellnet.md, sections 2, 3
 * and 10.1.
 *
 * @since 0.1.0
 */
import { Float } from "../fobs/Values.ts"
import type { Address, Headers } from "./CellTypes.ts"

/**
 * A message to be sent. The payload is the concatenation of the pieces, which must not be changed before it is sent.
 *
 * @category models
 * @since 0.1.0
 */
export interface OutgoingMessage {
  readonly headers: Headers
  readonly payload: ReadonlyArray<Uint8Array>
}

/**
 * A message as it came. The payload is a view that its receiver owns, empty where there is none; `block` are the headers
 * as they came, encoded, where the message came by a connection. Where there is a `release`, the payload's memory is
 * lent: who is done with the payload, and all views of it, may give it back by that; see {@link owned}.
 *
 * @category models
 * @since 0.1.0
 */
export interface IncomingMessage {
  readonly headers: Headers
  readonly block?: Uint8Array
  readonly payload: Uint8Array
  /** Whether the payload came protected, and was opened. */
  readonly isProtected?: boolean
  readonly release?: () => void
}

/**
 * A message whose payload may be kept: one with a lent payload gets a copy, and what was lent is given back.
 *
 * @category combinators
 * @since 0.1.0
 */
export const owned = (message: IncomingMessage): IncomingMessage => {
  const { release, ...rest } = message
  if (release === undefined) {
    return message
  }
  const payload = message.payload.slice()
  release()
  return { ...rest, payload }
}

/**
 * The headers of every message, by what they mean (docs/wire/cellnet.md, section 2.1).
 *
 * @category constants
 * @since 0.1.0
 */
export const header = {
  messageType: "cn__msg_type",
  origin: "cn__origin",
  destination: "cn__destination",
  from: "cn__from",
  to: "cn__to",
  channel: "cn__channel",
  topic: "cn__topic",
  requestId: "cn__req_id",
  replyExpected: "cn__reply_expected",
  optional: "cn__optional",
  secure: "cn__secure",
  encrypted: "cn__encrypted",
  clearPayloadLength: "cn__clear_payload_len",
  payloadEncoding: "cn__payload_encoding",
  payloadLength: "cn__payload_len",
  route: "cn__route",
  sendTime: "cn__send_time",
  returnCode: "cn__return_code",
  error: "cn__error",
  returnReason: "cn__return_reason",
  originalHeaders: "cn__original_headers",
  serverTransit: "cn__server_transit_required",
  passThrough: "cn__pass_through",
  rootId: "cn__msg_root_id",
  rootTtl: "cn__msg_root_ttl"
} as const

/**
 * The headers of stream frames, by what they mean (docs/wire/cellnet.md, section 10.1).
 *
 * @category constants
 * @since 0.1.0
 */
export const streamHeader = {
  id: "sm__id",
  dataType: "sm__dt",
  sequence: "sm__sq",
  offset: "sm__os",
  size: "sm__sz",
  channel: "sm__ch",
  topic: "sm__tp",
  reliable: "sm__rs",
  optional: "sm__op",
  chunkSize: "sm__cs",
  windowSize: "sm__ws",
  ackInterval: "sm__ai",
  retryWait: "sm__rw",
  retryTimeout: "sm__rt",
  requestId: "sm__ri",
  payloadEncoding: "sm__pe",
  errorMessage: "sm__em",
  errorType: "sm__et",
  failedDestination: "sm__fd"
} as const

/**
 * What a stream frame is (`sm__dt`).
 *
 * @category constants
 * @since 0.1.0
 */
export const frameKind = { chunk: 1, final: 2, ack: 3, error: 6 } as const

/**
 * The channel of all stream frames.
 *
 * @category constants
 * @since 0.1.0
 */
export const streamChannel = "sm__STREAM"

/**
 * The topics of stream frames.
 *
 * @category constants
 * @since 0.1.0
 */
export const streamTopic = { data: "sm__DATA", ack: "sm__ACK", error: "sm__ERROR" } as const

/**
 * The channel on which streamed replies come back; their topic is `<channel>:<topic>` of the request.
 *
 * @category constants
 * @since 0.1.0
 */
export const returnChannel = "return_only"

/**
 * The channel and topic by which a cell that stops says so.
 *
 * @category constants
 * @since 0.1.0
 */
export const byeAddress: Address = { channel: "cellnet.channel", topic: "bye" }

/**
 * The address at which cells exchange certificates (docs/wire/cellnet.md, section 5.6).
 *
 * @category constants
 * @since 0.1.0
 */
export const keyExchangeAddress: Address = { channel: "credential_manager", topic: "key_exchange" }

/**
 * A header's text, `""` where there is none.
 *
 * @category combinators
 * @since 0.1.0
 */
export const text = (headers: Headers, key: string): string => {
  const value = headers.get(key)
  return typeof value === "string" ? value : ""
}

/**
 * Whether a header is boolean true.
 *
 * @category combinators
 * @since 0.1.0
 */
export const flag = (headers: Headers, key: string): boolean => headers.get(key) === true

/**
 * Whether the headers say that the payload is protected: both marks must be boolean true.
 *
 * @category guards
 * @since 0.1.0
 */
export const isSealed = (headers: Headers): boolean => flag(headers, header.secure) && flag(headers, header.encrypted)

/**
 * A header's number, int or float; `undefined` for anything else, infinities too.
 *
 * @category combinators
 * @since 0.1.0
 */
export const number = (headers: Headers, key: string): number | undefined => toNumber(headers.get(key))

const toNumber = (value: unknown): number | undefined => {
  const plain = value instanceof Float ? value.value : typeof value === "bigint" ? Number(value) : value
  return typeof plain === "number" && Number.isFinite(plain) ? plain : undefined
}

/**
 * A header's whole number within the safe range; `undefined` for anything else.
 *
 * @category combinators
 * @since 0.1.0
 */
export const int = (headers: Headers, key: string): number | undefined => {
  const value = number(headers, key)
  return value !== undefined && Number.isSafeInteger(value) ? value : undefined
}

/**
 * A header that may be one text or an array of texts, as `cn__req_id` is.
 *
 * @category combinators
 * @since 0.1.0
 */
export const texts = (headers: Headers, key: string): ReadonlyArray<string> => {
  const value = headers.get(key)
  if (typeof value === "string") {
    return value === "" ? [] : [value]
  }
  return Array.isArray(value) ? value.filter((item) => typeof item === "string") : []
}

/**
 * The names of the cells that a message has passed.
 *
 * @category combinators
 * @since 0.1.0
 */
export const route = (headers: Headers): ReadonlyArray<string> => {
  const hops = headers.get(header.route)
  return Array.isArray(hops)
    ? hops.flatMap((hop) => (Array.isArray(hop) && typeof hop[0] === "string" ? [hop[0]] : []))
    : []
}

/**
 * A message's route with one hop more, at `seconds` since the epoch. Decode the hops losslessly, or their times change
 * their kind.
 *
 * @category combinators
 * @since 0.1.0
 */
export const extendRoute = (hops: unknown, cell: string, seconds: number): ReadonlyArray<unknown> => [
  ...(Array.isArray(hops) ? hops : []),
  [cell, new Float(seconds)]
]

/**
 * What a header map lacks to be a message, in words; `undefined` when nothing. Such a message is dropped without an
 * answer (docs/wire/cellnet.md, section 3).
 *
 * @category guards
 * @since 0.1.0
 */
export const defect = (headers: Headers): string | undefined => {
  for (const key of [header.messageType, header.origin, header.destination]) {
    if (text(headers, key) === "") {
      return `${key} is missing`
    }
  }
  const hops = headers.get(header.route)
  if (hops === undefined || hops === null) {
    return undefined
  }
  if (!Array.isArray(hops)) {
    return `${header.route} is no array`
  }
  const first: unknown = hops[0]
  const isHop = Array.isArray(first) && typeof first[0] === "string" && toNumber(first[1]) !== undefined
  return hops.length === 0 || isHop ? undefined : `${header.route} holds no [name, time] pairs`
}

/**
 * A message's dispatch key.
 *
 * @category combinators
 * @since 0.1.0
 */
export const address = (headers: Headers): Address => ({
  channel: text(headers, header.channel),
  topic: text(headers, header.topic)
})

/**
 * Whether a message is a stream frame of a topic.
 *
 * @category guards
 * @since 0.1.0
 */
export const isStreamFrame = (headers: Headers, topic: string): boolean =>
  headers.get(header.channel) === streamChannel && headers.get(header.topic) === topic

/**
 * The application's address of a message, as a guard judges it, and whether it is a reply: a DATA frame has that of its
 * stream, a streamed reply that of its request. `undefined` for what is no application's message: acknowledgements,
 * stream errors, returned messages.
 *
 * @category combinators
 * @since 0.1.0
 */
export const subject = (headers: Headers): { readonly address: Address; readonly isReply: boolean } | undefined => {
  const type = headers.get(header.messageType)
  if (headers.get(header.channel) !== streamChannel) {
    // A type that is not known is treated like a reply.
    return type === "return" ? undefined : { address: address(headers), isReply: type !== "req" }
  }
  if (headers.get(header.topic) !== streamTopic.data || headers.has(streamHeader.errorMessage)) {
    return undefined
  }
  const channel = text(headers, streamHeader.channel)
  const topic = text(headers, streamHeader.topic)
  if (channel !== returnChannel) {
    return { address: { channel, topic }, isReply: false }
  }
  const colon = topic.indexOf(":")
  return colon < 0
    ? { address: { channel: topic, topic: "" }, isReply: true }
    : { address: { channel: topic.slice(0, colon), topic: topic.slice(colon + 1) }, isReply: true }
}

/**
 * The bytes of a vector.
 *
 * @category combinators
 * @since 0.1.0
 */
export const byteLength = (pieces: ReadonlyArray<Uint8Array>): number =>
  pieces.reduce((total, piece) => total + piece.byteLength, 0)

/**
 * A vector as one buffer; copied only where there is more than one piece.
 *
 * @category combinators
 * @since 0.1.0
 */
export const concat = (pieces: ReadonlyArray<Uint8Array>): Uint8Array => {
  const [only] = pieces
  if (pieces.length === 1 && only !== undefined) {
    return only
  }
  const all = new Uint8Array(byteLength(pieces))
  let at = 0
  for (const piece of pieces) {
    all.set(piece, at)
    at += piece.byteLength
  }
  return all
}
