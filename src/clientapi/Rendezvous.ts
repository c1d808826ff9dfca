/**
 * How a service and the trainer that it waits for find each other in a shared directory: the service claims an attach id
 * and publishes where it listens, the trainer waits for that.
 *
 * A claim is alive while its process holds the lock: no clock of any machine is compared with another's.
 * Source: docs/wire/attach.md, section 10.
 *
 * @since 0.1.0
 */
import * as NodePath from "node:path"
import { Duration, Effect, Option, Predicate, Ref, Result, Schedule, type Scope } from "effect"
import * as SecureRandom from "effect/crypto/SecureRandom"
import { formatDuration } from "../platform/DurationText.ts"
import { FileError } from "../platform/FileError.ts"
import { FileLock } from "../platform/FileLock.ts"
import type { FileLockError } from "../platform/FileLockError.ts"
import { PrivateFiles } from "../platform/PrivateFiles.ts"
import { type EndpointRecord, endpointRecordJson, sortedJson } from "./EndpointRecord.ts"
import {
  checkDirectory,
  checkListener,
  checkPrivate,
  checkRoot,
  directoryMode,
  fileMode,
  fromFileError,
  fromLockError,
  noFileErrors,
  pathsOf,
  type RendezvousKey,
  type RendezvousPaths
} from "./internal/rendezvousPaths.ts"
import { find, makeProbe, type NotYet, notYet } from "./internal/rendezvousReader.ts"
import { checkRecord, readObject } from "./internal/rendezvousRecords.ts"
import {
  ClaimHeld,
  ClaimLost,
  NotPublished,
  type RendezvousError,
  RendezvousIo,
  rendezvousError
} from "./RendezvousError.ts"
import { parseJobName, trainerFqcn } from "./TrainerName.ts"

type Files = PrivateFiles["Service"]

/**
 * Whom the rendezvous is for. `root` is the absolute path of a directory that both machines see; it must exist, be no
 * link and not be writable for all users.
 *
 * @category models
 * @since 0.1.0
 */
export type RendezvousOptions = RendezvousKey

/**
 * Where a trainer is to connect, and to whom.
 *
 * @category models
 * @since 0.1.0
 */
export interface Endpoint {
  readonly cjFqcn: string
  /** `shared-file://0<root>/lst_<...>`, with tuning parameters if there are any. */
  readonly connectUrl: string
}

/**
 * An attach id that is ours while the scope is open.
 *
 * @category models
 * @since 0.1.0
 */
export interface Claim {
  /** 32 hexadecimal digits: this claim, in `owner.json` and in the published record. */
  readonly instanceId: string
  /** The directory of the claim. */
  readonly directory: string
  /**
   * Publishes where this service listens, in place of what was published before. The listener must stand already: it is
   * checked as the trainer will check it. Fails with `RecordInvalid`, `ListenerUnsafe`, `ClaimLost` or `RendezvousIo`.
   */
  readonly publish: (endpoint: Endpoint) => Effect.Effect<EndpointRecord, RendezvousError>
}

/** A reader's probe holds the lock for an instant: that is no live owner. */
const lockRetry = { schedule: Schedule.spaced("100 millis"), times: 10 }

/**
 * Claims an attach id for this process: makes the directories, takes the lock, puts away what a dead owner left. A lock
 * that stays busy for a second is a live owner: `ClaimHeld`.
 *
 * Closing the scope removes the claim, unless `owner.json` names another instance by then, and always unlocks.
 *
 * @category constructors
 * @since 0.1.0
 */
export const claim = Effect.fn("Rendezvous.claim")(function* (
  options: RendezvousOptions
): Effect.fn.Return<Claim, RendezvousError, PrivateFiles | FileLock | SecureRandom.SecureRandom | Scope.Scope> {
  const files = yield* PrivateFiles
  const paths = yield* pathsOf(options)
  yield* noFileErrors(makeParents(files, paths))
  yield* lock(paths)
  const instanceId = yield* newId
  const state = { isClosed: false }
  yield* Effect.acquireRelease(noFileErrors(takeOver(files, paths, instanceId)), () =>
    Effect.suspend(() => {
      state.isClosed = true
      return letGo(files, paths, instanceId)
    })
  )
  return {
    instanceId,
    directory: paths.claim,
    publish: Effect.fn("Rendezvous.publish")(function* (endpoint: Endpoint) {
      if (state.isClosed) return yield* claimLost(paths, "is closed")
      return yield* noFileErrors(publish(files, paths, instanceId, endpoint))
    })
  }
})

const newId = Effect.map(
  Effect.flatMap(SecureRandom.SecureRandom, (random) => random.uuidV4()),
  (uuid) => uuid.replaceAll("-", "")
)

