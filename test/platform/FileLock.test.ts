import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import * as NodeFs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Layer, Scope } from "effect"
import { FileLock } from "../../src/platform/FileLock.ts"
import type { FileLockError } from "../../src/platform/FileLockError.ts"
import { openScoped } from "../../src/platform/internal/nodeFiles.ts"
import { PrivateFiles } from "../../src/platform/PrivateFiles.ts"
import { descriptorsOn, hasFlock, hasProc, hasPython, modeOf, tempDirectory, umask } from "./support.ts"

const reasonOf = <A, R>(self: Effect.Effect<A, FileLockError, R>) => Effect.map(Effect.flip(self), (e) => e.reason)

const tag = <A, R>(self: Effect.Effect<A, FileLockError, R>) => Effect.map(reasonOf(self), (reason) => reason._tag)

const python = (code: string, path: string): string => {
  const run = spawnSync("python3", ["-c", code, path], { encoding: "utf8" })
  return run.status === 0 ? run.stdout.trim() : `failed: ${run.stderr}`
}

const pythonTry = `
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("taken")
except OSError as e:
    print("busy", e.errno)
`

const pythonHold = `
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o660)
fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
`

/** A process that says "held" once it has the lock; killed with the scope, or before by `kill`. */
const holder = (command: string, args: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.callback<ChildProcess, Error>((resume) => {
      const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] })
      child.stdout?.once("data", () => resume(Effect.succeed(child)))
      child.once("exit", (code) => resume(Effect.fail(new Error(`${command} ended with ${code}`))))
    }),
    (child) => kill(child)
  )

const kill = (child: ChildProcess) =>
  Effect.callback<void>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    child.once("exit", () => resume(Effect.void))
    child.kill("SIGKILL")
  })

const event = (stream: NodeFs.ReadStream, name: "data" | "end") =>
  Effect.callback<void>((resume) => {
    stream.once(name, () => resume(Effect.void))
  })

const inDirectory = <A, E, R>(body: (directory: string) => Effect.Effect<A, E, R>) =>
  Effect.flatMap(tempDirectory, body)

