/**
 * Connections inside one process, for the scheme `memory`: no sockets, no files, nothing left to chance.
 *
 * All waiting is Effect's, so that a TestClock moves it to the millisecond. Frames arrive whole, in order and exactly
 * once, unless the network's faults say otherwise. What nobody receives is kept: there is no back-pressure.
 *
 * @since 0.1.0
 */
import { Cause, Clock, Duration, Effect, Layer, Queue, type Scope, Semaphore } from "effect"
import { type Driver, type DriverListener, Drivers, type FrameLink, type LinkInfo, type Resources } from "./Drivers.ts"
import * as DriverTable from "./internal/driverTable.ts"
import { badConfig, closed, ioFailed, notReady } from "./internal/errors.ts"
import type { TransportError } from "./TransportError.ts"

/**
 * A frame on its way. `from` is the role of its sender, `link` counts the network's connections and `index` the frames
 * of this link and direction, both from 0; `bytes` is the whole frame, not to be changed, and not to be kept: its receiver
 * may use its memory again.
 *
 * @category models
 * @since 0.1.0
 */
export interface FrameInfo {
  readonly from: "active" | "passive"
  readonly url: string
  readonly link: number
  readonly index: number
  readonly bytes: Uint8Array
}

/**
 * What becomes of a frame. `duplicate` delivers it twice; `close` loses it and cuts the connection for both ends, as if
 * somewhere within the frame; `last` cuts it right behind the frame, which arrives though its sender is told that it
 * failed; a delay is added to the latency and holds back this frame alone, so that later ones may overtake it.
 *
 * @category models
 * @since 0.1.0
 */
export type Verdict = "deliver" | "duplicate" | "drop" | "close" | "last" | { readonly delay: Duration.Input }

/**
 * Decides about each frame, in the fiber that sends it, one frame of a direction at a time.
 *
 * @category models
 * @since 0.1.0
 */
export interface Faults {
  readonly onFrame: (frame: FrameInfo) => Effect.Effect<Verdict>
}

/**
 * @category models
 * @since 0.1.0
 */
export interface NetworkOptions {
  /** How long frames, and the news of a close, are on their way. Default none. */
  readonly latency?: Duration.Input
  readonly faults?: Faults
}

type Inbox = Queue.Queue<Uint8Array, TransportError>

interface Parcel {
  readonly due: number
  readonly deliver: () => void
  /** Nothing comes after it. */
  readonly isLast: boolean
}

/** One end of a link: where frames for it arrive, and what it has been told about its end. */
interface End {
  readonly inbox: Inbox
  ended: TransportError | undefined
}

const end = (at: End, reason: TransportError): void => {
  at.ended ??= reason
  Queue.failCauseUnsafe(at.inbox, Cause.fail(reason))
}

const joined = (pieces: ReadonlyArray<Uint8Array>): Uint8Array => {
  const whole = new Uint8Array(pieces.reduce((size, piece) => size + piece.byteLength, 0))
  let at = 0
  for (const piece of pieces) {
    whole.set(piece, at)
    at += piece.byteLength
  }
  return whole
}

/** Carries parcels one way, each due some time after it was posted, in order. */
const makeWire = Effect.fnUntraced(function* (latency: Duration.Duration, network: Scope.Scope) {
  if (Duration.isZero(latency)) {
    return (deliver: () => void) => deliver()
  }
  const clock = yield* Clock.Clock
  const parcels = yield* Queue.unbounded<Parcel>()
  yield* Effect.gen(function* () {
    while (true) {
      const parcel = yield* Queue.take(parcels)
      yield* Effect.sleep(Duration.millis(Math.max(0, parcel.due - clock.currentTimeMillisUnsafe())))
      parcel.deliver()
      if (parcel.isLast) {
        return
      }
    }
  }).pipe(Effect.forkIn(network))
  return (deliver: () => void, isLast = false) => {
    Queue.offerUnsafe(parcels, { due: clock.currentTimeMillisUnsafe() + Duration.toMillis(latency), deliver, isLast })
  }
})

