import { spawnSync } from "node:child_process"
import * as NodeFs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { FileError } from "../../src/platform/FileError.ts"
import { maxFileBytes, PrivateFiles } from "../../src/platform/PrivateFiles.ts"
import { modeOf, tempDirectory, umask } from "./support.ts"

const tag = <A, R>(self: Effect.Effect<A, FileError, R>) => Effect.map(Effect.flip(self), (error) => error.reason._tag)
const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes)

/** What both implementations must do alike, in an empty directory. */
const contract = Effect.fnUntraced(function* (directory: string) {
  const files = yield* PrivateFiles
  const at = (name: string) => `${directory}/${name}`
  assert.strictEqual(yield* tag(files.lstat(at("a"))), "FileMissing")
  assert.strictEqual(yield* tag(files.read(at("a"))), "FileMissing")
  assert.strictEqual(yield* tag(files.write(at("none/a"), "", { mode: 0o600 })), "FileMissing")
  assert.strictEqual(yield* tag(files.makeDirectory(at("none/a"), 0o700)), "FileMissing")
  assert.strictEqual(yield* tag(files.rename(at("a"), at("b"))), "FileMissing")
  yield* files.remove(at("a"))

  yield* files.write(at("a"), "one", { mode: 0o640 })
  assert.deepInclude(yield* files.lstat(at("a")), { kind: "file", mode: 0o640 })
  yield* files.write(at("a"), new Uint8Array([0x74, 0x77, 0x6f]), { mode: 0o600 })
  const content = yield* files.read(at("a"))
  assert.strictEqual(text(content.bytes), "two")
  assert.deepInclude(content.info, { kind: "file", mode: 0o600 })

  yield* files.makeDirectory(at("d"), 0o770)
  assert.deepInclude(yield* files.lstat(at("d")), { kind: "directory", mode: 0o770 })
  assert.strictEqual(yield* tag(files.makeDirectory(at("d"), 0o770)), "FileExists")
  assert.strictEqual(yield* tag(files.makeDirectory(at("a"), 0o770)), "FileExists")
  assert.strictEqual(yield* tag(files.read(at("d"))), "FileUnsafe")
  assert.strictEqual(yield* tag(files.write(at("d"), "", { mode: 0o600 })), "FileIo")
  assert.strictEqual(yield* tag(files.write(at("a/b"), "", { mode: 0o600 })), "FileIo")

  yield* files.makeDirectory(at("d/inner"), 0o700)
  yield* files.write(at("d/inner/f"), "deep", { mode: 0o600 })
  yield* files.makeDirectory(at("dd"), 0o700)
  assert.deepStrictEqual([...(yield* files.list(directory))].sort(), ["a", "d", "dd"])
  yield* files.rename(at("d"), at("e"))
  assert.strictEqual(text((yield* files.read(at("e/inner/f"))).bytes), "deep")
  assert.strictEqual(yield* tag(files.rename(at("dd"), at("e"))), "FileIo")
  yield* files.remove(at("e"))
  assert.deepStrictEqual([...(yield* files.list(directory))].sort(), ["a", "dd"])
  assert.strictEqual(yield* tag(files.list(at("e"))), "FileMissing")
})

