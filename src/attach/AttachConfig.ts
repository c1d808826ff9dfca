/**
 * Every bound and choice of a backend, in one Schema.
 *
 * Defaults are the reference's (docs/wire/attach.md, sections 2 and 12); what this library adds says so. A duration is
 * a `Duration` or a text such as `"30 seconds"`; a bare number is refused, since it would mean milliseconds to Effect
 * and seconds to NVFlare. Combinations that can't work are refused in the words of the rule they break.
 *
 * @since 0.1.0
 */
import { Config, Duration, Effect, Schema, SchemaIssue } from "effect"
import { ExchangeFormat } from "../clientapi/ClientApi.ts"
import { DurationInput } from "../clientapi/DurationInput.ts"
import { AttachId } from "../clientapi/TrainerName.ts"
import { formatDuration } from "../platform/DurationText.ts"
import { AttachError, ConfigInvalid } from "./AttachError.ts"

const formatIssues = SchemaIssue.makeFormatterStandardSchemaV1()

const setting = <A, I>(schema: Schema.Codec<A, I>, fallback: I, description: string) =>
  schema.pipe(Schema.withDecodingDefaultKey(Effect.succeed(fallback)), Schema.annotateKey({ description }))

const bound = (fallback: string, description: string) => setting(DurationInput, fallback, description)

const optionalBound = (description: string) =>
  Schema.optionalKey(DurationInput).pipe(Schema.annotateKey({ description }))

const convertible = (exchange: ExchangeFormat, server: ExchangeFormat): boolean =>
  exchange === server || [exchange, server].some((format) => format === "raw" || format === "numpy")

/** The settings one by one, in the order of docs/settings.md; {@link AttachConfig} adds the rules between them. */
const Fields = Schema.Struct({
  attachId: AttachId.pipe(
    Schema.annotateKey({ description: "The name that service and trainer share: 1 to 64 of A-Z a-z 0-9 _ -" })
  ),
  attachTimeout: optionalBound(
    "How long to wait for the trainer's attachment, anew after each reconnect; absent: without end"
  ),
  readyTimeout: optionalBound(
    "How long one task may wait for a trainer to attach; absent: as long as attachTimeout allows (not in NVFlare)"
  ),
  allowReconnect: setting(
    Schema.Boolean,
    false,
    "Whether a lost session is followed by a fresh one, for a trainer that is started again"
  ),
  heartbeatInterval: bound("5 seconds", "How often the trainer is asked to send a heartbeat"),
  heartbeatTimeout: bound("30 seconds", "The lease: a trainer silent for longer is lost"),
  taskWaitTimeout: bound("600 seconds", "How long the delivery of one task may take, all attempts together"),
  deliveryProgress: setting(
    Schema.Boolean,
    true,
    "Whether the time in which a task's bytes are moving is not counted towards taskWaitTimeout"
  ),
  decodeGrace: bound(
    "30 seconds",
    "How much longer than heartbeatTimeout a connected trainer may be silent while it takes a task in (not in NVFlare)"
  ),
  resultWaitTimeout: optionalBound(
    "How long the trainer may work on a task once it has it; absent: without end, while it is alive"
  ),
  controlTimeout: bound(
    "2 seconds",
    "How long SESSION_OPEN, TASK_STATUS and SHUTDOWN wait for their answer, and how long the sending of ABORT may take"
  ),
  controlRetry: bound("500 millis", "The pause between two tries of SESSION_OPEN or TASK_READY"),
  sourceGrace: optionalBound(
    "How long the source of an accepted result may be disconnected before it is given up; absent: heartbeatTimeout, but at most 5 seconds"
  ),
  finalizeTimeout: bound(
    "600 seconds",
    "How long closing waits for a trainer that still serves its last result; sourceGrace comes on top"
  ),
  settleLinger: bound(
    "2 seconds",
    "How long closing waits for the trainer's word that its last result is settled (not in NVFlare)"
  ),
  decodeFailureLimit: setting(
    Schema.Int.check(Schema.isGreaterThan(0)),
    3,
    "How often the trainer may fail to decode one task before its delivery ends (not in NVFlare)"
  ),
  trainTaskName: setting(Schema.NonEmptyString, "train", "The name of training tasks"),
  evaluateTaskName: setting(Schema.NonEmptyString, "validate", "The name of evaluation tasks"),
  submitModelTaskName: setting(Schema.NonEmptyString, "submit_model", "The name of tasks that ask for a model"),
  trainWithEvaluation: setting(Schema.Boolean, false, "Told to the trainer: it evaluates while it trains"),
  paramsExchangeFormat: setting(ExchangeFormat, "raw", "The form of parameters at the trainer"),
  serverExpectedFormat: setting(ExchangeFormat, "numpy", "The form of parameters at the service"),
  paramsTransferType: setting(
    Schema.Literals(["FULL", "DIFF"]),
    "FULL",
    "Whether the trainer sends whole parameters or their difference"
  ),
  memoryGcRounds: setting(
    Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)),
    0,
    "Told to the trainer: collect garbage every that many results; 0 = never"
  ),
  cudaEmptyCache: setting(Schema.Boolean, false, "Told to the trainer: empty the CUDA cache with each collection")
})

