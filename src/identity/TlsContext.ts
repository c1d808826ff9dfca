/**
 * What one side of a TLS connection shows and trusts, read from files and checked before it is used.
 *
 * Nothing but the project's root is trusted, neither the system's CAs. Source: docs/wire/transport.md, section 5;
 * docs/wire/security.md, section 6.
 *
 * @since 0.1.0
 */
import * as NodeCrypto from "node:crypto"
import * as NodeFs from "node:fs/promises"
import * as NodeTls from "node:tls"
import { Clock, Effect, Result } from "effect"
import { type CredentialFiles, discover } from "./Credentials.ts"
import { CredentialsError, notRead } from "./CredentialsError.ts"

/**
 * `tls`: the listener alone shows a certificate. `mtls`: both sides do.
 *
 * @category models
 * @since 0.1.0
 */
export type TlsSecurity = "tls" | "mtls"

/**
 * PEM texts for one side of a connection. A dialer with one-way TLS has no certificate.
 *
 * @category models
 * @since 0.1.0
 */
export interface TlsContext {
  readonly security: TlsSecurity
  /** The CA that the other side's certificate must come from. */
  readonly ca: string
  /** The own certificate, the leaf first. */
  readonly cert?: string
  readonly key?: string
  /** The common name of the own certificate, where it has one. */
  readonly commonName?: string
  /** Until when the own certificate and its issuers, as far as they are known, hold: milliseconds since the epoch. */
  readonly notAfter?: number
  /** The file of the key. */
  readonly keyPath?: string
}

/**
 * The oldest version that is spoken.
 *
 * @category constants
 * @since 0.1.0
 */
export const minVersion = "TLSv1.2" as const

type Problem = CredentialsError["problem"]

const failure = (setting: string, path: string, problem: Problem, message: string): CredentialsError =>
  new CredentialsError({ setting, path, problem, message: `${setting}: ${message}` })

const readPem = (setting: string, path: string): Effect.Effect<string, CredentialsError> =>
  Effect.tryPromise({
    try: () => NodeFs.readFile(path, "utf8"),
    catch: (cause) => notRead(setting, path, cause)
  })

const pemBlocks = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g

interface Certificates {
  readonly setting: string
  readonly path: string
  readonly pem: string
  readonly leaf: NodeCrypto.X509Certificate
  readonly all: ReadonlyArray<NodeCrypto.X509Certificate>
}

const messageOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause))

const readCertificates = Effect.fnUntraced(function* (
  setting: string,
  path: string
): Effect.fn.Return<Certificates, CredentialsError> {
  const pem = yield* readPem(setting, path)
  const invalid = (why: string) =>
    failure(
      setting,
      path,
      "invalid",
      `${path} holds no certificate that can be read (${why}): it must be PEM; put the right file there`
    )
  const all = yield* Effect.try({
    try: () => Array.from(pem.matchAll(pemBlocks), ([block]) => new NodeCrypto.X509Certificate(block)),
    catch: (cause) => invalid(messageOf(cause))
  })
  const [leaf] = all
  return leaf === undefined ? yield* Effect.fail(invalid("nothing in it")) : { setting, path, pem, leaf, all }
})

const readKey = Effect.fnUntraced(function* (setting: string, path: string) {
  const pem = yield* readPem(setting, path)
  if (pem.includes("ENCRYPTED")) {
    const message = `the key in ${path} has a passphrase, which is not possible here: store it without, readable by this user alone`
    return yield* Effect.fail(failure(setting, path, "encrypted", message))
  }
  const key = yield* Effect.try({
    try: () => NodeCrypto.createPrivateKey(pem),
    catch: (cause) =>
      failure(
        setting,
        path,
        "invalid",
        `${path} holds no private key in PEM (${messageOf(cause)}): put the one there that was made with the certificate`
      )
  })
  return { pem, key, path }
})

const day = (date: Date): string => date.toISOString().slice(0, 10)

const checkValidity = ({ setting, path }: Certificates, cert: NodeCrypto.X509Certificate, now: number) => {
  if (now > cert.validToDate.getTime()) {
    const message = `${path} expired on ${day(cert.validToDate)}: renew it`
    return failure(setting, path, "expired", message)
  }
  if (now < cert.validFromDate.getTime()) {
    const message = `${path} is valid from ${day(cert.validFromDate)} on, which is later than this machine's clock`
    return failure(setting, path, "expired", message)
  }
  return undefined
}

