/** Two trainers of one name: each takes the other's connection, again and again. */
import { Clock, Duration, Effect, Stream } from "effect"
import type { SessionContext } from "../AttachSession.ts"

/** A connection that broke unseen is replaced once, and a trainer started anew takes its old one's: thrice so soon is another. */
const suspicious = 3
const window = Duration.toNanosUnsafe(Duration.minutes(1))

/**
 * Warns when the connection of the trainer's name is taken over again and again: once, and again after a minute of
 * peace. Behind a client parent that parent sees it.
 */
export const watch = ({ cell, trainer }: SessionContext): Effect.Effect<void> => {
  const { attachId, trainerFqcn } = trainer
  let times: ReadonlyArray<bigint> = []
  let isTold = false
  return cell.peerChanges.pipe(
    Stream.filter((change) => change._tag === "Replaced" && change.name === trainerFqcn),
    Stream.runForEach(
      Effect.fnUntraced(function* () {
        const now = yield* Clock.monotonicTimeNanos
        const recent = times.filter((time) => now - time < window)
        times = [...recent.slice(-suspicious), now]
        if (times.length < suspicious) {
          isTold = false
          return
        }
        if (isTold) return
        isTold = true
        yield* Effect.logWarning(
          `another trainer tries to attach as "${attachId}": each takes the other's connection; end one of them, or give it an attach_id of its own`
        ).pipe(Effect.annotateLogs({ attach_id: attachId }))
      })
    )
  )
}
