import { Cause, Clock, Deferred, Duration, Effect, Option, Result, type Scope, Stream } from "effect"
import type { Download, Sections } from "../../fobs/Fobs.ts"
import * as Fqcn from "../../identity/Fqcn.ts"
import type { CellError } from "../CellError.ts"
import * as CellMessage from "../CellMessage.ts"
import type { CellService } from "../CellService.ts"
import type { Address, CellReply, Handler, RequestOptions } from "../CellTypes.ts"
import type { TransferProgress } from "../TransferProgress.ts"
import { makeFailures } from "./downloadFailures.ts"
import { type ArrayValue, type Budget, type Dot, decodeItem, itemName } from "./downloadItems.ts"
import type { Settings } from "./downloadSettings.ts"
import {
  cancellation,
  chunkRequest,
  confirmation,
  downloadAddress,
  isDownloadTopic,
  isFalsy,
  type ReceiverStatus
} from "./downloadWire.ts"
import { decodeFailed, downloadFailed } from "./errors.ts"
import type { Arrival, Fetched, Resolve } from "./payloads.ts"

/** What fetching needs of its cell. */
export interface Asking {
  readonly fqcn: string
  readonly ask: (
    target: string,
    address: Address,
    payload: unknown,
    options: RequestOptions & { readonly maxReplySize: () => number; readonly onReply: (bytes: number) => void }
  ) => Effect.Effect<CellReply, CellError>
  readonly send: CellService["send"]
  readonly connected: CellService["connected"]
  /** Sends in the cell's Scope, on a fiber of its own. */
  readonly background: (effect: Effect.Effect<unknown, CellError>) => Effect.Effect<void>
}

/** Fetches what messages refer to; docs/wire/fobs.md, sections 6.2 and 7. */
export interface Receiver {
  readonly resolve: Resolve
  readonly cancel: (source: string, reason: string) => Effect.Effect<void>
  readonly sourceFailure: Handler
  /** How many downloads are under way. */
  readonly size: () => number
}

/** One download under way. */
interface Transfer {
  readonly download: Download
  readonly secure: boolean
  /** Failed by whoever ends the download from outside. */
  readonly aborted: Deferred.Deferred<never, CellError>
  readonly items: Map<string, ArrayValue>
  bytes: number
  /** How many items have come, decoded or not. */
  received: number
  /** Whether the source has said that it understands a cancellation. */
  isCancellable: boolean
  /** Completed when its source has been told, or need not be. */
  readonly ended: Deferred.Deferred<void>
  /** What a confirmation must bring, once the source has said that it expects one. */
  nonce: Option.Option<unknown>
}

const maxRetries = 3
const firstBackoff = 2000
const longestBackoff = 60_000
/** What a reply may have beside its items. */
const replyOverhead = 1024 * 1024
/** So many bytes are decoded before others get their turn. */
const turn = 1024 * 1024

/** So much of what a source says about an error goes into ours. */
const longestText = 1000

/** A closing cell tells a source at most so long that it gives up. */
const farewell = Duration.seconds(1)

/** Whether asking for the same chunk again may help. */
const isTransient = ({ reason }: CellError): boolean =>
  reason._tag === "RequestTimeout" || (reason._tag === "StreamFailed" && reason.kind !== "BlobSizeError")

