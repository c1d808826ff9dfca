/** Processes that are killed or stopped, and disks that are full. */
import { execFileSync } from "node:child_process"
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { assertModel, probe, quick, serve, stuck, type Workspace, workspace } from "./support.ts"

const patient = ["--heartbeat-interval", "200ms", "--heartbeat-timeout", "5s"]

/** The states that the session of the only trainer went through. */
const states = (w: Workspace) =>
  readFileSync(w.events, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line))
    .filter(({ event }) => event === "session")
    .map(({ state }) => state)

describe("kill -9", () => {
  it.live("of the service in a task: the trainer ends by itself with its lease; a new pair starts at once", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const first = yield* serve(w, ["a"], quick)
      const trainer = yield* stuck(w, "a")
      yield* trainer.printed("busy")
      yield* first.kill("SIGKILL")
      // The claim and the endpoint of the dead one are still there.
      const second = yield* serve(w, ["a"], quick)
      yield* second.printed("waiting for 1 trainer (a)")
      const { code, stderr } = yield* trainer.ended
      assert.strictEqual(code, 1)
      assert.match(stderr, /heartbeat_timeout[^\n]*1s[^\n]*\n$/)
      const other = yield* probe(w, "a", "1")
      assert.strictEqual((yield* second.ended).code, 0)
      assert.strictEqual((yield* other.ended).code, 0)
      yield* assertModel(w, 3)
    })
  )

  it.live("of a trainer in a task, without --allow-reconnect: a new one finds no session, but the next service", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const first = yield* serve(w, ["a"], quick)
      const trainer = yield* stuck(w, "a")
      yield* trainer.printed("busy")
      yield* trainer.kill("SIGKILL")
      const other = yield* probe(w, "a", "1")
      yield* other.printed("attaching as")
      const failed = yield* first.ended
      assert.strictEqual(failed.code, 1)
      assert.include(failed.stderr, "--heartbeat-timeout is 1s")
      const second = yield* serve(w, ["a"], quick)
      assert.strictEqual((yield* second.ended).code, 0)
      assert.strictEqual((yield* other.ended).code, 0)
      yield* assertModel(w, 3)
    })
  )

  it.live("of a trainer in a task, with --allow-reconnect but no --retry-rounds: the round fails", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["a"], [...quick, "--allow-reconnect"])
      const trainer = yield* stuck(w, "a")
      yield* trainer.printed("busy")
      yield* trainer.kill("SIGKILL")
      const failed = yield* service.ended
      assert.strictEqual(failed.code, 1)
      assert.include(failed.stderr, "--heartbeat-timeout is 1s")
    })
  )
})

describe("SIGSTOP of a trainer", () => {
  it.live("for less than the lease: nobody minds", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["a"], patient)
      const trainer = yield* stuck(w, "a", 100)
      yield* trainer.printed("busy")
      yield* trainer.kill("SIGSTOP")
      yield* Effect.sleep("1 second")
      yield* trainer.kill("SIGCONT")
      assert.strictEqual((yield* service.ended).code, 0)
      assert.strictEqual((yield* trainer.ended).code, 0)
      assert.deepStrictEqual(states(w), ["Opening", "Ready", "Closed"])
      yield* assertModel(w, 3)
    })
  )

  it.live("for more than the lease: it is lost; woken up, it notices and ends", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["a"], quick)
      const trainer = yield* stuck(w, "a")
      yield* trainer.printed("busy")
      yield* trainer.kill("SIGSTOP")
      const failed = yield* service.ended
      assert.strictEqual(failed.code, 1)
      assert.include(failed.stderr, "--heartbeat-timeout is 1s")
      yield* trainer.kill("SIGCONT")
      assert.strictEqual((yield* trainer.ended).code, 1)
    })
  )

  it.live("for more than the lease, with --allow-reconnect: woken up, it leaves its place to the next", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve(w, ["a"], [...quick, "--allow-reconnect", "--retry-rounds", "1"])
      const trainer = yield* stuck(w, "a")
      yield* trainer.printed("busy")
      yield* trainer.kill("SIGSTOP")
      yield* service.printed("round 1/3 runs again (attempt 2)")
      yield* trainer.kill("SIGCONT")
      assert.strictEqual((yield* trainer.ended).code, 1)
      const other = yield* probe(w, "a", "1")
      assert.strictEqual((yield* service.ended).code, 0)
      assert.strictEqual((yield* other.ended).code, 0)
      yield* assertModel(w, 3)
    })
  )
})

/** A disk of so many KiB, which is full; `undefined` where none may be mounted. */
const fullDisk = (folder: string, size = 4) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const path = join(folder, "disk")
      mkdirSync(path)
      try {
        execFileSync("mount", ["-t", "tmpfs", "-o", `size=${size}k`, "none", path], { stdio: "ignore" })
      } catch {
        return undefined
      }
      writeFileSync(join(path, "full"), new Uint8Array(size * 1024))
      return path
    }),
    (path) => Effect.sync(() => path !== undefined && execFileSync("umount", [path]))
  )

