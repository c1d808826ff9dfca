import { Cause, Clock, Deferred, type Duration, Effect, Exit, Option, type Scope } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import type { CellError } from "../CellError.ts"
import * as CellMessage from "../CellMessage.ts"
import type { Address, CellReply, CellRequest, HandleOptions, Handler, Headers } from "../CellTypes.ts"
import type { CoreCell } from "../CoreCell.ts"
import type { ByteStream, IncomingStream, StreamHandler } from "../StreamTypes.ts"
import type { Transfers } from "../TransferProgress.ts"
import { readBlob } from "./blobs.ts"
import { requestTimeout, streamFailed } from "./errors.ts"
import { makeMessageProgress } from "./messageProgress.ts"
import type { Owed } from "./Owed.ts"
import { type Encoded, none, type Payloads } from "./payloads.ts"
import { stalled } from "./waits.ts"

const { header, returnChannel, streamHeader } = CellMessage

/** How one streamed request is sent. */
export interface StreamedRequest {
  readonly encoded: Encoded
  readonly headers?: Headers | undefined
  readonly timeout: Duration.Duration
  readonly extend?: Effect.Effect<boolean> | undefined
  readonly whenLost?: Effect.Effect<boolean> | undefined
  readonly optional?: boolean | undefined
  readonly secure?: boolean | undefined
  /** Told how many of its bytes the peer has taken, each time the peer says so. */
  readonly onTaken?: ((bytes: number) => void) | undefined
  /** The most bytes that its reply may have, asked when the reply begins. Default: as any blob. */
  readonly maxReplySize?: (() => number) | undefined
  /** Told how many bytes of its reply have come, with each chunk. */
  readonly onReply?: ((bytes: number) => void) | undefined
}

/** Requests and replies that travel as blobs; docs/wire/cellnet.md, section 9. */
export interface StreamedRequests {
  readonly request: (
    target: string,
    address: Address,
    request: StreamedRequest
  ) => Effect.Effect<CellMessage.IncomingMessage, CellError>
  readonly send: (
    target: string,
    address: Address,
    message: Omit<StreamedRequest, "timeout" | "extend" | "whenLost" | "onTaken" | "maxReplySize" | "onReply">
  ) => Effect.Effect<void, CellError>
  readonly handle: (
    address: Address,
    handler: Handler,
    options: HandleOptions
  ) => Effect.Effect<void, never, Scope.Scope>
}

interface Waiter {
  readonly target: string
  /** Whether only a protected reply will do. */
  readonly isSecure: boolean
  /** Completed by the first frame of the reply; fails with what keeps it from coming. */
  readonly began: Deferred.Deferred<void, CellError>
  readonly reply: Deferred.Deferred<CellMessage.IncomingMessage, CellError>
  readonly maxReplySize: (() => number) | undefined
  readonly onReply: ((bytes: number) => void) | undefined
  lastProgress: number
}

/** What went wrong with a handler, or with a request before it. */
const causeText = (cause: Cause.Cause<CellError>): string => {
  const error = Cause.squash(cause)
  if (typeof error === "object" && error !== null && "reason" in error && error instanceof Error) {
    const { reason } = error
    const tag = typeof reason === "object" && reason !== null && "_tag" in reason ? String(reason._tag) : error.name
    return `${tag}: ${error.message}`
  }
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error)
}

const withEncoding = (headers: Headers | undefined, encoded: Encoded): Map<string, unknown> =>
  new Map(headers).set(streamHeader.payloadEncoding, encoded.encoding)

