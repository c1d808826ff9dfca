import type { TransportError } from "../../transport/TransportError.ts"
import {
  CellError,
  CellMisconfigured,
  DecodeFailed,
  DownloadFailed,
  EncodeFailed,
  PeerFailed,
  ProtectionFailed,
  RequestTimeout,
  StreamFailed,
  TargetUnreachable
} from "../CellError.ts"
import type { Address } from "../CellTypes.ts"

export const misconfigured = (setting: string, message: string): CellError =>
  new CellError({ reason: new CellMisconfigured({ setting, message }) })

export const unreachable = (target: string, message: string): CellError =>
  new CellError({ reason: new TargetUnreachable({ target, message }) })

export const encodeFailed = (topic: string, message: string): CellError =>
  new CellError({ reason: new EncodeFailed({ topic, message }) })

export const decodeFailed = (origin: string, topic: string, message: string): CellError =>
  new CellError({ reason: new DecodeFailed({ origin, topic, message }) })

export const peerFailed = (target: string, topic: string, message: string): CellError =>
  new CellError({ reason: new PeerFailed({ target, topic, message }) })

export const streamFailed = (peer: string, message: string, kind = "StreamError"): CellError =>
  new CellError({ reason: new StreamFailed({ peer, kind, message }) })

/** The place in a download that failed: an array, or the first of a chunk in which one failed at its source. */
export interface FailedItem {
  readonly id: string
  readonly isExact: boolean
}

export const downloadFailed = (source: string, refId: string, why: string, item?: FailedItem): CellError => {
  const place = item === undefined ? "" : `, array ${item.id}${item.isExact ? "" : " or one behind it"}`
  const message = `failed to download from ${source}: ${why} (reference ${refId}${place})`
  return new CellError({
    reason: new DownloadFailed({ source, refId, ...(item === undefined ? {} : { itemId: item.id }), message })
  })
}

/** The same error, with what the message calls the array. */
export const withArrayName = (error: CellError, nameOf: (refId: string, itemId: string) => string | undefined) => {
  const { reason } = error
  if (reason._tag !== "DownloadFailed" || reason.itemId === undefined) return error
  const name = nameOf(reason.refId, reason.itemId)
  if (name === undefined) return error
  const { itemId, refId, source } = reason
  const message = `${reason.message}; ${itemId} is ${JSON.stringify(name)}`
  return new CellError({ reason: new DownloadFailed({ source, refId, itemId, message }) })
}

export const protectionFailed = (peer: string, stage: string, message: string): CellError =>
  new CellError({ reason: new ProtectionFailed({ peer, stage, message }) })

const waits = {
  sending: "the peer took no more of the request",
  waiting: "no answer came",
  receiving: "no more of the answer came"
} as const

export const requestTimeout = (
  target: string,
  address: Address,
  stage: RequestTimeout["stage"],
  millis: number
): CellError =>
  new CellError({
    reason: new RequestTimeout({
      target,
      topic: address.topic,
      stage,
      millis,
      message: `${address.channel}/${address.topic} to ${target}: ${waits[stage]} within ${millis} ms (timeout)`
    })
  })

/** Why a message did not get onto a connection. */
export const sendFailed = (target: string, topic: string, error: TransportError): CellError =>
  error.reason._tag === "BadData"
    ? encodeFailed(topic, error.message)
    : unreachable(target, `${target} can't be reached: ${error.message}`)
