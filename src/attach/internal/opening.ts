/** Offering a session until the trainer accepts it. Source: docs/wire/attach.md, sections 3.1 and 6.1. */
import { Clock, type Duration, Effect, Option, Result } from "effect"
import type { CellReply } from "../../cell/Cell.ts"
import type { CellError } from "../../cell/CellError.ts"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import { formatDuration } from "../../platform/DurationText.ts"
import { AttachTimeout, attachError, SessionRejected } from "../AttachError.ts"
import type { AttachSession, SessionContext } from "../AttachSession.ts"
import { isUp, pause, replacement } from "./connection.ts"

const sessionOpen = (context: SessionContext, session: AttachSession) => {
  const { cell, config, trainer } = context
  return ClientApi.body({
    session_id: session.id,
    attach_id: trainer.attachId,
    job_id: trainer.jobId,
    site_name: trainer.siteName,
    trainer_fqcn: trainer.trainerFqcn,
    protocol_version: ClientApi.protocolVersion,
    rank: "0",
    heartbeat_interval: ClientApi.seconds(config.heartbeatInterval),
    heartbeat_timeout: ClientApi.seconds(config.heartbeatTimeout),
    task_exchange: ClientApi.body({
      train_with_eval: config.trainWithEvaluation,
      exchange_format: config.paramsExchangeFormat,
      server_expected_format: config.serverExpectedFormat,
      transfer_type: config.paramsTransferType,
      train_task_name: config.trainTaskName,
      eval_task_name: config.evaluateTaskName,
      submit_model_task_name: config.submitModelTaskName,
      launch_once: true
    }),
    memory_gc_rounds: config.memoryGcRounds,
    cuda_empty_cache: config.cudaEmptyCache,
    max_inline_bytes: cell.maxInlineBytes > 0 ? cell.maxInlineBytes : undefined
  })
}

const rejected = (context: SessionContext, reason: string) =>
  attachError(
    new SessionRejected({
      attachId: context.trainer.attachId,
      reason,
      message: `trainer ${context.trainer.trainerFqcn} refused the session: ${reason}. Check its profile (attach_id, site_name) against this service`
    })
  )

const offer = ({ cell, config, secure, trainer }: SessionContext, body: ReadonlyMap<string, unknown>) =>
  cell
    .request(trainer.trainerFqcn, ClientApi.Topic.sessionOpen, body, {
      // Clear sessions are opened by a plain message: it fails at once while there is no trainer.
      mode: secure ? "stream" : "plain",
      secure,
      optional: true,
      timeout: config.controlTimeout
    })
    .pipe(Effect.result)

/** What an answer to SESSION_OPEN means. `Waiting`: none that counts, offer again. */
type Verdict =
  | { readonly _tag: "Accepted"; readonly inlineBytes: number }
  | { readonly _tag: "Refused"; readonly reason: string }
  | { readonly _tag: "Waiting"; readonly reason: string }

const refused = (reason: string): Verdict => ({ _tag: "Refused", reason })
const waiting = (reason: string): Verdict => ({ _tag: "Waiting", reason })

const silent = "nobody answers"

/** Protection that can't be had is no silence of the trainer: it is there, and something is to be set right. */
const unanswered = ({ message, reason }: CellError): string =>
  reason._tag === "ProtectionFailed" || reason._tag === "CellMisconfigured" ? message : silent

const clearHint =
  "it may be in secure mode, and this service is not: start it with --secure (secure: true), or leave secure_mode out of the trainer's profile"

const judge = (
  context: SessionContext,
  session: AttachSession,
  reply: Result.Result<CellReply, CellError>
): Verdict => {
  if (Result.isFailure(reply)) return waiting(unanswered(reply.failure))
  const { error, payload, returnCode } = reply.success
  if (returnCode !== "ok") {
    const hint = returnCode === "authentication_error" && !context.secure ? ` (${clearHint})` : ""
    return waiting(`it answered ${returnCode}: ${error ?? "no text"}${hint}`)
  }
  const body = ClientApi.read(ClientApi.Body.sessionReply)(payload)
  if (Option.isNone(body)) return refused("its answer is no session reply")
  const { reply_topic, reason = "no reason given", session_id } = body.value
  if (reply_topic === ClientApi.ReplyTopic.sessionRejected) {
    // A trainer that was silent for longer than its lease may still hold the old session: it lets go in time.
    const isHeld = context.config.allowReconnect && reason.includes("already bound")
    return isHeld ? waiting(`it answered: ${reason}`) : refused(reason)
  }
  if (reply_topic !== ClientApi.ReplyTopic.sessionAccepted || session_id !== session.id) {
    return refused(`it answered ${reply_topic} for session ${session_id}`)
  }
  // Python compares by number: true and 1.0 are 1.
  const version = ClientApi.bodyOf(payload)?.get("protocol_version") ?? ClientApi.protocolVersion
  return version === ClientApi.protocolVersion || version === true
    ? { _tag: "Accepted", inlineBytes: ClientApi.inlineBytes(payload) }
    : refused(`it speaks protocol version ${String(version)}, not ${ClientApi.protocolVersion}`)
}

const timedOut = ({ trainer }: SessionContext, limit: Duration.Duration, last: string) =>
  attachError(
    new AttachTimeout({
      attachId: trainer.attachId,
      setting: "attachTimeout",
      limit,
      message: `no trainer attached as ${trainer.trainerFqcn} within attachTimeout (${formatDuration(limit)}): ${last}. Start one with attach_id "${trainer.attachId}", or allow more time`
    })
  )

/**
 * Offers the session until the trainer accepts it: every `controlRetry`, and at once when the trainer's cell connects.
 * Fails with `AttachTimeout` after `attachTimeout`, and with `SessionRejected`.
 */
export const open = Effect.fn("AttachSession.open")(function* (context: SessionContext, session: AttachSession) {
  const { attachTimeout, controlRetry } = context.config
  const body = sessionOpen(context, session)
  let last = silent
  const accepted = Effect.gen(function* () {
    while (true) {
      const wasUp = yield* isUp(context)
      // Whoever had a connection that was replaced won't answer any more, and who has the new one can be asked.
      const replaced = Effect.as(replacement(context), Option.none())
      const reply = yield* Effect.raceFirst(Effect.asSome(offer(context, body)), replaced)
      if (Option.isNone(reply)) continue
      const verdict = judge(context, session, reply.value)
      if (verdict._tag === "Accepted") return verdict.inlineBytes
      if (verdict._tag === "Refused") return yield* rejected(context, verdict.reason)
      // What a trainer said that has left since tells more than its silence.
      if (verdict.reason !== silent) last = verdict.reason
      yield* pause(context, controlRetry, wasUp)
    }
  })
  session.inlineBytes = yield* attachTimeout === undefined
    ? accepted
    : Effect.timeoutOrElse(accepted, {
        duration: attachTimeout,
        orElse: () => Effect.fail(timedOut(context, attachTimeout, last))
      })
  session.accepted = true
  session.touch(yield* Clock.monotonicTimeNanos)
})
