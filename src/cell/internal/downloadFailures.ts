import { Result } from "effect"
import { Tuple } from "../../fobs/Values.ts"
import * as Fqcn from "../../identity/Fqcn.ts"

/** What the parent of a source that died says about it. */
interface Notice {
  readonly source: string
  readonly refIds: ReadonlySet<string>
  readonly reason: string
}

/** Sources that are known to have died; docs/wire/fobs.md, section 7.6. */
export interface Failures {
  /** Takes a notice in, or tells what is wrong with it. */
  readonly take: (origin: string, payload: unknown) => Result.Result<Notice, string>
  /** Why a download would fail. */
  readonly find: (source: string, refId: string) => string | undefined
}

const retention = 1_800_000
const maxRefs = 256
const maxKnown = 4096
const maxReason = 1024

const keyOf = (source: string, refId: string): string => JSON.stringify([source, refId])

const refsOf = (value: unknown): ReadonlySet<string> | undefined => {
  const refs: unknown = value instanceof Tuple ? value.items : value
  if (!Array.isArray(refs) || refs.length === 0 || refs.length > maxRefs) {
    return undefined
  }
  return refs.every((ref) => typeof ref === "string" && ref !== "") ? new Set<string>(refs) : undefined
}

const isName = (name: unknown): name is string => Result.isSuccess(Fqcn.validate(name))

const read = (origin: string, payload: unknown): Result.Result<Notice, string> => {
  if (!(payload instanceof Map)) {
    return Result.fail("source failure payload must be a dict")
  }
  const source: unknown = payload.get("source_fqcn")
  if (!isName(origin) || !isName(source) || Fqcn.parent(source) !== origin) {
    return Result.fail("source failure origin does not own source_fqcn")
  }
  const refIds = refsOf(payload.get("ref_ids"))
  if (refIds === undefined) {
    return Result.fail("source failure ref_ids are invalid")
  }
  const reason: unknown = payload.get("reason")
  return typeof reason === "string" && reason !== ""
    ? Result.succeed({ source, refIds, reason: reason.slice(0, maxReason) })
    : Result.fail("source failure reason is invalid")
}

/** `now` is in milliseconds. */
export const makeFailures = (now: () => number): Failures => {
  const known = new Map<string, { readonly reason: string; readonly until: number }>()

  const forgetOld = (): void => {
    const time = now()
    for (const [key, { until }] of known) {
      if (until > time && known.size <= maxKnown) {
        return
      }
      known.delete(key)
    }
  }

  return {
    take: (origin, payload) =>
      Result.map(read(origin, payload), (notice) => {
        for (const refId of notice.refIds) {
          const key = keyOf(notice.source, refId)
          // The newest last, so that the oldest go first.
          known.delete(key)
          known.set(key, { reason: notice.reason, until: now() + retention })
        }
        forgetOld()
        return notice
      }),
    find: (source, refId) => {
      const found = known.get(keyOf(source, refId))
      return found === undefined || found.until <= now() ? undefined : found.reason
    }
  }
}
