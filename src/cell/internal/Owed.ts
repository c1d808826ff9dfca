import { Deferred, Effect } from "effect"

/** The answers that a cell owes its peers. */
export interface Owed {
  /** Counts as owed to `peer` while the effect runs. */
  readonly during: <A, E>(peer: string, answer: Effect.Effect<A, E>) => Effect.Effect<A, E>
  /** Waits until nothing is owed to `peer`. */
  readonly flush: (peer: string) => Effect.Effect<void>
}

interface Debt {
  count: number
  readonly paid: Deferred.Deferred<void>
}

export const makeOwed = (): Owed => {
  const debts = new Map<string, Debt>()

  const begin = (peer: string) =>
    Effect.sync(() => {
      const debt = debts.get(peer) ?? { count: 0, paid: Deferred.makeUnsafe<void>() }
      debt.count += 1
      debts.set(peer, debt)
      return debt
    })

  const finish = (peer: string) => (debt: Debt) =>
    Effect.suspend(() => {
      debt.count -= 1
      if (debt.count > 0) {
        return Effect.void
      }
      debts.delete(peer)
      return Deferred.succeed(debt.paid, undefined)
    })

  const flush: Owed["flush"] = (peer) =>
    Effect.suspend(() => {
      const debt = debts.get(peer)
      return debt === undefined ? Effect.void : Effect.andThen(Deferred.await(debt.paid), flush(peer))
    })

  return { during: (peer, answer) => Effect.acquireUseRelease(begin(peer), () => answer, finish(peer)), flush }
}
