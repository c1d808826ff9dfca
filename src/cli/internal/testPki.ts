/**
 * Certificates as provisioning makes them, for trying things out. Source: docs/wire/security.md, section 3.1.
 */
import { createPrivateKey, webcrypto } from "node:crypto"
// The library below does not work without it.
import "reflect-metadata"
import * as x509 from "@peculiar/x509"
import { Effect } from "effect"
import { failed } from "./Failure.ts"

/** Somebody who holds a key. */
export interface Holder {
  readonly certificate: x509.X509Certificate
  readonly privateKey: webcrypto.CryptoKey
}

export interface Validity {
  readonly notBefore: Date
  readonly notAfter: Date
}

const algorithm = {
  name: "RSASSA-PKCS1-v1_5",
  hash: "SHA-256",
  modulusLength: 2048,
  publicExponent: new Uint8Array([1, 0, 1])
} as const

/** What everybody who looks at such a certificate reads. */
const organisation = "fl-attach test certificates, not for production"

const attempt = <A>(what: string, make: () => Promise<A>) =>
  Effect.tryPromise({ try: make, catch: (cause) => failed(`${what}: ${String(cause)}`) })

const newKeys = attempt("no key can be made", () => webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]))

const nameOf = (commonName: string): string => new x509.Name([{ CN: [commonName] }, { O: [organisation] }]).toString()

const isAddress = (host: string): boolean => /^[0-9.]+$/.test(host)

const alternatives = (hosts: ReadonlyArray<string>) =>
  new x509.SubjectAlternativeNameExtension(
    hosts.map((value) => ({ type: isAddress(value) ? ("ip" as const) : ("dns" as const), value }))
  )

/** A root of its own: everything that trusts it is a test, too. */
export const makeRoot = Effect.fnUntraced(function* (project: string, serial: string, validity: Validity) {
  const keys = yield* newKeys
  const { KeyUsageFlags } = x509
  const usage = KeyUsageFlags.digitalSignature | KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign
  const certificate = yield* attempt("the root certificate can't be made", () =>
    Promise.all([
      x509.SubjectKeyIdentifierExtension.create(keys.publicKey, false, webcrypto),
      x509.AuthorityKeyIdentifierExtension.create(keys.publicKey, false, webcrypto)
    ]).then(([own, issuer]) =>
      x509.X509CertificateGenerator.createSelfSigned(
        {
          name: nameOf(project),
          keys,
          serialNumber: serial,
          signingAlgorithm: algorithm,
          ...validity,
          extensions: [
            new x509.BasicConstraintsExtension(true, undefined, true),
            new x509.KeyUsagesExtension(usage, true),
            own,
            issuer,
            alternatives([project])
          ]
        },
        webcrypto
      )
    )
  )
  return { certificate, privateKey: keys.privateKey } satisfies Holder
})

/** No certificate outlives its issuer. */
const within = ({ notAfter, notBefore }: Validity, issuer: x509.X509Certificate): Validity => ({
  notBefore: notBefore < issuer.notBefore ? issuer.notBefore : notBefore,
  notAfter: notAfter > issuer.notAfter ? issuer.notAfter : notAfter
})

/** A participant's certificate. */
export const issue = Effect.fnUntraced(function* (
  root: Holder,
  commonName: string,
  hosts: ReadonlyArray<string>,
  serial: string,
  validity: Validity
) {
  const keys = yield* newKeys
  const certificate = yield* attempt(`no certificate can be made for ${commonName}`, () =>
    Promise.all([
      x509.SubjectKeyIdentifierExtension.create(keys.publicKey, false, webcrypto),
      x509.AuthorityKeyIdentifierExtension.create(root.certificate.publicKey, false, webcrypto)
    ]).then(([own, issuer]) =>
      x509.X509CertificateGenerator.create(
        {
          subject: nameOf(commonName),
          issuer: root.certificate.subject,
          publicKey: keys.publicKey,
          signingKey: root.privateKey,
          serialNumber: serial,
          signingAlgorithm: algorithm,
          ...within(validity, root.certificate),
          extensions: [own, issuer, alternatives(hosts)]
        },
        webcrypto
      )
    )
  )
  return { certificate, privateKey: keys.privateKey } satisfies Holder
})

/** A root that an earlier run has made. */
export const readRoot = (certificate: string, key: string) =>
  attempt("the root's files can't be read", () =>
    webcrypto.subtle
      .importKey("pkcs8", createPrivateKey(key).export({ type: "pkcs8", format: "der" }), algorithm, true, ["sign"])
      .then((privateKey): Holder => ({ certificate: new x509.X509Certificate(certificate), privateKey }))
  )

export const certificatePem = ({ certificate }: Holder): string => `${certificate.toString("pem")}\n`

/** The key in the form of provisioning: PKCS #1, without a passphrase. */
export const keyPem = ({ privateKey }: Holder) =>
  Effect.map(
    attempt("the key can't be written", () => webcrypto.subtle.exportKey("pkcs8", privateKey)),
    (der) =>
      createPrivateKey({ key: Buffer.from(der), format: "der", type: "pkcs8" })
        .export({ type: "pkcs1", format: "pem" })
        .toString()
  )
