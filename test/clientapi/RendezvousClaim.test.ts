import { type ChildProcess, spawn } from "node:child_process"
import * as NodeFs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Result, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as Rendezvous from "../../src/clientapi/Rendezvous.ts"
import { FileLock } from "../../src/platform/FileLock.ts"
import { PrivateFiles } from "../../src/platform/PrivateFiles.ts"
import { hasFlock, modeOf, tempDirectory, umask } from "../platform/support.ts"
import { makeListener, memory, node, reason } from "./rendezvousSupport.ts"

const names = { siteName: "site-1", attachId: "t1" }

const prepare = Effect.gen(function* () {
  const root = yield* tempDirectory
  const connectUrl = yield* makeListener(root)
  const site = `${root}/.nvflare/client_api_attach/site-1`
  return { root, connectUrl, site, claimed: `${site}/t1.claim`, endpoint: { cjFqcn: "site-1.job-1", connectUrl } }
})

/** A claim in a scope of its own. */
const claimIn = Effect.fnUntraced(function* (root: string) {
  const scope = yield* Scope.make()
  const claim = yield* Rendezvous.claim({ root, ...names }).pipe(Scope.provide(scope))
  return { claim, close: Scope.close(scope, Exit.void) }
})

const read = (path: string) => NodeFs.readFileSync(path, "utf8")
const list = (path: string) => NodeFs.readdirSync(path).sort()

