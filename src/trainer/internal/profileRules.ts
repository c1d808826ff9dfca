/**
 * The rules of a profile, in the order in which the reference checks them (docs/wire/attach.md, section 11): the first
 * that is broken is reported.
 */
import { Result } from "effect"
import { type ConnectionSecurity, securityOf } from "../../clientapi/AttachUrl.ts"
import { FieldError, refuse, show } from "../../clientapi/FieldError.ts"
import { attachId, parentName, parseJobName, siteName } from "../../clientapi/TrainerName.ts"

export type ProfileJson = Readonly<Record<string, unknown>>

type Checked<A> = Result.Result<A, FieldError>

const ok: Checked<void> = Result.succeed(undefined)

const has = (json: ProfileJson, field: string): boolean => Object.hasOwn(json, field)
const get = (json: ProfileJson, field: string): unknown => (has(json, field) ? json[field] : undefined)
const isNone = (value: unknown): value is undefined | null => value === undefined || value === null
const isBlank = (value: unknown): boolean => typeof value !== "string" || value.trim() === ""

/** Truth as Python has it, of a JSON value. */
const isTrue = (value: unknown): boolean =>
  typeof value === "object" && value !== null ? Object.keys(value).length > 0 : Boolean(value)

const absent = (json: ProfileJson, field: string, why: string): Checked<void> =>
  has(json, field) ? refuse(field, json[field], why) : ok

/** A text, if the field is there and not null. */
const optionalText = (json: ProfileJson, field: string, rule: string): Checked<string | undefined> => {
  const value = get(json, field)
  if (isNone(value)) return Result.succeed(undefined)
  return typeof value === "string" && !isBlank(value) ? Result.succeed(value) : refuse(field, value, rule)
}

const requiredText = (json: ProfileJson, field: string, rule: string): Checked<void> =>
  isBlank(get(json, field)) ? refuse(field, get(json, field), rule) : ok

/** What makes the file an attach profile at all. */
export const checkEnvelope = (json: ProfileJson): Checked<void> =>
  Result.gen(function* () {
    const version = get(json, "schema_version")
    const mode = get(json, "execution_mode")
    if (!has(json, "schema_version"))
      return yield* refuse("schema_version", version, "an attach profile has the number 1")
    if (!has(json, "execution_mode")) return yield* refuse("execution_mode", mode, 'write "attach"')
    if (version !== 1)
      return yield* refuse("schema_version", version, "write the number 1, the only version known here")
    if (mode !== "attach") return yield* refuse("execution_mode", mode, 'write "attach", the only mode served here')
    yield* requiredText(json, "attach_id", "write the attach id that the service waits for")
    yield* requiredText(json, "site_name", "write the name of the site that the service runs for")
    const secure = get(json, "secure_mode")
    if (has(json, "secure_mode") && typeof secure !== "boolean") {
      return yield* refuse("secure_mode", secure, "write true or false, without quotes")
    }
    const pid = get(json, "cj_pid")
    if (has(json, "cj_pid") && !(Number.isInteger(pid) && Number(pid) > 0)) {
      return yield* refuse(
        "cj_pid",
        pid,
        "leave it out: it belongs to launched trainers, where it is a positive number"
      )
    }
    yield* absent(json, "cj_pid", "leave it out: it belongs to trainers that the service launches itself")
    yield* attachId(json.attach_id)
  })

export interface RendezvousFields {
  readonly _tag: "Rendezvous"
  readonly root: string
}

export interface UrlFields {
  readonly _tag: "Url"
  readonly connectUrl: string
  readonly security: ConnectionSecurity
  readonly cpFqcn: string
  readonly cjFqcn: string | undefined
}

/** The one way to the service: a shared directory or a URL. */
export const checkSource = (json: ProfileJson, site: string): Checked<RendezvousFields | UrlFields> => {
  const root = get(json, "rendezvous_dir")
  const url = get(json, "connect_url")
  if (isTrue(root) === isTrue(url)) {
    const what = isTrue(root)
      ? "connect_url and rendezvous_dir are both there: keep the one by which the trainer is to attach"
      : "neither rendezvous_dir nor connect_url says where to attach: write one of them, the folder shared with the service or the URL of the site's client parent"
    const shown = show({ connect_url: url, rendezvous_dir: root })
    return Result.fail(new FieldError({ field: "connect_url", value: shown, message: what }))
  }
  return isTrue(root) ? checkRendezvous(json, root) : checkUrl(json, url, site)
}

