/** The words of the download protocol; docs/wire/fobs.md, section 7. */
import type { Address } from "../CellTypes.ts"

const channel = "download_service__"

export const downloadAddress: Address = { channel, topic: "download_service__download" }
export const sourceFailureAddress: Address = { channel, topic: "download_service__source_failure" }

/** Where nothing is downloaded in turn: what comes here must not refer to downloads itself. */
export const isDownloadTopic = (topic: string): boolean =>
  topic === downloadAddress.topic || topic === sourceFailureAddress.topic

export type ReceiverStatus = "success" | "failed"

/** `state` is that of the last reply, as it came. */
export const chunkRequest = (refId: string, confirm: boolean, state: unknown): Map<string, unknown> => {
  const request = new Map<string, unknown>([["ref_id", refId]])
  if (confirm) {
    request.set("confirm_capable", true)
  }
  if (state !== undefined) {
    request.set("state", state)
  }
  return request
}

export const confirmation = (refId: string, status: ReceiverStatus, nonce: unknown): Map<string, unknown> =>
  new Map<string, unknown>([
    ["ref_id", refId],
    ["confirm", status],
    ["confirm_nonce", nonce]
  ])

export const cancellation = (refId: string): Map<string, unknown> =>
  new Map<string, unknown>([
    ["ref_id", refId],
    ["cancel", true]
  ])

/** What Python takes for false. */
export const isFalsy = (value: unknown): boolean =>
  value === undefined ||
  value === null ||
  value === false ||
  value === 0 ||
  value === "" ||
  (Array.isArray(value) && value.length === 0) ||
  (value instanceof Map && value.size === 0) ||
  (value instanceof Uint8Array && value.length === 0)
