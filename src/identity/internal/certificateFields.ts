/**
 * What node:crypto does not tell of a certificate: its first common name, what its extensions allow, how it was signed.
 */
import type { X509Certificate } from "node:crypto"
import { children, type Element, elements, oid, tags } from "./der.ts"

export interface CertificateFields {
  /** The first common name of the subject. */
  readonly commonName: string | undefined
  /** Whether the certificate may issue others: a CA by basicConstraints and by keyUsage. */
  readonly mayIssue: boolean
  /** How many certificates of issuers may stand between it and a leaf. */
  readonly pathLength: number
  /** Whether an extension is critical that nothing here heeds. */
  readonly hasUnknownCritical: boolean
  readonly isStronglySigned: boolean
}

const commonNameOid = "550403"
const keyUsageOid = "551d0f"
const basicConstraintsOid = "551d13"
/** Key usage, basic constraints, subject alternative name, extended key usage. */
const heeded: ReadonlySet<string> = new Set([keyUsageOid, basicConstraintsOid, "551d11", "551d25"])

const strongSignatures: ReadonlySet<string> = new Set([
  "2a864886f70d01010a", // RSASSA-PSS
  "2a864886f70d01010b", // RSA with SHA-256, -384, -512
  "2a864886f70d01010c",
  "2a864886f70d01010d",
  "2a8648ce3d040302", // ECDSA with SHA-256, -384, -512
  "2a8648ce3d040303",
  "2a8648ce3d040304",
  "2b6570" // Ed25519
])

const keyCertSign = 0x04

const textOf = ({ content, tag }: Element): string | undefined => {
  switch (tag) {
    case 0x0c: // UTF8String
      return Buffer.from(content).toString("utf8")
    case 0x13: // PrintableString, T61String, IA5String
    case 0x14:
    case 0x16:
      return Buffer.from(content).toString("latin1")
    default:
      return undefined
  }
}

const commonNameOf = (subject: Element | undefined): string | undefined => {
  for (const set of children(subject)) {
    for (const attribute of children(set, tags.set)) {
      const [type, value] = children(attribute)
      if (oid(type) === commonNameOid && value !== undefined) return textOf(value)
    }
  }
  return undefined
}

interface Extension {
  readonly isCritical: boolean
  readonly value: Uint8Array
}

const extensionsOf = (tbs: ReadonlyArray<Element>): ReadonlyMap<string, Extension> => {
  const found = new Map<string, Extension>()
  const [list] = children(
    tbs.find(({ tag }) => tag === 0xa3),
    0xa3
  )
  for (const extension of children(list)) {
    const parts = children(extension)
    const value = parts.at(-1)
    if (value?.tag === tags.octets) {
      const critical = parts[1]
      found.set(oid(parts[0]), {
        isCritical: critical?.tag === tags.boolean && critical.content[0] !== 0,
        value: value.content
      })
    }
  }
  return found
}

const first = (bytes: Uint8Array | undefined): Element | undefined =>
  bytes === undefined ? undefined : elements(bytes)?.[0]

const constraintsOf = (value: Uint8Array | undefined): { readonly isCa: boolean; readonly pathLength: number } => {
  const [ca, length] = children(first(value))
  const isCa = ca?.tag === tags.boolean && ca.content[0] !== 0
  const hasLength = isCa && length?.tag === tags.integer && length.content.byteLength === 1
  return { isCa, pathLength: hasLength ? (length.content[0] ?? 0) : isCa && length === undefined ? 255 : 0 }
}

const usageOf = (value: Uint8Array | undefined): number => {
  const bits = first(value)
  return bits?.tag === tags.bits ? (bits.content[1] ?? 0) : 0
}

/** Reads a certificate that OpenSSL has taken; what is not there, or odd, allows nothing. */
export const fieldsOf = (certificate: X509Certificate): CertificateFields => {
  const [tbsElement, algorithm] = children(first(certificate.raw))
  const tbs = children(tbsElement)
  // version [0], serial, signature, issuer, validity, subject, ...
  const at = tbs[0]?.tag === 0xa0 ? 5 : 4
  const extensions = extensionsOf(tbs)
  const { isCa, pathLength } = constraintsOf(extensions.get(basicConstraintsOid)?.value)
  return {
    commonName: commonNameOf(tbs[at]),
    mayIssue: isCa && (usageOf(extensions.get(keyUsageOid)?.value) & keyCertSign) !== 0,
    pathLength,
    hasUnknownCritical: [...extensions].some(([name, { isCritical }]) => isCritical && !heeded.has(name)),
    isStronglySigned: strongSignatures.has(oid(children(algorithm)[0]))
  }
}
