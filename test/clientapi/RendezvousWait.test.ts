import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Layer, Random, Result, Scope } from "effect"
import * as SecureRandom from "effect/crypto/SecureRandom"
import { TestClock } from "effect/testing"
import * as Rendezvous from "../../src/clientapi/Rendezvous.ts"
import { FileError, FileIo } from "../../src/platform/FileError.ts"
import { FileLock } from "../../src/platform/FileLock.ts"
import { FileLockError, LockIo, LockUnsupported } from "../../src/platform/FileLockError.ts"
import { PrivateFiles } from "../../src/platform/PrivateFiles.ts"
import { makeListener, memory, memoryWith, reason } from "./rendezvousSupport.ts"

const root = "/shared"
const key = { root, siteName: "site-1", attachId: "t1" }
const site = `${root}/.nvflare/client_api_attach/site-1`
const claimed = `${site}/t1.claim`

/** A root with a listener, and the listener's URL. */
const prepare = Effect.gen(function* () {
  const files = yield* PrivateFiles
  yield* files.makeDirectory(root, 0o770)
  return yield* makeListener(root)
})

/** A service that has published itself, until the test ends. */
const published = Effect.gen(function* () {
  const connectUrl = yield* prepare
  const claim = yield* Rendezvous.claim(key)
  yield* claim.publish({ cjFqcn: "site-1.job-1", connectUrl })
  return { claim, connectUrl }
})

/** As `prepare`, with all that is above a claim, for locks that make no file. */
const prepareAll = Effect.gen(function* () {
  const files = yield* PrivateFiles
  const connectUrl = yield* prepare
  for (const path of [`${root}/.nvflare`, `${root}/.nvflare/client_api_attach`, site]) {
    yield* files.makeDirectory(path, 0o770)
  }
  yield* files.write(`${site}/.t1.lock`, "", { mode: 0o660 })
  return connectUrl
})

/** Files in memory, and locks that are all granted and whose probe is given. */
const probing = (isLocked: Effect.Effect<boolean, FileLockError>) =>
  Layer.mergeAll(
    PrivateFiles.layerMemory,
    SecureRandom.layerWebCrypto,
    Layer.mock(FileLock, { tryLock: (path) => Effect.succeed({ path }), isLocked: () => isLocked })
  )

const isPending = (fiber: Fiber.Fiber<unknown, unknown>) => fiber.pollUnsafe() === undefined

