import { chmodSync, existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { TestConsole } from "effect/testing"
import packageJson from "../../package.json" with { type: "json" }
import * as Flags from "../../src/cli/internal/flags.ts"
import { Screen } from "../../src/cli/internal/Screen.ts"
import { version } from "../../src/cli/internal/version.ts"
import * as Main from "../../src/cli/Main.ts"
import { serveArgs, type Workspace, workspace } from "./support.ts"

const silent = Layer.succeed(
  Screen,
  Screen.of({ isTerminal: false, line: () => {}, errorLine: () => {}, bars: () => {} })
)
const services = Layer.mergeAll(NodeServices.layer, silent, TestConsole.layer)

/** The exit code, and what was told on standard error. */
const run = Effect.fnUntraced(function* (args: ReadonlyArray<string>) {
  const code = yield* Main.run(args)
  return { code, errors: (yield* TestConsole.errorLines).join("\n"), lines: (yield* TestConsole.logLines).join("\n") }
}, Effect.provide(services))

/** Wrong usage: exit code 2, one line, and it says this. */
const refused = Effect.fnUntraced(function* (args: ReadonlyArray<string>, ...told: ReadonlyArray<string>) {
  const { code, errors, lines } = yield* run(args)
  assert.strictEqual(code, 2, errors)
  assert.strictEqual(lines, "")
  assert.notInclude(errors, "\n")
  for (const text of told) assert.include(errors, text)
})

const replaced = (args: ReadonlyArray<string>, flag: string, value: string): ReadonlyArray<string> =>
  args.map((arg, n) => (args[n - 1] === flag ? value : arg))

const inWorkspace = (use: (w: Workspace, args: ReadonlyArray<string>) => Effect.Effect<void, unknown>) =>
  Effect.flatMap(workspace, (w) => use(w, serveArgs(w, ["--attach-id", "a"])))

describe("certificates that are not there", () => {
  const parent = ["parent", "--site", "site-1", "--listen", "stcp://127.0.0.1:0"]
  const serve = (args: ReadonlyArray<string>) =>
    args.flatMap((arg, n) =>
      arg === "--shared-dir" ? ["--parent", "stcp://127.0.0.1:9"] : args[n - 1] === "--shared-dir" ? [] : [arg]
    )

  it.live("a folder that does not exist is named", () =>
    inWorkspace((_, args) =>
      Effect.gen(function* () {
        const certs = ["--certs", "/no/such/folder"]
        const told = "--certs /no/such/folder is not there: name the folder of the site's certificates"
        yield* refused([...parent, ...certs], told)
        yield* refused([...serve(args), ...certs], told)
        yield* refused([...serve(args), ...certs, "--secure"], told)
      })
    )
  )

  it.live("TLS without any asks for --certs", () =>
    inWorkspace((_, args) =>
      Effect.gen(function* () {
        yield* refused(parent, "rootCA.pem", "give --certs")
        yield* refused(serve(args), "rootCA.pem", "give --certs")
      })
    )
  )

  it.live("a folder without a root's certificate", () =>
    inWorkspace((w, args) => refused([...serve(args), "--certs", w.folder, "--secure"], "rootCA.pem is not there"))
  )
})

describe("usage of the command", () => {
  it.live.each([
    [["serve"], "Missing required flag: --site"],
    [["serve", "--bogus"], "Unrecognized flag: --bogus"],
    [["nonsense"], 'Unknown subcommand "nonsense"'],
    [["probe"], "Missing required argument"],
    [["probe", "p.json", "--add", "one"], 'Invalid value for flag --add: "one". Expected: a number'],
    [["dump", "--json"], "file"],
    [["dump", "x.bin"], "give --json"],
    [
      ["dump", "--json", "--reencode", "/no/such/folder", "x.bin"],
      "--reencode /no/such/folder: the folder is not there"
    ]
  ] as const)("%j is wrong usage", ([args, told]) => refused(args, told))

  it.live.each([["--help"], ["serve", "--help"], ["probe", "--help"], ["dump", "--help"], ["--version"]])(
    "%j is no failure",
    (args) =>
      Effect.gen(function* () {
        const { code, errors, lines } = yield* run(args)
        assert.deepStrictEqual([code, errors], [0, ""])
        assert.include(lines, args[0] === "--version" ? version : "USAGE")
      })
  )

  it("has the version of the package", () => {
    assert.strictEqual(version, packageJson.version)
  })

  it.live("names every flag of serve in its help", () =>
    Effect.gen(function* () {
      const { lines } = yield* run(["serve", "--help"])
      const flags = "site job attach-id shared-dir model rounds out task events attach-timeout heartbeat-interval"
      const others = "heartbeat-timeout task-timeout result-timeout allow-reconnect retry-rounds"
      for (const flag of `${flags} ${others}`.split(" ")) assert.include(lines, `--${flag} `)
    })
  )
})

describe("durations in flags", () => {
  const parse = Effect.fnUntraced(function* (text: string) {
    const parsed: Array<number> = []
    const command = Command.make("x", { d: Flags.duration("d", "") }, ({ d }) =>
      Effect.sync(() => void parsed.push(Duration.toMillis(d)))
    )
    yield* Command.runWith(command, { version, renderErrors: false })(["--d", text])
    return parsed
  }, Effect.provide(services))

  it.live.each([
    ["30s", 30_000],
    ["500ms", 500],
    ["10m", 600_000],
    ["30 seconds", 30_000],
    ["1.5 s", 1500],
    ["2h", 7_200_000]
  ] as const)("%s", ([text, millis]) => Effect.map(parse(text), (parsed) => assert.deepStrictEqual(parsed, [millis])))

  it.live.each(["30", "0", "1e3", "", "s", "10 lightyears", "-5s"])("%j is refused, with what to write", (text) =>
    inWorkspace((_, args) =>
      refused([...args, `--attach-timeout=${text}`], "--attach-timeout", "30s", "500ms", "10m", "30 seconds")
    )
  )
})

describe("serve checks everything before it opens anything", () => {
  it.live.each([
    ["--site", "a.b", "--site"],
    ["--site", "", "--site"],
    ["--job", "a.b", "--job"],
    ["--job", "site-1", "--job"],
    ["--attach-id", "no spaces", "--attach-id"],
    ["--rounds", "0", "--rounds 0: give at least 1"],
    ["--rounds", "many", "--rounds"],
    ["--model", "/no/such/model.npz", "--model"],
    ["--out", "/no/such/folder/out.npz", "the folder /no/such/folder is not there"],
    ["--out", "out.txt", "only .npz and .safetensors files can be written"],
    ["--shared-dir", "/no/such/folder", "--shared-dir /no/such/folder is not there"],
    ["--events", "/no/such/folder/e.jsonl", "--events /no/such/folder/e.jsonl"]
  ] as const)("%s %j", ([flag, value, told]) =>
    inWorkspace((w, args) =>
      Effect.gen(function* () {
        yield* refused(replaced(args, flag, value), told)
        assert.deepStrictEqual(readdirSync(w.shared), [])
        assert.isFalse(existsSync(w.out))
      })
    )
  )

  it.live("an attach id twice", () =>
    inWorkspace((_, args) => refused([...args, "--attach-id", "a"], "--attach-id a is given twice"))
  )

  it.live("rounds that shall run again with sessions that can't", () =>
    inWorkspace((_, args) => refused([...args, "--retry-rounds", "2"], "--retry-rounds 2 needs --allow-reconnect"))
  )

  it.live("a lease that ends between two heartbeats, in the words of the flags", () =>
    inWorkspace((_, args) =>
      refused(
        [...args, "--heartbeat-interval", "5s", "--heartbeat-timeout", "5s"],
        "fl-attach: --heartbeat-timeout must be longer than --heartbeat-interval (5s)",
        "it is 5s"
      )
    )
  )

  it.live("a model that is no npz", () =>
    inWorkspace((w, args) => {
      writeFileSync(w.model, "these are no arrays")
      return refused(args, w.model, "no npz")
    })
  )

  it.live("a shared folder that every user may write to", () =>
    inWorkspace((w, args) => {
      chmodSync(w.shared, 0o777)
      return refused(args, w.shared, "writable for all users", "chmod o-w")
    })
  )

  it.live("a shared folder that is a link", () =>
    inWorkspace((w, args) => {
      const link = join(w.folder, "link")
      symlinkSync(w.shared, link)
      return refused(replaced(args, "--shared-dir", link), link, "symbolic link")
    })
  )

  it.live("an output that is a folder", () =>
    inWorkspace((w, args) => {
      mkdirSync(w.out)
      return refused(args, w.out, "is a folder")
    })
  )
})

describe("probe checks its profile", () => {
  it.live("a file that is not there, or no JSON", () =>
    inWorkspace((w) =>
      Effect.gen(function* () {
        yield* refused(["probe", join(w.folder, "none.json")], "none.json", "there is no such file")
        writeFileSync(join(w.folder, "text.json"), "hello")
        yield* refused(["probe", join(w.folder, "text.json")], "text.json", "it is no JSON")
      })
    )
  )

  it.live.each([
    [{ schema_version: 2 }, "schema_version is 2"],
    [{ attach_id: "" }, "attach_id"],
    [{ connect_url: "tcp://x:1" }, "connect_url"],
    [{ job_wait_timeout: true }, "job_wait_timeout is true"]
  ] as const)("%j", ([fields, told]) => inWorkspace((w) => refused(["probe", w.profile("a", fields)], "a.json", told)))

  it.live("a root that every user may write to", () =>
    inWorkspace((w) => {
      chmodSync(w.shared, 0o777)
      return refused(["probe", w.profile("a")], w.shared, "writable for all users")
    })
  )
})
