/** The test PKI, unpacked into a temporary folder: no key lies open in the repository. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { gunzipSync } from "node:zlib"
import { unpack } from "./transport/pki.ts"

const fixtures = new URL("fixtures/security/", import.meta.url)

export const securityVectors = (name: string) => JSON.parse(readFileSync(new URL(name, fixtures), "utf8"))

/** The folder in which `pki/` lies; it goes with the process. */
export const unpackPki = (): string => {
  const folder = mkdtempSync(join(tmpdir(), "fl-attach-pki-"))
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }))
  unpack(gunzipSync(readFileSync(new URL("pki.tar.gz", fixtures))), folder)
  return folder
}
