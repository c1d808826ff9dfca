/**
 * What a service publishes about itself in a shared directory, for its trainer.
 *
 * Source: docs/wire/attach.md, section 10.2.
 *
 * @since 0.1.0
 */
import { Effect, Result, Schema } from "effect"
import { securityOf, sharedFileScheme } from "./AttachUrl.ts"
import { type FieldError, refuse } from "./FieldError.ts"
import { parseJobName, trainerFqcn } from "./TrainerName.ts"

/**
 * The record `endpoint.json`: Schema between its JSON (snake case, unknown keys ignored) and the record. It knows the
 * types only; `parseEndpointRecord` knows the rules.
 *
 * @category models
 * @since 0.1.0
 */
export const EndpointRecord = Schema.Struct({
  schemaVersion: Schema.Literal(1),
  /** The id of the publishing process's claim. */
  instanceId: Schema.NonEmptyString,
  attachId: Schema.String,
  siteName: Schema.String,
  cjFqcn: Schema.NonEmptyString,
  trainerFqcn: Schema.String,
  /** The listener: `shared-file://0/absolute/directory`, with tuning parameters if it has any. */
  connectUrl: Schema.NonEmptyString,
  connectionSecurity: Schema.Literal("clear")
}).pipe(
  Schema.encodeKeys({
    schemaVersion: "schema_version",
    instanceId: "instance_id",
    attachId: "attach_id",
    siteName: "site_name",
    cjFqcn: "cj_fqcn",
    trainerFqcn: "trainer_fqcn",
    connectUrl: "connect_url",
    connectionSecurity: "connection_security"
  })
)

/**
 * @category models
 * @since 0.1.0
 */
export type EndpointRecord = typeof EndpointRecord.Type

/**
 * Whom a record must speak of.
 *
 * @category models
 * @since 0.1.0
 */
export interface ExpectedEndpoint {
  readonly siteName: string
  readonly attachId: string
}

const text = (record: Readonly<Record<string, unknown>>, field: string): Result.Result<string, FieldError> => {
  const value = record[field]
  return typeof value === "string" && value !== "" ? Result.succeed(value) : refuse(field, value, "it must be a text")
}

const same = (
  record: Readonly<Record<string, unknown>>,
  field: string,
  expected: string
): Result.Result<string, FieldError> =>
  record[field] === expected
    ? Result.succeed(expected)
    : refuse(field, record[field], `it must be ${JSON.stringify(expected)}`)

/**
 * Reads a record's JSON by every rule of docs/wire/attach.md, section 10.2, in the reference's order. Where the listener
 * is and whether it is safe is not looked at.
 *
 * @category constructors
 * @since 0.1.0
 */
export const parseEndpointRecord = (
  record: Readonly<Record<string, unknown>>,
  expected: ExpectedEndpoint
): Result.Result<EndpointRecord, FieldError> =>
  Result.gen(function* () {
    const version = record.schema_version
    if (version !== 1) return yield* refuse("schema_version", version, "only version 1 is known here")
    const siteName = yield* same(record, "site_name", expected.siteName)
    const attachId = yield* same(record, "attach_id", expected.attachId)
    const instanceId = yield* text(record, "instance_id")
    const cjFqcn = yield* text(record, "cj_fqcn")
    const connectUrl = yield* text(record, "connect_url")
    const job = yield* parseJobName(cjFqcn, { site: siteName })
    const trainer = yield* same(record, "trainer_fqcn", yield* trainerFqcn(job.cpFqcn, attachId))
    yield* securityOf(connectUrl, record.connection_security)
    // Not by the parsed scheme: the reference compares the text, so blanks and capitals before it don't pass there.
    if (!connectUrl.startsWith(`${sharedFileScheme}://`)) {
      return yield* refuse("connect_url", connectUrl, `it must begin with ${sharedFileScheme}://`)
    }
    return {
      schemaVersion: 1,
      instanceId,
      attachId,
      siteName,
      cjFqcn,
      trainerFqcn: trainer,
      connectUrl,
      connectionSecurity: "clear"
    }
  })

/**
 * A record as JSON: keys sorted, indented by two.
 *
 * @category combinators
 * @since 0.1.0
 */
export const endpointRecordJson = (record: EndpointRecord): Effect.Effect<string> =>
  Schema.encodeEffect(EndpointRecord)(record).pipe(Effect.orDie, Effect.map(sortedJson))

/**
 * JSON as the reference writes it to a rendezvous: keys sorted, indented by two.
 *
 * @category combinators
 * @since 0.1.0
 */
export const sortedJson = (record: object): string =>
  JSON.stringify(Object.fromEntries(Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1))), undefined, 2)