const anyPurpose = "2.5.29.37.0"
const purposes = {
  server: { oid: "1.3.6.1.5.5.7.3.1", name: "serverAuth", act: "serve a listener" },
  client: { oid: "1.3.6.1.5.5.7.3.2", name: "clientAuth", act: "be shown by a dialer" }
} as const

type Side = keyof typeof purposes

const checkPurpose = ({ leaf, path, setting }: Certificates, side: Side) => {
  // Node's name for the extended key usage; absent where the certificate has none.
  const usage: ReadonlyArray<string> | undefined = leaf.keyUsage
  const { act, name, oid } = purposes[side]
  if (usage === undefined || usage.includes(oid) || usage.includes(anyPurpose)) {
    return undefined
  }
  const message = `${path} can't ${act}: its extended key usage (${usage.join(", ")}) lacks ${name}; issue one with it, or without that limit`
  return failure(setting, path, "purpose", message)
}

const maxChain = 8

const isIssuedBy = (cert: NodeCrypto.X509Certificate, issuer: NodeCrypto.X509Certificate): boolean =>
  Result.getOrElse(
    Result.try(() => cert.checkIssued(issuer) && cert.verify(issuer.publicKey)),
    () => false
  )

/** From the leaf to a root; `undefined` where none has issued it. */
const chainOf = (own: Certificates, roots: Certificates): ReadonlyArray<NodeCrypto.X509Certificate> | undefined => {
  const chain: Array<NodeCrypto.X509Certificate> = []
  let cert: NodeCrypto.X509Certificate | undefined = own.leaf
  while (cert !== undefined && chain.length < maxChain) {
    const present: NodeCrypto.X509Certificate = cert
    chain.push(present)
    const issuers = roots.all.filter((root) => isIssuedBy(present, root))
    const [latest] = issuers.toSorted((a, b) => b.validToDate.getTime() - a.validToDate.getTime())
    if (latest !== undefined) return [...chain, latest]
    if (roots.all.some((root) => root.fingerprint256 === present.fingerprint256)) return chain
    cert = own.all.find((issuer) => issuer !== present && issuer.ca && isIssuedBy(present, issuer))
  }
  return undefined
}

const notIssued = (own: Certificates, roots: Certificates) => {
  const message = `${own.path} was not issued by the CA in ${roots.path}, so peers of this project refuse it: use the files of one project`
  return failure(own.setting, own.path, "foreign", message)
}

/** OpenSSL has its own mind about keys, for instance their length. */
const checkUsable = (own: Certificates, key: string) =>
  Result.match(
    Result.try(() => NodeTls.createSecureContext({ cert: own.pem, key, minVersion })),
    {
      onFailure: (cause) =>
        failure(own.setting, own.path, "invalid", `TLS does not take ${own.path} and its key: ${messageOf(cause)}`),
      onSuccess: () => undefined
    }
  )

interface PairNames {
  readonly cert: { readonly setting: string; readonly path: string | undefined }
  readonly key: { readonly setting: string; readonly path: string | undefined }
}

const pairNames = (files: CredentialFiles, side: Side): PairNames =>
  side === "server"
    ? {
        cert: { setting: "server_cert", path: files.serverCert },
        key: { setting: "server_key", path: files.serverKey }
      }
    : {
        cert: { setting: "client_cert", path: files.clientCert },
        key: { setting: "client_key", path: files.clientKey }
      }

/** The pair of a side, or the other side's where both files are missing and that is allowed. */
const choosePair = (files: CredentialFiles, side: Side, hasFallback: boolean): PairNames => {
  const own = pairNames(files, side)
  const other = pairNames(files, side === "server" ? "client" : "server")
  const isMissing = own.cert.path === undefined && own.key.path === undefined
  const isOther = other.cert.path !== undefined && other.key.path !== undefined
  return isMissing && isOther && hasFallback ? other : own
}

const nowhere = (setting: string, caCert: string) => {
  const file = setting.replace("_cert", ".crt").replace("_key", ".key")
  const message = `nothing names it, and ${file} does not lie beside ${caCert}: put it there, or give its path`
  return failure(setting, "", "missing", message)
}

