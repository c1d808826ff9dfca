import {
  BadConfig,
  BadData,
  ConnectionClosed,
  HandshakeFailed,
  IoFailed,
  NotReady,
  TransportError
} from "../TransportError.ts"

export const badData = (message: string): TransportError => new TransportError({ reason: new BadData({ message }) })

export const badConfig = (setting: string, message: string): TransportError =>
  new TransportError({ reason: new BadConfig({ setting, message }) })

export const notReady = (target: string, message: string): TransportError =>
  new TransportError({ reason: new NotReady({ target, message }) })

export const closed = (target: string, by: ConnectionClosed["by"], message: string): TransportError =>
  new TransportError({ reason: new ConnectionClosed({ target, by, message }) })

export const handshakeFailed = (target: string, message: string): TransportError =>
  new TransportError({ reason: new HandshakeFailed({ target, message }) })

/** What the system said, with what we wanted and where; `hint` is the next step for a person. */
export const ioFailed = (operation: string, target: string, cause: unknown, hint = ""): TransportError => {
  const code = codeOf(cause)
  const next = hint === "" ? (hints.get(code) ?? "") : hint
  const message = `${operation} ${target} failed (${code})${next === "" ? "" : `: ${next}`}`
  return new TransportError({ reason: new IoFailed({ operation, target, code, message }) })
}

const hints: ReadonlyMap<string, string> = new Map([
  ["ENOSPC", "the file system is full; free space there or move the directory"],
  ["EDQUOT", "the disk quota is used up; free space or raise it"],
  ["EACCES", "this user may not do that; give the owner or group the right"],
  ["EPERM", "this user may not do that; give the owner or group the right"],
  ["EROFS", "the file system is mounted read-only"],
  ["ENOENT", "it is not there (any more)"],
  ["ELOOP", "a link is in its place, which is not followed; remove it"],
  ["EMFILE", "this process has too many files open; raise its limit (ulimit -n)"]
])

/** The `code` of a Node error, `EUNKNOWN` where there is none. */
const codeOf = (cause: unknown): string =>
  typeof cause === "object" && cause !== null && "code" in cause && typeof cause.code === "string"
    ? cause.code
    : "EUNKNOWN"
