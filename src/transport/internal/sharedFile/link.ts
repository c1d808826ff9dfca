/** A connection directory as a frame link. Source: docs/wire/transport.md, sections 9.3 to 9.7. */
import { Clock, Duration, Effect, Latch, Semaphore } from "effect"
import * as Arr from "effect/Array"
import type { FrameLink } from "../../Drivers.ts"
import type { TransportError } from "../../TransportError.ts"
import { closed } from "../errors.ts"
import * as Files from "./files.ts"
import * as Layout from "./layout.ts"
import * as LogReader from "./logReader.ts"
import * as LogWriter from "./logWriter.ts"
import type { Settings } from "./settings.ts"

/** How the connection stood when this side closed it. */
export interface Closing {
  /** Whether the peer had closed it before, or was gone: nobody is left who would look. */
  readonly isPeerGone: boolean
  /** Whether any byte of the peer was ever read. */
  readonly hasReceived: boolean
}

export interface Link {
  readonly frames: FrameLink
  /** Ends the connection, once; later calls answer the same. The Scope does it, too. */
  readonly close: Effect.Effect<Closing>
}

const drainPasses = 20
const drainWait = 50
const backOff = 1.5
/** How long a close waits for an append that the file system doesn't finish. */
const closePatience = Duration.seconds(5)

/**
 * Takes up one side of a connection: makes its lease, appends to its log and reads the other's, from the beginning.
 * The lease is touched and the peer's watched on a schedule of their own, whatever the traffic.
 */
