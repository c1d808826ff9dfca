/**
 * The file that tells a trainer whom to attach to.
 *
 * @since 0.1.0
 */
import { Config, Duration, Effect, FileSystem, Option, type PlatformError, Predicate, Result, Schema } from "effect"
import { show } from "../clientapi/FieldError.ts"
import { AttachId } from "../clientapi/TrainerName.ts"
import type { FileError } from "../platform/FileError.ts"
import { PrivateFiles } from "../platform/PrivateFiles.ts"
import {
  checkAuthIdentity,
  checkCaCert,
  checkEnvelope,
  checkJobWaitTimeout,
  checkSite,
  checkSource,
  type ProfileJson
} from "./internal/profileRules.ts"
import { ProfileError } from "./ProfileError.ts"

/**
 * The environment variable that names the profile's file.
 *
 * @category constants
 * @since 0.1.0
 */
export const profileVariable = "NVFLARE_CLIENT_API_BOOTSTRAP"

const typeVariable = "CLIENT_API_TYPE"
const attachType = "CELL_API"

/** Owner only: a profile tells where to connect and as whom. */
const profileMode = 0o600

/**
 * How the trainer finds its service: in a directory that both see, or at a URL.
 *
 * @category models
 * @since 0.1.0
 */
export const ProfileSource = Schema.TaggedUnion({
  /** `rendezvous_dir`: an absolute path. */
  Rendezvous: { root: Schema.String },
  Url: {
    connectUrl: Schema.String,
    security: Schema.Literals(["clear", "mtls"]),
    /** The client parent (CP) below which trainer and service stand. */
    cpFqcn: Schema.String,
    /** The only client job (CJ) that may open a session; any of the CP's jobs without it. */
    cjFqcn: Schema.optionalKey(Schema.String),
    /** The name in the certificate by which the CP is known. */
    authIdentity: Schema.String
  }
})

/**
 * @category models
 * @since 0.1.0
 */
export type ProfileSource = typeof ProfileSource.Type

/**
 * A trainer's profile. Source: docs/wire/attach.md, section 11.
 *
 * @category models
 * @since 0.1.0
 */
export class TrainerProfile extends Schema.Class<TrainerProfile>("fl-attach/trainer/TrainerProfile")({
  attachId: AttachId,
  siteName: Schema.String,
  source: ProfileSource,
  /** Whether the job runs in secure mode: messages are protected end to end. */
  secureMode: Schema.Boolean,
  /** The file with the authority's certificate. */
  caCert: Schema.optionalKey(Schema.String),
  /** How long to wait for the service, from the first look to its session; for ever without it. */
  jobWaitTimeout: Schema.optionalKey(Schema.Duration)
}) {
  /** Whether all messages are protected end to end: by secure mode, or because the connection is. */
  get isProtected(): boolean {
    return this.secureMode || (this.source._tag === "Url" && this.source.security !== "clear")
  }

  /**
   * Reads a profile's JSON. The first rule that it breaks, in the reference's order, is the error.
   *
   * @category constructors
   * @since 0.1.0
   */
  static readonly decode = (json: unknown): Result.Result<TrainerProfile, ProfileError> => decode(json)

  /**
   * Reads a profile's file.
   *
   * @category constructors
   * @since 0.1.0
   */
  static readonly load = (path: string): Effect.Effect<TrainerProfile, ProfileError, FileSystem.FileSystem> =>
    load(path)

  /**
   * Reads the file that the environment variable NVFLARE_CLIENT_API_BOOTSTRAP names (by Effect's ConfigProvider). As for
   * the reference, CLIENT_API_TYPE must be absent or `CELL_API`.
   *
   * @category constructors
   * @since 0.1.0
   */
  static readonly fromEnv: Effect.Effect<TrainerProfile, ProfileError, FileSystem.FileSystem> = Effect.suspend(() =>
    fromEnv()
  )

  /**
   * A profile as the JSON that the reference's trainer reads, too. Fields with their default are left out.
   *
   * @category combinators
   * @since 0.1.0
   */
  static readonly encode = (profile: TrainerProfile): ProfileJson => encode(profile)

  /**
   * Writes a profile's file, for its owner only (mode 0600) and in one step; a profile that breaks a rule is refused.
   *
   * @category combinators
   * @since 0.1.0
   */
  static readonly write = (
    path: string,
    profile: TrainerProfile
  ): Effect.Effect<void, ProfileError | FileError, PrivateFiles> => write(path, profile)
}

const profileError = (field: string, value: unknown, rule: string): ProfileError => {
  const shown = show(value)
  return new ProfileError({ field, value: shown, message: `${field} is ${shown}: ${rule}` })
}

const decode = (json: unknown): Result.Result<TrainerProfile, ProfileError> => {
  if (!Predicate.isObject(json)) {
    return Result.fail(profileError("profile", json, 'write a JSON object: { "schema_version": 1, ... }'))
  }
  return Result.mapError(check(json), ({ field, value, message }) => new ProfileError({ field, value, message }))
}

