/** The listening side of a directory. Source: docs/wire/transport.md, sections 9.4 and 9.7. */
import * as NodePath from "node:path"
import { Clock, Duration, Effect, Latch, Queue } from "effect"
import type { DriverListener } from "../../Drivers.ts"
import type { TransportError } from "../../TransportError.ts"
import { closed } from "../errors.ts"
import * as Files from "./files.ts"
import { type Janitor, type Lingering, sweepUnfinished } from "./janitor.ts"
import * as Layout from "./layout.ts"
import * as Link from "./link.ts"
import type { Settings } from "./settings.ts"

const backOff = 1.5

/** A connection directory that was handled, by its name. */
interface Handled {
  /** When it ended or was refused, in monotonic milliseconds. */
  endedAt: number | undefined
  /** Ends a live connection. */
  close: Effect.Effect<Link.Closing> | undefined
}

/** Listens in a listener directory that exists, until the Scope closes. */
export const make = Effect.fnUntraced(function* (
  directory: string,
  connectUrl: string,
  settings: Settings,
  janitor: Janitor
) {
  const clock = yield* Clock.Clock
  const nowMillis = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const connections = Layout.connectionsOf(directory)
  const handled = new Map<string, Handled>()
  const lingering: Array<Lingering> = []
  const arrivals = yield* Queue.make<string, TransportError>()
  const news = yield* Latch.make(false)

  const mark = (name: string) =>
    Effect.ignore(Files.touch(Layout.closedOf(NodePath.join(connections, name)), settings.fileMode))

  /** Looks at a new entry: takes it in, or refuses it by the marker alone. */
  const meet = Effect.fnUntraced(function* (name: string) {
    const entry = NodePath.join(connections, name)
    const isOpen = (yield* Files.status(Layout.closedOf(entry))) === undefined
    const log = isOpen ? yield* Files.status(Layout.logOf(entry, "active", 0)) : undefined
    if (log?.isFile === true) {
      handled.set(name, { endedAt: undefined, close: undefined })
      yield* Queue.offer(arrivals, name)
    } else {
      handled.set(name, { endedAt: nowMillis(), close: undefined })
      yield* mark(name)
    }
  })

  const scan = Effect.gen(function* () {
    const entries = yield* Files.list(connections)
    const names = new Set(entries.map((entry) => entry.name))
    for (const [name, { endedAt }] of handled) {
      if (endedAt !== undefined && !names.has(name)) {
        handled.delete(name)
      }
    }
    const fresh = entries
      .filter((entry) => entry.isDirectory() && !entry.name.startsWith(".") && !handled.has(entry.name))
      .map((entry) => entry.name)
      .sort()
    // What can't be looked at now is tried again at the next pass, after a wait.
    const met = yield* Effect.forEach(fresh, (name) => Effect.isSuccess(meet(name)))
    return met.includes(true)
  })

  /** A listing that fails is tried again, as long as the directory is there. */
  const scanOrWait = Effect.catch(scan, (error) =>
    Effect.flatMap(
      Effect.orElseSucceed(Files.isDirectory(connections), () => false),
      (isThere) =>
        isThere
          ? Effect.as(Effect.logWarning(`listening in ${directory} goes on: ${error.message}`), false)
          : Effect.fail(closed(connectUrl, "io", `${connections} is gone: listen again to make a new one`))
    )
  )

  const collect = Effect.gen(function* () {
    yield* Effect.ignore(Files.touch(Layout.listenerLease(directory), settings.fileMode))
    for (const [name, { endedAt }] of handled) {
      if (endedAt !== undefined && nowMillis() - endedAt > 2 * settings.leaseTimeout) {
        yield* Effect.ignore(Files.removeTree(NodePath.join(connections, name)))
      }
    }
    const entries = yield* Effect.orElseSucceed(Files.list(connections), () => [])
    const unfinished = entries.filter((entry) => entry.name.startsWith(".")).map((entry) => entry.name)
    yield* sweepUnfinished(connections, unfinished)
  })

  const listen = Effect.gen(function* () {
    let wait = settings.pollInterval
    while (true) {
      news.closeUnsafe()
      if (yield* scanOrWait) {
        wait = settings.pollInterval
      } else {
        yield* Effect.timeoutOption(news.await, Duration.millis(wait))
        wait = Math.min(wait * backOff, settings.maxPollInterval)
      }
    }
  }).pipe(Effect.catch((error) => Queue.fail(arrivals, error)))

  /** Closes a connection and notes what is left of it. */
  const finish = Effect.fnUntraced(function* (name: string, entry: Handled) {
    if (entry.close === undefined) {
      return
    }
    const closing = yield* entry.close
    if (entry.endedAt === undefined) {
      entry.endedAt = nowMillis()
      if (!closing.isPeerGone) {
        const path = NodePath.join(connections, name)
        const marker = yield* Effect.orElseSucceed(Files.status(Layout.closedOf(path)), () => undefined)
        lingering.push({ directory: path, marked: marker?.modified })
      }
    }
  })

  yield* Files.touch(Layout.listenerLease(directory), settings.fileMode)
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      yield* Queue.fail(arrivals, closed(connectUrl, "local", `the listener ${connectUrl} was closed here`))
      for (const [name, entry] of handled) {
        if (entry.endedAt === undefined && entry.close === undefined) {
          yield* mark(name)
        }
        yield* finish(name, entry)
      }
      yield* janitor.retire(directory, lingering, 2 * settings.leaseInterval)
    })
  )
  if (settings.watch) {
    yield* Files.watch(connections, () => {
      news.openUnsafe()
    })
  }
  yield* Effect.forkScoped(listen)
  const period = Duration.millis(Math.min(settings.leaseInterval, settings.leaseTimeout / 3))
  yield* Effect.forkScoped(Effect.forever(Effect.andThen(Effect.sleep(period), collect)))

  const adopt = Effect.fnUntraced(function* (name: string, entry: Handled) {
    const link = yield* Link.make(NodePath.join(connections, name), "passive", settings)
    entry.close = link.close
    yield* Effect.addFinalizer(() => finish(name, entry))
    return link.frames
  })

  const accept: DriverListener["accept"] = Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      while (true) {
        const name = yield* restore(Queue.take(arrivals))
        const entry = handled.get(name)
        if (entry !== undefined && entry.endedAt === undefined) {
          const adopted = yield* Effect.result(adopt(name, entry))
          if (adopted._tag === "Success") {
            return adopted.success
          }
          entry.endedAt = nowMillis()
          yield* mark(name)
          yield* Effect.logWarning(`refused the connection ${name} in ${directory}: ${adopted.failure.message}`)
        }
      }
    })
  )

  return { connectUrl, accept } satisfies DriverListener
})
