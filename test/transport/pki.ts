/** The certificates of test/fixtures/security, unpacked. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { gunzipSync } from "node:zlib"
import { Effect } from "effect"

const block = 512

const textAt = (bytes: Buffer, from: number, size: number): string =>
  bytes.toString("latin1", from, from + size).replace(/\0.*$/s, "")

/** Plain files of a tar archive; nothing else is in ours. */
export const unpack = (archive: Buffer, into: string): void => {
  let at = 0
  while (at + block <= archive.length) {
    const name = textAt(archive, at, 100)
    const size = Number.parseInt(textAt(archive, at + 124, 12), 8) || 0
    const type = textAt(archive, at + 156, 1)
    if (name !== "" && (type === "0" || type === "")) {
      const path = join(into, name)
      mkdirSync(dirname(path), { recursive: true })
      writeFileSync(path, archive.subarray(at + block, at + block + size), { mode: 0o600 })
    }
    at += block + Math.ceil(size / block) * block
  }
}

export interface Pki {
  /** A credential folder of the archives. */
  readonly folder: (name: string) => string
  /** A new folder with these files of others: `{ "server.crt": "site-1/client.crt" }`. */
  readonly mix: (files: { readonly [name: string]: string }) => string
}

/** Unpacks into a folder of its own, which is gone with the Scope. */
export const makePki = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => {
      const root = mkdtempSync(join(tmpdir(), "fl-attach-pki-"))
      for (const name of ["pki", "tls"]) {
        const archive = readFileSync(new URL(`../fixtures/security/${name}.tar.gz`, import.meta.url))
        unpack(gunzipSync(archive), root)
      }
      return root
    }),
    (root) => Effect.sync(() => rmSync(root, { recursive: true, force: true }))
  ),
  (root): Pki => ({
    folder: (name) => join(root, name === "eku-client" ? "tls" : "pki", name),
    mix: (files) => {
      const folder = mkdtempSync(join(root, "mix-"))
      for (const [name, from] of Object.entries(files)) {
        writeFileSync(join(folder, name), readFileSync(join(root, "pki", from)), { mode: 0o600 })
      }
      return folder
    }
  })
)