describe.skipIf(!hasFlock)("Rendezvous.claim on real files", () => {
  it.live.each([0o027, 0o000, 0o077])(
    "has exactly the modes, names and bytes of the reference under umask %o",
    (mask) =>
      Effect.gen(function* () {
        const { root, site, claimed, connectUrl, endpoint } = yield* prepare
        yield* umask(mask)
        const { claim, close } = yield* claimIn(root)
        yield* claim.publish(endpoint)
        const parents = [`${root}/.nvflare`, `${root}/.nvflare/client_api_attach`, site]
        for (const directory of [...parents, claimed]) assert.strictEqual(modeOf(directory), "770", directory)
        assert.deepStrictEqual(list(site), [".t1.lock", "t1.claim"])
        assert.deepStrictEqual(list(claimed), ["endpoint.json", "owner.json"])
        for (const file of [`${site}/.t1.lock`, `${claimed}/owner.json`, `${claimed}/endpoint.json`]) {
          assert.strictEqual(modeOf(file), "660", file)
        }
        assert.match(claim.instanceId, /^[0-9a-f]{32}$/)
        assert.strictEqual(read(`${claimed}/owner.json`), `{\n  "instance_id": "${claim.instanceId}"\n}`)
        assert.strictEqual(
          read(`${claimed}/endpoint.json`),
          [
            "{",
            '  "attach_id": "t1",',
            '  "cj_fqcn": "site-1.job-1",',
            `  "connect_url": "${connectUrl}",`,
            '  "connection_security": "clear",',
            `  "instance_id": "${claim.instanceId}",`,
            '  "schema_version": 1,',
            '  "site_name": "site-1",',
            '  "trainer_fqcn": "site-1.-client_api_t1"',
            "}"
          ].join("\n")
        )
        assert.strictEqual((yield* Rendezvous.wait({ root, ...names, timeout: 0 })).instanceId, claim.instanceId)
        yield* close
        assert.deepStrictEqual(list(site), [".t1.lock"])
        assert.strictEqual((yield* reason(Rendezvous.wait({ root, ...names, timeout: 0 })))._tag, "NotPublished")
      }).pipe(Effect.provide(node))
  )

  const start = (root: string) =>
    Effect.acquireRelease(
      Effect.callback<{ child: ChildProcess; instanceId: string }, Error>((resume) => {
        const child = spawn(process.execPath, [`${import.meta.dirname}/holdClaim.ts`, root], { stdio: "pipe" })
        child.stdout?.once("data", (data) => resume(Effect.succeed({ child, instanceId: String(data) })))
        child.once("exit", (code) => resume(Effect.fail(new Error(`the holder ended with ${code}`))))
      }),
      ({ child }) => kill(child)
    )

  const kill = (child: ChildProcess) =>
    Effect.callback<void>((resume) => {
      if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
      child.once("exit", () => resume(Effect.void))
      child.kill("SIGKILL")
    })

  it.live("meets a live service of another process, and takes over when that was killed", () =>
    Effect.gen(function* () {
      const { root, site, claimed, endpoint } = yield* prepare
      const other = yield* start(root)
      assert.strictEqual((yield* Rendezvous.wait({ root, ...names, timeout: 0 })).instanceId, other.instanceId)
      const held = yield* reason(Effect.scoped(Rendezvous.claim({ root, ...names })))
      assert.strictEqual(held._tag, "ClaimHeld")
      assert.include(read(`${claimed}/owner.json`), other.instanceId)
      yield* kill(other.child)
      // The dead one's files are all there, yet nobody takes them for a live service.
      assert.include(read(`${claimed}/endpoint.json`), other.instanceId)
      assert.include((yield* reason(Rendezvous.wait({ root, ...names, timeout: 0 }))).message, "has died")
      const { claim, close } = yield* claimIn(root)
      assert.deepStrictEqual(list(claimed), ["owner.json"])
      yield* claim.publish(endpoint)
      assert.strictEqual((yield* Rendezvous.wait({ root, ...names, timeout: 0 })).instanceId, claim.instanceId)
      assert.deepStrictEqual(list(site), [".t1.lock", "t1.claim"])
      yield* close
    }).pipe(Effect.provide(node))
  )

  it.live("sweeps away what its own dead owners left half removed, and nothing of others", () =>
    Effect.gen(function* () {
      const { root, site } = yield* prepare
      yield* (yield* claimIn(root)).close
      const others = [".t10.stale-1", ".t1.lock", "t1.claim.other", "t10.claim.closing-1", "t2.claim"]
      for (const name of [".t1.stale-1", "t1.claim.closing-2", ...others]) {
        if (name !== ".t1.lock") NodeFs.mkdirSync(`${site}/${name}`)
      }
      yield* (yield* claimIn(root)).close
      assert.deepStrictEqual(list(site), others.sort())
    }).pipe(Effect.provide(node))
  )

  it.live("removes nothing that another owner has written in the meantime, but unlocks", () =>
    Effect.gen(function* () {
      const { root, site, claimed } = yield* prepare
      const locks = yield* FileLock
      for (const owner of ['{"instance_id": "another"}', "not json", "[]"]) {
        const { close } = yield* claimIn(root)
        NodeFs.writeFileSync(`${claimed}/owner.json`, owner)
        yield* close
        assert.strictEqual(read(`${claimed}/owner.json`), owner)
        assert.isFalse(yield* locks.isLocked(`${site}/.t1.lock`))
      }
    }).pipe(Effect.provide(node))
  )

  it.live("publishes nothing once the claim is not its own any more", () =>
    Effect.gen(function* () {
      const { root, claimed, endpoint } = yield* prepare
      const { claim, close } = yield* claimIn(root)
      const lost = Effect.gen(function* () {
        const found = yield* reason(claim.publish(endpoint))
        assert.strictEqual(found._tag, "ClaimLost")
        assert.include(found.message, claimed)
        assert.isFalse(NodeFs.existsSync(`${claimed}/endpoint.json`))
        return found.message
      })
      NodeFs.writeFileSync(`${claimed}/owner.json`, '{"instance_id": "another"}')
      assert.include(yield* lost, "another owner")
      NodeFs.writeFileSync(`${claimed}/owner.json`, "{")
      assert.include(yield* lost, "corrupt")
      NodeFs.rmSync(`${claimed}/owner.json`)
      assert.include(yield* lost, "no owner.json")
      NodeFs.rmSync(claimed, { recursive: true })
      yield* lost
      yield* close
      assert.include(yield* lost, "closed")
    }).pipe(Effect.provide(node))
  )

  it.live("refuses a world-writable root and directories that are wide open or links, and leaves them alone", () =>
    Effect.gen(function* () {
      const { root, site, claimed } = yield* prepare
      const claim = reason(Effect.scoped(Rendezvous.claim({ root, ...names })))
      NodeFs.chmodSync(root, 0o777)
      const open = yield* claim
      assert.strictEqual(open._tag, "RootUnsafe")
      assert.deepStrictEqual(yield* reason(Rendezvous.checkSharedRoot(root)), open)
      assert.include(open.message, `${root} is writable for all users (mode 0777, owner uid ${process.getuid?.()})`)
      assert.deepStrictEqual(list(root), ["lst_0123abcd"])
      NodeFs.chmodSync(root, 0o770)
      yield* Rendezvous.checkSharedRoot(root)
      const elsewhere = yield* tempDirectory
      for (const path of [`${root}/.nvflare`, `${root}/.nvflare/client_api_attach`, site, claimed]) {
        NodeFs.mkdirSync(path)
        NodeFs.chmodSync(path, 0o777)
        const found = yield* claim
        assert(found._tag === "PathUnsafe" && found.path === path, found.message)
        assert.include(found.message, "mode 0777")
        assert.strictEqual(modeOf(path), "777")
        NodeFs.rmdirSync(path)
        NodeFs.symlinkSync(elsewhere, path)
        const link = yield* claim
        assert(link._tag === "PathUnsafe" && link.path === path, link.message)
        assert.include(link.message, "symbolic link")
        NodeFs.unlinkSync(path)
        NodeFs.mkdirSync(path)
        NodeFs.chmodSync(path, 0o770)
      }
      assert.isEmpty(list(elsewhere))
      NodeFs.symlinkSync(root, `${elsewhere}/root`)
      const linked = yield* reason(Effect.scoped(Rendezvous.claim({ root: `${elsewhere}/root`, ...names })))
      assert.strictEqual(linked._tag, "RootUnsafe")
      const missing = yield* reason(Effect.scoped(Rendezvous.claim({ root: `${elsewhere}/none`, ...names })))
      assert(missing._tag === "RendezvousIo" && missing.code === "ENOENT")
      assert.include(missing.message, `${elsewhere}/none does not exist: make the directory`)
    }).pipe(Effect.provide(node))
  )

  it.live("does not lock through a link", () =>
    Effect.gen(function* () {
      const { root, site } = yield* prepare
      yield* (yield* claimIn(root)).close
      const victim = `${yield* tempDirectory}/victim`
      NodeFs.writeFileSync(victim, "", { mode: 0o600 })
      NodeFs.rmSync(`${site}/.t1.lock`)
      NodeFs.symlinkSync(victim, `${site}/.t1.lock`)
      const found = yield* reason(Effect.scoped(Rendezvous.claim({ root, ...names })))
      assert(found._tag === "PathUnsafe" && found.path === `${site}/.t1.lock`, found.message)
      assert.strictEqual(modeOf(victim), "600")
    }).pipe(Effect.provide(node))
  )

  it.live("publishes no listener that its trainer would refuse", () =>
    Effect.gen(function* () {
      const { root, connectUrl, claimed } = yield* prepare
      const { claim, close } = yield* claimIn(root)
      const refused = Effect.fnUntraced(function* (url: string, path: string) {
        const found = yield* reason(claim.publish({ cjFqcn: "site-1.job-1", connectUrl: url }))
        assert(found._tag === "ListenerUnsafe" && found.path === path, found.message)
        assert.isFalse(NodeFs.existsSync(`${claimed}/endpoint.json`))
      })
      const listener = `${root}/lst_0123abcd`
      for (const path of [listener, `${listener}/conns`, `${listener}/.nvf_file_transport`]) {
        NodeFs.chmodSync(path, 0o775)
        yield* refused(connectUrl, path)
        NodeFs.chmodSync(path, 0o770)
      }
      NodeFs.chmodSync(root, 0o777)
      const open = yield* reason(claim.publish({ cjFqcn: "site-1.job-1", connectUrl }))
      assert.strictEqual(open._tag, "RootUnsafe")
      NodeFs.chmodSync(root, 0o770)
      NodeFs.symlinkSync(listener, `${root}/lst_link`)
      yield* refused(`shared-file://0${root}/lst_link`, `${root}/lst_link`)
      const outside = yield* tempDirectory
      yield* refused(yield* makeListener(outside), `${outside}/lst_0123abcd`)
      const missing = yield* reason(
        claim.publish({ cjFqcn: "site-1.job-1", connectUrl: `shared-file://0${root}/lst_none` })
      )
      assert.strictEqual(missing._tag, "RendezvousIo")
      const foreign = yield* reason(claim.publish({ cjFqcn: "site-2.job-1", connectUrl }))
      assert(foreign._tag === "RecordInvalid" && foreign.field === "cj_fqcn")
      const network = yield* reason(claim.publish({ cjFqcn: "site-1.job-1", connectUrl: "tcp://h:1" }))
      assert(network._tag === "RecordInvalid" && network.field === "connect_url", network.message)
      yield* close
    }).pipe(Effect.provide(node))
  )
})

