/** The tuning of a shared-file connection. Source: docs/wire/transport.md, section 9.2. */
import { Result } from "effect"
import type { Resources } from "../../Drivers.ts"
import type { TransportError } from "../../TransportError.ts"
import { parseQuery, splitUrl } from "../connectorUrl.ts"
import { badConfig } from "../errors.ts"

/** Times in milliseconds, sizes in bytes. */
export interface Settings {
  readonly pollInterval: number
  readonly maxPollInterval: number
  readonly maxLogSize: number
  readonly leaseInterval: number
  readonly leaseTimeout: number
  readonly fsync: boolean
  readonly fileMode: number
  readonly dirMode: number
  /** Whether changes are watched for, beside polling. */
  readonly watch: boolean
}

type Value = string | number | boolean | undefined

const minPollInterval = 0.001
const decimal = /^\s*[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$/
const octal = /^\s*(0[oO]?)?([0-7]{1,4})\s*$/
const yes = new Set(["yes", "true", "t", "y", "1"])

const numberOf = (name: string, value: Value, fallback: number): Result.Result<number, TransportError> => {
  if (value === undefined) {
    return Result.succeed(fallback)
  }
  const text = String(value)
  const number = typeof value === "number" ? value : decimal.test(text) ? Number(text.replaceAll("_", "")) : Number.NaN
  return Number.isFinite(number) && number >= 0
    ? Result.succeed(number)
    : Result.fail(badConfig(name, `${name} is ${JSON.stringify(value)}: give a number that is not negative`))
}

const modeOf = (name: string, value: Value, fallback: number): Result.Result<number, TransportError> => {
  if (value === undefined) {
    return Result.succeed(fallback)
  }
  if (typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= 0o7777) {
    return Result.succeed(value)
  }
  const digits = typeof value === "string" ? octal.exec(value)?.[2] : undefined
  return digits === undefined
    ? Result.fail(
        badConfig(name, `${name} is ${JSON.stringify(value)}: give the permission bits as octal text, such as "0770"`)
      )
    : Result.succeed(Number.parseInt(digits, 8))
}

/** No transport security: the rights on the directory are the boundary. */
const refuseSecurity = (get: (name: string) => Value): Result.Result<void, TransportError> => {
  const security = get("connection_security")
  const secure = yes.has(String(get("secure")).toLowerCase())
  const wanted = security === undefined ? secure : security !== "clear"
  return wanted
    ? Result.fail(
        badConfig(
          "secure",
          "shared-file connections can't be secured: drop secure and connection_security, guard the directory by its rights"
        )
      )
    : Result.succeed(undefined)
}

/** From a URL's query with the resources laid over it; a bare scheme has no query. */
export const readSettings = (
  schemeOrUrl: string,
  resources: Resources | undefined
): Result.Result<Omit<Settings, "watch">, TransportError> => {
  const query = parseQuery(splitUrl(schemeOrUrl).query)
  const get = (name: string): Value =>
    resources !== undefined && Object.hasOwn(resources, name) ? resources[name] : query.get(name)
  return Result.gen(function* () {
    yield* refuseSecurity(get)
    const seconds = (name: string, fallback: number) => numberOf(name, get(name), fallback)
    const poll = Math.max(yield* seconds("poll_interval", 0.01), minPollInterval)
    const maxPoll = Math.max(yield* seconds("max_poll_interval", 2), poll)
    const leaseTimeout = yield* seconds("lease_timeout", 60)
    const leaseInterval = yield* seconds("lease_interval", 15)
    if (leaseTimeout === 0 || leaseInterval === 0) {
      const name = leaseTimeout === 0 ? "lease_timeout" : "lease_interval"
      return yield* Result.fail(badConfig(name, `${name} is 0: no peer could live so long, give seconds above 0`))
    }
    return {
      pollInterval: poll * 1000,
      maxPollInterval: maxPoll * 1000,
      maxLogSize: Math.trunc(yield* numberOf("max_log_size", get("max_log_size"), 1024 ** 3)),
      leaseInterval: leaseInterval * 1000,
      leaseTimeout: leaseTimeout * 1000,
      fsync: yes.has(String(get("fsync")).toLowerCase()),
      fileMode: yield* modeOf("file_mode", get("file_mode"), 0o660),
      dirMode: yield* modeOf("dir_mode", get("dir_mode"), 0o770)
    }
  })
}
