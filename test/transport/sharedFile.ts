import { createHash } from "node:crypto"
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { basename, join } from "node:path"
import { Effect, Schedule } from "effect"
import { fromHex } from "./support.ts"

/** A directory of its own for a test. */
export const makeRoot = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "fl-attach-"))),
  (root) => Effect.sync(() => rmSync(root, { recursive: true, force: true }))
)

/** Waits until files are as they should be; the test's own time limit is the bound. */
export const until = (condition: () => boolean): Effect.Effect<void> =>
  Effect.suspend(() => (condition() ? Effect.void : Effect.fail("not yet"))).pipe(
    Effect.retry(Schedule.spaced("2 millis")),
    Effect.orDie
  )

/** A whole frame of some size. */
export const frameOf = (size: number, fill: number): Uint8Array => {
  const frame = new Uint8Array(size).fill(fill, 16)
  new DataView(frame.buffer).setUint32(0, size)
  return frame
}

export const names = (directory: string): ReadonlyArray<string> => readdirSync(directory).sort()

/** Prepares a connection directory under a dot name and renames it into place, as a dialer does. */
export const placeConnection = (
  listener: string,
  name: string,
  files: { readonly [name: string]: Uint8Array }
): string => {
  const hidden = join(listener, "conns", `.${name}`)
  const directory = join(listener, "conns", name)
  mkdirSync(hidden)
  for (const [file, content] of Object.entries(files)) {
    writeFileSync(join(hidden, file), content)
  }
  renameSync(hidden, directory)
  return directory
}

export const fromHexFiles = (files: { readonly [name: string]: string }) =>
  Object.fromEntries(Object.entries(files).map(([name, hex]) => [name, fromHex(hex)]))

interface Entry {
  readonly path: string
  readonly type: "dir" | "file"
  readonly mode: string
  readonly size?: number
  readonly sha256?: string
}

const describeEntry = (root: string, path: string, shown: string): Entry => {
  const stats = statSync(join(root, path))
  const mode = `0${(stats.mode & 0o7777).toString(8)}`
  if (stats.isDirectory()) {
    return { path: shown, type: "dir", mode }
  }
  const sha256 = createHash("sha256")
    .update(readFileSync(join(root, path)))
    .digest("hex")
  return { path: shown, type: "file", mode, size: stats.size, sha256 }
}

// Random names differ from run to run.
const masked = (path: string): string =>
  path.replace(/lst_[0-9a-f]{8}/, "lst_*").replace(/conns\/[0-9a-f]{12}/, "conns/*")

/** What is in a root, as the fixtures show it. */
export const snapshot = (root: string): ReadonlyArray<Entry> =>
  readdirSync(root, { recursive: true })
    .map(String)
    .map((path) => describeEntry(root, path, masked(path)))
    .sort((a, b) => (a.path < b.path ? -1 : 1))

/** A snapshot of a fixture, in the same form. */
export const captured = (entries: ReadonlyArray<Entry & { readonly hex?: string }>): ReadonlyArray<Entry> =>
  entries
    .map(({ mode, path, sha256, size, type }) =>
      type === "dir" || size === undefined || sha256 === undefined
        ? { path: masked(path), type, mode }
        : { path: masked(path), type, mode, size, sha256 }
    )
    .sort((a, b) => (a.path < b.path ? -1 : 1))

export const leaf = (path: string): string => basename(path)
