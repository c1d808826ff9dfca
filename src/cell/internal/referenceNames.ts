/** What a message calls the arrays that stayed at their sources. */
import { DownloadRef, Tuple } from "../../fobs/Values.ts"

interface Found {
  readonly value: unknown
  readonly name: string | undefined
}

const partsOf = ({ name, value }: Found): ReadonlyArray<Found> => {
  if (value instanceof Map) {
    return Array.from(value, ([key, part]) => ({ value: part, name: typeof key === "string" ? key : name }))
  }
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return []
  const parts: ReadonlyArray<unknown> = Array.isArray(value)
    ? value
    : value instanceof Tuple
      ? value.items
      : Object.values(value)
  return parts.map((part) => ({ value: part, name }))
}

/**
 * The key of an array in a decoded message that keeps its references: a parameter's name, for instance. `undefined`
 * where the message does not hold it, or not under a text.
 */
export const nameOf = (message: unknown, refId: string, itemId: string): string | undefined => {
  const seen = new Set<unknown>()
  const waiting: Array<Found> = [{ value: message, name: undefined }]
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { name, value } = next
    if (value instanceof DownloadRef) {
      if (value.refId === refId && value.itemId === itemId) return name
    } else if (!seen.has(value)) {
      seen.add(value)
      for (const part of partsOf(next)) waiting.push(part)
    }
  }
  return undefined
}
