/**
 * The trainer's answer to SESSION_OPEN: whether it binds, and to what. Source: docs/wire/attach.md, section 3.1.
 */
import { Duration, Option, Predicate, Result, Schema } from "effect"
import type { CellReply, CellRequest } from "../../cell/Cell.ts"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import * as Fqcn from "../../identity/Fqcn.ts"

/** A session that the trainer has accepted. */
export interface Binding {
  readonly cjFqcn: string
  readonly sessionId: string
  readonly jobId: string
  readonly heartbeatInterval: Duration.Duration
  /** Zero: no lease. */
  readonly heartbeatTimeout: Duration.Duration
  readonly exchange: ClientApi.TaskExchange
  readonly memoryGcRounds: number
  readonly cudaEmptyCache: boolean
  /** The bytes of arrays that the CJ takes inside one message. */
  readonly inlineBytes: number
}

/** Who the trainer is, and whom it waits for. */
export interface Expected {
  readonly attachId: string
  readonly siteName: string
  readonly cpFqcn: string
  readonly trainerFqcn: string
  /** The CJ that the profile or the rendezvous names. */
  readonly cjFqcn: string | undefined
}

const isJobId = (value: unknown): value is string =>
  typeof value === "string" && value !== "" && !value.includes(".") && Result.isSuccess(Fqcn.validate(value))

/** Python's numeric equality: 1, 1.0 and true are the same version, "1" is not. */
const isVersion = (value: unknown): boolean => value === ClientApi.protocolVersion || value === true

const isControlRank = (rank: unknown): boolean => rank === "0" || rank === 0

const PolicyFields = Schema.Struct({
  heartbeat_interval: Schema.Finite.check(Schema.isGreaterThan(0)),
  heartbeat_timeout: Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)),
  memory_gc_rounds: Schema.optionalKey(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))),
  cuda_empty_cache: Schema.optionalKey(Schema.Unknown)
})

const identityFault = (
  expected: Expected,
  bound: Binding | undefined,
  origin: string,
  body: ReadonlyMap<unknown, unknown>
): string | undefined => {
  const field = (name: string) => body.get(name)
  if (origin === "") return "SESSION_OPEN has no CJ origin"
  if (typeof field("session_id") !== "string" || field("session_id") === "") return "SESSION_OPEN has no session id"
  if (field("attach_id") !== expected.attachId) return `attach id mismatch: this trainer is "${expected.attachId}"`
  if (field("site_name") !== expected.siteName) return `site name mismatch: this trainer is of "${expected.siteName}"`
  const jobId = field("job_id")
  if (!isJobId(jobId)) return "SESSION_OPEN has invalid job id"
  const cj = Fqcn.join(expected.cpFqcn, jobId)
  if (origin !== cj) return `CJ origin mismatch: ${origin} is not ${cj}`
  const known = bound?.cjFqcn ?? expected.cjFqcn
  if (known !== undefined && known !== origin) return `CJ origin does not match the known endpoint ${known}`
  if (field("trainer_fqcn") !== expected.trainerFqcn) return `trainer FQCN mismatch: this is ${expected.trainerFqcn}`
  if (!isVersion(field("protocol_version"))) return `unsupported protocol version ${String(field("protocol_version"))}`
  if (!isControlRank(field("rank"))) return "only rank 0 may bind an attach session"
  if (bound !== undefined && bound.sessionId !== field("session_id")) {
    return "trainer is already bound to another CJ/session"
  }
  return undefined
}

/** Python's idea of a true value, for what may stand in a setting. */
const isTruthy = (value: unknown): boolean =>
  value !== undefined && value !== null && value !== false && value !== 0 && value !== ""

type Policy = Omit<Binding, "cjFqcn" | "sessionId" | "jobId">

const policyOf = (body: ReadonlyMap<unknown, unknown>): Policy | string => {
  const policy = Option.getOrUndefined(ClientApi.read(PolicyFields)(body))
  if (policy === undefined) return "the heartbeat or memory settings are invalid"
  const { heartbeat_interval: interval, heartbeat_timeout: timeout } = policy
  if (timeout !== 0 && timeout <= interval) {
    return `heartbeat_timeout ${timeout} is not longer than heartbeat_interval ${interval}`
  }
  const exchange = Option.getOrUndefined(ClientApi.read(ClientApi.TaskExchange)(body.get("task_exchange")))
  if (exchange === undefined) return "task_exchange is no map of the expected form"
  return {
    heartbeatInterval: Duration.seconds(interval),
    heartbeatTimeout: Duration.seconds(timeout),
    exchange,
    memoryGcRounds: policy.memory_gc_rounds ?? 0,
    cudaEmptyCache: isTruthy(policy.cuda_empty_cache),
    inlineBytes: ClientApi.inlineBytes(body)
  }
}

/** Judges a SESSION_OPEN: the binding it makes or repeats, or why there is none. */
export const bind = (
  expected: Expected,
  bound: Binding | undefined,
  request: CellRequest
): Result.Result<Binding, string> => {
  const body = ClientApi.bodyOf(request.payload) ?? new Map()
  const fault = identityFault(expected, bound, request.origin, body)
  if (fault !== undefined) return Result.fail(fault)
  if (bound !== undefined) return Result.succeed(bound)
  const policy = policyOf(body)
  return Predicate.isString(policy)
    ? Result.fail(policy)
    : Result.succeed({
        cjFqcn: request.origin,
        sessionId: String(body.get("session_id")),
        jobId: String(body.get("job_id")),
        ...policy
      })
}

/** Says how many bytes of arrays this cell takes inside one message, to a CJ that has said so too. */
export const sessionAccepted = (binding: Binding, maxInlineBytes: number): CellReply =>
  ClientApi.ok({
    reply_topic: ClientApi.ReplyTopic.sessionAccepted,
    session_id: binding.sessionId,
    protocol_version: ClientApi.protocolVersion,
    max_inline_bytes: binding.inlineBytes > 0 && maxInlineBytes > 0 ? maxInlineBytes : undefined
  })

export const sessionRejected = (request: CellRequest, reason: string): CellReply =>
  ClientApi.ok({
    reply_topic: ClientApi.ReplyTopic.sessionRejected,
    session_id: ClientApi.bodyOf(request.payload)?.get("session_id") ?? null,
    reason
  })