describe.skipIf(!hasFlock)("FileLock.layerNode", () => {
  it.live("holds the lock until its scope closes", () =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const locks = yield* FileLock
        const path = `${directory}/.t.lock`
        assert.isFalse(yield* locks.isLocked(path))
        const scope = yield* Scope.make()
        yield* locks.tryLock(path, { create: true }).pipe(Scope.provide(scope))
        assert.strictEqual(yield* tag(locks.tryLock(path)), "LockBusy")
        assert.isTrue(yield* locks.isLocked(path))
        yield* Scope.close(scope, Exit.void)
        assert.isFalse(yield* locks.isLocked(path))
        yield* locks.tryLock(path)
      })
    ).pipe(Effect.provide(FileLock.layerNode))
  )

  it.live.each([0o027, 0o000, 0o077])("gives the file mode 0660 under umask %o", (mask) =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const locks = yield* FileLock
        yield* umask(mask)
        yield* locks.tryLock(`${directory}/.t.lock`, { create: true })
        assert.strictEqual(modeOf(`${directory}/.t.lock`), "660")
      })
    ).pipe(Effect.provide(FileLock.layerNode))
  )

  it.live("corrects the mode of a file that is too open, but only where it may create", () =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const locks = yield* FileLock
        const path = `${directory}/.t.lock`
        NodeFs.writeFileSync(path, "")
        NodeFs.chmodSync(path, 0o666)
        const reason = yield* reasonOf(locks.isLocked(path))
        assert.strictEqual(reason._tag, "LockUnsafe")
        assert.include(reason.message, "mode 0666")
        yield* locks.tryLock(path, { create: true })
        assert.strictEqual(modeOf(path), "660")
      })
    ).pipe(Effect.provide(FileLock.layerNode))
  )

  it.live("refuses links, directories and pipes", () =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const locks = yield* FileLock
        NodeFs.writeFileSync(`${directory}/real`, "", { mode: 0o600 })
        NodeFs.symlinkSync(`${directory}/real`, `${directory}/link`)
        NodeFs.symlinkSync(`${directory}/nothing`, `${directory}/dangling`)
        NodeFs.mkdirSync(`${directory}/directory`)
        spawnSync("mkfifo", ["-m", "600", `${directory}/pipe`])
        for (const name of ["link", "dangling", "directory", "pipe"]) {
          const path = `${directory}/${name}`
          assert.strictEqual(yield* tag(locks.tryLock(path, { create: true })), "LockUnsafe", name)
          assert.strictEqual(yield* tag(locks.isLocked(path)), "LockUnsafe", name)
        }
        assert.isFalse(NodeFs.existsSync(`${directory}/nothing`))
      })
    ).pipe(Effect.provide(FileLock.layerNode))
  )

  it.live("does not make a file unless it is told to", () =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const locks = yield* FileLock
        const reason = yield* reasonOf(locks.tryLock(`${directory}/.t.lock`))
        assert.strictEqual(reason._tag, "LockIo")
        assert.deepInclude(reason, { code: "ENOENT" })
        assert.isFalse(NodeFs.existsSync(`${directory}/.t.lock`))
      })
    ).pipe(Effect.provide(FileLock.layerNode))
  )

  it.live("fails by type, not by defect, on a path that no system takes", () =>
    Effect.gen(function* () {
      const locks = yield* FileLock
      assert.strictEqual(yield* tag(locks.isLocked("/tmp/a\0b")), "LockIo")
    }).pipe(Effect.provide(FileLock.layerNode))
  )

  it.live.skipIf(!hasProc)("leaves no descriptor behind by attempts that fail", () =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const locks = yield* FileLock
        const path = `${directory}/.t.lock`
        yield* locks.tryLock(path, { create: true })
        for (let i = 0; i < 3; i++) assert.strictEqual(yield* tag(locks.tryLock(path)), "LockBusy")
        yield* locks.isLocked(path)
        assert.strictEqual(descriptorsOn(path), 1)
      })
    ).pipe(Effect.provide(FileLock.layerNode))
  )

  it.live("does not live on in processes that this one starts", () =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const locks = yield* FileLock
        const path = `${directory}/.t.lock`
        const scope = yield* Scope.make()
        yield* locks.tryLock(path, { create: true }).pipe(Scope.provide(scope))
        yield* holder("sh", ["-c", "echo started; read line"])
        yield* Scope.close(scope, Exit.void)
        assert.isFalse(yield* locks.isLocked(path))
      })
    ).pipe(Effect.provide(FileLock.layerNode))
  )

  it.live("is free again once its holder was killed", () =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const locks = yield* FileLock
        const path = `${directory}/.t.lock`
        const child = yield* holder(process.execPath, [`${import.meta.dirname}/holdLock.ts`, path])
        assert.strictEqual(yield* tag(locks.tryLock(path)), "LockBusy")
        assert.isNull(child.exitCode)
        yield* kill(child)
        yield* locks.tryLock(path)
      })
    ).pipe(Effect.provide(FileLock.layerNode))
  )

  it.live.skipIf(!hasPython)("excludes Python's fcntl.flock and is excluded by it", () =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const locks = yield* FileLock
        const ours = `${directory}/.ours.lock`
        const scope = yield* Scope.make()
        yield* locks.tryLock(ours, { create: true }).pipe(Scope.provide(scope))
        assert.strictEqual(python(pythonTry, ours), "busy 11")
        yield* Scope.close(scope, Exit.void)
        assert.strictEqual(python(pythonTry, ours), "taken")

        const theirs = `${directory}/.theirs.lock`
        yield* umask(0o007)
        const child = yield* holder("python3", ["-c", pythonHold, theirs])
        assert.strictEqual(yield* tag(locks.tryLock(theirs)), "LockBusy")
        assert.isTrue(yield* locks.isLocked(theirs))
        yield* kill(child)
        assert.isFalse(yield* locks.isLocked(theirs))
        yield* locks.tryLock(theirs)
      })
    ).pipe(Effect.provide(FileLock.layerNode))
  )
})

const command = (directory: string, script: string): string => {
  NodeFs.writeFileSync(`${directory}/flock`, `#!/bin/sh\n${script}\n`, { mode: 0o700 })
  return `${directory}/flock`
}