const makeParents = Effect.fnUntraced(function* (files: Files, paths: RendezvousPaths) {
  yield* checkRoot(files, paths.root).pipe(Effect.mapError((error) => rootError(paths.root, error)))
  for (const path of paths.parents) {
    yield* files.makeDirectory(path, directoryMode).pipe(Effect.catchIf(isExists, () => Effect.void))
    yield* checkDirectory(files, "path", path)
  }
})

const rootError = (path: string, error: FileError | RendezvousError): FileError | RendezvousError => {
  if (!(error instanceof FileError && isMissing(error))) return error
  const message = `the shared root ${path} does not exist: make the directory, on a file system that service and trainer both see`
  return rendezvousError(new RendezvousIo({ path, code: error.code, message }))
}

const isExists = (error: FileError): boolean => error.reason._tag === "FileExists"
const isMissing = (error: FileError): boolean => error.reason._tag === "FileMissing"

const lock = (paths: RendezvousPaths) =>
  Effect.flatMap(FileLock, (locks) => locks.tryLock(paths.lock, { create: true, mode: fileMode })).pipe(
    Effect.retry({ ...lockRetry, while: isBusy }),
    Effect.mapError((error) => (isBusy(error) ? held(paths) : fromLockError(error)))
  )

const isBusy = (error: FileLockError): boolean => error.reason._tag === "LockBusy"

const held = ({ lock: path, siteName, attachId }: RendezvousPaths): RendezvousError =>
  rendezvousError(
    new ClaimHeld({
      path,
      siteName,
      attachId,
      message: `attach id "${attachId}" of site "${siteName}" is claimed by a live process, which holds ${path}: end that service, or use another attach id`
    })
  )

/** Only the lock's holder comes here: a claim that exists is a dead owner's. */
const takeOver = Effect.fnUntraced(function* (files: Files, paths: RendezvousPaths, instanceId: string) {
  const existing = yield* files.lstat(paths.claim).pipe(
    Effect.map(Option.some),
    Effect.catchIf(isMissing, () => Effect.succeed(Option.none()))
  )
  if (Option.isSome(existing)) {
    yield* checkPrivate("path", paths.claim, existing.value, "directory")
    const tombstone = NodePath.join(paths.site, `.${paths.attachId}.stale-${instanceId}`)
    yield* files.rename(paths.claim, tombstone)
  }
  yield* files.makeDirectory(paths.claim, directoryMode)
  yield* files
    .write(paths.owner, sortedJson({ instance_id: instanceId }), { mode: fileMode })
    .pipe(Effect.onError(() => bury(files, paths.claim)))
  yield* sweep(files, paths)
})

/** Removes what this attach id's dead owners left, also those that died between a rename and the removal. */
const sweep = Effect.fnUntraced(function* (files: Files, paths: RendezvousPaths) {
  const names = yield* files.list(paths.site).pipe(Effect.catch(() => Effect.succeed<ReadonlyArray<string>>([])))
  const starts = [`.${paths.attachId}.stale-`, `${NodePath.basename(paths.claim)}.closing-`]
  for (const name of names) {
    if (starts.some((start) => name.startsWith(start))) yield* bury(files, NodePath.join(paths.site, name))
  }
})

/** What can't be removed does no harm: a warning. */
const bury = (files: Files, path: string) =>
  files.remove(path).pipe(Effect.catch((error) => Effect.logWarning(`${path} stays behind: ${error.message}`)))

const letGo = Effect.fnUntraced(
  function* (files: Files, paths: RendezvousPaths, instanceId: string) {
    const owner = yield* readObject(files, paths.owner)
    if (owner?.instance_id !== instanceId) {
      return yield* Effect.logWarning(`the claim ${paths.claim} has another owner by now: it is left as it is`)
    }
    const tombstone = `${paths.claim}.closing-${instanceId}`
    yield* files.rename(paths.claim, tombstone)
    yield* bury(files, tombstone)
  },
  (self, _files, paths) =>
    Effect.catch(self, (error) =>
      error instanceof FileError && isMissing(error)
        ? Effect.void
        : Effect.logWarning(`the claim ${paths.claim} is not removed: ${error.message}`)
    )
)