export const makeReceiver = Effect.fnUntraced(function* (
  host: Asking,
  settings: Settings,
  publish: (event: TransferProgress) => void
): Effect.fn.Return<Receiver, never, Scope.Scope> {
  const { fqcn } = host
  const clock = yield* Clock.Clock
  const failures = makeFailures(() => Number(clock.monotonicTimeNanosUnsafe()) / 1e6)
  const active = new Set<Transfer>()
  let isClosing = false

  const abort = ({ aborted, download }: Transfer, reason: string): void => {
    Deferred.doneUnsafe(aborted, Effect.fail(downloadFailed(download.fqcn, download.refId, reason)))
  }

  const abortAll = (which: (download: Download) => boolean, reason: string): void => {
    for (const transfer of active) {
      if (which(transfer.download)) {
        abort(transfer, reason)
      }
    }
  }

  // The sources hear of it where connections are still there.
  yield* Effect.addFinalizer(() =>
    Effect.suspend(() => {
      isClosing = true
      abortAll(() => true, `${fqcn} closes`)
      return Effect.forEach([...active], ({ ended }) => Deferred.await(ended), { discard: true })
    })
  )

  const report = ({ bytes, download, items }: Transfer, state: TransferProgress["state"]): void =>
    publish({
      direction: "receive",
      peer: download.fqcn,
      refId: download.refId,
      bytes,
      totalBytes: undefined,
      items: items.size,
      state
    })

  // ---- Words to the source, one-way: a lost one ends with the source's own time.

  const tell = ({ download, secure }: Transfer, payload: ReadonlyMap<string, unknown>): Effect.Effect<void> => {
    const sent = host.send(download.fqcn, downloadAddress, payload, { optional: true, secure })
    // What closes next would take a fiber of its own down.
    return isClosing ? Effect.ignore(Effect.timeoutOption(sent, farewell)) : host.background(sent)
  }

  const confirm = (transfer: Transfer, status: ReceiverStatus) =>
    Option.match(transfer.nonce, {
      onNone: () => Effect.void,
      onSome: (nonce) => tell(transfer, confirmation(transfer.download.refId, status, nonce))
    })

  const settle = (transfer: Transfer, isUsable: boolean): Effect.Effect<void> =>
    Effect.suspend(() => {
      report(transfer, isUsable ? "completed" : "failed")
      return confirm(transfer, isUsable ? "success" : "failed")
    })

  /** Tells the source that it need not keep anything, as far as it listens to that. */
  const giveUp = (transfer: Transfer, isAborted: boolean): Effect.Effect<void> =>
    Effect.suspend(() => {
      report(transfer, isAborted || Deferred.isDoneUnsafe(transfer.aborted) ? "aborted" : "failed")
      if (Option.isSome(transfer.nonce)) {
        return confirm(transfer, "failed")
      }
      return transfer.isCancellable ? tell(transfer, cancellation(transfer.download.refId)) : Effect.void
    })

  // ---- Asking.

  /** The connection that requests leave by, where that can be told. */
  const linkTo = Effect.fnUntraced(function* (source: string) {
    for (const name of [source, Fqcn.parent(fqcn)]) {
      const isUp = yield* Stream.runHead(host.connected(name))
      if (Option.getOrElse(isUp, () => false)) {
        return Option.some(name)
      }
    }
    return Option.none<string>()
  })

  const until = (link: string, isUp: boolean) =>
    Effect.asVoid(Stream.runHead(Stream.filter(host.connected(link), (up) => up === isUp)))

  /** One request for a chunk; `lost` when the connection went away before the answer. */
  const once = (transfer: Transfer, link: Option.Option<string>, state: unknown, budget: Budget) => {
    const { download, secure } = transfer
    const asked = host.ask(download.fqcn, downloadAddress, chunkRequest(download.refId, settings.confirm, state), {
      timeout: settings.requestTimeout,
      optional: true,
      secure,
      maxReplySize: () => budget.bytes + replyOverhead,
      // An item may be large: it is told how much of it has come.
      onReply: (length) => {
        if (length > turn) report({ ...transfer, bytes: transfer.bytes + length }, "active")
      }
    })
    return Option.match(link, {
      onNone: () => asked,
      onSome: (name) => Effect.raceFirst(asked, Effect.as(until(name, false), "lost" as const))
    })
  }

  /** Asks for a chunk, again as often as the protocol allows. */
  const ask = Effect.fnUntraced(function* (
    transfer: Transfer,
    link: Option.Option<string>,
    state: unknown,
    budget: Budget
  ): Effect.fn.Return<CellReply, CellError> {
    const { fqcn: source, refId } = transfer.download
    const first = { id: itemName(transfer.received), isExact: false }
    const failed = (why: string) => Effect.fail(downloadFailed(source, refId, why, first))
    for (let retries = 0; ; retries += 1) {
      const reply = yield* Effect.result(once(transfer, link, state, budget))
      const isAway = Result.match(reply, {
        onSuccess: (success) => success === "lost",
        onFailure: ({ reason }) => reason._tag === "TargetUnreachable" && Option.isSome(link)
      })
      if (Result.isSuccess(reply) && reply.success !== "lost" && reply.success.returnCode !== "timeout") {
        const { error, returnCode } = reply.success
        return returnCode === "ok"
          ? reply.success
          : yield* failed(
              `it answered ${returnCode || "without a return code"}${error === undefined ? "" : `: ${error.slice(0, longestText)}`}`
            )
      }
      const last = Result.isFailure(reply) ? reply.failure : undefined
      if (last !== undefined && !isAway && !isTransient(last)) {
        return yield* failed(
          last.reason._tag === "StreamFailed"
            ? `more than maxModelBytes (${settings.maxModelBytes}) came, or more than maxBlobSize at once`
            : last.message
        )
      }
      if (retries >= maxRetries) {
        return yield* failed(`${last?.message ?? "no answer came"}, asked ${retries + 1} times`)
      }
      if (isAway && Option.isSome(link)) {
        const isBack = yield* Effect.timeoutOption(until(link.value, true), settings.sourceGrace)
        if (Option.isNone(isBack)) {
          const grace = Duration.format(settings.sourceGrace)
          return yield* failed(`the connection to ${link.value} was lost, and not back within ${grace} (sourceGrace)`)
        }
      } else {
        yield* Effect.sleep(Duration.millis(Math.min(firstBackoff * 2 ** retries, longestBackoff)))
      }
    }
  })

  // ---- Fetching.

  /** The items of a data reply, taken from the budget. */
  const itemsOf = (data: unknown, budget: Budget): Result.Result<ReadonlyArray<Uint8Array>, string> => {
    if (!Array.isArray(data) || data.length === 0) {
      return Result.fail("a reply brings no items")
    }
    const items: Array<Uint8Array> = []
    for (const item of data) {
      if (!(item instanceof Uint8Array)) {
        return Result.fail("an item is no bytes")
      }
      budget.bytes -= item.length
      items.push(item)
    }
    if (budget.bytes < 0) {
      return Result.fail(`its arrays take more than ${settings.maxModelBytes} bytes (maxModelBytes)`)
    }
    return budget.items < items.length
      ? Result.fail(`it has more than ${settings.maxItems} arrays (maxItems)`)
      : Result.succeed(items)
  }

  const decode = Effect.fnUntraced(function* (
    transfer: Transfer,
    data: ReadonlyArray<Uint8Array>,
    start: number,
    budget: Budget
  ): Effect.fn.Return<void, CellError> {
    const { dot, fqcn: source, refId } = transfer.download
    let sinceTurn = 0
    for (const [index, item] of data.entries()) {
      const arrays = yield* Effect.mapError(Effect.fromResult(decodeItem(dot, item, budget)), ({ message }) =>
        downloadFailed(source, refId, message, { id: itemName(start + index), isExact: true })
      )
      for (const [name, array] of arrays) {
        transfer.items.set(name, array)
        transfer.bytes += array.bytes.length
      }
      sinceTurn += item.length
      if (sinceTurn >= turn) {
        sinceTurn = 0
        yield* Effect.yieldNow
      }
    }
    report(transfer, "active")
  })

  /** Fetches all items of a download: the next chunk is asked for while one is decoded. */
  const pull = Effect.fnUntraced(function* (transfer: Transfer, budget: Budget): Effect.fn.Return<void, CellError> {
    const { fqcn: source, refId } = transfer.download
    const failed = (why: string) => Effect.fail(downloadFailed(source, refId, why))
    const link = yield* linkTo(source)
    let reply = yield* ask(transfer, link, undefined, budget)
    while (true) {
      const { payload } = reply
      if (!(payload instanceof Map)) {
        return yield* failed("its answer is no dict")
      }
      transfer.isCancellable ||= !isFalsy(payload.get("cancel_capable"))
      if (settings.confirm && !isFalsy(payload.get("confirm_expected"))) {
        transfer.nonce = Option.some(payload.get("confirm_nonce") ?? null)
      }
      const status = payload.get("status")
      if (status === "eof") {
        return
      }
      if (status !== "ok") {
        return yield* failed(status === "error" ? "it failed there" : `it answered with status ${String(status)}`)
      }
      const items = yield* Effect.catch(Effect.fromResult(itemsOf(payload.get("data"), budget)), failed)
      const state = payload.get("state")
      if (!(state instanceof Map)) {
        return yield* failed("a reply has no state")
      }
      const start = transfer.received
      transfer.received += items.length
      const [next] = yield* Effect.all([ask(transfer, link, state, budget), decode(transfer, items, start, budget)], {
        concurrency: "unbounded"
      })
      reply = next
    }
  })

  const fetch = Effect.fn("DownloadService.fetch")(function* (
    download: Download,
    arrival: Arrival,
    budget: Budget
  ): Effect.fn.Return<Transfer, CellError> {
    const { fqcn: source, refId } = download
    yield* Effect.annotateCurrentSpan({ source, ref_id: refId })
    const transfer: Transfer = {
      download,
      // Only the sender of a protected message can be taken at its word that its source can protect as well.
      secure: CellMessage.flag(arrival.headers, CellMessage.header.secure) && arrival.origin === source,
      aborted: Deferred.makeUnsafe(),
      ended: Deferred.makeUnsafe(),
      items: new Map(),
      bytes: 0,
      received: 0,
      isCancellable: false,
      nonce: Option.none()
    }
    const known = failures.find(source, refId)
    if (known !== undefined) {
      return yield* Effect.fail(downloadFailed(source, refId, known))
    }
    yield* Effect.acquireUseRelease(
      Effect.sync(() => active.add(transfer)),
      () =>
        Effect.raceFirst(pull(transfer, budget), Deferred.await(transfer.aborted)).pipe(
          Effect.onError((cause) => giveUp(transfer, Cause.hasInterruptsOnly(cause)))
        ),
      () =>
        Effect.suspend(() => {
          active.delete(transfer)
          const ended = Deferred.succeed(transfer.ended, undefined)
          return Effect.andThen(Effect.annotateCurrentSpan("bytes", transfer.bytes), ended)
        })
    )
    return transfer
  })

  const resolve: Resolve = Effect.fnUntraced(function* (
    sections: Sections,
    arrival: Arrival
  ): Effect.fn.Return<Fetched, CellError> {
    const { origin, topic } = arrival
    if (isDownloadTopic(topic)) {
      return yield* Effect.fail(
        decodeFailed(origin, topic, `a message of ${origin} about downloads refers to downloads`)
      )
    }
    const budget: Budget = { bytes: settings.maxModelBytes, items: settings.maxItems }
    const transfers: Array<Transfer> = []
    yield* Effect.forEach(
      sections.downloads,
      (download) => Effect.map(fetch(download, arrival, budget), (transfer) => transfers.push(transfer)),
      { discard: true }
    ).pipe(Effect.onError(() => Effect.forEach(transfers, (transfer) => giveUp(transfer, false), { discard: true })))
    return {
      items: new Map<Dot, ReadonlyMap<string, unknown>>(transfers.map(({ download, items }) => [download.dot, items])),
      settle: (isUsable) => Effect.forEach(transfers, (transfer) => settle(transfer, isUsable), { discard: true })
    }
  })

  const sourceFailure: Handler = ({ origin, payload }) =>
    Effect.sync(() => {
      const notice = failures.take(origin, payload)
      if (Result.isFailure(notice)) {
        return { returnCode: "invalid_request", error: notice.failure, payload: null }
      }
      const { reason, refIds, source } = notice.success
      abortAll((download) => download.fqcn === source && refIds.has(download.refId), reason)
      return { returnCode: "ok", payload: null }
    })

  return {
    resolve,
    sourceFailure,
    size: () => active.size,
    cancel: (source, reason) => Effect.sync(() => abortAll((download) => download.fqcn === source, reason))
  }
})
