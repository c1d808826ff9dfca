/** One look of a trainer for its service (docs/wire/attach.md, section 10.5). */
import { Clock, Data, Effect, Ref } from "effect"
import { FileError } from "../../platform/FileError.ts"
import type { FileLock } from "../../platform/FileLock.ts"
import type { FileLockError } from "../../platform/FileLockError.ts"
import type { PrivateFiles } from "../../platform/PrivateFiles.ts"
import type { EndpointRecord } from "../EndpointRecord.ts"
import type { RendezvousError } from "../RendezvousError.ts"
import {
  checkDirectory,
  checkFile,
  checkListener,
  checkRoot,
  fromFileError,
  fromLockError,
  type RendezvousPaths
} from "./rendezvousPaths.ts"
import { checkRecord, readObject } from "./rendezvousRecords.ts"

/** Why a try found nothing, with nothing being wrong. */
export class NotYet extends Data.TaggedError("NotYet")<{ readonly obstacle: string; readonly isOdd: boolean }> {}

export const notYet = (obstacle: string, isOdd = false) => new NotYet({ obstacle, isOdd })

/**
 * A failure to read that time may mend. Also a refusal: a directory that another user is just making has not its final
 * mode at first.
 */
const patient = <A, R>(
  self: Effect.Effect<A, FileError | RendezvousError, R>
): Effect.Effect<A, RendezvousError | NotYet, R> =>
  Effect.mapError(self, (error) => {
    if (!(error instanceof FileError)) return error
    return error.reason._tag === "FileUnsafe"
      ? fromFileError(error)
      : notYet(error.message, error.reason._tag !== "FileMissing")
  })

/** Says of a claim whether its owner lives. */
export type Probe = (instanceId: string) => Effect.Effect<boolean, RendezvousError | NotYet>

/** An owner holds its lock as long as its claim stands, so a dead one needs no second look. But servers lose locks. */
const reprobeNanos = 5_000_000_000n

/**
 * A probe that remembers a dead owner for a while: it takes the lock for an instant, and a service that starts in that
 * instant takes the trainer for a live service. The reference gives up then.
 */
export const makeProbe = Effect.fnUntraced(function* (locks: FileLock["Service"], paths: RendezvousPaths) {
  const dead = yield* Ref.make({ instanceId: "", until: 0n })
  const probe: Probe = Effect.fnUntraced(function* (instanceId) {
    const now = yield* Clock.monotonicTimeNanos
    const last = yield* Ref.get(dead)
    if (last.instanceId === instanceId && now < last.until) return false
    const isLive = yield* Effect.mapError(locks.isLocked(paths.lock), probeFailed)
    if (!isLive) yield* Ref.set(dead, { instanceId, until: now + reprobeNanos })
    return isLive
  })
  return probe
})

/** One look, in the reference's order. */
export const find = Effect.fnUntraced(function* (
  files: PrivateFiles["Service"],
  probe: Probe,
  paths: RendezvousPaths
): Effect.fn.Return<EndpointRecord, RendezvousError | NotYet> {
  yield* patient(checkRoot(files, paths.root))
  for (const path of [...paths.parents, paths.claim]) yield* patient(checkDirectory(files, "path", path))
  yield* patient(checkFile(files, "path", paths.lock))
  const owner = yield* patient(readObject(files, paths.owner))
  const json = yield* patient(readObject(files, paths.endpoint))
  if (owner === undefined) return yield* notYet(`${paths.owner} is no JSON object`)
  if (json === undefined || Object.keys(json).length === 0) return yield* notYet(`${paths.endpoint} is no JSON object`)
  const record = yield* checkRecord(paths, json)
  if (owner.instance_id !== record.instanceId) return yield* notYet(`${paths.endpoint} is of a former owner`)
  yield* patient(checkListener(files, paths.root, record.connectUrl))
  const isLive = yield* probe(record.instanceId)
  return isLive ? record : yield* notYet(`the service that published ${paths.endpoint} has died`)
})

const probeFailed = (error: FileLockError): RendezvousError | NotYet =>
  error.reason._tag === "LockIo" && error.isRetryable ? notYet(error.message) : fromLockError(error)
