/** A TCP proxy that does to connections what networks do, and chooses by a seed. For tests alone. */
import * as NodeNet from "node:net"
import { Effect, type Scope } from "effect"

/**
 * What becomes of one connection. Positions count the bytes of both directions together.
 *
 * - `none`: it is passed on as it is
 * - `delay`: each byte arrives so much later, in both directions
 * - `throttle`: each direction passes so many bytes a second
 * - `cut`: after so many bytes both ends are closed, or `reset`
 * - `blackHole`: after so many bytes nothing arrives any more, not even an end; both ends stay open
 * - `stall`: after so many bytes nothing is read of either end for a time; what they send fills their buffers
 * - `halfOpen`: after so many bytes one end is closed; the other, named by `stays`, is told nothing
 */
export type Fault =
  | { readonly kind: "none" }
  | { readonly kind: "delay"; readonly millis: number }
  | { readonly kind: "throttle"; readonly bytesPerSecond: number }
  | { readonly kind: "cut"; readonly at: number; readonly reset?: boolean }
  | { readonly kind: "blackHole"; readonly at: number }
  | { readonly kind: "stall"; readonly at: number; readonly millis: number }
  | { readonly kind: "halfOpen"; readonly at: number; readonly stays: "dialer" | "listener" }

/** A whole number from 0 below the bound; see `makeRandom` of test/transport/support.ts. */
export type Random = (below: number) => number

export interface FaultProxy {
  readonly port: number
  /** The target's URL, by way of the proxy. */
  readonly through: (url: string) => string
  /** What was chosen for each connection, in the order they came. */
  readonly faults: ReadonlyArray<Fault>
  /** Connections whose fault has struck (`cut`, `blackHole`, `halfOpen`). */
  readonly struck: () => number
  /** Closes all connections that there are; new ones are taken as before. */
  readonly cutAll: () => void
}

export interface Options {
  /** Where connections lead. */
  readonly port: number
  /** Chooses the fault of a connection, by its number from 0. */
  readonly plan: (connection: number) => Fault
}

/** One of each kind, with sizes that suit a test: cuts within `bytes`, delays and rates that end soon. */
export const anyFault = (random: Random, bytes: number): Fault => {
  const at = random(bytes)
  switch (random(6)) {
    case 0:
      return { kind: "delay", millis: 1 + random(30) }
    case 1:
      return { kind: "throttle", bytesPerSecond: 200_000 + random(2_000_000) }
    case 2:
      return { kind: "cut", at, reset: random(2) === 0 }
    case 3:
      return { kind: "blackHole", at }
    case 4:
      return { kind: "halfOpen", at, stays: random(2) === 0 ? "dialer" : "listener" }
    default:
      return { kind: "none" }
  }
}

interface Pair {
  readonly dialer: NodeNet.Socket
  readonly listener: NodeNet.Socket
}

const strike = ({ dialer, listener }: Pair, fault: Fault): void => {
  switch (fault.kind) {
    case "cut":
      for (const socket of [dialer, listener]) {
        if (fault.reset === true) socket.resetAndDestroy()
        else socket.destroy()
      }
      return
    case "halfOpen":
      ;(fault.stays === "dialer" ? listener : dialer).destroy()
  }
}

const limitOf = (fault: Fault): number =>
  fault.kind === "cut" || fault.kind === "blackHole" || fault.kind === "halfOpen" ? fault.at : Number.POSITIVE_INFINITY

/** Passes on both directions of a connection until its fault strikes, which `onStrike` is told. */
const join = (pair: Pair, fault: Fault, onStrike: () => void): void => {
  const limit = limitOf(fault)
  let passed = 0
  let isStruck = false
  let hasStalled = false
  const later = (action: () => void): void => {
    if (fault.kind === "delay") setTimeout(action, fault.millis)
    else action()
  }
  const struckNow = (): void => {
    isStruck = true
    onStrike()
    strike(pair, fault)
  }
  const pass = (from: NodeNet.Socket, to: NodeNet.Socket): void => {
    from.on("data", (chunk) => {
      if (isStruck) return
      const part = chunk.subarray(0, limit - passed)
      passed += part.length
      if (passed >= limit) {
        // What was passed before gets there.
        isStruck = true
        to.write(part, struckNow)
        return
      }
      if (fault.kind === "delay") {
        later(() => to.write(part))
        return
      }
      const isFree = to.write(part)
      if (fault.kind === "stall" && passed >= fault.at && !hasStalled) {
        hasStalled = true
        for (const socket of [pair.dialer, pair.listener]) {
          socket.pause()
          setTimeout(() => socket.resume(), fault.millis)
        }
        onStrike()
      } else if (fault.kind === "throttle") {
        from.pause()
        setTimeout(() => from.resume(), (part.length / fault.bytesPerSecond) * 1000)
      } else if (!isFree) {
        from.pause()
        to.once("drain", () => from.resume())
      }
    })
    from.on("end", () => {
      if (!isStruck) later(() => to.end())
    })
    from.on("close", () => {
      if (!isStruck) later(() => to.destroy())
    })
  }
  if (limit === 0) struckNow()
  pass(pair.dialer, pair.listener)
  pass(pair.listener, pair.dialer)
}

/** Opens a proxy in front of a port of this machine; it is gone, with its connections, with the Scope. */
export const makeFaultProxy = Effect.fnUntraced(function* (
  options: Options
): Effect.fn.Return<FaultProxy, never, Scope.Scope> {
  const sockets = new Set<NodeNet.Socket>()
  const faults: Array<Fault> = []
  let struck = 0
  const keep = (socket: NodeNet.Socket): NodeNet.Socket => {
    sockets.add(socket)
    socket.setNoDelay(true)
    socket.on("error", () => {})
    socket.on("close", () => sockets.delete(socket))
    return socket
  }
  const cutAll = () => {
    for (const socket of sockets) socket.destroy()
  }
  const server = NodeNet.createServer((client) => {
    const dialer = keep(client)
    const listener = keep(NodeNet.connect(options.port, "127.0.0.1"))
    const fault = options.plan(faults.length)
    faults.push(fault)
    join({ dialer, listener }, fault, () => {
      struck += 1
    })
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => {
      server.listen(0, "127.0.0.1", () => resume(Effect.void))
    }),
    () =>
      Effect.sync(() => {
        server.close()
        cutAll()
      })
  )
  const address = server.address()
  const port = typeof address === "object" && address !== null ? address.port : 0
  return { port, through: (url) => url.replace(/:\d+(?=\/|$)/, `:${port}`), faults, struck: () => struck, cutAll }
})