export const makeStreamedRequests = Effect.fnUntraced(function* (
  core: Pick<CoreCell, "fqcn" | "lost">,
  streams: ByteStream,
  payloads: Payloads,
  random: SecureRandom["Service"],
  owed: Owed,
  transfers: Transfers
): Effect.fn.Return<StreamedRequests, never, Scope.Scope> {
  const { fqcn } = core
  const clock = yield* Clock.Clock
  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const waiters = new Map<string, Waiter>()
  const { chunkSize, maxBlobSize, reliable } = streams.settings
  const progressOf = makeMessageProgress(transfers, chunkSize)

  // A reply that nobody waits for is acknowledged and discarded; so is one that doesn't come from the target.
  yield* streams.handle({ channel: returnChannel, topic: "*" }, (incoming) =>
    Effect.suspend(() => {
      const waiter = waiters.get(CellMessage.text(incoming.headers, streamHeader.requestId))
      if (waiter?.isSecure === true && !incoming.isProtected) {
        return Effect.logDebug(`${fqcn}: a clear reply of ${incoming.origin} to a secure request is none`)
      }
      if (waiter === undefined || waiter.target !== incoming.origin) {
        return Effect.logDebug(`${fqcn}: a reply of ${incoming.origin} comes too late, or nobody asked for it`)
      }
      waiter.lastProgress = now()
      return Deferred.succeed(waiter.began, undefined).pipe(
        Effect.andThen(
          readBlob(incoming, waiter.maxReplySize?.() ?? maxBlobSize, (length) => {
            waiter.lastProgress = now()
            waiter.onReply?.(length)
          })
        ),
        Effect.flatMap((payload) =>
          payload === undefined
            ? Effect.fail(
                streamFailed(incoming.origin, `the reply of ${incoming.origin} ended before its declared size`)
              )
            : Effect.succeed({ headers: incoming.headers, payload })
        ),
        Effect.tap((reply) => Deferred.succeed(waiter.reply, reply)),
        Effect.tapError((error) => Deferred.fail(waiter.reply, error)),
        Effect.asVoid
      )
    })
  )

  // Kept long after the request is over, so it must not hold on to what the request and its reply were about.
  const failing = (requestId: string) => (error: CellError) => {
    const waiter = waiters.get(requestId)
    if (waiter !== undefined) Deferred.doneUnsafe(waiter.began, Effect.fail(error))
  }

  const exchange = Effect.fnUntraced(function* (
    requestId: string,
    waiter: Waiter,
    address: Address,
    request: StreamedRequest
  ) {
    const { target } = waiter
    const { extend = Effect.succeed(false), timeout, whenLost } = request
    const progress = progressOf("send", target, requestId, CellMessage.byteLength(request.encoded.pieces))
    let stage: "sending" | "waiting" | "receiving" = "sending"
    let since = now()
    const enter = (next: typeof stage) => {
      stage = next
      since = now()
    }
    const answered = Effect.gen(function* () {
      yield* streams.send(target, address, request.encoded.pieces, {
        headers: withEncoding(request.headers, request.encoded).set(streamHeader.requestId, requestId),
        reliable,
        optional: request.optional ?? false,
        secure: request.secure ?? false,
        onProgress: () => {
          waiter.lastProgress = now()
        },
        onConsumed: (bytes) => {
          progress.moved(bytes)
          request.onTaken?.(bytes)
        },
        onPeerError: failing(requestId)
      })
      enter("waiting")
      yield* Deferred.await(waiter.began)
      progress.over(Exit.void)
      enter("receiving")
      return yield* Deferred.await(waiter.reply)
    })
    const late = stalled({
      timeout,
      extend: Effect.suspend(() => (stage === "sending" ? Effect.succeed(false) : extend)),
      lastProgress: () => (stage === "waiting" ? since : Math.max(since, waiter.lastProgress)),
      onTimeout: (millis) => requestTimeout(target, address, stage, millis)
    })
    /** Fails when a connection to the target ends before the reply has begun, and nobody wants to wait on. */
    const lost = (wait: Effect.Effect<boolean>): Effect.Effect<never, CellError> =>
      Effect.catch(core.lost(target), (error) =>
        Effect.flatMap(wait, (isAwaited) => (isAwaited || stage === "receiving" ? lost(wait) : Effect.fail(error)))
      )
    // One race for all stages: each fiber of a small request counts.
    const ends = whenLost === undefined ? [answered, late] : [answered, late, lost(whenLost)]
    return yield* Effect.onExit(Effect.raceAllFirst(ends), (exit) => Effect.sync(() => progress.over(exit)))
  })

  const request: StreamedRequests["request"] = Effect.fnUntraced(function* (target, address, request) {
    const requestId = yield* random.uuidV4()
    return yield* Effect.acquireUseRelease(
      Effect.sync(() => {
        const waiter: Waiter = {
          target,
          isSecure: request.secure ?? false,
          began: Deferred.makeUnsafe(),
          reply: Deferred.makeUnsafe(),
          maxReplySize: request.maxReplySize,
          onReply: request.onReply,
          lastProgress: now()
        }
        waiters.set(requestId, waiter)
        return waiter
      }),
      (waiter) => exchange(requestId, waiter, address, request),
      () => Effect.sync(() => waiters.delete(requestId))
    )
  })

  const send: StreamedRequests["send"] = (target, address, message) =>
    streams.send(target, address, message.encoded.pieces, {
      headers: withEncoding(message.headers, message.encoded),
      reliable,
      optional: message.optional ?? false,
      secure: message.secure ?? false
    })

  /** The request in a blob, decoded; its sender's own encoding header is used up. */
  const readRequest = Effect.fnUntraced(function* (incoming: IncomingStream, blob: Uint8Array) {
    const { address, origin } = incoming
    const headers = new Map(incoming.headers)
    headers.delete(streamHeader.payloadEncoding)
    headers.set(header.channel, address.channel)
    headers.set(header.topic, address.topic)
    const encoding = CellMessage.text(incoming.headers, streamHeader.payloadEncoding)
    const payload = yield* payloads.decode(encoding, blob, { origin, topic: address.topic, headers: incoming.headers })
    return { origin, address, headers, payload } satisfies CellRequest
  })

  const reply = Effect.fnUntraced(function* (incoming: IncomingStream, requestId: string, answer: CellReply) {
    const { address, origin } = incoming
    const own = new Map(answer.headers)
    const codes = (returnCode: string, error: string | undefined) => {
      if (returnCode !== "") {
        own.set(header.returnCode, returnCode)
      }
      if (error !== undefined && error !== "") {
        own.set(header.error, error)
      }
    }
    codes(answer.returnCode, answer.error)
    const encoded = yield* Effect.catch(payloads.encode(address.topic, answer.payload), (error) => {
      codes("process_exception", error.message)
      return Effect.succeed(none)
    })
    own.set(header.requestId, incoming.headers.get(header.requestId) ?? "")
    own.set(streamHeader.requestId, requestId)
    own.set(streamHeader.payloadEncoding, encoded.encoding)
    const returnAddress = { channel: returnChannel, topic: `${address.channel}:${address.topic}` }
    yield* streams.send(origin, returnAddress, encoded.pieces, {
      headers: own,
      reliable: true,
      optional: true,
      secure: CellMessage.flag(incoming.headers, header.secure)
    })
  })

  /** What the handler answers, or `None` for no request. In a frame of its own: the blob is gone when the answer leaves. */
  const answerOf = Effect.fnUntraced(function* (
    incoming: IncomingStream,
    requestId: string,
    handler: Handler,
    onUnreadable: HandleOptions["onUnreadable"]
  ): Effect.fn.Return<Option.Option<CellReply>, CellError> {
    const { address, origin, size } = incoming
    const progress = progressOf("receive", origin, requestId, size)
    const blob = yield* Effect.onExit(readBlob(incoming, maxBlobSize, progress.moved), (exit) =>
      Effect.sync(() => progress.over(exit))
    )
    if (blob === undefined) {
      return Option.none()
    }
    const read = Effect.tapError(readRequest(incoming, blob), (error) => onUnreadable?.(error) ?? Effect.void)
    const answer = yield* Effect.flatMap(read, handler).pipe(
      Effect.catchCause((cause) => {
        if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause)
        const text = causeText(cause)
        const line = `${fqcn}: ${address.channel}/${address.topic} of ${origin} failed: ${text}`
        return Effect.andThen(
          // Where an error was raised says nothing beside its text; where a defect was, does.
          Cause.hasDies(cause) ? Effect.logWarning(line, cause) : Effect.logWarning(line),
          Effect.fail(streamFailed(origin, `blob_cb threw ${text}`))
        )
      })
    )
    return Option.some(answer ?? { returnCode: "process_exception" })
  })

  const answerWith =
    (handler: Handler, onUnreadable: HandleOptions["onUnreadable"]): StreamHandler =>
    (incoming) => {
      const requestId = CellMessage.text(incoming.headers, streamHeader.requestId)
      return Effect.flatMap(answerOf(incoming, requestId, handler, onUnreadable), (answer) =>
        Option.isNone(answer) || requestId === ""
          ? Effect.void
          : Effect.catch(reply(incoming, requestId, answer.value), (error) =>
              Effect.logDebug(`${fqcn}: a reply to ${incoming.origin} is lost: ${error.message}`)
            )
      )
    }

  const serve = (handler: Handler, { onUnreadable }: HandleOptions): StreamHandler => {
    const answer = answerWith(handler, onUnreadable)
    return (incoming) =>
      CellMessage.text(incoming.headers, streamHeader.requestId) === ""
        ? answer(incoming)
        : owed.during(incoming.origin, answer(incoming))
  }

  const handle: StreamedRequests["handle"] = (address, handler, options) =>
    streams.handle(address, serve(handler, options), options.origin)

  return { request, send, handle }
})
