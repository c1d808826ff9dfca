/**
 * The Python environment of the live peers: the released `nvflare` in a virtual environment under `.interop/`, made
 * once. Where it can't be made, the reason is said and the tests that need it are skipped.
 */
import { execFileSync } from "node:child_process"
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { TestProject } from "vitest/node"

declare module "vitest" {
  export interface ProvidedContext {
    /** The interpreter with `nvflare`, or "" where there is none. */
    readonly python: string
  }
}

/** The release that the wire documents are true to. */
const version = "2.9.0"
const folder = join(import.meta.dirname, "../../.interop")
const interpreter = join(folder, "venv/bin/python")
const mark = join(folder, `nvflare-${version}`)

const run = (command: string, args: ReadonlyArray<string>) =>
  execFileSync(command, args, { stdio: ["ignore", "pipe", "pipe"], encoding: "utf8", timeout: 600_000 })

const make = (): string => {
  if (existsSync(mark)) return interpreter
  const found = run("python3", ["-c", "import sys; print(sys.version_info >= (3, 10))"])
  if (found.trim() !== "True") throw new Error("python3 is older than 3.10")
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  run("python3", ["-m", "venv", join(folder, "venv")])
  run(interpreter, ["-m", "pip", "install", "--quiet", `nvflare==${version}`, "numpy"])
  writeFileSync(mark, "")
  return interpreter
}

export const setup = (project: TestProject) => {
  let python = ""
  try {
    python = make()
  } catch (error) {
    const why = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error)
    console.warn(`SKIPPED: no Python peer, since nvflare ${version} could not be installed: ${why}`)
  }
  project.provide("python", python)
}
