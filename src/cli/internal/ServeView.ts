/** What `serve` tells: to people on the screen, to programs in the file of events. */
import { Clock, Duration, Effect, Latch } from "effect"
import type { SessionState } from "../../attach/SessionState.ts"
import type { AnalyticsRecord } from "../../model/Analytics.ts"
import type { RoundEvent } from "../../service/Rounds.ts"
import { type EventLog, logFields } from "./EventLog.ts"
import type { ScreenShape } from "./Screen.ts"
import { inFlags } from "./settingFlags.ts"

interface TrainerView {
  readonly attachId: string
  /** The session that was last told of. */
  session: string | undefined
  /** Whether it was told that it attached. */
  isTold: boolean
  phase: string
  since: bigint
  done: number
}

export interface ServeView {
  readonly session: (attachId: string, state: SessionState) => Effect.Effect<void>
  readonly round: (event: RoundEvent) => Effect.Effect<void>
  readonly log: (attachId: string, record: AnalyticsRecord) => Effect.Effect<void>
  /** Ends when it has told of each trainer that it attached. */
  readonly allAttached: Effect.Effect<void>
  /** Draws the bars anew, for the times in them. */
  readonly refresh: Effect.Effect<void>
}

const barWidth = 24

const formatSeconds = (duration: Duration.Duration): string => {
  const seconds = Duration.toSeconds(duration)
  return seconds < 120 ? `${seconds.toFixed(1)} s` : `${(seconds / 60).toFixed(1)} min`
}

const seconds = (duration: Duration.Duration): number => Math.round(Duration.toMillis(duration)) / 1000

const renderBar = (trainer: TrainerView, width: number, totalRounds: number, now: bigint): string => {
  const filled = Math.round((barWidth * trainer.done) / totalRounds)
  const bar = `[${"#".repeat(filled)}${".".repeat(barWidth - filled)}]`
  const waited = formatSeconds(Duration.nanos(now - trainer.since))
  return `${trainer.attachId.padEnd(width)} ${bar} ${trainer.done}/${totalRounds} ${trainer.phase} ${waited}`
}

export const makeServeView = Effect.fnUntraced(function* (
  screen: ScreenShape,
  events: EventLog,
  attachIds: ReadonlyArray<string>,
  totalRounds: number
) {
  const started = yield* Clock.monotonicTimeNanos
  const here = Latch.makeUnsafe(false)
  const trainers = new Map<string, TrainerView>()
  for (const attachId of attachIds) {
    trainers.set(attachId, { attachId, session: undefined, isTold: false, phase: "waiting", since: started, done: 0 })
  }
  const width = Math.max(...attachIds.map((id) => id.length))

  const refresh = Effect.map(Clock.monotonicTimeNanos, (now) =>
    screen.bars([...trainers.values()].map((trainer) => renderBar(trainer, width, totalRounds, now)))
  )

  const enter = Effect.fnUntraced(function* (attachIds: Iterable<string>, phase: string, done?: number) {
    const now = yield* Clock.monotonicTimeNanos
    for (const attachId of attachIds) {
      const trainer = trainers.get(attachId)
      if (trainer === undefined) continue
      trainer.phase = phase
      trainer.since = now
      trainer.done = done ?? trainer.done
    }
    yield* refresh
  })

  const attached = Effect.fnUntraced(function* (trainer: TrainerView, sessionId: string) {
    trainer.session = sessionId
    const after = Duration.nanos((yield* Clock.monotonicTimeNanos) - started)
    const { attachId } = trainer
    screen.line(`trainer ${attachId} attached after ${formatSeconds(after)}`)
    yield* events({ event: "attached", attach_id: attachId, session_id: sessionId, seconds: seconds(after) })
    // Told: rounds may begin.
    trainer.isTold = true
    if ([...trainers.values()].every(({ isTold }) => isTold)) Latch.openUnsafe(here)
  })

  const session = Effect.fnUntraced(function* (attachId: string, state: SessionState) {
    const trainer = trainers.get(attachId)
    yield* events({
      event: "session",
      attach_id: attachId,
      session_id: state.sessionId,
      state: state._tag,
      reason: state.why
    })
    if (trainer === undefined) return
    if (state._tag === "Ready" && trainer.session !== state.sessionId) yield* attached(trainer, state.sessionId)
    else if (state._tag === "Failed" || state._tag === "Silent" || trainer.session !== undefined) {
      screen.line(`trainer ${attachId}: session ${state._tag.toLowerCase()}: ${inFlags(state.why)}`)
    }
    yield* enter([attachId], sessionPhases[state._tag])
  })

  const round = Effect.fnUntraced(function* (event: RoundEvent) {
    const name = `round ${event.round + 1}/${totalRounds}`
    switch (event._tag) {
      case "RoundStarted":
        screen.line(event.attempt === 1 ? `${name} started` : `${name} runs again (attempt ${event.attempt})`)
        return yield* enter(trainers.keys(), "training", event.round)
      case "ResultReceived":
        screen.line(`${name}: result of ${event.attachId} after ${formatSeconds(event.duration)}`)
        return yield* enter([event.attachId], "done", event.round + 1)
      case "ResultNotFinite":
        return yield* events({
          event: "not_finite",
          attach_id: event.attachId,
          round: event.round,
          parameters: event.parameters
        })
      case "ResultMissing":
        screen.line(`${name}: no result of ${event.attachId}: ${inFlags(event.error.message)}`)
        return yield* enter([event.attachId], "failed")
      case "RoundDone":
        screen.line(`${name} done in ${formatSeconds(event.duration)} (${plural(event.results, "result")})`)
        return yield* events({
          event: "round",
          round: event.round,
          seconds: seconds(event.duration),
          results: event.results
        })
    }
  })

  const view: ServeView = {
    session,
    round,
    log: (attachId, record) => events({ event: "log", attach_id: attachId, ...logFields(record) }),
    allAttached: Latch.await(here),
    refresh
  }
  return view
})

const sessionPhases: { readonly [State in SessionState["_tag"]]: string } = {
  Opening: "waiting",
  Ready: "attached",
  Silent: "silent",
  Failed: "lost",
  Closed: "closed"
}

export const plural = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`
