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

export const downloadFailed = (source: string, refId: string, why: string): CellError =>
  new CellError({ reason: new DownloadFailed({ source, refId, message: `failed to download from ${source}: ${why}` }) })

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