describe("PrivateFiles", () => {
  it.effect("in memory", () =>
    Effect.flatMap(PrivateFiles, (files) => files.makeDirectory("/work", 0o700)).pipe(
      Effect.andThen(contract("/work")),
      Effect.provide(PrivateFiles.layerMemory)
    )
  )

  it.live("of the machine", () => Effect.flatMap(tempDirectory, contract).pipe(Effect.provide(PrivateFiles.layerNode)))

  it.live.each([0o027, 0o000, 0o777])("sets modes exactly under umask %o", (mask) =>
    Effect.gen(function* () {
      const files = yield* PrivateFiles
      const directory = yield* tempDirectory
      yield* umask(mask)
      yield* files.makeDirectory(`${directory}/d`, 0o770)
      yield* files.write(`${directory}/f`, "x", { mode: 0o660 })
      assert.strictEqual(modeOf(`${directory}/d`), "770")
      assert.strictEqual(modeOf(`${directory}/f`), "660")
    }).pipe(Effect.provide(PrivateFiles.layerNode))
  )

  it.live("replaces a link instead of following it, and never reads through one", () =>
    Effect.gen(function* () {
      const files = yield* PrivateFiles
      const directory = yield* tempDirectory
      const [victim, link] = [`${directory}/victim`, `${directory}/link`]
      NodeFs.writeFileSync(victim, "untouched")
      NodeFs.symlinkSync(victim, link)
      assert.deepInclude(yield* files.lstat(link), { kind: "link" })
      assert.strictEqual(yield* tag(files.read(link)), "FileUnsafe")
      yield* files.write(link, "new", { mode: 0o600 })
      assert.isTrue(NodeFs.lstatSync(link).isFile())
      assert.strictEqual(NodeFs.readFileSync(victim, "utf8"), "untouched")
    }).pipe(Effect.provide(PrivateFiles.layerNode))
  )

  it.live("removes a link, not what is behind it", () =>
    Effect.gen(function* () {
      const files = yield* PrivateFiles
      const directory = yield* tempDirectory
      NodeFs.mkdirSync(`${directory}/real`)
      NodeFs.writeFileSync(`${directory}/real/f`, "kept")
      NodeFs.mkdirSync(`${directory}/tree`)
      NodeFs.symlinkSync(`${directory}/real`, `${directory}/tree/link`)
      yield* files.remove(`${directory}/tree`)
      assert.isFalse(NodeFs.existsSync(`${directory}/tree`))
      assert.strictEqual(NodeFs.readFileSync(`${directory}/real/f`, "utf8"), "kept")
    }).pipe(Effect.provide(PrivateFiles.layerNode))
  )

  it.live("keeps the old file and leaves no temporary one when a write fails", () =>
    Effect.gen(function* () {
      const files = yield* PrivateFiles
      const directory = yield* tempDirectory
      NodeFs.mkdirSync(`${directory}/target`)
      NodeFs.writeFileSync(`${directory}/target/old`, "old")
      assert.strictEqual(yield* tag(files.write(`${directory}/target`, "new", { mode: 0o600 })), "FileIo")
      assert.strictEqual(NodeFs.readFileSync(`${directory}/target/old`, "utf8"), "old")
      assert.deepStrictEqual(NodeFs.readdirSync(directory), ["target"])
    }).pipe(Effect.provide(PrivateFiles.layerNode))
  )

  it.live("does not wait for the other end of a pipe", () =>
    Effect.gen(function* () {
      const files = yield* PrivateFiles
      const directory = yield* tempDirectory
      spawnSync("mkfifo", [`${directory}/pipe`])
      assert.strictEqual(yield* tag(files.read(`${directory}/pipe`)), "FileUnsafe")
    }).pipe(Effect.provide(PrivateFiles.layerNode))
  )

  it.live.skipIf(!NodeFs.existsSync("/sys/kernel"))("says what is not permitted, and the system's code", () =>
    Effect.gen(function* () {
      const files = yield* PrivateFiles
      const error = yield* Effect.flip(files.makeDirectory("/sys/fl-attach", 0o700))
      assert.strictEqual(error.reason._tag, "FileDenied")
      assert.include(["EACCES", "EPERM", "EROFS"], error.code)
      assert.include(error.message, "/sys/fl-attach")
    }).pipe(Effect.provide(PrivateFiles.layerNode))
  )

  it.live("refuses a file beyond the bound and takes one at it", () =>
    Effect.gen(function* () {
      const files = yield* PrivateFiles
      const path = `${yield* tempDirectory}/f`
      NodeFs.writeFileSync(path, "")
      NodeFs.truncateSync(path, maxFileBytes)
      assert.strictEqual((yield* files.read(path)).bytes.length, maxFileBytes)
      NodeFs.truncateSync(path, maxFileBytes + 1)
      const error = yield* Effect.flip(files.read(path))
      assert.strictEqual(error.reason._tag, "FileUnsafe")
      assert.include(error.message, String(maxFileBytes))
    }).pipe(Effect.provide(PrivateFiles.layerNode))
  )
})
