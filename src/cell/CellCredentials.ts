/**
 * What a secure cell shows, holds and trusts: its certificate and key, the root, and whose certificate a peer needs.
 *
 * Source: docs/wire/security.md, sections 3.3 and 5.
 *
 * @since 0.1.0
 */
import { createPrivateKey, createPublicKey, type KeyObject } from "node:crypto"
import * as NodeFs from "node:fs/promises"
import { Clock, type Duration, Effect, Result, type Scope } from "effect"
import * as CertificateCare from "../identity/CertificateCare.ts"
import * as CertificateChain from "../identity/CertificateChain.ts"
import type { CertificateError } from "../identity/CertificateError.ts"
import * as CertificateIdentity from "../identity/CertificateIdentity.ts"
import { type CredentialFiles, discover } from "../identity/Credentials.ts"
import { CredentialsError, notRead } from "../identity/CredentialsError.ts"

/**
 * A cell's own certificate, checked as a peer would.
 *
 * @category models
 * @since 0.1.0
 */
export interface OwnCertificate {
  /** The PEM file as it is: it travels byte for byte in the certificate exchange. */
  readonly certificate: Uint8Array
  /** The PEM file of the root, the only one trusted. */
  readonly root: Uint8Array
  readonly privateKey: KeyObject
  readonly checked: CertificateChain.CheckedCertificate
}

/**
 * The credentials of a cell.
 *
 * @category models
 * @since 0.1.0
 */
export interface CellCredentials {
  /** Asked at each use, so that a certificate may be renewed while the cell lives. */
  readonly current: () => OwnCertificate
  /** Whose certificate each cell needs. Absent: any that the root has issued, which binds no name to a certificate. */
  readonly rules?: CertificateIdentity.IdentityRules
}

const failure = (
  setting: string,
  path: string,
  problem: CredentialsError["problem"],
  message: string
): CredentialsError => new CredentialsError({ setting, path, problem, message: `${setting}: ${message}` })

const read = (setting: string, path: string): Effect.Effect<Uint8Array, CredentialsError> =>
  Effect.tryPromise({
    try: () => NodeFs.readFile(path),
    catch: (cause) => notRead(setting, path, cause)
  })

const problems = { pem: "invalid", chain: "foreign", validity: "expired", key: "invalid", name: "invalid" } as const

const refusal = (setting: string, path: string, { kind, message }: CertificateError): CredentialsError =>
  failure(setting, path, problems[kind], `${path} can't protect messages: ${message}`)

/** The server's pair where there is one, or else the client's. */
const choose = (files: CredentialFiles) =>
  files.serverCert === undefined
    ? { side: "client", cert: files.clientCert, key: files.clientKey }
    : { side: "server", cert: files.serverCert, key: files.serverKey }

const named = (setting: string, path: string | undefined): Effect.Effect<string, CredentialsError> =>
  path === undefined
    ? Effect.fail(failure(setting, "", "missing", "nothing names it, and it does not lie beside rootCA.pem"))
    : Effect.succeed(path)

/** Peers with the same rules would refuse another name at each message. */
const checkName = (
  rules: CertificateIdentity.IdentityRules | undefined,
  commonName: string | undefined,
  setting: string,
  path: string
): Effect.Effect<void, CredentialsError> =>
  rules === undefined
    ? Effect.void
    : Effect.mapError(Effect.fromResult(CertificateIdentity.checkOwn(rules, commonName)), (reason) =>
        failure(setting, path, "identity", `${path} can't protect messages: ${reason}`)
      )