const nameOf = (url: string): string => url.replace(/^[^:]*:(\/\/)?/, "").replace(/[?#].*$/s, "")

const makePair = Effect.fnUntraced(function* (
  number: number,
  url: string,
  names: { readonly active: string | undefined; readonly passive: string | undefined },
  options: NetworkOptions,
  network: Scope.Scope
) {
  const latency = Duration.fromInputUnsafe(options.latency ?? 0)
  const active: End = { inbox: yield* Queue.make<Uint8Array, TransportError>(), ended: undefined }
  const passive: End = { inbox: yield* Queue.make<Uint8Array, TransportError>(), ended: undefined }
  const addresses = {
    active: `memory:${nameOf(url)}#active-${number}`,
    passive: `memory:${nameOf(url)}#passive-${number}`
  }

  const makeEnd = Effect.fnUntraced(function* (role: "active" | "passive") {
    const [here, there] = role === "active" ? [active, passive] : [passive, active]
    const other = role === "active" ? "passive" : "active"
    const peerCommonName = names[other]
    const info: LinkInfo = {
      scheme: "memory",
      localAddress: addresses[role],
      peerAddress: addresses[other],
      ...(peerCommonName === undefined ? {} : { peerCommonName })
    }
    const post = yield* makeWire(latency, network)
    const turn = yield* Semaphore.make(1)
    let index = 0

    const arrive = (bytes: Uint8Array) => () => {
      Queue.offerUnsafe(there.inbox, bytes)
    }
    const cutAt = (role: "active" | "passive") =>
      end(role === "active" ? active : passive, closed(addresses[role], "io", "the network cut the connection"))
    const dispatch = Effect.fnUntraced(function* (bytes: Uint8Array) {
      const frame = { from: role, url, link: number, index, bytes }
      index += 1
      const verdict = options.faults === undefined ? "deliver" : yield* options.faults.onFrame(frame)
      if (verdict === "deliver") {
        post(arrive(bytes))
      } else if (verdict === "duplicate") {
        post(arrive(bytes))
        // A copy, since each frame is its receiver's own.
        post(arrive(bytes.slice()))
      } else if (verdict === "close" || verdict === "last") {
        cutAt(role)
        const cutThere = () => cutAt(other)
        if (verdict === "close") cutThere()
        else {
          post(arrive(bytes))
          post(cutThere)
        }
        return yield* Effect.fail(closed(info.peerAddress, "io", "the network cut the connection"))
      } else if (verdict !== "drop") {
        const wait = Duration.sum(latency, Duration.fromInputUnsafe(verdict.delay))
        yield* Effect.sync(arrive(bytes)).pipe(Effect.delay(wait), Effect.forkIn(network))
      }
    })
    const send: FrameLink["send"] = (pieces) => {
      const sent = Effect.suspend(() => (here.ended === undefined ? dispatch(joined(pieces)) : Effect.fail(here.ended)))
      return options.faults === undefined ? sent : turn.withPermits(1)(sent)
    }
    const close = Effect.sync(() => {
      end(here, closed(info.peerAddress, "local", "the connection was closed here"))
      post(() => end(there, closed(info.localAddress, "peer", "the peer closed the connection")), true)
    })
    const link: FrameLink = { info, send, receive: Queue.takeAll(here.inbox) }
    return { link, close }
  })

  return { active: yield* makeEnd("active"), passive: yield* makeEnd("passive") }
})

type Arrival = { readonly link: FrameLink; readonly close: Effect.Effect<void> }

const textOf = (resources: Resources | undefined, key: string): string | undefined =>
  resources?.[key] === undefined ? undefined : String(resources[key])

/**
 * A network of its own, as a driver for `memory://<name>` URLs; it lives as long as the Scope. A bare scheme listens
 * under the resource `name`, or a fresh name. The resource `cn` of either side is the certificate name that the other
 * sees as `peerCommonName`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const makeNetwork = Effect.fn("MemoryDriver.makeNetwork")(function* (
  options: NetworkOptions = {}
): Effect.fn.Return<Driver, never, Scope.Scope> {
  const scope = yield* Effect.scope
  const listeners = new Map<
    string,
    { readonly arrivals: Queue.Queue<Arrival, TransportError>; readonly commonName: string | undefined }
  >()
  let links = 0
  let names = 0

  const connect: Driver["connect"] = Effect.fnUntraced(function* (url, resources) {
    const name = nameOf(url)
    const listener = listeners.get(name)
    if (listener === undefined) {
      return yield* Effect.fail(notReady(url, `nobody listens at ${url} in this process`))
    }
    const commonNames = { active: textOf(resources, "cn"), passive: listener.commonName }
    const pair = yield* makePair(links++, url, commonNames, options, scope)
    yield* Effect.addFinalizer(() => pair.active.close)
    yield* Queue.offer(listener.arrivals, pair.passive)
    return pair.active.link
  })

  const listen: Driver["listen"] = Effect.fnUntraced(function* (schemeOrUrl, resources) {
    const name = schemeOrUrl.includes(":") ? nameOf(schemeOrUrl) : (textOf(resources, "name") ?? `listener-${names++}`)
    const connectUrl = `memory://${name}`
    if (name === "") {
      return yield* Effect.fail(badConfig("url", `${schemeOrUrl} names no listener: write memory://<name>`))
    }
    if (listeners.has(name)) {
      return yield* Effect.fail(
        ioFailed("listen at", connectUrl, { code: "EADDRINUSE" }, "another listener has this name")
      )
    }
    const arrivals = yield* Queue.make<Arrival, TransportError>()
    listeners.set(name, { arrivals, commonName: textOf(resources, "cn") })
    yield* Effect.addFinalizer(() =>
      Effect.gen(function* () {
        listeners.delete(name)
        for (const arrival of yield* Effect.orElseSucceed(Queue.clear(arrivals), () => [])) {
          yield* arrival.close
        }
        yield* Queue.fail(arrivals, closed(connectUrl, "local", "the listener was closed here"))
      })
    )
    const accept: DriverListener["accept"] = Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const arrival = yield* restore(Queue.take(arrivals))
        yield* Effect.addFinalizer(() => arrival.close)
        return arrival.link
      })
    )
    return { connectUrl, accept }
  })

  return { schemes: ["memory"], connect, listen }
})

/**
 * A network of its own as the program's only driver.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: NetworkOptions = {}): Layer.Layer<Drivers> =>
  Layer.effect(
    Drivers,
    Effect.map(makeNetwork(options), (driver) => DriverTable.make([driver]))
  )
