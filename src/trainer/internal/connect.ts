/** How a trainer comes to its session. Source: docs/wire/attach.md, section 7.1. */
import { Clock, Deferred, Duration, Effect, Exit, Latch, Option, Queue, Scope } from "effect"
import * as Cell from "../../cell/Cell.ts"
import type { CellError } from "../../cell/CellError.ts"
import * as ClientApi from "../../clientapi/ClientApi.ts"
import * as Rendezvous from "../../clientapi/Rendezvous.ts"
import type { NotPublished } from "../../clientapi/RendezvousError.ts"
import { trainerPrefix } from "../../clientapi/TrainerName.ts"
import * as Fqcn from "../../identity/Fqcn.ts"
import { formatDuration } from "../../platform/DurationText.ts"
import type { FileLock } from "../../platform/FileLock.ts"
import type { PrivateFiles } from "../../platform/PrivateFiles.ts"
import { HandshakeFailed, TransportError } from "../../transport/TransportError.ts"
import { TaskLedger } from "../TaskLedger.ts"
import { NoSession, type TrainerError, trainerError } from "../TrainerError.ts"
import * as TrainerGuard from "../TrainerGuard.ts"
import type { TrainerProfile } from "../TrainerProfile.ts"
import { serve } from "./jobMessages.ts"
import { routeFailed, shieldOf } from "./protect.ts"
import type { TrainerState, TrainerTask } from "./state.ts"

/** Time that is left of a bound; `undefined` = no bound. */
type Remaining = Effect.Effect<Duration.Duration | undefined>

/** One bound for the whole way: the wait for the service's endpoint and that for its SESSION_OPEN share it. */
const remainingOf = (limit: Duration.Duration | undefined): Effect.Effect<Remaining> =>
  Effect.map(Clock.monotonicTimeNanos, (started) =>
    limit === undefined
      ? Effect.undefined
      : Effect.map(Clock.monotonicTimeNanos, (now) =>
          Duration.max(Duration.zero, Duration.subtract(limit, Duration.nanos(now - started)))
        )
  )

const cellFailed = ({ message, reason }: CellError): TrainerError => routeFailed(reason._tag, message)

const noSession = (limit: Duration.Duration | undefined, stage: NoSession["stage"], why: string): TrainerError =>
  trainerError(
    new NoSession({
      limit: limit ?? Duration.infinity,
      stage,
      message: `no service opened a session within job_wait_timeout (${formatDuration(limit ?? Duration.infinity)}): ${why}`
    })
  )

/** Without the time that was left for it: the whole bound is named already. */
const notPublished = ({ attachId, obstacle, root, siteName }: NotPublished): string =>
  `no live service for site "${siteName}", attach id "${attachId}" in ${root}: ${obstacle}. Start the service, see that both use the same folder, site and attach id, or wait longer`

interface Found {
  readonly connectUrl: string
  readonly cpFqcn: string
  readonly cjFqcn: string | undefined
}

const find = Effect.fnUntraced(function* (
  profile: TrainerProfile,
  remaining: Remaining
): Effect.fn.Return<Found, TrainerError, FileLock | PrivateFiles> {
  const { source } = profile
  if (source._tag === "Url") {
    return { connectUrl: source.connectUrl, cpFqcn: source.cpFqcn, cjFqcn: source.cjFqcn }
  }
  const record = yield* Rendezvous.wait({
    root: source.root,
    siteName: profile.siteName,
    attachId: profile.attachId,
    timeout: yield* remaining
  }).pipe(
    Effect.mapError(({ message, reason }) =>
      reason._tag === "NotPublished"
        ? noSession(profile.jobWaitTimeout, "rendezvous", notPublished(reason))
        : routeFailed(reason._tag, message)
    )
  )
  return { connectUrl: record.connectUrl, cpFqcn: Fqcn.parent(record.cjFqcn), cjFqcn: record.cjFqcn }
})

/** The trainer's cell, guarded and served, before it is connected to anybody. */
const makeState = Effect.fnUntraced(function* (profile: TrainerProfile, found: Found) {
  const trainerFqcn = Fqcn.join(found.cpFqcn, `${trainerPrefix}${profile.attachId}`)
  const shield = yield* shieldOf(profile, trainerFqcn)
  const cell = yield* Effect.mapError(Cell.make({ fqcn: trainerFqcn, ...shield.cell }), cellFailed)
  const state: TrainerState = {
    cell,
    expected: {
      attachId: profile.attachId,
      siteName: profile.siteName,
      cpFqcn: found.cpFqcn,
      trainerFqcn,
      cjFqcn: found.cjFqcn
    },
    secure: profile.isProtected,
    ledger: new TaskLedger(),
    tasks: yield* Queue.unbounded<TrainerTask>(),
    bound: Deferred.makeUnsafe(),
    ended: Deferred.makeUnsafe(),
    stopped: Latch.makeUnsafe(false),
    idle: Latch.makeUnsafe(true),
    offers: new Set(),
    binding: undefined,
    heardAt: 0n
  }
  const rule = TrainerGuard.rule({
    cpFqcn: found.cpFqcn,
    secure: state.secure,
    boundCj: () => state.binding?.cjFqcn ?? found.cjFqcn
  })
  let isClearRefused = false
  yield* cell.guard((message) => {
    const verdict = rule(message)
    isClearRefused ||=
      verdict === TrainerGuard.notProtected && message.address.topic === ClientApi.Topic.sessionOpen.topic
    return verdict
  })
  yield* serve(state)
  return { state, shield, isClearRefused: () => isClearRefused }
})

