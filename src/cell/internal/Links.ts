import { Clock, Deferred, Duration, Effect, Exit, Fiber, FiberSet, Latch, Option, Random, Scope } from "effect"
import { formatDuration } from "../../platform/DurationText.ts"
import * as Connection from "../../transport/Connection.ts"
import type { Driver, DriverListener, Drivers, FrameLink } from "../../transport/Drivers.ts"
import { ConnectionClosed, TransportError } from "../../transport/TransportError.ts"
import type { CellError } from "../CellError.ts"
import type { CellService } from "../CellService.ts"
import type { ConnectOptions, LinkFailure, ListenOptions } from "../CellTypes.ts"
import { checkDialing } from "./dialCheck.ts"
import { misconfigured } from "./errors.ts"
import * as LinkFaults from "./linkFaults.ts"
import type { Peer, Peers } from "./Peers.ts"
import { counted } from "./traffic.ts"

export interface LinksOptions {
  readonly fqcn: string
  readonly drivers: Drivers["Service"]
  readonly peers: Peers
  readonly connection: Pick<Connection.Options, "verify" | "handshakeTimeout" | "heartbeatInterval">
  readonly onMessage: (message: Connection.Incoming, via: Peer) => Effect.Effect<void>
  /** Says bye to peers before their connections close. */
  readonly farewell: (peers: ReadonlyArray<Peer>) => Effect.Effect<void>
}

/** Listeners and connectors: all that makes and keeps connections; docs/wire/cellnet.md, section 4. */
export interface Links extends Pick<CellService, "listen" | "connect"> {
  /** Makes every connector that waits dial at once. */
  readonly redial: Effect.Effect<void>
  /** The last fault of a connection that concerns a peer. */
  readonly failure: (peer: string) => LinkFailure | undefined
}

// Seconds before dialing again: these, then the last for ever; from the first again after a connection that lasted.
const backoff = [1, 2, 4, 8, 10] as const
const lastingMillis = 10_000
const acceptPause = "100 millis"

/** The wait before an attempt, up to a fifth shorter or longer, so that many clients don't dial in step. */
const redialWait = (attempt: number): Effect.Effect<Duration.Duration> =>
  Effect.map(Random.next, (chance) => {
    const seconds = backoff[Math.min(attempt, backoff.length - 1)] ?? 10
    return Duration.millis(Math.round(seconds * 1000 * (0.8 + 0.4 * chance)))
  })

const replaced = (target: string, name: string): TransportError => {
  const message = `a newer connection of ${name} takes the place of this one`
  return new TransportError({ reason: new ConnectionClosed({ target, by: "evicted", message }) })
}

/** Why a connection is over, for people. */
const endOf = (exit: Exit.Exit<unknown, unknown>): string => {
  const error = Option.getOrUndefined(Exit.findErrorOption(exit))
  return error instanceof TransportError ? error.message : "it was closed here"
}

type Verify = NonNullable<Connection.Options["verify"]>

/** Both judge, one after the other. */
const verifying =
  (one: Verify | undefined, other: Verify | undefined): Verify =>
  (peer, info) =>
    Effect.andThen(one?.(peer, info) ?? Effect.void, () => other?.(peer, info) ?? Effect.void)