/** Zero is nothing to wait for: such a bound could never be met. */
const positive = (value: Duration.Duration): boolean => Duration.toMillis(value) > 0

const rules = Schema.makeFilter<typeof Fields.Type>((c) => {
  const refuse = (path: string, issue: string) => ({ path: [path], issue })
  if (!positive(c.heartbeatInterval)) return refuse("heartbeatInterval", "must be longer than 0")
  if (!positive(c.heartbeatTimeout)) {
    return refuse("heartbeatTimeout", "must be longer than 0: a lease can't be switched off in attach mode")
  }
  if (Duration.isLessThanOrEqualTo(c.heartbeatTimeout, c.heartbeatInterval)) {
    return refuse(
      "heartbeatTimeout",
      `must be longer than heartbeatInterval (${formatDuration(c.heartbeatInterval)}), or the lease ends between two heartbeats; it is ${formatDuration(c.heartbeatTimeout)}`
    )
  }
  if (!positive(c.taskWaitTimeout)) {
    return refuse("taskWaitTimeout", "must be longer than 0: no delivery fits into no time")
  }
  if (c.attachTimeout !== undefined && !positive(c.attachTimeout)) {
    return refuse("attachTimeout", "must be longer than 0: no trainer attaches in no time")
  }
  if (c.resultWaitTimeout !== undefined && !positive(c.resultWaitTimeout)) {
    return refuse("resultWaitTimeout", "must be longer than 0: no task is done in no time")
  }
  if (!positive(c.controlTimeout)) return refuse("controlTimeout", "must be longer than 0")
  if (!positive(c.controlRetry)) return refuse("controlRetry", "must be longer than 0")
  if (c.sourceGrace !== undefined && Duration.isGreaterThan(c.sourceGrace, c.heartbeatTimeout)) {
    return refuse(
      "sourceGrace",
      `must not be longer than heartbeatTimeout (${formatDuration(c.heartbeatTimeout)}); it is ${formatDuration(c.sourceGrace)}`
    )
  }
  if (!convertible(c.paramsExchangeFormat, c.serverExpectedFormat)) {
    return refuse("serverExpectedFormat", `${c.paramsExchangeFormat} can't be converted to ${c.serverExpectedFormat}`)
  }
  return undefined
})

/**
 * The settings of one backend. Decode user input by {@link decodeAttachConfig}, which also applies defaults.
 *
 * @category models
 * @since 0.1.0
 */
export const AttachConfig = Fields.check(rules)

/**
 * How long the source of an accepted result may be disconnected: `sourceGrace`, or what the reference takes.
 *
 * @category combinators
 * @since 0.1.0
 */
export const sourceGrace = (config: AttachConfig): Duration.Duration =>
  config.sourceGrace ?? Duration.min(config.heartbeatTimeout, Duration.seconds(5))

/**
 * @category models
 * @since 0.1.0
 */
export interface AttachConfig extends Schema.Schema.Type<typeof AttachConfig> {}

/**
 * The settings as a user writes them: durations as `Duration` or text, everything but `attachId` optional.
 *
 * @category models
 * @since 0.1.0
 */
export type AttachOptions = typeof AttachConfig.Encoded

/**
 * Applies defaults and rules; fails with `ConfigInvalid`, which names the setting and the rule it breaks.
 *
 * @category constructors
 * @since 0.1.0
 */
export const decodeAttachConfig = (options: AttachOptions): Effect.Effect<AttachConfig, AttachError> =>
  Schema.decodeUnknownEffect(AttachConfig)(options, { onExcessProperty: "error" }).pipe(
    Effect.mapError((error) => {
      const [issue] = formatIssues(error.issue).issues
      const name = issue?.path?.map(String).join(".") ?? "options"
      return new AttachError({ reason: new ConfigInvalid({ setting: name, message: `${name}: ${issue?.message}` }) })
    })
  )

/**
 * The settings as a program's configuration holds them, under their names here (`attachId`, `heartbeatTimeout`, ...)
 * and below `name` if there is one. Environment variables want `ConfigProvider.constantCase`: ATTACH_ID and so on.
 *
 * @category constructors
 * @since 0.1.0
 */
export const attachConfig = (name?: string): Config.Config<AttachConfig> => Config.schema(AttachConfig, name)