const readPair = Effect.fnUntraced(function* (
  files: CredentialFiles,
  side: Side,
  hasFallback: boolean,
  roots: Certificates | undefined
) {
  const names = choosePair(files, side, hasFallback)
  const caCert = files.caCert ?? ""
  if (names.cert.path === undefined || names.key.path === undefined) {
    return yield* Effect.fail(nowhere(names.cert.path === undefined ? names.cert.setting : names.key.setting, caCert))
  }
  const own = yield* readCertificates(names.cert.setting, names.cert.path)
  const key = yield* readKey(names.key.setting, names.key.path)
  const now = yield* Clock.currentTimeMillis
  const chain = roots === undefined ? undefined : chainOf(own, roots)
  const mismatch = own.leaf.checkPrivateKey(key.key)
    ? undefined
    : failure(
        names.key.setting,
        key.path,
        "mismatch",
        `${key.path} is not the key of ${own.path}: use the pair that was issued together`
      )
  const problem =
    checkValidity(own, own.leaf, now) ??
    mismatch ??
    checkPurpose(own, side) ??
    (roots === undefined || chain !== undefined ? undefined : notIssued(own, roots)) ??
    checkUsable(own, key.pem)
  if (problem !== undefined) return yield* Effect.fail(problem)
  const commonName = commonNameOf(own.leaf.toLegacyObject().subject)
  const notAfter = Math.min(...(chain ?? [own.leaf]).map(({ validToDate }) => validToDate.getTime()))
  return {
    cert: own.pem,
    key: key.pem,
    keyPath: key.path,
    notAfter,
    ...(commonName === undefined ? {} : { commonName })
  }
})

const readRoots = Effect.fnUntraced(function* (setting: string, path: string | undefined) {
  if (path === undefined) {
    const message =
      "TLS needs the project's root certificate (rootCA.pem): give its path, or the folder of certificates"
    return yield* Effect.fail(failure(setting, "", "missing", message))
  }
  const roots = yield* readCertificates(setting, path)
  const now = yield* Clock.currentTimeMillis
  const problems = roots.all.map((root) => checkValidity(roots, root, now))
  const [first] = problems
  return first !== undefined && problems.every((problem) => problem !== undefined) ? yield* Effect.fail(first) : roots
})

/**
 * @category models
 * @since 0.1.0
 */
export interface Options {
  readonly security: TlsSecurity
  /** Whether the other side's pair may stand in where both own files are missing: all drivers but gRPC do that. */
  readonly fallback: boolean
}

/**
 * What a listener shows: `server.crt` and `server.key`, or else the client pair. Fails where that could not serve:
 * missing or unreadable, expired, not meant for servers, not of this key, and with mTLS not of this CA.
 *
 * @category constructors
 * @since 0.1.0
 */
export const forListener = Effect.fn("TlsContext.forListener")(function* (
  given: CredentialFiles,
  { fallback, security }: Options
): Effect.fn.Return<TlsContext, CredentialsError> {
  const files = yield* discover(given)
  const roots = yield* readRoots("ca_cert", files.caCert)
  const pair = yield* readPair(files, "server", fallback, security === "mtls" ? roots : undefined)
  return { security, ca: roots.pem, ...pair }
})

/**
 * What a dialer shows and trusts: with mTLS the client pair, or else the server's, and `caCert`; with one-way TLS
 * nothing, and `customCaCert`, or else `caCert`. Fails as {@link forListener}.
 *
 * @category constructors
 * @since 0.1.0
 */
export const forDialer = Effect.fn("TlsContext.forDialer")(function* (
  given: CredentialFiles,
  { fallback, security }: Options
): Effect.fn.Return<TlsContext, CredentialsError> {
  const files = yield* discover(given)
  if (security === "tls") {
    const roots =
      files.customCaCert === undefined
        ? yield* readRoots("ca_cert", files.caCert)
        : yield* readRoots("custom_ca_cert", files.customCaCert)
    return { security, ca: roots.pem }
  }
  const roots = yield* readRoots("ca_cert", files.caCert)
  const pair = yield* readPair(files, "client", fallback, roots)
  return { security, ca: roots.pem, ...pair }
})

/**
 * The common name of a certificate's subject, the first where it has several; `undefined` where it has none.
 *
 * @category combinators
 * @since 0.1.0
 */
export const commonNameOf = (subject: {
  readonly CN?: string | ReadonlyArray<string> | undefined
}): string | undefined => {
  const name = typeof subject.CN === "string" ? subject.CN : subject.CN?.[0]
  return name === "" ? undefined : name
}
