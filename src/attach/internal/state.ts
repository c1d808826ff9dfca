/** What the parts of one backend share. */
import { type Effect, Option, type PubSub, type SubscriptionRef } from "effect"
import type { AnalyticsRecord } from "../../model/Analytics.ts"
import { type AttachError, attachError, BackendClosed } from "../AttachError.ts"
import type { AttachSession, SessionContext } from "../AttachSession.ts"
import type { ActiveTask } from "../AttachTask.ts"
import type { SessionState } from "../SessionState.ts"

/** Fields change synchronously, by the fibers of one backend. */
export interface Backend extends SessionContext {
  readonly newId: Effect.Effect<string>
  readonly states: SubscriptionRef.SubscriptionRef<SessionState>
  readonly analytics: PubSub.PubSub<AnalyticsRecord>
  session: AttachSession
  active: ActiveTask | undefined
  /** Why the last result of the active task could not be read. */
  unreadable: string | undefined
  closed: boolean
  droppedLogs: number
}

/** What every call gets from the moment on in which closing begins. */
export const closedError = ({ trainer }: Backend): AttachError =>
  attachError(
    new BackendClosed({
      attachId: trainer.attachId,
      message: `the backend of trainer ${trainer.trainerFqcn} is closed`
    })
  )

/** The session, if it takes a task now. */
export const usableSession = ({ closed, session }: Backend): Option.Option<AttachSession> =>
  !closed && session.isUsable ? Option.some(session) : Option.none()
