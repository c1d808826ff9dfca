/** Helpers for tests with real sockets. */
import * as NodeNet from "node:net"
import { Deferred, Effect, Exit, Fiber, Result, Scope } from "effect"
import * as Connection from "../../src/transport/Connection.ts"
import type { Driver, DriverListener, FrameLink } from "../../src/transport/Drivers.ts"
import { FrameReader } from "../../src/transport/FrameReader.ts"

/** Both ends of a fresh connection. */
export const makePair = Effect.fnUntraced(function* (driver: Driver, listener: DriverListener, url?: string) {
  const accepting = yield* Effect.forkScoped(listener.accept)
  const active = yield* driver.connect(url ?? listener.connectUrl)
  return { active, passive: yield* Fiber.join(accepting) }
})

/** A frame of a size (16 at least) whose other bytes say which one it is. */
export const frameOf = (size: number, mark: number): Uint8Array => {
  const bytes = new Uint8Array(size).fill(mark & 255)
  new DataView(bytes.buffer).setUint32(0, size)
  return bytes
}

export const receiveFrames = Effect.fnUntraced(function* (link: FrameLink, count: number) {
  const frames: Array<Uint8Array> = []
  while (frames.length < count) {
    frames.push(...(yield* link.receive))
  }
  return frames
})

export const portOf = (url: string): number => Number(/:(\d+)(?:\/|$)/.exec(url.slice(url.indexOf("//")))?.[1])

/** A socket without our code behind it. */
export const rawSocket = Effect.fnUntraced(function* (
  url: string
): Effect.fn.Return<NodeNet.Socket, never, Scope.Scope> {
  return yield* Effect.acquireRelease(
    Effect.callback<NodeNet.Socket>((resume) => {
      const socket = NodeNet.connect(portOf(url), "127.0.0.1", () => resume(Effect.succeed(socket)))
      socket.on("error", () => {})
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )
})

/** A listener of something that is not ours; `serve` gets each of its clients. */
export const rawServer = (serve: (socket: NodeNet.Socket) => void) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly port: number; readonly close: () => void }>((resume) => {
      const sockets = new Set<NodeNet.Socket>()
      const server = NodeNet.createServer((socket) => {
        sockets.add(socket)
        socket.on("error", () => {})
        serve(socket)
      })
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        const port = typeof address === "object" && address !== null ? address.port : 0
        const close = () => {
          server.close()
          for (const socket of sockets) socket.destroy()
        }
        resume(Effect.succeed({ port, close }))
      })
    }),
    ({ close }) => Effect.sync(close)
  )

/** What a raw socket gets: frames as they come, and the end. */
export const watchFrames = (socket: NodeNet.Socket) => {
  const reader = new FrameReader()
  const frames: Array<Uint8Array> = []
  const closed = Deferred.makeUnsafe<void>()
  let waiting: { readonly count: number; readonly done: Deferred.Deferred<void> } | undefined
  const look = () => {
    if (waiting !== undefined && frames.length >= waiting.count) Deferred.doneUnsafe(waiting.done, Effect.void)
  }
  socket.on("data", (chunk) => {
    frames.push(...Result.getOrThrow(reader.push(chunk)))
    look()
  })
  socket.on("close", () => Deferred.doneUnsafe(closed, Effect.void))
  const atLeast = (count: number) =>
    Effect.suspend(() => {
      waiting = { count, done: Deferred.makeUnsafe() }
      look()
      return Deferred.await(waiting.done)
    })
  return { frames, atLeast, closed: Deferred.await(closed) }
}

/** Serves all who come to a listener under a name, each for as long as its connection lasts. */
export const serveAs = Effect.fnUntraced(function* (
  local: string,
  listener: DriverListener,
  onMessage: (message: Connection.Incoming) => void = () => {},
  options: Pick<Connection.Options, "verify"> = {}
) {
  const acceptOne = Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const link = yield* restore(Scope.provide(listener.accept, scope)).pipe(
        Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause)))
      )
      yield* Connection.make(link, { ...options, role: "passive", local }).pipe(
        Effect.flatMap((connection) =>
          Effect.forever(Effect.map(connection.receive, (messages) => messages.forEach(onMessage)))
        ),
        Effect.scoped,
        Effect.onExit((exit) => Scope.close(scope, exit)),
        Effect.ignore,
        Effect.forkScoped
      )
    })
  )
  yield* Effect.forkScoped(Effect.ignore(Effect.forever(acceptOne)))
})

/** A connection with what listens at a URL, as a cell makes it. */
export const connectAs = Effect.fnUntraced(function* (
  driver: Driver,
  url: string,
  local: string,
  resources?: Parameters<Driver["connect"]>[1]
) {
  const link = yield* driver.connect(url, resources)
  return yield* Connection.make(link, { role: "active", local, handshakeTimeout: "5 seconds" })
})
