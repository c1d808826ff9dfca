/**
 * The certificate files of a site: which there are, and where.
 *
 * Source: docs/wire/security.md, sections 3.1 and 3.3; docs/wire/transport.md, section 5.
 *
 * @since 0.1.0
 */
import * as NodeFs from "node:fs/promises"
import * as NodePath from "node:path"
import { Effect } from "effect"

/**
 * Paths of PEM files; keys are not encrypted. What is absent may still be found beside `caCert`, see {@link discover}.
 *
 * @category models
 * @since 0.1.0
 */
export interface CredentialFiles {
  /** The project's root certificate: the only one that is trusted. */
  readonly caCert?: string
  readonly clientCert?: string
  readonly clientKey?: string
  readonly serverCert?: string
  readonly serverKey?: string
  /** What a dialer with one-way TLS trusts instead of `caCert`. */
  readonly customCaCert?: string
}

/**
 * The files of a folder as provisioning lays it out: `rootCA.pem` and what lies beside it.
 *
 * @category constructors
 * @since 0.1.0
 */
export const inFolder = (folder: string): CredentialFiles => ({ caCert: NodePath.join(folder, "rootCA.pem") })

const neighbours = [
  ["clientCert", "client.crt"],
  ["clientKey", "client.key"],
  ["serverCert", "server.crt"],
  ["serverKey", "server.key"],
  ["customCaCert", "customRootCA.pem"]
] as const

const isThere = (path: string): Effect.Effect<boolean> =>
  Effect.isSuccess(Effect.tryPromise({ try: () => NodeFs.access(path), catch: () => "absent" }))

/**
 * Names what is not named from the folder of `caCert`, where it is there: `client.crt`, `client.key`, `server.crt`,
 * `server.key`, `customRootCA.pem`.
 *
 * @category combinators
 * @since 0.1.0
 */
export const discover = Effect.fnUntraced(function* (files: CredentialFiles): Effect.fn.Return<CredentialFiles> {
  if (files.caCert === undefined) {
    return files
  }
  const folder = NodePath.dirname(files.caCert)
  const found: { -readonly [K in keyof CredentialFiles]: CredentialFiles[K] } = { ...files }
  for (const [name, file] of neighbours) {
    const path = NodePath.join(folder, file)
    if (found[name] === undefined && (yield* isThere(path))) {
      found[name] = path
    }
  }
  return found
})
