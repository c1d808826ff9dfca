/**
 * flock(2) on a descriptor of this process.
 *
 * Node has no flock. The lock belongs to the open file description, not to the process that asks for it: so a child
 * that inherits the descriptor takes the lock and exits, and the lock stays with our descriptor until that is closed or
 * this process dies. (fcntl and OFD locks don't exclude flock locks on Linux: they are no substitute.)
 */
import * as NodeChildProcess from "node:child_process"
import { Effect, Result } from "effect"
import { FileLockError, LockBusy, LockIo, LockUnsupported } from "../FileLockError.ts"
import { codeOf } from "./nodeFiles.ts"

const fail = (reason: FileLockError["reason"]) => Effect.fail(new FileLockError({ reason }))

export const busy = (path: string) =>
  fail(new LockBusy({ path, message: `${path} is locked by another process, here or on another machine` }))

const noCommand = (path: string, command: string, code: string) =>
  fail(
    new LockUnsupported({
      path,
      problem: `the command "${command}" can't be run (${code})`,
      message: `${path} can't be locked: the command "${command}" can't be run (${code}). Install util-linux (Debian, Ubuntu, RHEL: util-linux; Alpine: util-linux-misc or BusyBox; macOS: brew install flock) and see that PATH has it`
    })
  )

const noFileSystem = (path: string, problem: string) =>
  fail(
    new LockUnsupported({
      path,
      problem,
      message: `${path} can't be locked: its file system has no working flock (${problem}). Use a directory on a file system with locks (for NFS: version 4, without the mount option nolock; for Lustre: mount with -o flock)`
    })
  )

/** What the child's end means; the texts are those of the C locale, glibc's and musl's. */
const outcome = (path: string, code: number | null, stderr: string): Effect.Effect<void, FileLockError> => {
  const text = stderr.trim()
  if (code === 0) return Effect.void
  if (code === 1 && text === "") return busy(path)
  if (/temporarily unavailable|Permission denied/.test(text)) return busy(path)
  if (/not implemented|not supported/i.test(text)) return noFileSystem(path, text)
  const problem = text === "" ? `flock ended with code ${code}` : text
  return fail(new LockIo({ path, code: "EFLOCK", message: `${path} can't be locked: ${problem}` }))
}

const mostText = 1000

/**
 * Asks once, without waiting, for a lock on the description that `fd` refers to. Interruption ends the child; the caller
 * then has to close `fd`, since the lock may have been granted.
 */
export const flock = (
  command: string,
  path: string,
  fd: number,
  kind: "exclusive" | "shared"
): Effect.Effect<void, FileLockError> =>
  Effect.callback<void, FileLockError>((resume) => {
    const started = Result.try(() =>
      NodeChildProcess.spawn(command, [kind === "exclusive" ? "-x" : "-s", "-n", "3"], {
        // A working directory that was removed would make the start fail as if the command were missing.
        cwd: "/",
        env: { PATH: `${process.env.PATH ?? ""}:/usr/local/bin:/usr/bin:/bin`, LC_ALL: "C" },
        stdio: ["ignore", "ignore", "pipe", fd]
      })
    )
    if (Result.isFailure(started)) return resume(noCommand(path, command, codeOf(started.failure)))
    const child = started.success
    let stderr = ""
    child.stderr?.on("data", (chunk: Buffer) => {
      if (stderr.length < mostText) stderr += chunk.toString("utf8")
    })
    child.once("error", (error) => resume(noCommand(path, command, codeOf(error))))
    child.once("close", (code) => resume(outcome(path, code, stderr.slice(0, mostText))))
    return Effect.sync(() => {
      child.kill("SIGKILL")
    })
  })
