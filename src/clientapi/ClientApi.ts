/**
 * The Client API: what a client job (CJ) and its trainer say to each other.
 *
 * Names, limits and bodies only; the state machines of the two ends are in `attach` and `trainer`. Bodies are FOBS maps
 * with text keys; a message is read by its Schema, so that a peer's odd value is a typed refusal and never a defect.
 *
 * Source: docs/wire/attach.md, sections 2 to 4.
 *
 * @since 0.1.0
 */
import { Duration, Effect, Option, Schema } from "effect"
import type { Address, CellReply, Handler } from "../cell/Cell.ts"
import { Float } from "../fobs/Values.ts"
import { Shareable } from "../model/Shareable.ts"

/**
 * The channel of all Client API messages.
 *
 * @category constants
 * @since 0.1.0
 */
export const channel = "client_api"

/**
 * The protocol version both ends must name.
 *
 * @category constants
 * @since 0.1.0
 */
export const protocolVersion = 1

const address = (topic: string): Address => ({ channel, topic: `client_api.${topic}` })

/**
 * The request topics: five that the CJ sends, five that the trainer sends.
 *
 * @category constants
 * @since 0.1.0
 */
export const Topic = {
  sessionOpen: address("session_open"),
  taskReady: address("task_ready"),
  taskStatus: address("task_status"),
  abort: address("abort"),
  shutdown: address("shutdown"),
  resultReady: address("result_ready"),
  resultStatus: address("result_status"),
  resultSourceSettled: address("result_source_settled"),
  heartbeat: address("heartbeat"),
  log: address("log")
} as const

/**
 * The values of `reply_topic` inside a reply's body.
 *
 * @category constants
 * @since 0.1.0
 */
export const ReplyTopic = {
  sessionAccepted: "client_api.session_accepted",
  sessionRejected: "client_api.session_rejected",
  taskAccepted: "client_api.task_accepted",
  taskFailed: "client_api.task_failed",
  taskStatus: "client_api.task_status",
  resultAccepted: "client_api.result_accepted",
  resultRejected: "client_api.result_rejected",
  resultStatus: "client_api.result_status",
  resultSourceSettled: "client_api.result_source_settled",
  heartbeat: "client_api.heartbeat",
  error: "client_api.error"
} as const

/**
 * How far a task has come at its trainer.
 *
 * @category models
 * @since 0.1.0
 */
export const TaskState = Schema.Literals(["UNKNOWN", "QUEUED", "DELIVERED", "RESULT_PUBLISHING", "COMPLETE"])

/**
 * @category models
 * @since 0.1.0
 */
export type TaskState = typeof TaskState.Type

/**
 * How both ends exchange a model; plain text on the wire, never an enum (docs/wire/attach.md, section 4).
 *
 * @category models
 * @since 0.1.0
 */
export const ExchangeFormat = Schema.Literals(["raw", "pytorch", "numpy", "keras_layer_weights"])

/**
 * @category models
 * @since 0.1.0
 */
export type ExchangeFormat = typeof ExchangeFormat.Type

const withDefault = <A, I>(schema: Schema.Codec<A, I>, value: I) =>
  schema.pipe(Schema.withDecodingDefaultKey(Effect.succeed(value)))

/**
 * The `task_exchange` map of SESSION_OPEN.
 *
 * @category models
 * @since 0.1.0
 */
export const TaskExchange = Schema.Struct({
  train_with_eval: withDefault(Schema.Boolean, false),
  exchange_format: withDefault(ExchangeFormat, "raw"),
  server_expected_format: withDefault(ExchangeFormat, "numpy"),
  transfer_type: withDefault(Schema.Literals(["FULL", "DIFF"]), "FULL"),
  train_task_name: withDefault(Schema.String, "train"),
  eval_task_name: withDefault(Schema.String, "validate"),
  submit_model_task_name: withDefault(Schema.String, "submit_model"),
  launch_once: withDefault(Schema.Boolean, true)
})

/**
 * @category models
 * @since 0.1.0
 */
export interface TaskExchange extends Schema.Schema.Type<typeof TaskExchange> {}

const Id = Schema.NonEmptyString
const isShareable = Schema.instanceOf(Shareable)

/**
 * The bodies, as their receiver reads them once the sender's right to speak is settled. SESSION_OPEN has none: its
 * receiver checks field by field, in the order of docs/wire/attach.md, section 3.1.
 *
 * @category models
 * @since 0.1.0
 */
