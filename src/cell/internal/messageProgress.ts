import { Cause, Effect, Exit } from "effect"
import type { TransferProgress, Transfers } from "../TransferProgress.ts"

/** Tells how far one message has come. */
export interface MessageProgress {
  /** `bytes` of it have arrived. */
  readonly moved: (bytes: number) => void
  /** Its way is what the effect does: its end is told as that of the message. */
  readonly during: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

const quiet: MessageProgress = { moved: () => {}, during: (effect) => effect }

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
    const tell = (state: TransferProgress["state"]) =>
      publish({ direction, peer, refId: requestId, bytes, totalBytes, items: 0, state })
    return {
      moved: (now) => {
        bytes = now
        tell("active")
      },
      during: (effect) =>
        Effect.onExit(effect, (exit) =>
          Effect.sync(() => {
            bytes = Exit.isSuccess(exit) ? totalBytes : bytes
            tell(endOf(exit))
          })
        )
    }
  }
