/** Secure cells, at a time at which the test certificates are good. */
import { createPrivateKey } from "node:crypto"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Result } from "effect"
import { TestClock } from "effect/testing"
import type { CellOptions } from "../../src/cell/Cell.ts"
import type * as CellCredentials from "../../src/cell/CellCredentials.ts"
import type { Codec } from "../../src/fobs/Fobs.ts"
import * as CertificateChain from "../../src/identity/CertificateChain.ts"
import { rulesOf } from "../../src/identity/CertificateIdentity.ts"
import * as Fqcn from "../../src/identity/Fqcn.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import { unpackPki } from "../pki.ts"

export const pki = join(unpackPki(), "pki")
export const today = Date.UTC(2026, 5, 1)
export const toToday = TestClock.setTime(today)

/** A folder's certificate; a bad one is taken, too, as an attacker would. */
export const certificateOf = (folder: string, side: "client" | "server" = "client"): CellCredentials.OwnCertificate => {
  const read = (name: string) => readFileSync(join(pki, folder, name))
  const certificate = read(`${side}.crt`)
  const issued = Result.getOrThrow(CertificateChain.parse(certificate))[0]
  return {
    certificate,
    root: read("rootCA.pem"),
    privateKey: createPrivateKey(read(`${side}.key`)),
    checked: {
      commonName: issued.subject.replace(/^[\s\S]*CN=/, ""),
      fingerprint: issued.fingerprint256.replaceAll(":", "").toLowerCase(),
      publicKey: issued.publicKey,
      notBefore: issued.validFromDate.getTime(),
      notAfter: issued.validToDate.getTime()
    }
  }
}

export const credentialsOf = (
  fqcn: string,
  folder = "site-1",
  side: "client" | "server" = "client"
): CellCredentials.CellCredentials => {
  const own = certificateOf(folder, side)
  const parent = Fqcn.root(fqcn)
  return { current: () => own, rules: rulesOf({ local: fqcn, parent, identity: parent }) }
}

export const secureCell = (fqcn: string, more: Partial<CellOptions> = {}): CellOptions => ({
  fqcn,
  credentials: credentialsOf(fqcn),
  byeTimeout: 0,
  ...more
})

/** The usual codec; `seen` are the messages that it was given to decode. */
export const watchedCodec = (): Codec & { readonly seen: Array<Uint8Array> } => {
  const seen: Array<Uint8Array> = []
  const { codec } = ModelCodec
  return {
    seen,
    encode: codec.encode,
    parse: (message) => {
      seen.push(message)
      return codec.parse(message)
    },
    decode: (message, options) => {
      if (message instanceof Uint8Array) seen.push(message)
      return codec.decode(message, options)
    }
  }
}
