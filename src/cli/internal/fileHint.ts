/** What the system said of a file, and what a person can do about it. */
import * as NodePath from "node:path"
import { type PlatformError, Predicate } from "effect"

/** The system's own code; what Effect makes of it where there is none. */
const codeOf = ({ reason }: PlatformError.PlatformError): string => {
  const cause: unknown = reason.cause
  if (Predicate.isObject(cause) && typeof cause.code === "string") return cause.code
  return reason._tag === "NotFound" ? "ENOENT" : reason._tag === "PermissionDenied" ? "EACCES" : reason._tag
}

export const fileHint = (error: PlatformError.PlatformError, path: string): string => {
  const code = codeOf(error)
  switch (code) {
    case "ENOENT":
      return "it is not there: check the path"
    case "EISDIR":
      return "it is a folder: name a file"
    case "ENOTDIR":
      return `${NodePath.dirname(path)} is no folder: check the path`
    case "EACCES":
    case "EPERM":
      return "this user may not do that: check the permissions of the file and its folder"
    case "ENOSPC":
      return `the file system of ${NodePath.dirname(path)} is full (ENOSPC): free space there, or choose another folder`
    case "EDQUOT":
      return `the disk quota for ${NodePath.dirname(path)} is used up (EDQUOT): free space, or choose another folder`
    case "EROFS":
      return `${NodePath.dirname(path)} lies on a read-only file system (EROFS): choose another folder`
    default:
      return `the operating system answered ${code}`
  }
}
