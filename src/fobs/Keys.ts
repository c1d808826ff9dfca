/**
 * Looking up entries whose keys are not texts.
 *
 * A Map compares objects by identity, Python compares tuples, enum members and bytes by what they hold. Text keys need
 * none of this: use `map.get`.
 *
 * Source: docs/wire/fobs.md, section 3.1.
 *
 * @since 0.1.0
 */
import { canonical } from "./internal/keys.ts"

/**
 * Whether two values are the same key to Python: `1`, `1.0` and `true` are, and tuples, bytes and enum members of equal
 * content. A list, dict or set is no key and equals nothing.
 *
 * @category guards
 * @since 0.1.0
 */
export const equals = (left: unknown, right: unknown): boolean => {
  const form = canonical(left)
  return form !== undefined && new Set<unknown>([form]).has(canonical(right))
}

/**
 * The value of the entry whose key equals `key`; `undefined` where there is none. Looks at every entry unless `key` is
 * a text.
 *
 * @category getters
 * @since 0.1.0
 */
export const get = (map: ReadonlyMap<unknown, unknown>, key: unknown): unknown => {
  if (map.has(key)) return map.get(key)
  for (const [other, value] of map) if (equals(other, key)) return value
  return undefined
}

/**
 * Whether an entry has a key that equals `key`.
 *
 * @category guards
 * @since 0.1.0
 */
export const has = (map: ReadonlyMap<unknown, unknown>, key: unknown): boolean => {
  if (map.has(key)) return true
  for (const other of map.keys()) if (equals(other, key)) return true
  return false
}
