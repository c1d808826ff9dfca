import { execFileSync, spawnSync } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"

const root = join(import.meta.dirname, "../..")
const npm = (folder: string, ...args: ReadonlyArray<string>): string =>
  execFileSync("npm", [...args, "--no-audit", "--no-fund", "--loglevel=error"], { cwd: folder, encoding: "utf8" })

/** The tarball, installed in an empty folder that goes with the Scope. */
const installed = Effect.gen(function* () {
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "fl-attach-package-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  return yield* Effect.sync(() => {
    npm(root, "pack", "--pack-destination", folder)
    const tarball = readdirSync(folder).find((name) => name.endsWith(".tgz"))
    assert.isDefined(tarball)
    writeFileSync(join(folder, "package.json"), '{ "private": true, "type": "module" }')
    // What `npm ci` of this repository fetched is in npm's cache.
    npm(folder, "install", "--prefer-offline", `./${tarball}`)
    return folder
  })
})

describe("the package", () => {
  it.live(
    "installs from its tarball: each export imports, types resolve, the command runs",
    Effect.fnUntraced(function* () {
      const folder = yield* installed
      const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"))
      const names = Object.keys(exports)
        .filter((name) => !name.endsWith(".json"))
        .map((name) => name.replace(".", "fl-attach"))
      assert.isAtLeast(names.length, 12)

      const imports = names.map((name) => `console.log("${name}", Object.keys(await import("${name}")).length > 0)`)
      const imported = execFileSync(process.execPath, ["--input-type=module", "-e", imports.join("\n")], {
        cwd: folder,
        encoding: "utf8"
      })
      assert.strictEqual(imported, names.map((name) => `${name} true\n`).join(""))

      const program = names.map((name, n) => `import * as m${n} from "${name}"\nvoid m${n}\n`).join("")
      writeFileSync(join(folder, "program.ts"), program)
      const options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2024"]
      const tsc = spawnSync(join(root, "node_modules/.bin/tsc"), [...options, "program.ts"], {
        cwd: folder,
        encoding: "utf8"
      })
      assert.strictEqual(tsc.stdout, "")

      const bin = spawnSync(join(folder, "node_modules/.bin/fl-attach"), ["--version"], { encoding: "utf8" })
      const { version } = JSON.parse(readFileSync(join(folder, "node_modules/fl-attach/package.json"), "utf8"))
      assert.deepStrictEqual([bin.stdout, bin.stderr, bin.status], [`fl-attach v${version}\n`, "", 0])
    }),
    120_000
  )
})
