import { Duration, Effect, Result, type Scope } from "effect"
import { SecureRandom } from "effect/crypto/SecureRandom"
import * as Fqcn from "../../identity/Fqcn.ts"
import * as ModelCodec from "../../model/ModelCodec.ts"
import { Drivers } from "../../transport/Drivers.ts"
import * as ByteStream from "../ByteStream.ts"
import type { CellError } from "../CellError.ts"
import * as CellMessage from "../CellMessage.ts"
import type { CellOptions } from "../CellOptions.ts"
import type { CellService } from "../CellService.ts"
import type { Address, CellReply, Headers, RequestOptions } from "../CellTypes.ts"
import * as CoreCell from "../CoreCell.ts"
import * as DownloadService from "../DownloadService.ts"
import * as TransferProgress from "../TransferProgress.ts"
import { misconfigured, unreachable } from "./errors.ts"
import { makeOwed } from "./Owed.ts"
import { makePayloads, type Payloads, type Resolve } from "./payloads.ts"
import { makeProtection } from "./protection.ts"
import { makeStreamedRequests, type StreamedRequest } from "./streamedRequests.ts"
import { resolveSettings } from "./streamSettings.ts"

const { header } = CellMessage

/** A cell with what its own floor builds on it. Hooks are looked at for each message, so they may be set any time. */
export interface CellEngine {
  readonly cell: CellService
  readonly core: CoreCell.CoreCell
  readonly streams: ByteStream.ByteStream
  readonly payloads: Payloads
  readonly downloads: DownloadService.DownloadService
  readonly hooks: {
    /** Fetches the arrays that a message refers to. */
    resolve: Resolve | undefined
    protection: CoreCell.Protection | undefined
  }
}

const defaultMaxMessageSize = 2_144_337_904
const defaultForwardBytes = 256 * 1024 * 1024
const defaultForwardTotalBytes = 1024 * 1024 * 1024

// Channels whose messages travel whole (docs/wire/cellnet.md, section 9.1).
const plainChannels: ReadonlySet<string> = new Set([
  "",
  "admin",
  "task",
  "server_parent_listener",
  "client_command",
  "client_sub_worker_command",
  "multi_process_executor",
  "simulator_runner",
  CellMessage.returnChannel
])

const toReply = (headers: Headers, payload: unknown): CellReply => {
  const error = CellMessage.text(headers, header.error)
  const returnCode = CellMessage.text(headers, header.returnCode)
  return error === "" ? { returnCode, headers, payload } : { returnCode, error, headers, payload }
}

