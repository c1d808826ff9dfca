/** Offering a session until the trainer accepts it. Source: docs/wire/attach.md, sections 3.1 and 6.1. */
import { Clock, Duration, Effect, Option } from "effect"
import type { CellReply } from "../../cell/Cell.ts"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import { type AttachError, AttachTimeout, attachError, SessionRejected } from "../AttachError.ts"
import type { AttachSession, SessionContext } from "../AttachSession.ts"
import { isUp, pause } from "./connection.ts"

const sessionOpen = (context: SessionContext, session: AttachSession) => {
  const { config, trainer } = context
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
    cuda_empty_cache: config.cudaEmptyCache
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

const offer = Effect.fnUntraced(function* (context: SessionContext, session: AttachSession) {
  session.offered = true
  return yield* context.cell
    .request(context.trainer.trainerFqcn, ClientApi.Topic.sessionOpen, sessionOpen(context, session), {
      // Clear sessions are opened by a plain message: it fails at once while there is no trainer.
      mode: context.secure ? "stream" : "plain",
      secure: context.secure,
      optional: true,
      timeout: context.config.controlTimeout
    })
    .pipe(Effect.option)
})

/** What an answer to SESSION_OPEN means; `None` = none that counts, offer again. */
const judge = (
  context: SessionContext,
  session: AttachSession,
  reply: Option.Option<CellReply>
): Option.Option<Effect.Effect<void, AttachError>> => {
  if (Option.isNone(reply) || reply.value.returnCode !== "ok") return Option.none()
  const refuse = (reason: string) => Option.some(Effect.fail(rejected(context, reason)))
  const body = ClientApi.read(ClientApi.Body.sessionReply)(reply.value.payload)
  if (Option.isNone(body)) return refuse("its answer is no session reply")
  const { reply_topic, reason, session_id } = body.value
  if (reply_topic === ClientApi.ReplyTopic.sessionRejected) {
    // A trainer that was silent for longer than its lease may still hold the old session: it lets go in time.
    const isHeld = context.config.allowReconnect && reason?.includes("already bound") === true
    return isHeld ? Option.none() : refuse(reason ?? "no reason given")
  }
  if (reply_topic !== ClientApi.ReplyTopic.sessionAccepted || session_id !== session.id) {
    return refuse(`it answered ${reply_topic} for session ${session_id}`)
  }
  // Python compares by number: true and 1.0 are 1.
  const version = ClientApi.bodyOf(reply.value.payload)?.get("protocol_version") ?? ClientApi.protocolVersion
  return version === ClientApi.protocolVersion || version === true
    ? Option.some(Effect.void)
    : refuse(`it speaks protocol version ${String(version)}, not ${ClientApi.protocolVersion}`)
}

/**
 * Offers the session until the trainer accepts it: every `controlRetry`, and at once when the trainer's cell connects.
 * Fails with `AttachTimeout` after `attachTimeout`, and with `SessionRejected`.
 */
export const open = Effect.fn("AttachSession.open")(function* (context: SessionContext, session: AttachSession) {
  const { attachTimeout, controlRetry } = context.config
  const offerUntilJudged = Effect.gen(function* () {
    while (true) {
      const wasUp = yield* isUp(context)
      const verdict = judge(context, session, yield* offer(context, session))
      if (Option.isSome(verdict)) return yield* verdict.value
      yield* pause(context, controlRetry, wasUp)
    }
  })
  yield* attachTimeout === undefined
    ? offerUntilJudged
    : Effect.timeoutOrElse(offerUntilJudged, {
        duration: attachTimeout,
        orElse: () =>
          Effect.fail(
            attachError(
              new AttachTimeout({
                attachId: context.trainer.attachId,
                setting: "attachTimeout",
                limit: attachTimeout,
                message: `no trainer attached as ${context.trainer.trainerFqcn} within attachTimeout (${Duration.format(attachTimeout)}). Start one with attach_id "${context.trainer.attachId}", or allow more time`
              })
            )
          )
      })
  session.accepted = true
  session.touch(yield* Clock.monotonicTimeNanos)
})