const readAll = Effect.fnUntraced(function* (
  given: CredentialFiles,
  rules: CertificateIdentity.IdentityRules | undefined
): Effect.fn.Return<{ readonly own: OwnCertificate; readonly keyPath: string }, CredentialsError> {
  const files = yield* discover(given)
  const caPath = yield* named("ca_cert", files.caCert)
  const root = yield* read("ca_cert", caPath)
  yield* Effect.mapError(Effect.fromResult(CertificateChain.parse(root)), ({ message }) =>
    failure("ca_cert", caPath, "invalid", `${caPath}: ${message}: put the project's root certificate there`)
  )
  const { cert, key, side } = choose(files)
  const certPath = yield* named(`${side}_cert`, cert)
  const keyPath = yield* named(`${side}_key`, key)
  const certificate = yield* read(`${side}_cert`, certPath)
  const keyText = yield* read(`${side}_key`, keyPath)
  const privateKey = yield* Effect.try({
    try: () => createPrivateKey({ key: Buffer.from(keyText), format: "pem" }),
    catch: () =>
      failure(
        `${side}_key`,
        keyPath,
        "invalid",
        `${keyPath} holds no private key in PEM without a passphrase: put the one there that was made with the certificate`
      )
  })
  const own = yield* make({ certificate, root, privateKey }).pipe(
    Effect.mapError((error) => refusal(`${side}_cert`, certPath, error)),
    Effect.filterOrFail(
      ({ checked }) => isPair(privateKey, checked.publicKey),
      () =>
        failure(
          `${side}_key`,
          keyPath,
          "mismatch",
          `${keyPath} is not the key of ${certPath}: use the pair that was issued together`
        )
    )
  )
  yield* checkName(rules, own.checked.commonName, `${side}_cert`, certPath)
  return { own, keyPath }
})

/**
 * Reads and checks the certificate by which a cell protects messages: `server.crt` with its key where they lie beside
 * `caCert`, or else `client.crt`. With `rules`, its common name must be the one that they ask of the cell. A key that
 * others can read, and a certificate that soon expires, are warnings.
 *
 * @category constructors
 * @since 0.1.0
 */
export const load = Effect.fn("CellCredentials.load")(function* (
  files: CredentialFiles,
  rules?: CertificateIdentity.IdentityRules
): Effect.fn.Return<OwnCertificate, CredentialsError> {
  const { keyPath, own } = yield* readAll(files, rules)
  yield* CertificateCare.warnOfOpenKey(keyPath)
  yield* CertificateCare.makeExpiryWarnings()(own.checked)
  return own
})

const isPair = (privateKey: KeyObject, publicKey: KeyObject): boolean => createPublicKey(privateKey).equals(publicKey)

/**
 * Checks an own certificate as its peers will. Fails with the kind of what they would refuse.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (own: Omit<OwnCertificate, "checked">): Effect.Effect<OwnCertificate, CertificateError> =>
  Effect.flatMap(Clock.currentTimeMillis, (now) =>
    Effect.fromResult(
      Result.flatMap(CertificateChain.check(own.certificate, own.root, now), (checked) =>
        Result.map(CertificateChain.checkKey(checked.publicKey), () => ({ ...own, checked }))
      )
    )
  )

const isSame = (one: OwnCertificate, other: OwnCertificate): boolean =>
  Buffer.compare(one.certificate, other.certificate) === 0 && Buffer.compare(one.root, other.root) === 0

/**
 * Credentials that follow their files: read again every `interval`, taken over when certificate, chain or root have
 * changed and are good. What is broken, or in another's name, is a warning, and the former ones go on. Ends with the
 * Scope.
 *
 * @category constructors
 * @since 0.1.0
 */
export const watch = Effect.fn("CellCredentials.watch")(function* (
  files: CredentialFiles,
  options: { readonly rules?: CertificateIdentity.IdentityRules; readonly interval?: Duration.Input } = {}
): Effect.fn.Return<CellCredentials, CredentialsError, Scope.Scope> {
  const { interval = "1 minute", rules } = options
  const first = yield* readAll(files, rules)
  let current = first.own
  const warnOfExpiry = CertificateCare.makeExpiryWarnings()
  yield* CertificateCare.warnOfOpenKey(first.keyPath)
  yield* warnOfExpiry(current.checked)
  const takeOver = Effect.gen(function* () {
    const { keyPath, own } = yield* readAll(files, rules)
    if (isSame(own, current)) return
    current = own
    yield* CertificateCare.warnOfOpenKey(keyPath)
    yield* Effect.logInfo(`the certificate of ${current.checked.commonName}, or its issuer's, was renewed`)
  }).pipe(Effect.catch((error) => Effect.logWarning(`the certificates stay as they were: ${error.message}`)))
  const look = Effect.andThen(
    takeOver,
    Effect.suspend(() => warnOfExpiry(current.checked))
  )
  yield* Effect.forkScoped(Effect.forever(Effect.delay(look, interval)))
  return { current: () => current, ...(rules === undefined ? {} : { rules }) }
})
