/** Flags of the commands that use a network: certificates, and how connections are protected. */
import * as NodeFs from "node:fs/promises"
import * as NodePath from "node:path"
import { Effect, Option, Result } from "effect"
import { Flag } from "effect/cli"
import * as AttachUrl from "../../clientapi/AttachUrl.ts"
import type { Resources } from "../../transport/Drivers.ts"
import { wrongUsage } from "./Failure.ts"

export const certs = Flag.String("certs").pipe(
  Flag.withMetavar("folder"),
  Flag.withDescription(
    "The site's certificates: rootCA.pem, client.crt, client.key, and server.crt, server.key if there"
  ),
  Flag.optional
)

export const connectionSecurity = Flag.Literals("connection-security", ["clear", "mtls"]).pipe(
  Flag.withDescription("mtls: certificates on both sides; without it the scheme decides (stcp: mtls, tcp: clear)"),
  Flag.optional
)

export const secure = Flag.Boolean("secure").pipe(
  Flag.withDefault(false),
  Flag.withDescription(
    "Protect messages from end to end, as trainers with secure_mode in their profiles want; needs --certs"
  )
)

export const identity = Flag.String("identity").pipe(
  Flag.withMetavar("name"),
  Flag.withDescription("The common name of the site's certificate, where it is not the site's name"),
  Flag.optional
)

export interface NetworkOptions {
  readonly certs: Option.Option<string>
  readonly connectionSecurity: Option.Option<"clear" | "mtls">
}

/** What the drivers are told. */
export const resourcesOf = ({ certs, connectionSecurity }: NetworkOptions): Resources => ({
  ...(Option.isSome(certs) ? { ca_cert: NodePath.resolve(certs.value, "rootCA.pem") } : {}),
  ...(Option.isSome(connectionSecurity) ? { connection_security: connectionSecurity.value } : {})
})

const isSecure = (url: string): boolean => Result.getOrUndefined(AttachUrl.securityOf(url, undefined)) === "mtls"

/** A scheme that has TLS has it, whatever is said of it. */
export const checkScheme = Effect.fnUntraced(function* (flag: string, url: string, options: NetworkOptions) {
  if (isSecure(url) && Option.getOrUndefined(options.connectionSecurity) === "clear") {
    return yield* wrongUsage(
      `${flag} ${url} has TLS by its scheme, but --connection-security is clear: leave that out, or write a scheme without TLS (tcp, http, grpc)`
    )
  }
})

/** Each file may be missing for a reason of its own, but not the folder. */
export const checkCerts = Effect.fnUntraced(function* ({ certs }: NetworkOptions) {
  if (Option.isNone(certs)) return
  const isFolder = yield* Effect.tryPromise(() => NodeFs.stat(certs.value)).pipe(
    Effect.map((stats) => stats.isDirectory()),
    Effect.orElseSucceed(() => false)
  )
  if (!isFolder) {
    return yield* wrongUsage(`--certs ${certs.value} is not there: name the folder of the site's certificates`)
  }
})
