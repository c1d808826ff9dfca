/**
 * PrivateFiles in memory, with the errors of a real file system.
 */
import * as NodePath from "node:path"
import { Effect } from "effect"
import { FileDenied, FileError, FileExists, FileIo, FileMissing, FileUnsafe } from "../FileError.ts"
import type { Files } from "../Files.ts"

interface MemoryFile {
  readonly kind: "file"
  readonly mode: number
  readonly bytes: Uint8Array
}

interface MemoryDirectory {
  readonly kind: "directory"
  readonly mode: number
}

type Entry = MemoryFile | MemoryDirectory

const fail = (reason: FileError["reason"]) => Effect.fail(new FileError({ reason }))
const missing = (path: string) => fail(new FileMissing({ path, message: `${path} does not exist` }))
const exists = (path: string) => fail(new FileExists({ path, message: `${path} exists already` }))
const notDirectory = (operation: string, path: string) =>
  fail(new FileIo({ operation, path, code: "ENOTDIR", message: `${operation} ${path} failed: ENOTDIR` }))

/** A service with its own, empty tree. */
export const make = (): Files => {
  const entries = new Map<string, Entry>([["/", { kind: "directory", mode: 0o755 }]])
  const below = (path: string) => [...entries.keys()].filter((key) => key === path || key.startsWith(`${path}/`))

  /** Fails like the system does where the directory of `path` is none. */
  const parent = (operation: string, path: string): Effect.Effect<void, FileError> => {
    const entry = entries.get(NodePath.dirname(path))
    if (entry === undefined) return missing(path)
    return entry.kind === "directory" ? Effect.void : notDirectory(operation, path)
  }

  const move = (from: string, to: string): Effect.Effect<void, FileError> => {
    const source = entries.get(from)
    const target = entries.get(to)
    if (source === undefined) return missing(from)
    if (target?.kind === "directory" && source.kind === "file") {
      return fail(new FileIo({ operation: "rename", path: from, code: "EISDIR", message: `${to} is a directory` }))
    }
    if (target?.kind === "directory" && below(to).length > 1) {
      return fail(new FileIo({ operation: "rename", path: from, code: "ENOTEMPTY", message: `${to} is not empty` }))
    }
    for (const key of below(from)) {
      const entry = entries.get(key)
      entries.delete(key)
      if (entry !== undefined) entries.set(to + key.slice(from.length), entry)
    }
    return Effect.void
  }

  return {
    lstat: (path) =>
      Effect.suspend(() => {
        const entry = entries.get(path)
        return entry === undefined ? missing(path) : Effect.succeed({ kind: entry.kind, mode: entry.mode, owner: 0 })
      }),
    read: (path) =>
      Effect.suspend(() => {
        const entry = entries.get(path)
        if (entry === undefined) return missing(path)
        return entry.kind === "file"
          ? Effect.succeed({ info: { kind: entry.kind, mode: entry.mode, owner: 0 }, bytes: entry.bytes.slice() })
          : fail(new FileUnsafe({ path, problem: "no regular file", message: `${path} is no regular file` }))
      }),
    write: (path, content, options) =>
      Effect.suspend(() => {
        if (entries.get(path)?.kind === "directory") return notDirectory("write", path)
        const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content.slice()
        return Effect.map(parent("write", path), () => {
          entries.set(path, { kind: "file", mode: options.mode, bytes })
        })
      }),
    makeDirectory: (path, mode) =>
      Effect.suspend(() =>
        entries.has(path)
          ? exists(path)
          : Effect.map(parent("mkdir", path), () => {
              entries.set(path, { kind: "directory", mode })
            })
      ),
    list: (path) =>
      Effect.suspend(() => {
        if (!entries.has(path)) return missing(path)
        return Effect.succeed(
          [...entries.keys()]
            .filter((key) => key !== "/" && NodePath.dirname(key) === path)
            .map((key) => NodePath.basename(key))
        )
      }),
    rename: (from, to) => Effect.suspend(() => Effect.andThen(parent("rename", to), move(from, to))),
    remove: (path) =>
      path === "/"
        ? fail(new FileDenied({ operation: "remove", path, code: "EPERM", message: "/ can't be removed" }))
        : Effect.sync(() => {
            for (const key of below(path)) entries.delete(key)
          })
  }
}
