import { Deferred, Effect, Semaphore, Stream, SubscriptionRef } from "effect"
import type { Connection } from "../../transport/Connection.ts"

/** A cell at the other end of a connection. */
export interface Peer {
  readonly name: string
  readonly connection: Connection
  /** Completed when a newer connection of the same name takes the place of this one. */
  readonly evicted: Deferred.Deferred<void>
  /** Completed when the connection is over. */
  readonly gone: Deferred.Deferred<void>
  /** Bytes that may wait to be forwarded to this peer. */
  readonly room: Semaphore.Semaphore
}

/** The cells that are directly connected, at most one connection a name; docs/wire/cellnet.md, section 4. */
export interface Peers {
  readonly get: (name: string) => Peer | undefined
  readonly has: (name: string) => boolean
  /**
   * Adds a connection; an older one of the same name is evicted without a change of `connected`. `own` is told of the
   * peer before anybody else is.
   */
  readonly add: (connection: Connection, own: (peer: Peer) => void) => Effect.Effect<Peer>
  /** Takes a peer out of the routes (it said bye, or its connection is over). */
  readonly remove: (peer: Peer) => Effect.Effect<void>
  /** Whether a name is connected: the present value first, then each change. */
  readonly connected: (name: string) => Stream.Stream<boolean>
}

export const makePeers = (forwardBytes: number): Effect.Effect<Peers> =>
  Effect.map(SubscriptionRef.make<ReadonlySet<string>>(new Set()), (names) => {
    const table = new Map<string, Peer>()
    const publish = Effect.suspend(() => SubscriptionRef.set(names, new Set(table.keys())))

    const add: Peers["add"] = Effect.fnUntraced(function* (connection, own) {
      const peer: Peer = {
        name: connection.peer,
        connection,
        evicted: Deferred.makeUnsafe(),
        gone: Deferred.makeUnsafe(),
        room: Semaphore.makeUnsafe(forwardBytes)
      }
      const older = table.get(peer.name)
      table.set(peer.name, peer)
      own(peer)
      if (older === undefined) {
        yield* publish
      } else {
        yield* Deferred.succeed(older.evicted, undefined)
      }
      return peer
    })

    const remove: Peers["remove"] = (peer) =>
      Effect.suspend(() => {
        if (table.get(peer.name) !== peer) {
          return Effect.void
        }
        table.delete(peer.name)
        return publish
      })

    const connected: Peers["connected"] = (name) =>
      Stream.changes(Stream.map(SubscriptionRef.changes(names), (present) => present.has(name)))

    return { get: (name) => table.get(name), has: (name) => table.has(name), add, remove, connected }
  })