describe("Rendezvous.wait", () => {
  it.effect("finds what is published already at once", () =>
    Effect.gen(function* () {
      const { claim, connectUrl } = yield* published
      assert.deepStrictEqual(yield* Rendezvous.wait({ ...key, timeout: 0 }), {
        schemaVersion: 1,
        instanceId: claim.instanceId,
        attachId: "t1",
        siteName: "site-1",
        cjFqcn: "site-1.job-1",
        trainerFqcn: "site-1.-client_api_t1",
        connectUrl,
        connectionSecurity: "clear"
      })
    }).pipe(Effect.provide(memory))
  )

  const looking = () => {
    const count = { looks: 0 }
    const layer = memoryWith((files) => ({
      ...files,
      lstat: (path) =>
        Effect.andThen(
          Effect.sync(() => path === root && count.looks++),
          files.lstat(path)
        )
    }))
    return { count, layer }
  }

  it.effect("looks every 0.2 s for a service that comes later", () => {
    const { count, layer } = looking()
    return Effect.gen(function* () {
      const fiber = yield* Effect.forkChild(Rendezvous.wait(key), { startImmediately: true })
      yield* TestClock.adjust(0)
      assert.strictEqual(count.looks, 1)
      yield* TestClock.adjust(199)
      assert.strictEqual(count.looks, 1)
      yield* TestClock.adjust(1)
      assert.strictEqual(count.looks, 2)
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(count.looks, 302)
      const { claim } = yield* published
      yield* TestClock.adjust(199)
      assert.isTrue(isPending(fiber))
      yield* TestClock.adjust(1)
      assert.strictEqual((yield* Fiber.join(fiber)).instanceId, claim.instanceId)
    }).pipe(Effect.provide(layer))
  })

  it.effect("looks a last time at the deadline", () => {
    const { count, layer } = looking()
    return Effect.gen(function* () {
      const fiber = yield* Effect.forkChild(Rendezvous.wait({ ...key, timeout: "500 millis" }))
      yield* TestClock.adjust(450)
      assert.strictEqual(count.looks, 3)
      const { claim } = yield* published
      yield* TestClock.adjust(49)
      assert.isTrue(isPending(fiber))
      yield* TestClock.adjust(1)
      assert.strictEqual((yield* Fiber.join(fiber)).instanceId, claim.instanceId)
    }).pipe(Effect.provide(layer))
  })

  it.effect("tells after the timeout what was in the way", () =>
    Effect.gen(function* () {
      yield* prepare
      const fiber = yield* Effect.forkChild(reason(Rendezvous.wait({ ...key, timeout: "500 millis" })))
      yield* TestClock.adjust(499)
      assert.isTrue(isPending(fiber))
      yield* TestClock.adjust(1)
      const found = yield* Fiber.join(fiber)
      assert.strictEqual(found._tag, "NotPublished")
      assert.include(found.message, "/shared/.nvflare does not exist")
      assert.include(found.message, "500ms")
    }).pipe(Effect.provide(memory))
  )

  it.effect("ends when it is interrupted", () =>
    Effect.gen(function* () {
      yield* prepare
      const fiber = yield* Effect.forkChild(Rendezvous.wait(key))
      yield* TestClock.adjust("1 second")
      yield* Fiber.interrupt(fiber)
      assert.isTrue(Exit.hasInterrupts(yield* Fiber.await(fiber)))
    }).pipe(Effect.provide(memory))
  )

  it.effect("tries again after an error that a network file system recovers from", () => {
    const stale = { left: 3 }
    const layer = memoryWith((files) => ({
      ...files,
      read: (path) =>
        path === `${claimed}/endpoint.json` && stale.left-- > 0
          ? Effect.fail(
              new FileError({ reason: new FileIo({ operation: "read", path, code: "ESTALE", message: "stale" }) })
            )
          : files.read(path)
    }))
    return Effect.gen(function* () {
      yield* published
      const fiber = yield* Effect.forkChild(Rendezvous.wait(key))
      yield* TestClock.adjust(599)
      assert.isTrue(isPending(fiber))
      yield* TestClock.adjust(1)
      yield* Fiber.join(fiber)
    }).pipe(Effect.provide(layer))
  })

  it.effect("does not wait for ever for a file system that does not answer", () => {
    const layer = memoryWith((files) => ({
      ...files,
      lstat: (path) => (path === claimed ? Effect.never : files.lstat(path))
    }))
    return Effect.gen(function* () {
      yield* prepareAll
      const fiber = yield* Effect.forkChild(reason(Rendezvous.wait({ ...key, timeout: "10 seconds" })))
      yield* TestClock.adjust(14_999)
      assert.isTrue(isPending(fiber))
      yield* TestClock.adjust(1)
      const found = yield* Fiber.join(fiber)
      assert.strictEqual(found._tag, "NotPublished")
      assert.include(found.message, "does not answer")
    }).pipe(Effect.provide(layer))
  })

  const broken: ReadonlyArray<readonly [string, (files: PrivateFiles["Service"]) => Effect.Effect<void, FileError>]> = [
    ["a missing owner.json", (files) => files.remove(`${claimed}/owner.json`)],
    ["a missing endpoint.json", (files) => files.remove(`${claimed}/endpoint.json`)],
    ["a missing lock", (files) => files.remove(`${site}/.t1.lock`)],
    ["a missing listener", (files) => files.remove(`${root}/lst_0123abcd`)],
    ["a missing marker", (files) => files.remove(`${root}/lst_0123abcd/.nvf_file_transport`)],
    ["a missing conns", (files) => files.remove(`${root}/lst_0123abcd/conns`)],
    ["half an endpoint.json", (files) => files.write(`${claimed}/endpoint.json`, '{"schema_ver', { mode: 0o660 })],
    ["an empty endpoint.json", (files) => files.write(`${claimed}/endpoint.json`, "{}", { mode: 0o660 })],
    ["a list for endpoint.json", (files) => files.write(`${claimed}/endpoint.json`, "[1]", { mode: 0o660 })],
    [
      "bytes for endpoint.json",
      (files) => files.write(`${claimed}/endpoint.json`, new Uint8Array([0xff]), { mode: 0o660 })
    ],
    ["a corrupt owner.json", (files) => files.write(`${claimed}/owner.json`, "no", { mode: 0o660 })],
    ["another owner", (files) => files.write(`${claimed}/owner.json`, '{"instance_id": "x"}', { mode: 0o660 })]
  ]

  it.effect.each(broken)("waits on while there is %s", ([, breakIt]) =>
    Effect.gen(function* () {
      const { claim, connectUrl } = yield* published
      yield* breakIt(yield* PrivateFiles)
      const fiber = yield* Effect.forkChild(Rendezvous.wait(key))
      yield* TestClock.adjust("10 seconds")
      assert.isTrue(isPending(fiber))
      // All is repaired: it was only waiting.
      const files = yield* PrivateFiles
      yield* files.remove(`${root}/lst_0123abcd`)
      yield* makeListener(root)
      yield* files.write(`${claimed}/owner.json`, JSON.stringify({ instance_id: claim.instanceId }), { mode: 0o660 })
      yield* files.write(`${site}/.t1.lock`, "", { mode: 0o660 })
      yield* claim.publish({ cjFqcn: "site-1.job-1", connectUrl })
      yield* TestClock.adjust("200 millis")
      assert.strictEqual((yield* Fiber.join(fiber)).instanceId, claim.instanceId)
    }).pipe(Effect.provide(memory))
  )

  it.effect("waits on when the service that published is dead", () =>
    Effect.gen(function* () {
      const connectUrl = yield* prepare
      const files = yield* PrivateFiles
      const scope = yield* Scope.make()
      const claim = yield* Rendezvous.claim(key).pipe(Scope.provide(scope))
      yield* claim.publish({ cjFqcn: "site-1.job-1", connectUrl })
      // Its death frees the lock and leaves the files. An extra field of a future version changes nothing.
      const endpoint = yield* files.read(`${claimed}/endpoint.json`)
      const owner = yield* files.read(`${claimed}/owner.json`)
      yield* Scope.close(scope, Exit.void)
      yield* files.makeDirectory(claimed, 0o770)
      const record = JSON.parse(new TextDecoder().decode(endpoint.bytes))
      const json = JSON.stringify({ ...record, lease: "2999-01-01T00:00:00Z" })
      yield* files.write(`${claimed}/endpoint.json`, json, { mode: 0o660 })
      yield* files.write(`${claimed}/owner.json`, owner.bytes, { mode: 0o660 })
      const fiber = yield* Effect.forkChild(reason(Rendezvous.wait({ ...key, timeout: "1 minute" })))
      yield* TestClock.adjust("59 seconds")
      assert.isTrue(isPending(fiber))
      yield* TestClock.adjust("1 second")
      assert.include((yield* Fiber.join(fiber)).message, "has died")
      // The same files with a live lock are good.
      yield* (yield* FileLock).tryLock(`${site}/.t1.lock`)
      assert.strictEqual((yield* Rendezvous.wait({ ...key, timeout: 0 })).instanceId, claim.instanceId)
    }).pipe(Effect.provide(memory))
  )

  it.effect("probes the lock of a dead owner only every five seconds, and a new owner's at once", () => {
    const probes = { count: 0, live: false }
    const layer = probing(
      Effect.sync(() => {
        probes.count++
        return probes.live
      })
    )
    return Effect.gen(function* () {
      const connectUrl = yield* prepareAll
      const publish = Effect.gen(function* () {
        const claim = yield* Rendezvous.claim(key)
        yield* claim.publish({ cjFqcn: "site-1.job-1", connectUrl })
        return claim
      })
      yield* publish
      const fiber = yield* Effect.forkChild(Rendezvous.wait(key), { startImmediately: true })
      yield* TestClock.adjust(4_999)
      assert.strictEqual(probes.count, 1)
      yield* TestClock.adjust(1)
      assert.strictEqual(probes.count, 2)
      yield* TestClock.adjust(1_000)
      assert.strictEqual(probes.count, 2)
      probes.live = true
      const next = yield* publish
      yield* TestClock.adjust(200)
      assert.strictEqual((yield* Fiber.join(fiber)).instanceId, next.instanceId)
      assert.strictEqual(probes.count, 3)
    }).pipe(Effect.provide(layer))
  })

  const unsafe: ReadonlyArray<readonly [string, "directory" | "file", number, string]> = [
    [root, "directory", 0o772, "RootUnsafe"],
    [`${root}/.nvflare`, "directory", 0o771, "PathUnsafe"],
    [`${root}/.nvflare/client_api_attach`, "directory", 0o774, "PathUnsafe"],
    [site, "directory", 0o772, "PathUnsafe"],
    [claimed, "directory", 0o777, "PathUnsafe"],
    [`${site}/.t1.lock`, "file", 0o664, "PathUnsafe"],
    [`${claimed}/owner.json`, "file", 0o664, "PathUnsafe"],
    [`${claimed}/endpoint.json`, "file", 0o666, "PathUnsafe"],
    [`${root}/lst_0123abcd`, "directory", 0o775, "ListenerUnsafe"],
    [`${root}/lst_0123abcd/conns`, "directory", 0o771, "ListenerUnsafe"],
    [`${root}/lst_0123abcd/.nvf_file_transport`, "file", 0o662, "ListenerUnsafe"]
  ]

  it.effect.each(unsafe)("fails at once for %s as a %s of mode %o", ([path, kind, mode, expected]) => {
    // The mode, and then the kind, of this one path is what the reader meets.
    const meets = { mode, kind: kind as "directory" | "file" | "link" }
    const layer = memoryWith((files) => ({
      ...files,
      lstat: (at) => Effect.map(files.lstat(at), (info) => (at === path ? { ...info, ...meets } : info)),
      read: (at) =>
        Effect.map(files.read(at), ({ info, bytes }) => ({ info: at === path ? { ...info, ...meets } : info, bytes }))
    }))
    const sound = { mode: 0o770, kind }
    return Effect.gen(function* () {
      Object.assign(meets, sound)
      yield* published
      yield* Rendezvous.wait({ ...key, timeout: 0 })
      Object.assign(meets, { mode, kind })
      const open = yield* reason(Rendezvous.wait(key))
      assert.strictEqual(open._tag, expected)
      assert.include(open.message, path)
      assert.include(open.message, mode.toString(8))
      Object.assign(meets, { mode: 0o770, kind: "link" })
      const link = yield* reason(Rendezvous.wait(key))
      assert.strictEqual(link._tag, expected)
      assert.include(link.message, "symbolic link")
    }).pipe(Effect.provide(layer))
  })

  it.effect("fails at once for a record that breaks a rule", () =>
    Effect.gen(function* () {
      yield* published
      const files = yield* PrivateFiles
      const { bytes } = yield* files.read(`${claimed}/endpoint.json`)
      const record = { ...JSON.parse(new TextDecoder().decode(bytes)), attach_id: "t2" }
      yield* files.write(`${claimed}/endpoint.json`, JSON.stringify(record), { mode: 0o660 })
      const found = yield* reason(Rendezvous.wait(key))
      assert(found._tag === "RecordInvalid" && found.field === "attach_id")
      assert.include(found.message, `${claimed}/endpoint.json`)
      assert.include(found.message, '"t2"')
    }).pipe(Effect.provide(memory))
  )

  const nested = `${"[".repeat(100_000)}${"]".repeat(100_000)}`

  it.effect("takes no harm from a record nested by the thousand", () =>
    Effect.gen(function* () {
      const { claim } = yield* published
      const files = yield* PrivateFiles
      const json = `{"schema_version": 1, "site_name": ${nested}}`
      yield* files.write(`${claimed}/endpoint.json`, json, { mode: 0o660 })
      const found = yield* reason(Rendezvous.wait(key))
      assert(found._tag === "RecordInvalid" && found.field === "site_name")
      const owner = `{"instance_id": ${nested}}`
      yield* files.write(`${claimed}/owner.json`, owner, { mode: 0o660 })
      assert.strictEqual((yield* reason(claim.publish({ cjFqcn: "a.b", connectUrl: "" })))._tag, "RecordInvalid")
    }).pipe(Effect.provide(memory))
  )

  it.effect("answers every damaged record by its type of error or by waiting, never by a defect", () => {
    const seed = Math.floor(Math.random() * 2 ** 31)
    return Effect.gen(function* () {
      yield* published
      const files = yield* PrivateFiles
      const { bytes } = yield* files.read(`${claimed}/endpoint.json`)
      const outcomes = new Set<string>()
      for (let round = 0; round < 500; round++) {
        const damaged = bytes.slice()
        const changes = yield* Random.nextIntBetween(1, 4)
        for (let change = 0; change < changes; change++) {
          const at = yield* Random.nextIntBetween(0, damaged.length - 1)
          damaged[at] = yield* Random.nextIntBetween(0, 255)
        }
        yield* files.write(`${claimed}/endpoint.json`, damaged, { mode: 0o660 })
        const outcome = yield* Effect.result(Rendezvous.wait({ ...key, timeout: 0 }))
        outcomes.add(Result.isSuccess(outcome) ? "found" : outcome.failure.reason._tag)
      }
      assert.includeMembers([...outcomes], ["NotPublished", "RecordInvalid"], `seed ${seed}`)
    }).pipe(
      Effect.provide(memory),
      Random.withSeed(seed),
      Effect.onError(() => Effect.sync(() => console.error(`seed ${seed}`)))
    )
  })

  it.effect.each([
    ["shared-file://0/elsewhere/lst_0123abcd"],
    ["shared-file://0/shared/other_0123abcd"],
    ["shared-file://0/shared/deep/lst_0123abcd"],
    ["shared-file://0/shared/lst_a/../../elsewhere/lst_b"],
    ["shared-file://0/shared"]
  ])("fails at once for a listener that is not right below the root: %s", ([connectUrl]) =>
    Effect.gen(function* () {
      yield* published
      const files = yield* PrivateFiles
      const { bytes } = yield* files.read(`${claimed}/endpoint.json`)
      const record = { ...JSON.parse(new TextDecoder().decode(bytes)), connect_url: connectUrl }
      yield* files.write(`${claimed}/endpoint.json`, JSON.stringify(record), { mode: 0o660 })
      assert.strictEqual((yield* reason(Rendezvous.wait(key)))._tag, "ListenerUnsafe")
    }).pipe(Effect.provide(memory))
  )

  it.effect("resolves dots and double slashes of root and listener", () =>
    Effect.gen(function* () {
      const connectUrl = yield* prepare
      const claim = yield* Rendezvous.claim({ ...key, root: "/shared/./x/..//" })
      yield* claim.publish({ cjFqcn: "site-1.job-1", connectUrl: connectUrl.replace("/shared/", "/shared//./") })
      assert.strictEqual((yield* Rendezvous.wait({ ...key, timeout: 0 })).instanceId, claim.instanceId)
    }).pipe(Effect.provide(memory))
  )

  it.effect("fails at once where the lock can't be probed for good, and tries again otherwise", () =>
    Effect.gen(function* () {
      const at = (lockError: FileLockError["reason"]) =>
        Effect.gen(function* () {
          const connectUrl = yield* prepareAll
          const claim = yield* Rendezvous.claim(key)
          yield* claim.publish({ cjFqcn: "site-1.job-1", connectUrl })
          const fiber = yield* Effect.forkChild(reason(Rendezvous.wait({ ...key, timeout: "2 seconds" })))
          yield* TestClock.adjust("1 second")
          const isAtOnce = !isPending(fiber)
          yield* TestClock.adjust("1 second")
          return [isAtOnce, (yield* Fiber.join(fiber))._tag]
        }).pipe(Effect.provide(probing(Effect.fail(new FileLockError({ reason: lockError }))), { local: true }))
      const lock = `${site}/.t1.lock`
      const io = (code: string) => new LockIo({ path: lock, code, message: code })
      assert.deepStrictEqual(yield* at(io("EACCES")), [true, "RendezvousIo"])
      assert.deepStrictEqual(yield* at(io("ENOLCK")), [false, "NotPublished"])
      const unsupported = new LockUnsupported({ path: lock, problem: "ENOSYS", message: "no locks" })
      assert.deepStrictEqual(yield* at(unsupported), [true, "LockUnsupported"])
    })
  )

  it.effect.each([
    [{ ...key, root: "shared" }, "rendezvous_dir"],
    [{ ...key, root: "" }, "rendezvous_dir"],
    [{ ...key, root: "/a\0b" }, "rendezvous_dir"],
    [{ ...key, siteName: "a.b" }, "site_name"],
    [{ ...key, siteName: ".." }, "site_name"],
    [{ ...key, attachId: "../t" }, "attach_id"]
  ] as const)("refuses arguments that name no place: %j", ([options, field]) =>
    Effect.gen(function* () {
      for (const found of [yield* reason(Rendezvous.wait(options)), yield* reason(Rendezvous.claim(options))]) {
        assert(found._tag === "SettingInvalid" && found.field === field, found.message)
      }
    }).pipe(Effect.provide(memory))
  )
})
