/**
 * Whether a peer's certificate leads to the own root, and for how long.
 *
 * The rules are those by which the reference checks the certificates of cells, which differ from those of TLS: no host
 * names, no purposes, but issuers must say that they may issue. Source: docs/wire/security.md, section 3.2.
 *
 * @since 0.1.0
 */
import { type KeyObject, X509Certificate } from "node:crypto"
import { Result } from "effect"
import { CertificateError } from "./CertificateError.ts"
import { type CertificateFields, fieldsOf } from "./internal/certificateFields.ts"

/**
 * A certificate whose chain was checked. It holds from `notBefore` to `notAfter`, both included, in milliseconds since
 * the epoch: that is when all certificates of its chain do.
 *
 * @category models
 * @since 0.1.0
 */
export interface CheckedCertificate {
  /** The first common name of its subject. */
  readonly commonName: string | undefined
  /** SHA-256 of its DER, as hexadecimal digits. */
  readonly fingerprint: string
  readonly publicKey: KeyObject
  readonly notBefore: number
  readonly notAfter: number
}

const maxTextBytes = 64 * 1024
const maxCertificates = 16
/** Issuers between a leaf and the root. */
const maxDepth = 8

const failed = (kind: CertificateError["kind"], message: string) => Result.fail(new CertificateError({ kind, message }))

const block = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]*-----END CERTIFICATE-----/g

/**
 * The certificates of a PEM text, in their order. What stands between them is skipped. Fails with kind `pem`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const parse = (
  pem: string | Uint8Array
): Result.Result<readonly [X509Certificate, ...ReadonlyArray<X509Certificate>], CertificateError> => {
  if (pem.length > maxTextBytes) {
    return failed("pem", `a certificate file of ${pem.length} bytes is too large: ${maxTextBytes} may be`)
  }
  const text =
    typeof pem === "string" ? pem : Buffer.from(pem.buffer, pem.byteOffset, pem.byteLength).toString("latin1")
  const blocks = text.match(block) ?? []
  if (blocks.length > maxCertificates) {
    return failed("pem", `${blocks.length} certificates in one file are too many: ${maxCertificates} may be`)
  }
  return Result.flatMap(
    Result.try({
      try: () => blocks.map((one) => new X509Certificate(one)),
      catch: (error) => new CertificateError({ kind: "pem", message: `a certificate can't be read: ${String(error)}` })
    }),
    ([leaf, ...others]) =>
      leaf === undefined
        ? failed("pem", "there is no certificate in the PEM text")
        : Result.succeed([leaf, ...others] as const)
  )
}

interface Link {
  readonly certificate: X509Certificate
  readonly fields: CertificateFields
}

const linkOf = (certificate: X509Certificate): Link => ({ certificate, fields: fieldsOf(certificate) })

const isIssuedBy = (subject: Link, issuer: Link): boolean =>
  subject.fields.isStronglySigned &&
  subject.certificate.checkIssued(issuer.certificate) &&
  Result.getOrElse(
    Result.try(() => subject.certificate.verify(issuer.certificate.publicKey)),
    () => false
  )

/** The way from `from` up to the root, `from` first; `below` issuers stand under it already. */
const climb = (from: Link, root: Link, pool: ReadonlyArray<Link>, below: number): ReadonlyArray<Link> | undefined => {
  if (root.fields.mayIssue && root.fields.pathLength >= below && isIssuedBy(from, root)) {
    return [from, root]
  }
  if (below >= maxDepth) return undefined
  for (const issuer of pool) {
    const { hasUnknownCritical, mayIssue, pathLength } = issuer.fields
    if (mayIssue && !hasUnknownCritical && pathLength >= below && isIssuedBy(from, issuer)) {
      const rest = climb(
        issuer,
        root,
        pool.filter((other) => other !== issuer),
        below + 1
      )
      if (rest !== undefined) return [from, ...rest]
    }
  }
  return undefined
}

const describe = ({ subject }: X509Certificate): string => JSON.stringify(subject.replaceAll("\n", ", "))

/**
 * Checks the first certificate of `pem` against the first of `root`; the others of `pem` may stand between them. `now`
 * is in milliseconds since the epoch. Fails with kind `pem`, `chain`, `validity`, or `key` when the key
 * can't be read.
 *
 * @category combinators
 * @since 0.1.0
 */
export const check = (
  pem: string | Uint8Array,
  root: string | Uint8Array,
  now: number
): Result.Result<CheckedCertificate, CertificateError> =>
  Result.gen(function* () {
    const [leafCertificate, ...others] = yield* parse(pem)
    const [rootCertificate] = yield* parse(root)
    const leaf = linkOf(leafCertificate)
    const name = describe(leafCertificate)
    if (leaf.fields.hasUnknownCritical) {
      return yield* failed("chain", `the certificate of ${name} has a critical extension that is not known here`)
    }
    const chain = climb(leaf, linkOf(rootCertificate), others.map(linkOf), 0)
    if (chain === undefined) {
      const why = "is not issued by the own root: check rootCA.pem, and that issuers in between are in its file"
      return yield* failed("chain", `the certificate of ${name} ${why}`)
    }
    const notBefore = Math.max(...chain.map(({ certificate }) => certificate.validFromDate.getTime()))
    const notAfter = Math.min(...chain.map(({ certificate }) => certificate.validToDate.getTime()))
    const publicKey = yield* Result.try({
      try: () => leafCertificate.publicKey,
      catch: () => new CertificateError({ kind: "key", message: `the key of ${name} is of an unknown kind` })
    })
    const checked: CheckedCertificate = {
      commonName: leaf.fields.commonName,
      fingerprint: leafCertificate.fingerprint256.replaceAll(":", "").toLowerCase(),
      publicKey,
      notBefore,
      notAfter
    }
    return yield* Result.map(checkValidity(checked, now), () => checked)
  })

/**
 * Whether a checked certificate holds at `now`, in milliseconds since the epoch. Fails with kind `validity`.
 *
 * @category combinators
 * @since 0.1.0
 */
export const checkValidity = (
  { commonName, notAfter, notBefore }: CheckedCertificate,
  now: number
): Result.Result<void, CertificateError> => {
  if (now >= notBefore && now <= notAfter) return Result.succeed(undefined)
  const name = commonName ?? "a participant without a name"
  const times = `${new Date(notBefore).toISOString()} to ${new Date(notAfter).toISOString()}`
  return failed(
    "validity",
    `the certificate of ${name}, with its issuers, holds from ${times}, and now it is ${at(now)}: renew it, or set the clock right`
  )
}

const at = (now: number): string => (Number.isFinite(now) ? new Date(now).toISOString() : String(now))

/**
 * The key size that protected messages are made for.
 *
 * @category constants
 * @since 0.1.0
 */
export const rsaBits = 2048

/**
 * Whether a certificate's key can protect messages: RSA of 2048 bits and nothing else. Fails with kind `key`.
 *
 * @category combinators
 * @since 0.1.0
 */
export const checkKey = (key: KeyObject): Result.Result<void, CertificateError> => {
  const bits = key.asymmetricKeyDetails?.modulusLength
  if (key.asymmetricKeyType === "rsa" && bits === rsaBits) return Result.succeed(undefined)
  const kind = `${key.asymmetricKeyType ?? "an unknown kind"}${bits === undefined ? "" : ` of ${bits} bits`}`
  return failed("key", `the key is ${kind}: protected messages are made for RSA of ${rsaBits} bits`)
}
