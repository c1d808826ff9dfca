/** Removes what listeners leave behind. Source: docs/wire/transport.md, section 9.7. */
import * as NodePath from "node:path"
import { Clock, Duration, Effect, FiberSet } from "effect"
import * as Files from "./files.ts"
import * as Layout from "./layout.ts"

/** A connection that its listener closed while the peer was there. */
export interface Lingering {
  readonly directory: string
  /** The time of its `closed` marker as this side made it; the peer touches it on its way out. */
  readonly marked: bigint | undefined
}

export interface Janitor {
  /**
   * Takes over a closed listener directory: removes it when all lingering peers have seen the end, at the latest after
   * `patience` (milliseconds) or when the janitor's own work ends. Only a directory of our making is ever removed.
   */
  readonly retire: (directory: string, lingering: ReadonlyArray<Lingering>, patience: number) => Effect.Effect<void>
  /** Removes the directories of dead listeners in a root, in the background. */
  readonly sweep: (root: string) => Effect.Effect<void>
}

const staleAfterMillis = 3600 * 1000
const lookInterval = Duration.millis(50)

const isOurs = (directory: string): Effect.Effect<boolean> =>
  NodePath.basename(directory).startsWith(Layout.listenerPrefix)
    ? Effect.orElseSucceed(
        Effect.map(Files.status(Layout.markerOf(directory)), (marker) => marker !== undefined),
        () => false
      )
    : Effect.succeed(false)

/** Whether nobody is left who would look at the marker. */
const isSeen = ({ directory, marked }: Lingering): Effect.Effect<boolean> =>
  Effect.orElseSucceed(
    Effect.map(
      Files.status(Layout.closedOf(directory)),
      (marker) => marker === undefined || marker.modified !== marked
    ),
    () => true
  )

const awaitSeen = Effect.fnUntraced(function* (lingering: ReadonlyArray<Lingering>) {
  let waiting = lingering
  while (waiting.length > 0) {
    waiting = yield* Effect.filter(waiting, (connection) => Effect.map(isSeen(connection), (seen) => !seen))
    if (waiting.length > 0) {
      yield* Effect.sleep(lookInterval)
    }
  }
})

const remove = (directory: string): Effect.Effect<void> =>
  Files.removeTree(directory).pipe(
    Effect.retry({ times: 3 }),
    Effect.catch((error) => Effect.logDebug(`${directory} stays: ${error.message}`))
  )

/** The time of the last sign of life, by the file system's clock. */
const lastLife = Effect.fnUntraced(function* (directory: string) {
  const found = (yield* Files.status(Layout.listenerLease(directory))) ?? (yield* Files.status(directory))
  return found === undefined ? undefined : Number(found.modified / 1_000_000n)
})

const sweepRoot = Effect.fnUntraced(function* (root: string) {
  for (const entry of yield* Files.list(root)) {
    const directory = NodePath.join(root, entry.name)
    if (entry.isDirectory() && (yield* isOurs(directory))) {
      const seen = yield* lastLife(directory)
      const now = yield* Clock.currentTimeMillis
      if (seen !== undefined && now - seen > staleAfterMillis) {
        yield* Effect.logDebug(`removing ${directory}, whose listener died an hour ago or more`)
        yield* remove(directory)
      }
    }
  }
})

/** Removes dialers' unfinished directories in a listener that are an hour old. */
export const sweepUnfinished = Effect.fnUntraced(function* (connections: string, names: ReadonlyArray<string>) {
  const now = yield* Clock.currentTimeMillis
  for (const name of names) {
    const directory = NodePath.join(connections, name)
    const found = yield* Effect.orElseSucceed(Files.status(directory), () => undefined)
    if (found !== undefined && now - Number(found.modified / 1_000_000n) > staleAfterMillis) {
      yield* remove(directory)
    }
  }
})

/**
 * Works until its Scope closes; then it waits at most `linger` for peers that have not seen their end yet, and removes
 * what is left: a peer that looks later finds its directory gone, which is an end as well.
 */
export const make = Effect.fnUntraced(function* (linger: Duration.Duration) {
  const work = yield* FiberSet.make<void>()
  yield* Effect.addFinalizer(() => Effect.timeoutOption(FiberSet.awaitEmpty(work), linger))

  const retire: Janitor["retire"] = Effect.fnUntraced(function* (directory, lingering, patience) {
    if (!(yield* isOurs(directory))) {
      return
    }
    if (lingering.length === 0) {
      return yield* remove(directory)
    }
    const wait = Effect.timeoutOption(awaitSeen(lingering), Duration.millis(patience))
    yield* FiberSet.run(work, Effect.ensuring(Effect.asVoid(wait), remove(directory)))
  })

  const sweep: Janitor["sweep"] = (root) => Effect.asVoid(FiberSet.run(work, Effect.ignore(sweepRoot(root))))

  return { retire, sweep } satisfies Janitor
})
