import { Effect, type Scope } from "effect"
import type { Address } from "../CellTypes.ts"

interface Entry<H> {
  readonly handler: H
  readonly origin: string | undefined
}

/** Handlers by address, `channel:topic` before `channel:*` before `*:*`; docs/wire/cellnet.md, section 5.7. */
export interface Registry<H> {
  /** Adds a handler until the Scope closes. */
  readonly add: (address: Address, handler: H, origin?: string) => Effect.Effect<void, never, Scope.Scope>
  /** The newest handler for an origin, or else the newest of the address. */
  readonly find: (address: Address, origin: string) => H | undefined
}

export const makeRegistry = <H>(): Registry<H> => {
  const entries = new Map<string, ReadonlyArray<Entry<H>>>()
  const keyOf = (address: Address) => `${address.channel}:${address.topic}`

  const remove = (key: string, entry: Entry<H>) => {
    const rest = (entries.get(key) ?? []).filter((other) => other !== entry)
    if (rest.length === 0) {
      entries.delete(key)
    } else {
      entries.set(key, rest)
    }
  }

  const add: Registry<H>["add"] = (address, handler, origin) => {
    const key = keyOf(address)
    return Effect.asVoid(
      Effect.acquireRelease(
        Effect.sync(() => {
          const entry: Entry<H> = { handler, origin }
          entries.set(key, [entry, ...(entries.get(key) ?? [])])
          return entry
        }),
        (entry) => Effect.sync(() => remove(key, entry))
      )
    )
  }

  const find: Registry<H>["find"] = (address, origin) => {
    const found = entries.get(keyOf(address)) ?? entries.get(`${address.channel}:*`) ?? entries.get("*:*")
    return (found?.find((entry) => entry.origin === origin) ?? found?.[0])?.handler
  }

  return { add, find }
}