describe.skipIf(!hasFlock)("several claims of one id at once", () => {
  it.live("let one have it, and the next as soon as that is closed", () =>
    Effect.gen(function* () {
      const { root, claimed } = yield* prepare
      const tries = yield* Effect.all([claimIn(root), claimIn(root), claimIn(root)].map(Effect.result), {
        concurrency: "unbounded"
      })
      const [winner, ...more] = tries.filter(Result.isSuccess).map((result) => result.success)
      assert(winner !== undefined && more.length === 0)
      assert.deepStrictEqual(
        tries.filter(Result.isFailure).map((result) => result.failure.reason._tag),
        ["ClaimHeld", "ClaimHeld"]
      )
      assert.include(read(`${claimed}/owner.json`), winner.claim.instanceId)
      // One that begins while the claim is still held gets it within its second.
      const next = yield* Effect.forkChild(claimIn(root), { startImmediately: true })
      yield* winner.close
      const second = yield* Fiber.join(next)
      assert.include(read(`${claimed}/owner.json`), second.claim.instanceId)
      yield* second.close
    }).pipe(Effect.provide(node))
  )
})

describe("Rendezvous.claim and the lock", () => {
  const key = { root: "/shared", ...names }
  const lock = "/shared/.nvflare/client_api_attach/site-1/.t1.lock"

  /** The lock, taken by somebody else until `release`. */
  const busy = Effect.gen(function* () {
    const files = yield* PrivateFiles
    yield* files.makeDirectory("/shared", 0o770)
    for (const path of ["/shared/.nvflare", "/shared/.nvflare/client_api_attach", lock.slice(0, -9)]) {
      yield* files.makeDirectory(path, 0o770)
    }
    const scope = yield* Scope.make()
    yield* (yield* FileLock).tryLock(lock, { create: true }).pipe(Scope.provide(scope))
    return { release: Scope.close(scope, Exit.void) }
  })

  it.effect("tries for a second, since a trainer's probe may hold it for an instant", () =>
    Effect.gen(function* () {
      const { release } = yield* busy
      const fiber = yield* Effect.forkChild(Rendezvous.claim(key), { startImmediately: true })
      yield* TestClock.adjust(950)
      yield* release
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust(50)
      assert.match((yield* Fiber.join(fiber)).instanceId, /^[0-9a-f]{32}$/)
    }).pipe(Effect.provide(memory))
  )

  it.effect("gives up after a second and names the id, the site and the lock", () =>
    Effect.gen(function* () {
      yield* busy
      const fiber = yield* Effect.forkChild(reason(Rendezvous.claim(key)), { startImmediately: true })
      yield* TestClock.adjust(999)
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust(1)
      const found = yield* Fiber.join(fiber)
      assert.strictEqual(found._tag, "ClaimHeld")
      assert.deepInclude(found, { path: lock, ...names })
      for (const word of ['"t1"', '"site-1"', lock]) assert.include(found.message, word)
    }).pipe(Effect.provide(memory))
  )

  it.effect("leaves no lock behind when it is interrupted", () =>
    Effect.gen(function* () {
      const { release } = yield* busy
      const fiber = yield* Effect.forkChild(Effect.scoped(Rendezvous.claim(key)), { startImmediately: true })
      yield* TestClock.adjust(500)
      yield* Fiber.interrupt(fiber)
      yield* release
      yield* TestClock.adjust("1 second")
      assert.isFalse(yield* (yield* FileLock).isLocked(lock))
    }).pipe(Effect.provide(memory))
  )

  it.effect("claims different ids side by side, and one again as soon as its scope is closed", () =>
    Effect.gen(function* () {
      yield* (yield* PrivateFiles).makeDirectory("/shared", 0o770)
      yield* Rendezvous.claim({ ...key, attachId: "t2" })
      const first = yield* Effect.scoped(Rendezvous.claim(key))
      const second = yield* Rendezvous.claim(key)
      assert.notStrictEqual(first.instanceId, second.instanceId)
      const files = yield* PrivateFiles
      const found = yield* files.list(second.directory.replace("/t1.claim", ""))
      assert.deepStrictEqual([...found].sort(), [".t1.lock", ".t2.lock", "t1.claim", "t2.claim"])
    }).pipe(Effect.provide(memory))
  )
})
