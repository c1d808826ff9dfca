import { Cause, Exit } from "effect"
import type { TransferProgress, Transfers } from "../TransferProgress.ts"

/** Tells how far one message has come. */
export interface MessageProgress {
  /** `bytes` of it have arrived. */
  readonly moved: (bytes: number) => void
  /** It has come to an end, or to nothing; the first word counts. */
  readonly over: (exit: Exit.Exit<unknown, unknown>) => void
}

const quiet: MessageProgress = { moved: () => {}, over: () => {} }

const endOf = (exit: Exit.Exit<unknown, unknown>): TransferProgress["state"] => {
  if (Exit.isSuccess(exit)) {
    return "completed"
  }
  return Cause.hasInterruptsOnly(exit.cause) ? "aborted" : "failed"
}

/** Of messages that take more than one chunk it is told how far they have come, as it is of downloads. */
export const makeMessageProgress =
  ({ publish }: Pick<Transfers, "publish">, chunkSize: number) =>
  (direction: TransferProgress["direction"], peer: string, requestId: string, totalBytes: number): MessageProgress => {
    if (totalBytes <= chunkSize) {
      return quiet
    }
    let bytes = 0
    let isOver = false
    const tell = (state: TransferProgress["state"]) =>
      publish({ direction, peer, refId: requestId, bytes, totalBytes, items: 0, state })
    return {
      moved: (now) => {
        bytes = now
        tell("active")
      },
      over: (exit) => {
        if (isOver) return
        isOver = true
        bytes = Exit.isSuccess(exit) ? totalBytes : bytes
        tell(endOf(exit))
      }
    }
  }