const discovered = "leave it out: with rendezvous_dir it is found in the shared directory"

const checkRendezvous = (json: ProfileJson, root: unknown): Checked<RendezvousFields> =>
  Result.gen(function* () {
    if (typeof root !== "string" || !root.startsWith("/")) {
      return yield* refuse("rendezvous_dir", root, "write the absolute path of the directory shared with the service")
    }
    const security = get(json, "connection_security")
    if (!isNone(security) && security !== "clear") {
      return yield* refuse("connection_security", security, 'with rendezvous_dir, leave it out or write "clear"')
    }
    yield* absent(json, "cj_fqcn", discovered)
    yield* absent(json, "cp_fqcn", discovered)
    yield* absent(json, "auth_identity", discovered)
    if (get(json, "secure_mode") === true) {
      const why = "with rendezvous_dir, leave it out or write false: the modes of the shared directory protect it"
      return yield* refuse("secure_mode", true, why)
    }
    return { _tag: "Rendezvous", root }
  })

const checkUrl = (json: ProfileJson, url: unknown, site: string): Checked<UrlFields> =>
  Result.gen(function* () {
    if (typeof url !== "string" || isBlank(url)) {
      return yield* refuse("connect_url", url, 'write the URL to connect to, for instance "grpcs://cp.example:8002"')
    }
    const cpFqcn = yield* parentName(has(json, "cp_fqcn") ? json.cp_fqcn : site, site)
    const pin = get(json, "cj_fqcn")
    const cjFqcn = isNone(pin) ? undefined : (yield* parseJobName(pin, { cpFqcn })).cjFqcn
    const security = yield* securityOf(url, get(json, "connection_security"))
    return { _tag: "Url", connectUrl: url, security, cpFqcn, cjFqcn }
  })

/** The certificate of the authority, where it is needed and nowhere else. */
export const checkCaCert = (json: ProfileJson, source: RendezvousFields | UrlFields): Checked<string | undefined> =>
  Result.gen(function* () {
    const caCert = yield* optionalText(json, "ca_cert", "write the path of the file with the authority's certificate")
    if (source._tag === "Rendezvous") {
      return caCert === undefined
        ? undefined
        : yield* refuse("ca_cert", caCert, "leave it out: with rendezvous_dir it is not used")
    }
    const secureMode = get(json, "secure_mode") === true
    if ((source.security !== "clear" || secureMode) && caCert === undefined) {
      const why = secureMode ? "secure_mode is true" : `the connection is ${source.security}`
      return yield* refuse("ca_cert", caCert, `${why}: write the path of the file with the authority's certificate`)
    }
    if (source.security !== "clear" && !secureMode) {
      const why = `write true: the connection is ${source.security}`
      return yield* refuse("secure_mode", get(json, "secure_mode"), why)
    }
    return caCert
  })

export const checkAuthIdentity = (json: ProfileJson): Checked<string | undefined> =>
  optionalText(json, "auth_identity", "write the name in the certificate of this trainer's site, or leave it out")

/** Thirty years: what is longer is a mistake, and 1e400 is infinity to JSON. Who means for ever writes null. */
const maxSeconds = 1e9

/** Seconds, or `undefined` for ever. */
export const checkJobWaitTimeout = (json: ProfileJson): Checked<number | undefined> => {
  const value = get(json, "job_wait_timeout")
  if (isNone(value)) return Result.succeed(undefined)
  return typeof value === "number" && value >= 0 && value <= maxSeconds
    ? Result.succeed(value)
    : refuse(
        "job_wait_timeout",
        typeof value === "number" ? String(value) : value,
        `write a number of seconds, from 0 to ${maxSeconds}, or null to wait for ever`
      )
}

/** Below a shared directory the site's name is a directory's name. The reference finds that out when it connects. */
export const checkSite = (site: string, source: RendezvousFields | UrlFields): Checked<string> =>
  source._tag === "Rendezvous" ? siteName(site) : Result.succeed(site)