/**
 * The way to the service. Whoever answers there must be the client parent, or a client job of it; a cell of another site
 * ends the wait. What else goes wrong is told, and tried again.
 */
const makeWay = (attachId: string, { cpFqcn, connectUrl }: Found, isClearRefused: () => boolean) => {
  const stranger = Deferred.makeUnsafe<never, TrainerError>()
  let last: string | undefined
  let connections = 0

  const isExpected = (peer: string) =>
    peer === cpFqcn || (Fqcn.isParent(cpFqcn, peer) && !Fqcn.leaf(peer).startsWith(trainerPrefix))
  const verify: NonNullable<Cell.ConnectOptions["verify"]> = (peer) => {
    if (isExpected(peer)) {
      last = undefined
      connections += 1
      return Effect.void
    }
    const message = `${connectUrl} is the cell ${peer}, but this trainer belongs to the client parent ${cpFqcn}: check site_name, cp_fqcn and connect_url of the profile`
    Deferred.doneUnsafe(stranger, Effect.fail(routeFailed("WrongParent", message)))
    return Effect.fail(new TransportError({ reason: new HandshakeFailed({ target: connectUrl, message }) }))
  }
  const onDown = (error: TransportError) => {
    const isNews = last !== error.message
    last = error.message
    return isNews ? Effect.logWarning(`no connection to ${connectUrl}: ${error.message}`) : Effect.void
  }
  /** Why there is no session yet. */
  const why = (): string => {
    // Whoever is sent away again and again by a service that is there has the name of another.
    if (connections > 1) {
      return `it answers at ${connectUrl}, but the connection was lost again and again: most likely another trainer is attached as "${attachId}"; end that one, or give each trainer an attach_id of its own`
    }
    if (last !== undefined) return last
    if (isClearRefused()) {
      return `the SESSION_OPEN that came by ${connectUrl} is not protected, and this trainer is in secure mode: start the service with --secure, or leave secure_mode out of the profile`
    }
    return connections === 0
      ? `nothing has answered at ${connectUrl} yet: check that a service or client parent listens there, and nothing else`
      : `no SESSION_OPEN came by ${connectUrl}: check that a service waits for this attach id, and that no other trainer has it`
  }
  return { stranger, verify, onDown, why }
}

/** How often a trainer that waits for its session looks whether another service has taken the place of the one it found. */
const relook = "1 second"

/**
 * Waits until a live service is published at another place than the one that was found. Such a service was closed or
 * killed before it opened a session, and will not.
 */
const replaced = Effect.fnUntraced(function* (
  profile: TrainerProfile,
  found: Found
): Effect.fn.Return<Found, never, FileLock | PrivateFiles> {
  if (profile.source._tag === "Url") return yield* Effect.never
  while (true) {
    yield* Effect.sleep(relook)
    // What can't be read now is looked at again: there is a service to wait for.
    const now = yield* Effect.option(find(profile, Effect.undefined))
    if (Option.isSome(now) && now.value.connectUrl !== found.connectUrl) return now.value
  }
})

/** Connects to what was found, until a session is there or another service takes its place. */
const tryAt = Effect.fnUntraced(function* (profile: TrainerProfile, found: Found, remaining: Remaining) {
  const limit = profile.jobWaitTimeout
  const { connectUrl } = found
  const { isClearRefused, shield, state } = yield* makeState(profile, found)
  const { resources, rules } = shield
  const { onDown, stranger, verify, why } = makeWay(profile.attachId, found, isClearRefused)
  yield* Effect.mapError(state.cell.connect(connectUrl, resources, { verify, onDown, rules }), cellFailed)
  const bound = Effect.raceFirst(Deferred.await(state.bound), Deferred.await(stranger))
  const left = yield* remaining
  const inTime =
    left === undefined
      ? bound
      : Effect.timeoutOrElse(bound, {
          duration: left,
          orElse: () => Effect.fail(noSession(limit, "session", why()))
        })
  const first = yield* Effect.raceFirst(
    Effect.map(inTime, (binding) => ({ binding })),
    Effect.map(replaced(profile, found), (next) => ({ next }))
  )
  if ("binding" in first) return { state, binding: first.binding }
  // A session that was opened at that very moment counts.
  return state.binding === undefined ? first.next : { state, binding: state.binding }
})

/**
 * Finds the service, connects, and waits for its session; all of it lives as long as the Scope, or until this fails or is
 * interrupted.
 */
export const connect = Effect.fnUntraced(function* (profile: TrainerProfile) {
  const scope = yield* Effect.scope
  const remaining = yield* remainingOf(profile.jobWaitTimeout)
  let found = yield* find(profile, remaining)
  while (true) {
    const own = yield* Scope.fork(scope)
    // Who tries again, in the same Scope, finds the name free and the service rid of this one.
    const outcome = yield* Effect.onError(Scope.provide(tryAt(profile, found, remaining), own), (cause) =>
      Scope.close(own, Exit.failCause(cause))
    )
    if ("state" in outcome) return outcome
    yield* Effect.logInfo(
      `the service at ${found.connectUrl} opened no session and is gone: trying ${outcome.connectUrl}`
    )
    yield* Scope.close(own, Exit.void)
    found = outcome
  }
})
