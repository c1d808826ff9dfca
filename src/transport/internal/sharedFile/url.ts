/** Where a shared-file URL leads. Source: docs/wire/transport.md, section 9.2. */
import * as NodePath from "node:path"
import { Result } from "effect"
import type { Resources } from "../../Drivers.ts"
import type { TransportError } from "../../TransportError.ts"
import { splitUrl } from "../connectorUrl.ts"
import { badConfig } from "../errors.ts"

const scheme = "shared-file"
const placeholder = "0"

const withoutTrailingSlashes = (path: string): string => {
  let end = path.length
  while (end > 0 && path.charAt(end - 1) === "/") {
    end -= 1
  }
  return path.slice(0, end)
}

/** The listener directory that a URL names. */
export const parseFileUrl = (url: string): Result.Result<string, TransportError> => {
  const parts = splitUrl(url)
  const path = withoutTrailingSlashes(parts.path)
  return parts.scheme === scheme && parts.authority === placeholder && NodePath.isAbsolute(path)
    ? Result.succeed(path)
    : Result.fail(badConfig("url", `${url} is no shared-file URL: write shared-file://0/absolute/directory`))
}

const forbidden = /[?#\n\r]/

/** The root that listeners are made in, from the resource `root_dir`. */
export const rootOf = (resources: Resources | undefined): Result.Result<string, TransportError> => {
  const given = resources?.root_dir
  if (typeof given !== "string" || given === "") {
    return Result.fail(
      badConfig("root_dir", "a shared-file listener needs root_dir, the directory that both peers see")
    )
  }
  const root = NodePath.resolve(given)
  return forbidden.test(root)
    ? Result.fail(
        badConfig(
          "root_dir",
          `root_dir ${JSON.stringify(root)} can't be put into a URL: use a path without ? # and line breaks`
        )
      )
    : Result.succeed(root)
}

const tunings = [
  "poll_interval",
  "max_poll_interval",
  "max_log_size",
  "lease_interval",
  "lease_timeout",
  "fsync",
  "file_mode",
  "dir_mode"
]

// Modes travel as octal text. The reference writes a numeric mode in decimal, which its own reader then misreads.
const textOf = (name: string, value: string | number | boolean): string => {
  if (typeof value === "boolean") {
    return value ? "True" : "False"
  }
  return typeof value === "number" && name.endsWith("_mode") ? value.toString(8) : String(value)
}

const formEncode = (text: string): string =>
  new URLSearchParams([["", text]])
    .toString()
    .slice(1)
    // URLSearchParams keeps "*" and encodes "~", Python does the reverse.
    .replaceAll("*", "%2A")
    .replaceAll("%7E", "~")

/** The URL of a listener directory, with the tuning that is in the resources, which peers take over from it. */
export const listenerUrl = (directory: string, resources: Resources): string => {
  const query = tunings.flatMap((name) => {
    const value = Object.hasOwn(resources, name) ? resources[name] : undefined
    return value === undefined ? [] : [`${name}=${formEncode(textOf(name, value))}`]
  })
  return `${scheme}://${placeholder}${directory}${query.length === 0 ? "" : `?${query.join("&")}`}`
}
