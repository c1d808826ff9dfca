/** The trainer's own connection, as far as it can be seen from here: never so behind a client parent. */
import { Clock, Duration, Effect, Option, Stream } from "effect"
import type { SessionContext } from "../AttachSession.ts"

/**
 * Whether the trainer's own connection is up, as far as it can be seen from here.
 */
export const isUp = (context: SessionContext): Effect.Effect<boolean> =>
  Effect.map(
    Stream.runHead(context.cell.connected(context.trainer.trainerFqcn)),
    Option.getOrElse(() => false)
  )

/** Ends when the trainer's cell connects anew, seen from a time when it was connected or not. */
const arrival = (context: SessionContext, wasUp: boolean) =>
  context.cell.connected(context.trainer.trainerFqcn).pipe(
    Stream.dropWhile((up) => wasUp && up),
    Stream.filter((up) => up),
    Stream.runHead
  )

/** Ends when the trainer's cell is not connected. */
export const departure = (context: SessionContext) =>
  context.cell.connected(context.trainer.trainerFqcn).pipe(
    Stream.filter((up) => !up),
    Stream.runHead
  )

/** How old the trainer's connection is, if it has one that is seen here. */
export const connectionAge = Effect.fnUntraced(function* (context: SessionContext) {
  const peer = (yield* context.cell.peers).find(({ name }) => name === context.trainer.trainerFqcn)
  return peer === undefined ? undefined : Duration.millis((yield* Clock.currentTimeMillis) - peer.since)
})

/** Ends when a connection of the trainer's cell begins. */
export const nextConnection = (context: SessionContext) =>
  context.cell.peerChanges.pipe(
    Stream.filter((change) => change._tag !== "Disconnected" && change.name === context.trainer.trainerFqcn),
    Stream.runHead
  )

/** Ends when a new connection of the trainer's cell takes the place of an older one, which may be dead. */
export const replacement = (context: SessionContext) =>
  context.cell.peerChanges.pipe(
    Stream.filter((change) => change._tag === "Replaced" && change.name === context.trainer.trainerFqcn),
    Stream.runHead
  )

/**
 * The pause between two tries; it ends early when the trainer's cell connects anew, seen from the time of `wasUp`.
 */
export const pause = (context: SessionContext, limit: Duration.Duration, wasUp: boolean): Effect.Effect<void> =>
  Effect.asVoid(Effect.raceFirst(Effect.sleep(limit), arrival(context, wasUp)))

/** In words, for the end of a message, the fault of the trainer's connection at or after a time, if there was one. */
export const faultSince = Effect.fnUntraced(function* ({ cell, trainer }: SessionContext, since: bigint) {
  const fault = yield* cell.linkFailure(trainer.trainerFqcn)
  return fault === undefined || fault.at < since ? "" : `; its connection failed before: ${fault.message}`
})