const check = (json: ProfileJson) =>
  Result.gen(function* () {
    yield* checkEnvelope(json)
    const site = String(json.site_name)
    const source = yield* checkSource(json, site)
    const caCert = yield* checkCaCert(json, source)
    const authIdentity = (yield* checkAuthIdentity(json)) ?? site
    const seconds = yield* checkJobWaitTimeout(json)
    yield* checkSite(site, source)
    return new TrainerProfile({
      attachId: String(json.attach_id),
      siteName: site,
      source: source._tag === "Rendezvous" ? source : withPin({ ...source, authIdentity }),
      secureMode: json.secure_mode === true,
      ...(caCert === undefined ? {} : { caCert }),
      ...(seconds === undefined ? {} : { jobWaitTimeout: Duration.seconds(seconds) })
    })
  })

type UrlSource = Extract<ProfileSource, { readonly _tag: "Url" }>

const withPin = ({
  cjFqcn,
  ...source
}: Omit<UrlSource, "cjFqcn"> & { readonly cjFqcn: string | undefined }): UrlSource =>
  cjFqcn === undefined ? source : { ...source, cjFqcn }

/** What a person can do about it, by the reasons of a read that failed. */
const unreadable = (path: string, { reason }: PlatformError.PlatformError): ProfileError => {
  const cause: unknown = reason.cause
  const code = Predicate.isObject(cause) && typeof cause.code === "string" ? cause.code : reason._tag
  const next = readHints.get(code) ?? `it can't be read (${code})`
  return unusable(path, next)
}

const unusable = (path: string, why: string): ProfileError =>
  new ProfileError({ field: "file", value: show(path), message: `profile ${path}: ${why}` })

const readHints: ReadonlyMap<string, string> = new Map([
  ["ENOENT", "there is no such file: write one (docs/cli.md shows it), or check the path"],
  ["NotFound", "there is no such file: write one (docs/cli.md shows it), or check the path"],
  ["ENOTDIR", "a part of its path is no folder: check the path"],
  ["EISDIR", "it is a folder: name the profile's file"],
  ["EACCES", "this user may not read it: give the owner or group the right"],
  ["EPERM", "this user may not read it: give the owner or group the right"],
  ["PermissionDenied", "this user may not read it: give the owner or group the right"]
])

const load = Effect.fn("TrainerProfile.load")(function* (path: string) {
  const files = yield* FileSystem.FileSystem
  const text = yield* files.readFileString(path).pipe(Effect.mapError((error) => unreadable(path, error)))
  const json = yield* Effect.try({
    try: (): unknown => JSON.parse(text),
    catch: () => unusable(path, "it is no JSON: write one JSON object")
  })
  return yield* Effect.mapError(
    Effect.fromResult(decode(json)),
    ({ field, value, message }) => new ProfileError({ field, value, message: `${path}: ${message}` })
  )
})

const variable = Effect.fnUntraced(
  function* (name: string) {
    return yield* Config.option(Config.String(name))
  },
  (self, name) => Effect.mapError(self, (error) => profileError(name, "", `it can't be read (${error.message})`))
)

const fromEnv = Effect.fn("TrainerProfile.fromEnv")(function* () {
  const path = yield* variable(profileVariable)
  const type = yield* variable(typeVariable)
  if (Option.isNone(path) || path.value === "") {
    return yield* profileError(profileVariable, "", "set it to the path of the trainer's profile")
  }
  if (Option.isSome(type) && type.value !== attachType) {
    return yield* profileError(typeVariable, type.value, `unset it, or set it to "${attachType}"`)
  }
  return yield* load(path.value)
})

const encode = (profile: TrainerProfile): ProfileJson => ({
  schema_version: 1,
  execution_mode: "attach",
  attach_id: profile.attachId,
  site_name: profile.siteName,
  ...encodeSource(profile.source, profile.siteName),
  ...(profile.secureMode ? { secure_mode: true } : {}),
  ...(profile.caCert === undefined ? {} : { ca_cert: profile.caCert }),
  ...(profile.jobWaitTimeout === undefined ? {} : { job_wait_timeout: Duration.toSeconds(profile.jobWaitTimeout) })
})

const encodeSource = (source: ProfileSource, site: string): ProfileJson =>
  source._tag === "Rendezvous"
    ? { rendezvous_dir: source.root }
    : {
        connect_url: source.connectUrl,
        connection_security: source.security,
        ...(source.cpFqcn === site ? {} : { cp_fqcn: source.cpFqcn }),
        ...(source.cjFqcn === undefined ? {} : { cj_fqcn: source.cjFqcn }),
        ...(source.authIdentity === site ? {} : { auth_identity: source.authIdentity })
      }

const write = Effect.fn("TrainerProfile.write")(function* (path: string, profile: TrainerProfile) {
  const json = encode(profile)
  yield* Effect.fromResult(decode(json))
  const files = yield* PrivateFiles
  yield* files.write(path, `${JSON.stringify(json, undefined, 2)}\n`, { mode: profileMode })
})