const publish = Effect.fnUntraced(function* (
  files: Files,
  paths: RendezvousPaths,
  instanceId: string,
  endpoint: Endpoint
): Effect.fn.Return<EndpointRecord, FileError | RendezvousError> {
  const job = Result.getOrElse(parseJobName(endpoint.cjFqcn), () => ({ cpFqcn: "" }))
  const record = yield* checkRecord(paths, {
    schema_version: 1,
    instance_id: instanceId,
    attach_id: paths.attachId,
    site_name: paths.siteName,
    cj_fqcn: endpoint.cjFqcn,
    trainer_fqcn: Result.getOrElse(trainerFqcn(job.cpFqcn, paths.attachId), () => ""),
    connect_url: endpoint.connectUrl,
    connection_security: "clear"
  })
  yield* checkListener(files, paths.root, endpoint.connectUrl)
  const owner = yield* readObject(files, paths.owner).pipe(Effect.mapError((error) => lostBy(paths, error)))
  if (owner === undefined) return yield* claimLost(paths, "has a corrupt owner.json")
  if (owner.instance_id !== instanceId) return yield* claimLost(paths, "belongs to another owner by now")
  yield* files.write(paths.endpoint, yield* endpointRecordJson(record), { mode: fileMode })
  return record
})

const claimLost = (paths: RendezvousPaths, problem: string): RendezvousError =>
  rendezvousError(
    new ClaimLost({
      path: paths.claim,
      problem,
      message: `the claim ${paths.claim} ${problem}: nothing is published. Let nobody clear this directory while services run, and claim again`
    })
  )

const lostBy = (paths: RendezvousPaths, error: FileError | RendezvousError): RendezvousError => {
  if (!(error instanceof FileError)) return error
  return isMissing(error) ? claimLost(paths, "has no owner.json any more") : fromFileError(error)
}

/**
 * How a trainer waits.
 *
 * @category models
 * @since 0.1.0
 */
export interface WaitOptions extends RendezvousOptions {
  /** How long; for ever by default. At its end there is one last try. */
  readonly timeout?: Duration.Input | undefined
}

const pollInterval = "200 millis"

/** The last try may itself meet a file system that doesn't answer. */
const lastTryLimit = "5 seconds"

/**
 * Waits for a live service to publish itself, by a look every 0.2 s: network file systems tell nobody of changes. What
 * is missing, half written or left by a dead owner is waited for; what is unsafe or breaks the record's rules fails at
 * once. `NotPublished` after the timeout says what the last look met.
 *
 * @category combinators
 * @since 0.1.0
 */
export const wait = Effect.fn("Rendezvous.wait")(function* (
  options: WaitOptions
): Effect.fn.Return<EndpointRecord, RendezvousError, PrivateFiles | FileLock> {
  const files = yield* PrivateFiles
  const locks = yield* FileLock
  const paths = yield* pathsOf(options)
  const obstacle = yield* Ref.make("there was no time to look")
  const look = find(files, yield* makeProbe(locks, paths), paths).pipe(
    Effect.tapErrorTag("NotYet", (error) => note(paths, obstacle, error))
  )
  const silence = "the file system does not answer"
  const lastLook = Effect.timeoutOrElse(look, {
    duration: lastTryLimit,
    orElse: () => Effect.fail(notYet(`${silence}; before that: ${Ref.getUnsafe(obstacle)}`))
  })
  const polling = Effect.retry(look, { while: Predicate.isTagged("NotYet"), schedule: Schedule.spaced(pollInterval) })
  const bounded =
    options.timeout === undefined
      ? polling
      : Effect.timeoutOrElse(polling, { duration: options.timeout, orElse: () => lastLook })
  return yield* Effect.catchTag(bounded, "NotYet", (error) => Effect.fail(notPublished(options, error.obstacle)))
})

/** A line in the log when the obstacle is a new one. */
const note = Effect.fnUntraced(function* (paths: RendezvousPaths, last: Ref.Ref<string>, error: NotYet) {
  if ((yield* Ref.getAndSet(last, error.obstacle)) === error.obstacle) return
  const line = `attach id "${paths.attachId}" is not published yet: ${error.obstacle}`
  yield* error.isOdd ? Effect.logWarning(line) : Effect.logDebug(line)
})

const notPublished = ({ root, siteName, attachId, timeout }: WaitOptions, obstacle: string): RendezvousError => {
  const limit = timeout === undefined ? "" : ` within ${formatDuration(Duration.fromInputUnsafe(timeout))}`
  return rendezvousError(
    new NotPublished({
      root,
      siteName,
      attachId,
      obstacle,
      message: `no live service for site "${siteName}", attach id "${attachId}" in ${root}${limit}: ${obstacle}. Start the service, see that both use the same root, site and attach id, or wait longer (job_wait_timeout)`
    })
  )
}

/**
 * Whether a directory may be a rendezvous root, before anything is made in it. Fails with `RootUnsafe`, or with
 * `RendezvousIo` when it can't be looked at (`ENOENT`: it is missing).
 *
 * @category guards
 * @since 0.1.0
 */
export const checkSharedRoot = Effect.fn("Rendezvous.checkSharedRoot")(function* (
  root: string
): Effect.fn.Return<void, RendezvousError, PrivateFiles> {
  yield* noFileErrors(checkRoot(yield* PrivateFiles, root))
})