export const Body = {
  taskStatus: Schema.Struct({ task_id: Schema.String }),
  resultReady: Schema.Struct({ task_id: Id, result_id: Id, attempt_id: Id, result: Schema.Unknown }),
  resultStatus: Schema.Struct({ task_id: Schema.String, result_id: Schema.String }),
  resultSourceSettled: Schema.Struct({ task_id: Schema.String }),
  heartbeat: Schema.Struct({ result_source_live: Schema.Boolean }),
  shutdownReply: Schema.Struct({ result_source_live: Schema.Boolean }),
  sessionReply: Schema.Struct({
    reply_topic: Schema.String,
    session_id: Schema.optionalKey(Schema.NullOr(Schema.String)),
    reason: Schema.optionalKey(Schema.String)
  }),
  taskReply: Schema.Struct({
    reply_topic: Schema.String,
    task_id: Schema.optionalKey(Schema.Unknown),
    task_state: Schema.optionalKey(Schema.String),
    accepted_attempt_id: Schema.optionalKey(Schema.NullOr(Schema.String)),
    reason: Schema.optionalKey(Schema.String)
  }),
  resultReply: Schema.Struct({
    reply_topic: Schema.String,
    result_id: Schema.optionalKey(Schema.String),
    result_state: Schema.optionalKey(Schema.String),
    accepted_attempt_id: Schema.optionalKey(Schema.NullOr(Schema.String)),
    task_id: Schema.optionalKey(Schema.String),
    session_id: Schema.optionalKey(Schema.String),
    reason: Schema.optionalKey(Schema.String)
  })
} as const

/**
 * A body as it is sent: a map whose keys keep the order given. `undefined` values are left out.
 *
 * @category constructors
 * @since 0.1.0
 */
export const body = (fields: { readonly [key: string]: unknown }): ReadonlyMap<string, unknown> =>
  new Map(Object.entries(fields).filter(([, value]) => value !== undefined))

/**
 * The map of a payload, or `undefined` where a peer sent something else.
 *
 * @category combinators
 * @since 0.1.0
 */
export const bodyOf = (payload: unknown): ReadonlyMap<unknown, unknown> | undefined =>
  payload instanceof Map ? payload : undefined

const InlineBytes = Schema.Struct({
  max_inline_bytes: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
})

/**
 * The bytes of arrays that the sender of a SESSION_OPEN, or of the answer to it, takes inside one message: 0 for peers
 * that don't say so, as those of NVFlare. NVFlare takes no notice of `max_inline_bytes`. Source: docs/protocol.md,
 * "Arrays inside messages".
 *
 * @category combinators
 * @since 0.1.0
 */
export const inlineBytes = (payload: unknown): number =>
  Option.match(read(InlineBytes)(payload), { onNone: () => 0, onSome: (body) => body.max_inline_bytes })

/**
 * Reads a body by a Schema; `None` where it doesn't fit. Keys that are no text are passed over.
 *
 * @category combinators
 * @since 0.1.0
 */
export const read =
  <A, I>(schema: Schema.Codec<A, I>) =>
  (payload: unknown): Option.Option<A> => {
    const map = bodyOf(payload)
    if (map === undefined) return Option.none()
    // Keys come from a peer: a null prototype, so that `__proto__` is a key like any other.
    const record: Record<string, unknown> = Object.create(null)
    for (const [key, value] of map) {
      if (typeof key === "string") record[key] = value
    }
    return Schema.decodeUnknownOption(schema)(record)
  }

/**
 * The Shareable of a body's field, or `undefined` where a peer sent something else.
 *
 * @category combinators
 * @since 0.1.0
 */
export const shareableOf = (value: unknown): Shareable | undefined =>
  Schema.is(isShareable)(value) ? value : undefined

/**
 * A duration as the wire carries it: seconds, as a Python float.
 *
 * @category combinators
 * @since 0.1.0
 */
export const seconds = (duration: Duration.Duration): Float => new Float(Duration.toSeconds(duration))

/**
 * An answer whose code is `ok`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const ok = (fields: { readonly [key: string]: unknown }): CellReply => ({
  returnCode: "ok",
  payload: body(fields)
})

/**
 * The answer to a payload that is no map, or to a request of somebody who may not ask.
 *
 * @category constructors
 * @since 0.1.0
 */
export const invalidRequest = (reason: string): CellReply => ({ returnCode: "invalid_request", error: reason })

/**
 * The answer `client_api.error`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const error = (reason: string): CellReply => ok({ reply_topic: ReplyTopic.error, reason })

/**
 * A handler that answers `invalid_request` to a payload that is no map.
 *
 * @category combinators
 * @since 0.1.0
 */
export const mapsOnly =
  (handler: Handler): Handler =>
  (request) =>
    bodyOf(request.payload) === undefined
      ? Effect.succeed(invalidRequest("a map is expected as payload"))
      : handler(request)