describe("the command that takes the lock", () => {
  it.live("tells which package brings it, where it is missing", () =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const locks = yield* FileLock
        const reason = yield* reasonOf(locks.tryLock(`${directory}/.t.lock`, { create: true }))
        assert.strictEqual(reason._tag, "LockUnsupported")
        assert.include(reason.message, "util-linux")
      }).pipe(Effect.provide(FileLock.layerNodeCommand(`${directory}/none`)))
    )
  )

  it.live.each([
    ["exit 1", "LockBusy"],
    ["echo 'flock: 3: Resource temporarily unavailable' >&2; exit 1", "LockBusy"],
    ["echo 'flock: 3: Permission denied' >&2; exit 65", "LockBusy"],
    ["echo 'flock: 3: Function not implemented' >&2; exit 65", "LockUnsupported"],
    ["echo 'flock: 3: Operation not supported' >&2; exit 65", "LockUnsupported"],
    ["echo 'flock: Not supported' >&2; exit 1", "LockUnsupported"],
    ["echo 'flock: 3: No locks available' >&2; exit 71", "LockIo"],
    ["kill -9 $$", "LockIo"]
  ] as const)("reads its end: %s", ([script, expected]) =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const locks = yield* FileLock
        const reason = yield* reasonOf(locks.tryLock(`${directory}/.t.lock`, { create: true }))
        assert.strictEqual(reason._tag, expected, reason.message)
      }).pipe(Effect.provide(FileLock.layerNodeCommand(command(directory, script))))
    )
  )

  it.live.skipIf(!hasProc)("can be interrupted while it hangs, and neither it nor the file stays open", () =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const [path, pipe] = [`${directory}/.t.lock`, `${directory}/pipe`]
        spawnSync("mkfifo", [pipe])
        // The pipe tells of the command's start, and by its end, of the command's end.
        const layer = FileLock.layerNodeCommand(command(directory, `exec 9>'${pipe}'; echo started >&9; exec sleep 60`))
        yield* Effect.gen(function* () {
          const locks = yield* FileLock
          const fiber = yield* Effect.forkChild(locks.tryLock(path, { create: true }))
          const reader = NodeFs.createReadStream(pipe)
          yield* event(reader, "data")
          assert.strictEqual(descriptorsOn(path), 1)
          yield* Fiber.interrupt(fiber)
          assert.strictEqual(descriptorsOn(path), 0)
          yield* event(reader, "end")
        }).pipe(Effect.provide(layer))
      })
    )
  )
})

describe("a descriptor whose opening was interrupted", () => {
  it.live("is closed when it arrives after all", () =>
    inDirectory((directory) =>
      Effect.gen(function* () {
        const pipe = `${directory}/pipe`
        spawnSync("mkfifo", [pipe])
        // Opening a pipe for writing waits for a reader.
        const opening = yield* Effect.forkChild(Effect.scoped(openScoped(pipe, NodeFs.constants.O_WRONLY)), {
          startImmediately: true
        })
        yield* Fiber.interrupt(opening)
        const reader = NodeFs.createReadStream(pipe)
        reader.resume()
        yield* event(reader, "end")
      })
    )
  )
})

describe("FileLock.layerMemory", () => {
  const layer = Layer.provideMerge(FileLock.layerMemory, PrivateFiles.layerMemory)

  it.effect("answers as real locks do", () =>
    Effect.gen(function* () {
      const locks = yield* FileLock
      const files = yield* PrivateFiles
      assert.isFalse(yield* locks.isLocked("/.t.lock"))
      assert.strictEqual(yield* tag(locks.tryLock("/.t.lock")), "LockIo")
      const scope = yield* Scope.make()
      yield* locks.tryLock("/.t.lock", { create: true }).pipe(Scope.provide(scope))
      assert.strictEqual((yield* files.lstat("/.t.lock")).mode, 0o660)
      assert.isTrue(yield* locks.isLocked("/.t.lock"))
      assert.strictEqual(yield* tag(locks.tryLock("/.t.lock", { create: true })), "LockBusy")
      yield* Scope.close(scope, Exit.void)
      assert.isFalse(yield* locks.isLocked("/.t.lock"))
      yield* files.write("/open.lock", "", { mode: 0o666 })
      assert.strictEqual(yield* tag(locks.tryLock("/open.lock")), "LockUnsafe")
      yield* files.makeDirectory("/directory", 0o770)
      assert.strictEqual(yield* tag(locks.tryLock("/directory")), "LockUnsafe")
    }).pipe(Effect.provide(layer))
  )
})
