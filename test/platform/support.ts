import { spawnSync } from "node:child_process"
import * as NodeFs from "node:fs"
import * as NodeOs from "node:os"
import * as NodePath from "node:path"
import { Effect } from "effect"

/** A directory of the test's own, of mode 0700, that goes with the scope. */
export const tempDirectory = Effect.acquireRelease(
  Effect.sync(() => NodeFs.mkdtempSync(NodePath.join(NodeOs.tmpdir(), "fl-attach-"))),
  (path) => Effect.sync(() => NodeFs.rmSync(path, { recursive: true, force: true }))
)

/** The process's umask while the scope is open. */
export const umask = (mask: number) =>
  Effect.acquireRelease(
    Effect.sync(() => process.umask(mask)),
    (before) => Effect.sync(() => process.umask(before))
  )

/** The permission bits at a path, links not followed. */
export const modeOf = (path: string): string => (NodeFs.lstatSync(path).mode & 0o7777).toString(8)

/** The descriptors of this process that are open on a path; Linux only. */
export const descriptorsOn = (path: string): number =>
  NodeFs.readdirSync("/proc/self/fd").filter((fd) => {
    try {
      return NodeFs.readlinkSync(`/proc/self/fd/${fd}`) === path
    } catch {
      return false
    }
  }).length

export const hasProc = NodeFs.existsSync("/proc/self/fd")

export const hasPython = spawnSync("python3", ["-c", "import fcntl"]).status === 0
export const hasFlock = spawnSync("flock", ["--version"]).error === undefined