/** Must be closed after the scopes of what uses it: its own Scope ends all connections. */
export const makeLinks = Effect.fnUntraced(function* (
  options: LinksOptions
): Effect.fn.Return<Links, never, Scope.Scope> {
  const { fqcn, peers } = options
  const clock = yield* Clock.Clock
  const fibers = yield* FiberSet.make<unknown, unknown>()
  const bell = Latch.makeUnsafe()
  const counters = new Map<string, () => number>()
  const owned = new Set<Peer>()
  const faults = LinkFaults.make()

  // One counter a peer, across its connections. Names are a peer's words: forgotten when there are many.
  const streamIds = (name: string): (() => number) => {
    const known = counters.get(name)
    if (known !== undefined) {
      return known
    }
    if (counters.size >= 10_000) {
      counters.clear()
    }
    const made = Connection.makeStreamIds()
    counters.set(name, made)
    return made
  }

  /** Handshake, then messages until the connection is over. */
  const serve = Effect.fnUntraced(function* (
    link: FrameLink,
    role: "active" | "passive",
    mine: Set<Peer>,
    dialed: ConnectOptions & { readonly onReady?: () => void } = {}
  ): Effect.fn.Return<never, TransportError, Scope.Scope> {
    let name = ""
    const { link: counting, traffic } = counted(link)
    const connection = yield* Connection.make(counting, {
      ...options.connection,
      verify: verifying(options.connection.verify, dialed.verify),
      role,
      local: fqcn,
      nextStreamId: () => streamIds(name)()
    })
    name = connection.peer
    const own = (peer: Peer) => {
      mine.add(peer)
      owned.add(peer)
    }
    const peer = yield* Effect.acquireRelease(peers.add(connection, role === "active", traffic, own), (peer, exit) => {
      mine.delete(peer)
      owned.delete(peer)
      const error = Option.getOrUndefined(Exit.findErrorOption(exit))
      const kept = error instanceof TransportError ? faults.remember(peer.name, error) : Effect.void
      return Effect.andThen(
        Effect.andThen(kept, peers.remove(peer, endOf(exit))),
        Deferred.succeed(peer.gone, undefined)
      )
    })
    dialed.onReady?.()
    yield* Effect.logDebug(`${fqcn}: connected with ${peer.name} (${link.info.peerAddress})`)
    // A message must not end the connection, whatever it does to us.
    const take = (message: Connection.Incoming) =>
      Effect.catchDefect(options.onMessage(message, peer), (defect) =>
        Effect.logError(`${fqcn}: a message of ${peer.name} is lost`, defect)
      )
    const receive = Effect.forever(
      Effect.flatMap(connection.receive, (messages) => Effect.forEach(messages, take, { discard: true }))
    )
    yield* Effect.raceFirst(receive, Deferred.await(peer.evicted))
    return yield* Effect.fail(replaced(link.info.peerAddress, peer.name))
  })

  const over = (place: string, what: string) => (error: TransportError) =>
    faults.tell(place, error, `${fqcn}: ${what} is over: ${error.message}`)

  /** Runs a program of connections until the caller's Scope, or the cell's, closes; its peers hear bye first. */
  const supervise = <A, E>(program: Effect.Effect<A, E>, mine: Set<Peer>) =>
    Effect.acquireRelease(FiberSet.run(fibers, program), (fiber) =>
      Effect.andThen(
        Effect.suspend(() => options.farewell([...mine])),
        Fiber.interrupt(fiber)
      )
    )

  const driverFor = (schemeOrUrl: string): Effect.Effect<Driver, CellError> =>
    Effect.mapError(options.drivers.forUrl(schemeOrUrl), (error) => misconfigured("url", error.message))

  const dialing = Effect.fnUntraced(function* (
    url: string,
    dial: Effect.Effect<FrameLink, TransportError, Scope.Scope>,
    mine: Set<Peer>,
    first: Deferred.Deferred<void, CellError>,
    given: ConnectOptions
  ) {
    let attempt = 0
    while (true) {
      let readyAt: bigint | undefined
      const onReady = () => {
        readyAt = clock.monotonicTimeNanosUnsafe()
      }
      const error = yield* dial.pipe(
        Effect.flatMap((link) => serve(link, "active", mine, { ...given, onReady })),
        Effect.scoped,
        Effect.flip
      )
      if (error.reason._tag === "BadConfig") {
        yield* Effect.logError(`${fqcn}: ${url} can't be dialed: ${error.message}`)
        yield* Deferred.fail(first, misconfigured("url", error.message))
      }
      yield* faults.remember(undefined, error)
      yield* given.onDown?.(error) ??
        faults.tell(url, error, `${fqcn}: the connection by ${url} is over: ${error.message}`)
      const lasted = readyAt === undefined ? 0 : Number(clock.monotonicTimeNanosUnsafe() - readyAt) / 1e6
      if (lasted > lastingMillis) {
        attempt = 0
      }
      const wait = yield* redialWait(attempt)
      const line = `${fqcn}: no connection by ${url}, dialing again in ${formatDuration(wait)}: ${error.message}`
      yield* attempt === 0 ? Effect.logInfo(line) : Effect.logDebug(line)
      yield* Effect.raceFirst(Effect.sleep(wait), bell.await)
      attempt += 1
    }
  })

  const connect: Links["connect"] = Effect.fn("Cell.connect")(function* (url, resources, given = {}) {
    const driver = yield* driverFor(url)
    yield* checkDialing(driver, { url, resources, rules: given.rules })
    const first = yield* Deferred.make<void, CellError>()
    const mine = new Set<Peer>()
    yield* supervise(dialing(url, driver.connect(url, resources), mine, first, given), mine)
    // A URL that its driver refuses is known by now; anything else is tried again.
    yield* Effect.yieldNow
    if (yield* Deferred.isDone(first)) {
      return yield* Deferred.await(first)
    }
  })

  const accepting = (listener: DriverListener, mine: Set<Peer>, given: ListenOptions) =>
    Effect.gen(function* () {
      const connections = yield* FiberSet.make<unknown, unknown>()
      const acceptOne = Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const scope = yield* Scope.make()
          const link = yield* restore(Scope.provide(listener.accept, scope)).pipe(
            Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause)))
          )
          const served = Effect.scoped(serve(link, "passive", mine, given)).pipe(
            Effect.catch(over(listener.connectUrl, `a connection of ${link.info.peerAddress}`)),
            Effect.onExit((exit) => Scope.close(scope, exit))
          )
          yield* FiberSet.run(connections, served)
        })
      )
      while (true) {
        const accepted = yield* Effect.result(acceptOne)
        if (accepted._tag === "Failure") {
          if (accepted.failure.reason._tag === "ConnectionClosed") {
            yield* Effect.logWarning(`${fqcn}: ${listener.connectUrl} takes no more: ${accepted.failure.message}`)
            return yield* Effect.never
          }
          yield* faults.tell(
            listener.connectUrl,
            accepted.failure,
            `${fqcn}: a client of ${listener.connectUrl} failed: ${accepted.failure.message}`
          )
          yield* Effect.sleep(acceptPause)
        }
      }
    })

  const listen: Links["listen"] = Effect.fn("Cell.listen")(function* (schemeOrUrl, resources, given = {}) {
    const driver = yield* driverFor(schemeOrUrl)
    const opened = yield* Deferred.make<DriverListener, CellError>()
    const mine = new Set<Peer>()
    const program = driver.listen(schemeOrUrl, resources).pipe(
      Effect.mapError(({ message, reason }) => misconfigured(reason._tag === "BadConfig" ? "url" : "listen", message)),
      Effect.tapError((error) => Deferred.fail(opened, error)),
      Effect.tap((listener) => Deferred.succeed(opened, listener)),
      Effect.flatMap((listener) => accepting(listener, mine, given)),
      Effect.scoped
    )
    yield* supervise(program, mine)
    const { connectUrl } = yield* Deferred.await(opened)
    return { connectUrl }
  })

  yield* Effect.addFinalizer(() => Effect.suspend(() => options.farewell([...owned])))
  return { listen, connect, redial: Effect.asVoid(bell.release), failure: faults.last }
})
