/** Starts the processes of a benchmark, and reads what they say and how much memory they took. */
import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const root = join(import.meta.dirname, "../..")
const venv = join(root, ".interop/venv/bin/python")

/** The interpreter with the released `nvflare`, which `npm run test:interop` installs; `undefined` without one. */
export const python = existsSync(venv) ? venv : undefined

export interface Running {
  readonly process: ChildProcess
  readonly ended: Promise<void>
}

/** Starts a process whose lines go to `onLine`, parsed where they are JSON. */
export const start = (
  file: string,
  args: ReadonlyArray<string>,
  onLine: (event: Record<string, unknown>) => void = () => {},
  env: Readonly<Record<string, string>> = {}
): Running => {
  const child = spawn(file, args, {
    cwd: root,
    env: { ...process.env, ...env },
    // Standard input stays open: some peers serve until it closes.
    stdio: ["pipe", "pipe", "pipe", "ipc"]
  })
  let rest = ""
  let errors = ""
  child.stdout?.on("data", (chunk) => {
    const lines = (rest + chunk).split("\n")
    rest = lines.pop() ?? ""
    for (const line of lines) if (line.startsWith("{")) onLine(JSON.parse(line))
  })
  child.stderr?.on("data", (chunk) => {
    errors += chunk
  })
  const ended = new Promise<void>((resolve, reject) => {
    child.on("error", reject)
    child.on("close", (code, signal) => {
      if (code === 0 || signal !== null) resolve()
      else reject(new Error(`${[file, ...args].join(" ")} ended with ${code}\n${errors}`))
    })
  })
  ended.catch(() => {}) // whoever waits gets it, too
  return { process: child, ended }
}

/** One of the TypeScript programs beside this file, with the package as it was built. */
export const startOurs = (
  script: string,
  args: ReadonlyArray<string>,
  onLine?: (event: Record<string, unknown>) => void
): Running => start(process.execPath, [join(import.meta.dirname, script), ...args], onLine)

/** A figure of /proc/PID/status in bytes: `VmHWM` is the most memory that the process ever had, `VmRSS` what it has. */
export const memory = (running: Running, what: "VmHWM" | "VmRSS"): number => {
  const status = readFileSync(`/proc/${running.process.pid}/status`, "utf8")
  return Number(new RegExp(`${what}:\\s+(\\d+)`).exec(status)?.[1] ?? 0) * 1024
}

/** Runs with a folder that is gone afterwards. */
export const withFolder = async <A>(run: (folder: string) => Promise<A>): Promise<A> => {
  const folder = mkdtempSync(join(tmpdir(), "fl-attach-bench-"))
  try {
    return await run(folder)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Seconds of CPU that a process has taken until now, in all its threads. */
export const cpuSeconds = ({ process: { pid } }: Running): number => {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
  // The second field is the program's name, in parentheses, and may have blanks.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
  return (Number(fields[11]) + Number(fields[12])) / 100
}

/** Where a trainer finds its service, as its profile says it. */
export type Place = Readonly<Record<string, unknown>>

export const inFolder = (folder: string): Place => ({ rendezvous_dir: folder })
export const atParent = (url: string, certs?: string): Place =>
  certs === undefined
    ? { connect_url: url, connection_security: "clear" }
    : { connect_url: url, connection_security: "mtls", secure_mode: true, ca_cert: join(certs, "rootCA.pem") }

export const profileOf = (attachId: string, place: Place) => ({
  schema_version: 1,
  execution_mode: "attach",
  attach_id: attachId,
  site_name: "site-1",
  job_wait_timeout: 120,
  ...place
})

export const writeProfile = (path: string, attachId: string, place: Place): void =>
  writeFileSync(path, JSON.stringify(profileOf(attachId, place)))