export const make = Effect.fnUntraced(function* (directory: string, side: Layout.Side, settings: Settings) {
  const clock = yield* Clock.Clock
  const nowMillis = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const peer = Layout.otherSide(side)
  const target = `${directory}#${peer}`
  const ownLease = Layout.leaseOf(directory, side)
  const peerLease = Layout.leaseOf(directory, peer)
  const marker = Layout.closedOf(directory)

  let ended: TransportError | undefined
  let isPeerClosed = false
  let hasReceived = false
  /** Whether something else than the peer's log may have changed, or its changes are not told. */
  let isLookDue = true
  let lastAlive = nowMillis()
  const news = yield* Latch.make(false)
  const writing = yield* Semaphore.make(1)
  const reading = yield* Semaphore.make(1)

  const end = (reason: TransportError): void => {
    ended ??= reason
    news.openUnsafe()
  }

  const close = yield* Effect.cached(
    Effect.gen(function* () {
      const wasStale = ended?.reason._tag === "ConnectionClosed" && ended.reason.by === "lease"
      end(closed(target, "local", `the connection in ${directory} was closed here`))
      const finish = Effect.suspend(() => writer.close)
      yield* Effect.timeoutOption(writing.withPermits(1)(finish), closePatience)
      yield* reading.withPermits(1)(reader.close)
      // Behind the last byte: whoever sees the marker may trust that all is there.
      const isFirst = yield* Effect.orElseSucceed(Files.createFile(marker, settings.fileMode), () => true)
      if (!isFirst) {
        yield* Effect.ignore(Files.touch(marker, settings.fileMode))
      }
      return { isPeerGone: wasStale || isPeerClosed || !isFirst, hasReceived }
    }).pipe(Effect.uninterruptible)
  )

  yield* Files.touch(ownLease, settings.fileMode)
  const isLocal = yield* Files.isLocal(directory)
  const writer = yield* LogWriter.make(directory, side, settings, isLocal)
  const reader = LogReader.make(directory, peer, isLocal)
  yield* Effect.addFinalizer(() => close)

  if (settings.watch) {
    yield* Files.watch(directory, (name) => {
      if (name === null || !name.startsWith(`${side}.`)) {
        isLookDue ||= name === null || !name.endsWith(".log")
        news.openUnsafe()
      }
    })
  }

  /** The peer has closed, or somebody removed the directory. After an end of our own the marker is ours. */
  const lookForEnd = Effect.gen(function* () {
    const isOver = (yield* Files.status(marker)) !== undefined || (yield* Files.status(directory)) === undefined
    isPeerClosed ||= isOver && ended === undefined
  }).pipe(Effect.ignore)

  const watchLease = Effect.gen(function* () {
    let seen: bigint | undefined
    while (true) {
      yield* Effect.sleep(Duration.millis(Math.min(settings.leaseInterval, settings.leaseTimeout / 3)))
      if (ended !== undefined) {
        return
      }
      yield* Effect.ignore(Files.touch(ownLease, settings.fileMode))
      yield* lookForEnd
      const found = yield* Effect.orElseSucceed(Files.status(peerLease), () => undefined)
      if (found !== undefined && found.modified !== seen) {
        seen = found.modified
        lastAlive = nowMillis()
      }
      const silence = nowMillis() - lastAlive
      if (!isPeerClosed && silence > settings.leaseTimeout) {
        const allowed = `lease_timeout: ${settings.leaseTimeout / 1000} s, silent for ${(silence / 1000).toFixed(1)} s`
        end(closed(target, "lease", `the peer of ${directory} neither sends nor touches its lease (${allowed})`))
      } else if (isPeerClosed) {
        news.openUnsafe()
      }
    }
  })
  yield* Effect.forkScoped(watchLease)

  const pass = (isThorough: boolean) =>
    reading.withPermits(1)(Effect.suspend(() => (ended === undefined ? reader.pass(isThorough) : Effect.fail(ended))))

  let ready: ReadonlyArray<Uint8Array> = []

  /** Waits until frames are ready. */
  const fill = Effect.fnUntraced(function* (restore: <A>(self: Effect.Effect<A>) => Effect.Effect<A>) {
    let wait = settings.pollInterval
    let quiet = 0
    while (ready.length === 0) {
      news.closeUnsafe()
      const isThorough = isLookDue || isPeerClosed
      isLookDue = false
      const { frames, hasMore, isNews } = yield* Effect.tapError(pass(isThorough), (error) =>
        Effect.sync(() => end(error))
      )
      if (isNews) {
        hasReceived = true
        lastAlive = nowMillis()
      }
      ready = frames
      if (frames.length > 0 || hasMore) {
        isLookDue ||= isThorough
        continue
      }
      if (isNews) {
        wait = settings.pollInterval
        quiet = 0
      } else if (isThorough) {
        yield* lookForEnd
        quiet += 1
      }
      if (!isPeerClosed) {
        quiet = 0
        const told = yield* restore(Effect.timeoutOption(news.await, Duration.millis(wait)))
        isLookDue ||= told._tag === "None"
        wait = Math.min(wait * backOff, settings.maxPollInterval)
      } else if (quiet >= drainPasses) {
        end(closed(target, "peer", `the peer closed the connection in ${directory}`))
      } else {
        yield* restore(Effect.sleep(Duration.millis(Math.min(settings.pollInterval, drainWait))))
      }
    }
  })

  const send: FrameLink["send"] = (pieces) =>
    writing.withPermits(1)(
      Effect.suspend(() => {
        if (ended !== undefined) {
          return Effect.fail(ended)
        }
        if (isPeerClosed) {
          return Effect.fail(closed(target, "peer", `the peer closed the connection in ${directory}`))
        }
        return Effect.tapError(writer.append(pieces), (error) =>
          Effect.sync(() =>
            end(closed(target, "io", `a frame was not written, which ends the connection: ${error.message}`))
          )
        )
      })
    )

  // An interruption strikes when the mask ends: frames stay in `ready` until the last step, which nothing can part.
  const receive: FrameLink["receive"] = Effect.flatMap(Effect.uninterruptibleMask(fill), () =>
    Effect.suspend(() => {
      const frames = ready
      ready = []
      return Arr.isReadonlyArrayNonEmpty(frames) ? Effect.succeed(frames) : receive
    })
  )

  const frames: FrameLink = {
    info: { scheme: "shared-file", localAddress: `${directory}#${side}`, peerAddress: target },
    send,
    receive,
    releaseOf: reader.releaseOf
  }
  return { frames, close } satisfies Link
})
