import { Clock, Deferred, Effect, PubSub, type Scope, Stream, SubscriptionRef } from "effect"
import type { Connection } from "../../transport/Connection.ts"
import type { PeerChange, PeerStatus } from "../CellTypes.ts"
import { makeQueued, type Queued } from "./room.ts"
import type { Traffic } from "./traffic.ts"

/** A cell at the other end of a connection. */
export interface Peer {
  readonly name: string
  readonly connection: Connection
  /** Whether this cell dialed it. */
  readonly dialed: boolean
  readonly traffic: Traffic
  /** When it connected: the wall clock, in milliseconds. */
  readonly since: number
  /** Completed when a newer connection of the same name takes the place of this one. */
  readonly evicted: Deferred.Deferred<void>
  /** Completed when the connection is over. */
  readonly gone: Deferred.Deferred<void>
  /** What waits to be forwarded to it. */
  readonly queued: Queued
}

/** The cells that are directly connected, at most one connection a name; docs/wire/cellnet.md, section 4. */
export interface Peers {
  readonly get: (name: string) => Peer | undefined
  readonly has: (name: string) => boolean
  /**
   * Adds a connection; an older one of the same name is evicted without a change of `connected`. `own` is told of the
   * peer before anybody else is.
   */
  readonly add: (
    connection: Connection,
    dialed: boolean,
    traffic: Traffic,
    own: (peer: Peer) => void
  ) => Effect.Effect<Peer>
  /** Takes a peer out of the routes (it said bye, or its connection is over), and tells why. */
  readonly remove: (peer: Peer, why: string) => Effect.Effect<void>
  /** Whether a name is connected: the present value first, then each change. */
  readonly connected: (name: string) => Stream.Stream<boolean>
  readonly status: Effect.Effect<ReadonlyArray<PeerStatus>>
  readonly changes: Stream.Stream<PeerChange>
}

/** Changes that a slow subscriber has not taken; beyond it, the oldest are lost. */
const changesKept = 1024

const statusOf = ({ connection, dialed, name, queued, since, traffic }: Peer): PeerStatus => ({
  name,
  address: connection.info.peerAddress,
  dialed,
  since,
  ...traffic,
  bytesWaiting: queued.bytes
})

export const makePeers: Effect.Effect<Peers, never, Scope.Scope> = Effect.gen(function* () {
  const names = yield* SubscriptionRef.make<ReadonlySet<string>>(new Set())
  const told = yield* Effect.acquireRelease(PubSub.sliding<PeerChange>(changesKept), PubSub.shutdown)
  const table = new Map<string, Peer>()
  const publish = Effect.suspend(() => SubscriptionRef.set(names, new Set(table.keys())))

  const add: Peers["add"] = Effect.fnUntraced(function* (connection, dialed, traffic, own) {
    const peer: Peer = {
      name: connection.peer,
      connection,
      dialed,
      traffic,
      since: yield* Clock.currentTimeMillis,
      evicted: Deferred.makeUnsafe(),
      gone: Deferred.makeUnsafe(),
      queued: makeQueued()
    }
    const older = table.get(peer.name)
    table.set(peer.name, peer)
    own(peer)
    const { name } = peer
    const address = connection.info.peerAddress
    if (older === undefined) {
      yield* publish
      yield* PubSub.publish(told, { _tag: "Connected", name, address })
    } else {
      yield* Deferred.succeed(older.evicted, undefined)
      yield* PubSub.publish(told, { _tag: "Replaced", name, address, before: older.connection.info.peerAddress })
    }
    return peer
  })

  const remove: Peers["remove"] = (peer, why) =>
    Effect.suspend(() => {
      if (table.get(peer.name) !== peer) {
        return Effect.void
      }
      table.delete(peer.name)
      const { connection, name } = peer
      const change = { _tag: "Disconnected", name, address: connection.info.peerAddress, why } as const
      return Effect.andThen(publish, PubSub.publish(told, change))
    })

  const connected: Peers["connected"] = (name) =>
    Stream.changes(Stream.map(SubscriptionRef.changes(names), (present) => present.has(name)))

  return {
    get: (name) => table.get(name),
    has: (name) => table.has(name),
    add,
    remove,
    connected,
    status: Effect.sync(() => [...table.values()].map(statusOf)),
    changes: Stream.fromPubSub(told)
  }
})