/** Makes a cell; closing the Scope says bye to its peers, closes its connections, and interrupts its handlers. */
export const makeEngine = Effect.fnUntraced(function* (
  options: CellOptions
): Effect.fn.Return<CellEngine, CellError, Drivers | SecureRandom | Scope.Scope> {
  const drivers = yield* Drivers
  const random = yield* SecureRandom
  const fqcn = yield* Effect.fromResult(
    Result.mapError(Fqcn.validate(options.fqcn), (error) => misconfigured("fqcn", error.message))
  )
  const settings = yield* resolveSettings(options.streaming ?? {})
  const hooks: CellEngine["hooks"] = { resolve: undefined, protection: undefined }
  const payloads = makePayloads(options.codec ?? ModelCodec.codec, () => hooks.resolve)
  const { handshakeTimeout, heartbeatInterval, verify } = options
  const owed = makeOwed()
  const core: CoreCell.CoreCell = yield* CoreCell.make({
    fqcn,
    owed,
    drivers,
    random,
    payloads,
    frames: () => frames,
    protection: () => hooks.protection,
    connection: {
      ...(verify === undefined ? {} : { verify }),
      ...(handshakeTimeout === undefined ? {} : { handshakeTimeout }),
      ...(heartbeatInterval === undefined ? {} : { heartbeatInterval })
    },
    bindOrigins: options.bindOrigins ?? options.credentials !== undefined,
    byeTimeout: Duration.fromInputUnsafe(options.byeTimeout ?? "500 millis"),
    maxMessageSize: options.maxMessageSize ?? defaultMaxMessageSize,
    forwarding: {
      peerBytes: options.forwardBytes ?? defaultForwardBytes,
      totalBytes: options.forwardTotalBytes ?? defaultForwardTotalBytes
    }
  })
  const { frames, streams } = yield* ByteStream.make(core, random, settings)
  if (options.credentials !== undefined) {
    hooks.protection = yield* makeProtection(core, random, options.credentials, options.protection ?? {})
  }
  const transfers = yield* TransferProgress.make
  const streamed = yield* makeStreamedRequests(core, streams, payloads, random, owed, transfers)

  const isPlain = (address: Address, mode: RequestOptions["mode"]) =>
    mode === undefined ? plainChannels.has(address.channel) : mode === "plain"

  const ask = Effect.fnUntraced(function* (
    target: string,
    address: Address,
    payload: unknown,
    request: RequestOptions & Pick<StreamedRequest, "maxReplySize" | "onReply">
  ) {
    const encoded = yield* payloads.encode(address.topic, payload, request.references)
    const { extend, headers, maxReplySize, onReply, onTaken, optional = false, secure = false, whenLost } = request
    const timeout = Duration.fromInputUnsafe(request.timeout)
    const shared = {
      encoded,
      timeout,
      extend,
      whenLost,
      optional,
      secure,
      maxReplySize,
      onReply,
      onTaken,
      ...(headers === undefined ? {} : { headers })
    }
    return yield* isPlain(address, request.mode)
      ? plainReply(target, address, yield* core.request(target, address, shared))
      : streamedReply(target, address, yield* streamed.request(target, address, shared))
  })

  const plainReply = Effect.fnUntraced(function* (
    target: string,
    address: Address,
    message: CellMessage.IncomingMessage
  ) {
    if (CellMessage.text(message.headers, header.returnReason) === "cant_forward") {
      const by = CellMessage.text(message.headers, header.origin)
      return yield* Effect.fail(
        unreachable(target, `${by} can't forward to ${target}: it is not connected there (yet)`)
      )
    }
    return yield* decodeReply(target, address, message, header.payloadEncoding)
  })

  const streamedReply = (target: string, address: Address, message: CellMessage.IncomingMessage) =>
    decodeReply(target, address, message, CellMessage.streamHeader.payloadEncoding)

  const decodeReply = (
    target: string,
    address: Address,
    { headers, payload }: CellMessage.IncomingMessage,
    key: string
  ) =>
    Effect.map(
      payloads.decode(CellMessage.text(headers, key), payload, { origin: target, topic: address.topic, headers }),
      (value) => toReply(headers, value)
    )

  const request = Effect.fn("Cell.request")(ask)

  const send: CellService["send"] = Effect.fn("Cell.send")(function* (target, address, payload, given = {}) {
    const { headers, optional = false, secure = false } = given
    const encoded = yield* payloads.encode(address.topic, payload)
    const message = { encoded, optional, secure, ...(headers === undefined ? {} : { headers }) }
    yield* isPlain(address, undefined) ? core.post(target, address, message) : streamed.send(target, address, message)
  })

  const handle: CellService["handle"] = (address, handler, given = {}) =>
    Effect.andThen(core.handle(address, handler, given.origin), streamed.handle(address, handler, given))

  const { downloads, resolve } = yield* DownloadService.make(
    {
      fqcn,
      ask,
      send,
      handle,
      transfers,
      maxBlobSize: streams.settings.maxBlobSize,
      connected: core.connected,
      background: core.background
    },
    random,
    options.downloads ?? {}
  )
  hooks.resolve = resolve

  return {
    cell: {
      fqcn,
      isSecure: options.credentials !== undefined,
      request,
      send,
      handle,
      offer: downloads.offer,
      cancelDownloads: downloads.cancel,
      transfers: downloads.transfers,
      maxInlineBytes: downloads.maxInlineBytes,
      guard: core.guard,
      connected: core.connected,
      flush: owed.flush,
      listen: core.links.listen,
      connect: core.links.connect,
      peers: core.peers,
      peerChanges: core.peerChanges,
      linkFailure: core.linkFailure
    },
    core,
    streams,
    payloads,
    downloads,
    hooks
  }
})
