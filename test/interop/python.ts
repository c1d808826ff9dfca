/**
 * The Python environment of the live peers: the released `nvflare` in a virtual environment under `.interop/`, made
 * once; and beside it PyTorch, which only the tests of tensors put on their path. Where one can't be had, the reason is
 * said and the tests that need it are skipped.
 */
import { execFileSync } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { TestProject } from "vitest/node"

declare module "vitest" {
  export interface ProvidedContext {
    /** The interpreter with `nvflare`, or "" where there is none. */
    readonly python: string
    /** The folder with PyTorch, for PYTHONPATH, or "" where there is none. */
    readonly torch: string
  }
}

/** The release that the wire documents are true to. */
const version = "2.9.0"
/** The build for the CPU, and no other: one with CUDA has gigabytes. */
const torchVersion = "2.13.0+cpu"
const folder = join(import.meta.dirname, "../../.interop")
const interpreter = join(folder, "venv/bin/python")
const mark = join(folder, `nvflare-${version}`)

const run = (command: string, args: ReadonlyArray<string>, seconds = 600) =>
  execFileSync(command, args, { stdio: ["ignore", "pipe", "pipe"], encoding: "utf8", timeout: seconds * 1000 })

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

/**
 * PyTorch in a folder of its own, which is there as a whole or not at all. PyPI has no build of this name, so that a
 * machine without one at hand is told at once; PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu names a place
 * that has it.
 */
const makeTorch = (): string => {
  const target = join(folder, `torch-${torchVersion}`)
  if (existsSync(target)) return target
  const part = mkdtempSync(join(folder, "torch-part-"))
  try {
    const quietly = ["--quiet", "--no-compile", "--only-binary=:all:", "--retries=1", "--timeout=10"]
    run(interpreter, ["-m", "pip", "install", ...quietly, `--target=${part}`, `torch==${torchVersion}`], 120)
    renameSync(part, target)
    return target
  } finally {
    rmSync(part, { recursive: true, force: true })
  }
}

/** What `attempt` gives, or "" and a word on why not. */
const orSkip = (attempt: () => string, what: string): string => {
  try {
    return attempt()
  } catch (error) {
    const stderr = error instanceof Error && "stderr" in error ? String(error.stderr) : ""
    const why = stderr.split("\n").find((line) => line.startsWith("ERROR")) ?? String(error).split("\n")[0]
    console.warn(`SKIPPED: ${what} could not be installed: ${why}`)
    return ""
  }
}

export const setup = (project: TestProject) => {
  const python = orSkip(make, `no Python peer, since nvflare ${version}`)
  project.provide("python", python)
  project.provide("torch", python === "" ? "" : orSkip(makeTorch, `no PyTorch trainer, since torch ${torchVersion}`))
}