describe("a full disk", () => {
  it.live.skipIf(process.getuid?.() !== 0)("under --out: refused before anything is trained", (test) =>
    Effect.gen(function* () {
      const w = yield* workspace
      const disk = yield* fullDisk(w.folder)
      if (disk === undefined) return test.skip("no disk may be mounted here")
      const { ended } = yield* serve({ ...w, out: join(disk, "out.npz") }, ["a"])
      const { code, stderr } = yield* ended
      assert.strictEqual(code, 2)
      assert.include(stderr, `--out ${disk}/out.npz: the model takes`)
      assert.include(stderr, "0.0 MiB left: free space there, or choose another folder")
    })
  )

  it.live.skipIf(process.getuid?.() !== 0)(
    "under --out in the end: the model is kept elsewhere, and where is said",
    (test) =>
      Effect.gen(function* () {
        const w = yield* workspace
        const disk = yield* fullDisk(w.folder)
        if (disk === undefined) return test.skip("no disk may be mounted here")
        rmSync(join(disk, "full"))
        const service = yield* serve({ ...w, out: join(disk, "out.npz") }, ["a"])
        yield* service.printed("waiting for 1 trainer")
        writeFileSync(join(disk, "full"), new Uint8Array(4096))
        const trainer = yield* probe(w, "a", "1")
        const failed = yield* service.ended
        assert.strictEqual(failed.code, 1)
        assert.include(failed.stderr, `no space is left for ${disk}: free some, or choose another folder`)
        // Its trainer did all that was asked of it.
        assert.strictEqual((yield* trainer.ended).code, 0)
        assert.deepStrictEqual(readdirSync(disk), ["full"])
        const kept = /the trained model is in (\S+) instead/.exec(failed.stderr)?.[1] ?? ""
        yield* assertModel({ ...w, out: kept }, 3)
        rmSync(dirname(kept), { recursive: true })
      })
  )

  it.live.skipIf(process.getuid?.() !== 0)(
    "under the shared folder: said at once, with path and cause, and by what fails after it",
    (test) =>
      Effect.gen(function* () {
        const w = yield* workspace
        const disk = yield* fullDisk(w.folder, 256)
        if (disk === undefined) return test.skip("no disk may be mounted here")
        // Some room for the beginning.
        rmSync(join(disk, "full"))
        const shared = join(disk, "shared")
        mkdirSync(shared, { mode: 0o770 })
        const inDisk: Workspace = { ...w, shared, profile: (id) => w.profile(id, { rendezvous_dir: shared }) }
        const service = yield* serve(inDisk, ["a"], quick)
        const trainer = yield* stuck(inDisk, "a")
        yield* trainer.printed("busy")
        try {
          writeFileSync(join(disk, "full"), new Uint8Array(256 * 1024))
        } catch {
          // As full as it gets.
        }
        const served = yield* service.ended
        const attached = yield* trainer.ended
        assert.deepStrictEqual([served.code, attached.code], [1, 1])
        // Whoever appends first meets it.
        const all = `${served.stderr}\n${attached.stderr}\n${attached.stdout}`
        assert.match(all, /append to [^ ]*\.0\.log failed \(ENOSPC\): the file system is full; free space there/)
        assert.match(all, /(?:is lost|with its lease): [^\n]*connection failed before: [^\n]*ENOSPC/)
      })
  )

  it.live.skipIf(process.getuid?.() !== 0)("before the start: what to do", (test) =>
    Effect.gen(function* () {
      const w = yield* workspace
      const disk = yield* fullDisk(w.folder)
      if (disk === undefined) return test.skip("no disk may be mounted here")
      const shared = join(disk, "shared")
      mkdirSync(shared, { mode: 0o770 })
      const { ended } = yield* serve({ ...w, shared }, ["a"])
      const { code, stderr } = yield* ended
      assert.strictEqual(code, 1)
      assert.match(stderr, /ENOSPC[^\n]*the file system is full; free space there or/)
    })
  )

  it.live.skipIf(!existsSync("/dev/full"))("under --events: a warning, and the training goes on", () =>
    Effect.gen(function* () {
      const w = yield* workspace
      const service = yield* serve({ ...w, events: "/dev/full" }, ["a"])
      const trainer = yield* probe(w, "a", "1")
      const served = yield* service.ended
      assert.strictEqual(served.code, 0, served.stderr)
      assert.include(
        served.stdout + served.stderr,
        "--events /dev/full lacks events from now on: the file system of /dev is full (ENOSPC): free space there"
      )
      assert.strictEqual((yield* trainer.ended).code, 0)
      yield* assertModel(w, 3)
    })
  )
})
