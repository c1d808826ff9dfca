/**
 * Where the session with a trainer stands, for people, dashboards and programs.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"
import { AttachErrorReason } from "./AttachError.ts"

/**
 * - `Opening`: no trainer yet; SESSION_OPEN is offered to whoever comes.
 * - `Ready`: the trainer takes tasks.
 * - `Silent`: its lease is over, but it is kept since it still serves an accepted result; it takes tasks if it wakes.
 * - `Failed`: over, and no other session follows.
 * - `Closed`: closing has begun; nothing more is served.
 *
 * `why` says what led there, with the setting and its value where one did.
 *
 * @category models
 * @since 0.1.0
 */
export const SessionState = Schema.TaggedUnion({
  Opening: { sessionId: Schema.String, why: Schema.String },
  Ready: { sessionId: Schema.String, why: Schema.String },
  Silent: { sessionId: Schema.String, why: Schema.String },
  Failed: { sessionId: Schema.String, why: Schema.String, reason: AttachErrorReason },
  Closed: { sessionId: Schema.String, why: Schema.String }
})

/**
 * @category models
 * @since 0.1.0
 */
export type SessionState = typeof SessionState.Type
