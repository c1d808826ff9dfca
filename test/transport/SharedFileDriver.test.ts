import { execFileSync } from "node:child_process"
import {
  appendFileSync,
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Result, Scope } from "effect"
import * as Connection from "../../src/transport/Connection.ts"
import { type Driver, Drivers, type FrameLink } from "../../src/transport/Drivers.ts"
import * as Frame from "../../src/transport/Frame.ts"
import { FrameReader } from "../../src/transport/FrameReader.ts"
import { ioFailed } from "../../src/transport/internal/errors.ts"
import * as SharedFileDriver from "../../src/transport/SharedFileDriver.ts"
import type { TransportError } from "../../src/transport/TransportError.ts"
import {
  captured,
  frameOf,
  fromHexFiles,
  leaf,
  makeRoot,
  names,
  placeConnection,
  snapshot,
  until
} from "./sharedFile.ts"
import { fixture, fromHex, makeRandom, silently } from "./support.ts"

const quick = { poll_interval: 0.001, max_poll_interval: 0.02, lease_interval: 0.1, lease_timeout: 5 }

const directoryOf = (url: string): string => url.slice("shared-file://0".length).replace(/\?.*/, "")

/** A driver and a listener in a fresh root. */
const makeListener = Effect.fnUntraced(function* (resources = {}, options: SharedFileDriver.Options = {}) {
  const root = yield* makeRoot
  const driver = yield* SharedFileDriver.make(options)
  const scope = yield* Scope.fork(yield* Effect.scope)
  const listen = driver.listen("shared-file", { ...quick, ...resources, root_dir: root })
  const listener = yield* Scope.provide(listen, scope)
  return { root, driver, listener, scope, directory: directoryOf(listener.connectUrl) }
})

/** Both ends of a link, each in a Scope of its own. */
const makeLinks = Effect.fnUntraced(function* (resources = {}, options: SharedFileDriver.Options = {}) {
  const made = yield* makeListener(resources, options)
  const outer = yield* Effect.scope
  const activeScope = yield* Scope.fork(outer)
  const passiveScope = yield* Scope.fork(outer)
  const active = yield* Scope.provide(made.driver.connect(made.listener.connectUrl), activeScope)
  const passive = yield* Scope.provide(made.listener.accept, passiveScope)
  const connection = active.info.localAddress.replace(/#.*/, "")
  return { ...made, active, passive, activeScope, passiveScope, connection }
})

const receiveCount = Effect.fnUntraced(function* (link: FrameLink, count: number) {
  const frames: Array<Uint8Array> = []
  while (frames.length < count) {
    frames.push(...(yield* link.receive))
  }
  return frames
})

const byOf = (error: TransportError) => ("by" in error.reason ? error.reason.by : error.reason._tag)

/** How receiving ends. */
const endOf = (link: FrameLink) => Effect.map(Effect.flip(Effect.forever(link.receive)), byOf)

const framesOf = (hex: string) => Result.getOrThrow(new FrameReader().push(fromHex(hex)))

const logHex = (entries: ReadonlyArray<{ readonly path: string; readonly hex?: string }>, name: string): string =>
  entries.find(({ path }) => path.endsWith(name))?.hex ?? ""

describe("SharedFileDriver", () => {
  it.live("leaves the same files as the reference at every moment of a session", () =>
    Effect.gen(function* () {
      const { large_frame, resources, snapshots } = fixture("transport/shared_file_session.json")
      const at = (moment: string) =>
        snapshots.find((shot: { readonly moment: string }) => shot.moment === moment).entries
      assert.match(large_frame.payload, /^bytes 00\.\.ff repeated 40960 times/)
      const { root_dir: _, ...tuning } = resources
      const { active, activeScope, driver, listener, passive, root, scope } = yield* makeLinks({
        ...tuning,
        lease_interval: 0.05,
        lease_timeout: 0.2
      })
      // The snapshot before the connection: a second listener, in a root of its own.
      const other = join(root, "other")
      const otherScope = yield* Scope.make()
      yield* Scope.provide(driver.listen("shared-file", { root_dir: other }), otherScope)
      assert.deepStrictEqual(snapshot(other), captured(at("listener started")))
      assert.strictEqual(statSync(other).mode & 0o777, 0o770)
      yield* Scope.close(otherScope, Exit.void)
      assert.deepStrictEqual(snapshot(other), [])
      rmSync(other, { recursive: true })

      const few = at("a few frames each way")
      const up = framesOf(logHex(few, "active.0.log"))
      const down = framesOf(logHex(few, "passive.0.log"))
      yield* active.send([up[0] ?? new Uint8Array()])
      yield* receiveCount(passive, 1)
      yield* passive.send([down[0] ?? new Uint8Array()])
      yield* receiveCount(active, 1)
      assert.deepStrictEqual(snapshot(root), captured(at("connector connected")))
      yield* Effect.forEach(up.slice(1), (frame) => active.send([frame]))
      yield* Effect.forEach(down.slice(1), (frame) => passive.send([frame]))
      assert.deepStrictEqual(yield* receiveCount(passive, up.length - 1), up.slice(1))
      assert.deepStrictEqual(yield* receiveCount(active, down.length - 1), down.slice(1))
      assert.deepStrictEqual(snapshot(root), captured(few))

      const payload = new Uint8Array(10485760).map((_, index) => index)
      const large = at("one large frame")
      const head = fromHex(
        large.find(({ path }: { readonly path: string }) => path.endsWith("active.0.log")).head_hex
      ).subarray(153, 153 + 25)
      yield* active.send([head, payload])
      const [received] = yield* passive.receive
      assert.strictEqual(Buffer.compare(received.subarray(25), payload), 0)
      assert.deepStrictEqual(snapshot(root), captured(large))

      yield* Scope.close(activeScope, Exit.void)
      assert.deepStrictEqual(snapshot(root), captured(at("connector closed")))
      assert.strictEqual(yield* endOf(passive), "peer")
      assert.deepStrictEqual(snapshot(root), captured(at("listener noticed the close")))
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(snapshot(root), captured(at("listener stopped")))
      assert.strictEqual((yield* Effect.flip(listener.accept)).reason._tag, "ConnectionClosed")
    })
  )

  it.live("collects what has ended, and keeps what lives", () =>
    Effect.gen(function* () {
      const { snapshots } = fixture("transport/shared_file_session.json")
      const after = snapshots.find((shot: { readonly moment: string }) => shot.moment.includes("collected")).entries
      const made = yield* makeLinks({ lease_interval: 0.02, lease_timeout: 0.06 })
      yield* made.passive.send([frameOf(20, 1)])
      yield* receiveCount(made.active, 1)
      yield* made.active.send([frameOf(20, 1)])
      yield* receiveCount(made.passive, 1)
      const survivor = yield* made.driver.connect(made.listener.connectUrl)
      const survivorPeer = yield* made.listener.accept
      const unfinished = join(made.directory, "conns", ".0123456789ab")
      const fresh = join(made.directory, "conns", ".ba9876543210")
      mkdirSync(unfinished)
      mkdirSync(fresh)
      utimesSync(unfinished, 1, 1)
      yield* Scope.close(made.activeScope, Exit.void)
      assert.strictEqual(yield* endOf(made.passive), "peer")
      yield* Scope.close(made.passiveScope, Exit.void)
      assert.isTrue(existsSync(made.connection))
      yield* until(() => !existsSync(made.connection) && !existsSync(unfinished))
      assert.isTrue(existsSync(fresh))
      yield* survivor.send([frameOf(20, 2)])
      assert.deepStrictEqual(yield* survivorPeer.receive, [frameOf(20, 2)])
      rmSync(fresh, { recursive: true })
      rmSync(survivor.info.localAddress.replace(/#.*/, ""), { recursive: true })
      assert.deepStrictEqual(snapshot(made.root), captured(after))
    })
  )

  it.live("rotates as the reference", () =>
    Effect.gen(function* () {
      const { resources, snapshots } = fixture("transport/shared_file_rotation.json")
      const { root_dir: _, ...tuning } = resources
      const { active, activeScope, passive, root, scope } = yield* makeLinks({ ...tuning, lease_timeout: 5 })
      const [rotated, consumed, again, stopped] = snapshots
      const log = logHex(rotated.entries, "active.0.log") + logHex(rotated.entries, "active.1.log")
      const up = framesOf(log)
      yield* passive.send(framesOf(logHex(rotated.entries, "passive.0.log")))
      yield* Effect.forEach(up, (frame) => active.send([frame]))
      assert.deepStrictEqual(snapshot(root), captured(rotated.entries))

      assert.deepStrictEqual(yield* receiveCount(passive, up.length), up)
      yield* receiveCount(active, 1)
      assert.deepStrictEqual(snapshot(root), captured(consumed.entries))

      const big = frameOf(1000, 9)
      yield* active.send([big])
      assert.deepStrictEqual(yield* passive.receive, [big])
      const idle = yield* Effect.forkScoped(passive.receive)
      const expected = captured(again.entries).map(({ path }) => path)
      yield* until(() => snapshot(root).every(({ path }, index) => path === expected[index]))
      assert.deepStrictEqual(snapshot(root), captured(again.entries))

      // Unlike the reference, the peer sees the end before the directory goes.
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual(yield* endOf(active), "peer")
      assert.strictEqual(byOf(yield* Effect.flip(Fiber.join(idle))), "local")
      assert.isTrue(existsSync(root))
      yield* Scope.close(activeScope, Exit.void)
      yield* until(() => names(root).length === 0)
      assert.deepStrictEqual(snapshot(root), captured(stopped.entries))
    })
  )

  it.live("many logs: every frame arrives once and in order, both ways", () =>
    Effect.gen(function* () {
      const { active, connection, passive } = yield* makeLinks({ max_log_size: 5000, fsync: "yes" })
      const count = 300
      const exchange = Effect.fnUntraced(function* (from: FrameLink, to: FrameLink) {
        const sending = Effect.forEach(
          Array.from({ length: count }, (_, index) => frameOf(16 + index * 3, index)),
          (frame) => from.send([frame.subarray(0, 18), frame.subarray(18)])
        )
        const [, frames] = yield* Effect.all([sending, receiveCount(to, count)], { concurrency: "unbounded" })
        assert.isTrue(frames.every((frame, index) => Buffer.compare(frame, frameOf(16 + index * 3, index)) === 0))
      })
      yield* Effect.all([exchange(active, passive), exchange(passive, active)], { concurrency: "unbounded" })
      const logs = names(connection).filter((name) => name.endsWith(".log"))
      assert.isAtMost(logs.length, 6, "read logs are removed")
      assert.isFalse(logs.includes("active.0.log"))
    })
  )

  it.live("treats broken connection directories as captured", () =>
    Effect.gen(function* () {
      const { cases } = fixture("transport/malformed_shared_file.json")
      for (const found of cases) {
        const { directory, listener } = yield* makeListener({ lease_interval: 0.02, lease_timeout: 0.15 })
        const path = placeConnection(directory, "0123456789ab", fromHexFiles(found.directory_put))
        const messages: Array<Connection.Incoming> = []
        const serve = Effect.scoped(
          Effect.gen(function* () {
            const link = yield* listener.accept
            const connection = yield* Connection.make(link, { role: "passive", local: "site-1.job-1" })
            return yield* Effect.forever(Effect.map(connection.receive, (batch) => messages.push(...batch)))
          })
        )
        const life = yield* Effect.forkScoped(Effect.exit(serve))
        if (found.appended_later_hex !== "") {
          yield* until(() => existsSync(join(path, "passive.lease")))
          appendFileSync(join(path, "active.0.log"), fromHex(found.appended_later_hex))
        }
        const log = join(path, "passive.0.log")
        const replies = () => (existsSync(log) ? framesOf(readFileSync(log, "hex")) : [])
        // The reference's heartbeat was lowered for the capture.
        const expected = found.replies.filter((type: string) => type !== "PING")
        yield* until(
          () => replies().length === expected.length && existsSync(join(path, "closed")) === found.closed_marker
        )
        assert.deepStrictEqual(
          replies().map((bytes) => Result.getOrThrow(Frame.decode(bytes)).type),
          expected.map(() => Frame.types.ready),
          found.name
        )
        assert.deepStrictEqual(names(path), found.files_after, found.name)
        assert.strictEqual(existsSync(join(path, "passive.lease")), found.adopted, found.name)
        assert.deepStrictEqual(messages, found.delivered, found.name)
        yield* Fiber.interrupt(life)
      }
      assert.strictEqual(cases.length, 7)
    }).pipe(silently)
  )

  it.live("the malformed cases of a byte stream end as on TCP", () =>
    Effect.gen(function* () {
      for (const name of ["length below 16", "length zero before HELLO", "length above maximum"]) {
        const found = fixture("transport/malformed_tcp.json").cases.find(
          (one: { readonly name: string }) => one.name === name
        )
        const { directory, listener } = yield* makeListener()
        placeConnection(directory, "0123456789ab", { "active.0.log": fromHex(found.send.join("")) })
        const link = yield* listener.accept
        const error = yield* Effect.flip(link.receive)
        assert.strictEqual(error.reason._tag, "BadData", name)
        assert.include(error.message, "active.0.log", name)
        assert.strictEqual((yield* Effect.flip(link.send([frameOf(20, 1)]))).reason._tag, "BadData", name)
      }
    })
  )

  it.live("mutated logs end in frames or typed errors", () =>
    Effect.gen(function* () {
      const seed = 8823
      const random = makeRandom(seed)
      const { directory, listener } = yield* makeListener()
      const good = logHex(fixture("transport/shared_file_rotation.json").snapshots[0].entries, "active.0.log")
      const ends = new Map<string, number>()
      for (let run = 0; run < 100; run++) {
        const log = fromHex(good)
        for (let change = random(6); change > 0; change--) {
          log[random(random(2) === 0 ? log.length : 4)] = random(256)
        }
        const seals = ["", "0", "99999999999999999999", String(log.length), String(log.length - 1), "x", "1e3", "-1"]
        placeConnection(directory, run.toString(16).padStart(12, "0"), {
          "active.0.log": log.subarray(0, random(3) === 0 ? random(log.length) : log.length),
          "active.0.sealed": Buffer.from(seals[random(seals.length)] ?? ""),
          "active.1.log": frameOf(40, run)
        })
        const end = yield* Effect.scoped(
          Effect.gen(function* () {
            const link = yield* listener.accept
            writeFileSync(join(link.info.localAddress.replace(/#.*/, ""), "closed"), "")
            return yield* endOf(link)
          })
        )
        assert.include(["peer", "BadData"], end, `seed ${seed}, run ${run}`)
        ends.set(end, (ends.get(end) ?? 0) + 1)
      }
      assert.isAbove(ends.get("BadData") ?? 0, 10)
      assert.isAbove(ends.get("peer") ?? 0, 10)
    })
  )

  it.live("large frames, many pieces and mixed sizes arrive unchanged", () =>
    Effect.gen(function* () {
      const { active, passive } = yield* makeLinks()
      const seed = 31
      const random = makeRandom(seed)
      const sizes = [40_000_000, 16, 1_100_000, 17, 65_536, 300_000, 2000]
      const sent = sizes.map((size) => {
        const frame = frameOf(size, 0)
        for (let at = 16; at < size; at += 1 + random(997)) {
          frame[at] = random(256)
        }
        return frame
      })
      const sending = Effect.forEach(sent, (frame) => {
        const step = Math.ceil(frame.length / (1 + random(2000)))
        const pieces = Array.from({ length: Math.ceil(frame.length / step) }, (_, index) =>
          frame.subarray(index * step, (index + 1) * step)
        )
        return active.send([new Uint8Array(0), ...pieces, new Uint8Array(0)])
      })
      const [, frames] = yield* Effect.all([sending, receiveCount(passive, sizes.length)], { concurrency: "unbounded" })
      assert.isTrue(
        frames.every((frame, index) => Buffer.compare(frame, sent[index] ?? frameOf(16, 0)) === 0),
        `seed ${seed}`
      )
    })
  )

  it.live("what was sent before a close arrives before the end", () =>
    Effect.gen(function* () {
      const { active, activeScope, connection, passive } = yield* makeLinks({ max_log_size: 3000 })
      // A dialer that never heard anything would take its directory away.
      yield* passive.send([frameOf(20, 1)])
      yield* receiveCount(active, 1)
      yield* Effect.forEach(
        Array.from({ length: 100 }, (_, index) => frameOf(100, index)),
        (frame) => active.send([frame])
      )
      yield* Scope.close(activeScope, Exit.void)
      assert.isTrue(existsSync(join(connection, "closed")))
      const frames = yield* receiveCount(passive, 100)
      assert.deepStrictEqual(
        frames.map((frame) => frame[16]),
        frames.map((_, index) => index)
      )
      assert.strictEqual(yield* endOf(passive), "peer")
      assert.strictEqual(byOf(yield* Effect.flip(passive.send([frameOf(20, 1)]))), "peer")
      assert.strictEqual(byOf(yield* Effect.flip(active.send([frameOf(20, 1)]))), "local")
      assert.strictEqual(yield* endOf(active), "local")
    })
  )

  it.live("closing a Scope ends a receive that waits in it", () =>
    Effect.gen(function* () {
      const { active, activeScope } = yield* makeLinks()
      const waiting = yield* Effect.forkScoped(Effect.flip(active.receive))
      yield* Effect.yieldNow
      yield* Scope.close(activeScope, Exit.void)
      assert.strictEqual(byOf(yield* Fiber.join(waiting)), "local")
    })
  )

  it.live("an interrupted receive loses nothing, whenever it strikes", () =>
    Effect.gen(function* () {
      const seed = 5
      const random = makeRandom(seed)
      const { active, passive } = yield* makeLinks()
      let cutShort = 0
      for (let run = 0; run < 200; run++) {
        const waiting = yield* Effect.forkScoped(passive.receive)
        yield* Effect.forkScoped(active.send([frameOf(20, run)]))
        const hops = random(120)
        yield* Effect.callback<void>((resume) => {
          // Rounds of the event loop, in which the file operations go on.
          const hop = (left: number) => (left === 0 ? resume(Effect.void) : setImmediate(hop, left - 1))
          hop(hops)
        })
        yield* Fiber.interrupt(waiting)
        const exit = yield* Fiber.await(waiting)
        cutShort += Exit.isFailure(exit) ? 1 : 0
        const [frame] = Exit.isSuccess(exit) ? exit.value : yield* passive.receive
        assert.strictEqual(frame[16], run % 256, `seed ${seed}, run ${run}`)
      }
      assert.isAbove(cutShort, 5)
    })
  )

  it.live("a message wakes a reader that sleeps long, where changes are watched", () =>
    Effect.gen(function* () {
      // By polling alone this test would run into its time limit.
      const { active, passive } = yield* makeLinks({ poll_interval: 1000, max_poll_interval: 1000 })
      for (const index of [1, 2, 3]) {
        const waiting = yield* Effect.forkScoped(passive.receive)
        yield* active.send([frameOf(20, index)])
        assert.deepStrictEqual(yield* Fiber.join(waiting), [frameOf(20, index)])
      }
    })
  )

  it.live("without watching, polling finds everything", () =>
    Effect.gen(function* () {
      const { active, activeScope, passive } = yield* makeLinks({}, { watch: false })
      for (const index of [1, 2, 3]) {
        const waiting = yield* Effect.forkScoped(passive.receive)
        yield* active.send([frameOf(20, index)])
        assert.deepStrictEqual(yield* Fiber.join(waiting), [frameOf(20, index)])
      }
      yield* Scope.close(activeScope, Exit.void)
      assert.strictEqual(yield* endOf(passive), "peer")
    })
  )

  it.live("leases keep an idle connection alive, and are touched whatever the traffic", () =>
    Effect.gen(function* () {
      const { active, connection, directory, passive } = yield* makeLinks({ lease_interval: 0.04, lease_timeout: 0.12 })
      for (const side of ["active", "passive"]) {
        const lease = join(connection, `${side}.lease`)
        // Six touches are two timeouts.
        for (let touches = 0; touches < 6; touches++) {
          const before = statSync(lease).mtimeMs
          yield* until(() => statSync(lease).mtimeMs !== before)
        }
      }
      const listenerLease = statSync(join(directory, "lease")).mtimeMs
      yield* until(() => statSync(join(directory, "lease")).mtimeMs !== listenerLease)
      yield* active.send([frameOf(20, 1)])
      assert.deepStrictEqual(yield* passive.receive, [frameOf(20, 1)])
    })
  )

  it.live("a silent peer is dead after lease_timeout, and the message says so", () =>
    Effect.gen(function* () {
      const { directory, listener } = yield* makeListener({ lease_interval: 0.03, lease_timeout: 0.1 })
      placeConnection(directory, "0123456789ab", { "active.0.log": frameOf(20, 1), "active.lease": new Uint8Array(0) })
      const link = yield* listener.accept
      yield* receiveCount(link, 1)
      const error = yield* Effect.flip(link.receive)
      assert.strictEqual(byOf(error), "lease")
      assert.include(error.message, "lease_timeout: 0.1 s, silent for 0.1")
      assert.strictEqual(byOf(yield* Effect.flip(link.send([frameOf(20, 1)]))), "lease")
    })
  )

  it.live("a vanished directory is a closed connection", () =>
    Effect.gen(function* () {
      const { active, connection, passive } = yield* makeLinks()
      yield* passive.send([frameOf(20, 1)])
      rmSync(connection, { recursive: true })
      yield* receiveCount(active, 1).pipe(Effect.ignore)
      assert.strictEqual(yield* endOf(active), "peer")
      assert.strictEqual(byOf(yield* Effect.flip(active.send([frameOf(20, 1)]))), "peer")
    })
  )

  it.live("a dialer that never heard anything takes its directory away", () =>
    Effect.gen(function* () {
      const { directory, driver, listener } = yield* makeListener()
      yield* Effect.scoped(
        Effect.gen(function* () {
          const link = yield* driver.connect(listener.connectUrl)
          yield* link.send([frameOf(20, 1)])
          assert.strictEqual(names(join(directory, "conns")).length, 1)
        })
      )
      assert.deepStrictEqual(names(join(directory, "conns")), [])
    })
  )

  it.live("a closed listener leaves its marker for peers that have not looked, for a bounded time", () =>
    Effect.gen(function* () {
      const root = yield* makeRoot
      const listen = Effect.fnUntraced(function* (driver: { readonly listen: Driver["listen"] }, lease: number) {
        const listener = yield* driver.listen("shared-file", { ...quick, lease_interval: lease, root_dir: root })
        const directory = directoryOf(listener.connectUrl)
        const path = placeConnection(directory, "0123456789ab", { "active.0.log": frameOf(20, 1) })
        yield* receiveCount(yield* listener.accept, 1)
        return { directory, path }
      })
      // The program ends: nothing is left behind, even for a peer that has not looked.
      const left = yield* Effect.scoped(
        Effect.gen(function* () {
          const driver = yield* SharedFileDriver.make({ linger: "20 millis" })
          return yield* Effect.scoped(listen(driver, 15))
        })
      )
      assert.isFalse(existsSync(left.directory))
      // The program goes on: twice the lease interval is enough.
      const driver = yield* SharedFileDriver.make()
      const { directory, path } = yield* Effect.scoped(listen(driver, 0.05))
      assert.isTrue(existsSync(join(path, "closed")))
      yield* until(() => !existsSync(directory))
      // A peer that looks touches the marker on its way out.
      const seen = yield* Effect.scoped(
        Effect.gen(function* () {
          const driver = yield* SharedFileDriver.make({ linger: "20 seconds" })
          const found = yield* Effect.scoped(listen(driver, 15))
          utimesSync(join(found.path, "closed"), 1, 1)
          return found
        })
      )
      assert.isFalse(existsSync(seen.directory))
    })
  )

  it.live("the next start removes dead listeners of the same root, and nothing else", () =>
    Effect.gen(function* () {
      const root = yield* makeRoot
      const make = (name: string, marker: boolean, lease: number | undefined, age: number | undefined) => {
        mkdirSync(join(root, name, "conns"), { recursive: true })
        if (marker) {
          writeFileSync(join(root, name, ".nvf_file_transport"), "")
        }
        if (lease !== undefined) {
          writeFileSync(join(root, name, "lease"), "")
          utimesSync(join(root, name, "lease"), lease, lease)
        }
        if (age !== undefined) {
          utimesSync(join(root, name), age, age)
        }
      }
      const now = Date.now() / 1000
      make("lst_00000001", true, now - 3700, undefined)
      make("lst_00000002", true, undefined, now - 3700)
      make("lst_00000003", true, now - 3500, now - 4000)
      make("lst_00000004", false, now - 4000, now - 4000)
      make("other", true, now - 4000, now - 4000)
      const driver = yield* SharedFileDriver.make()
      const { connectUrl } = yield* driver.listen("shared-file", { root_dir: root })
      yield* until(() => names(root).length === 4)
      assert.deepStrictEqual(
        names(root),
        ["lst_00000003", "lst_00000004", leaf(directoryOf(connectUrl)), "other"].sort()
      )
    })
  )

  it.live("listening at a URL takes up a directory, replays what is in it, and never removes it", () =>
    Effect.gen(function* () {
      const root = yield* makeRoot
      const directory = join(root, "lst_fixed")
      const url = `shared-file://0${directory}?poll_interval=0.001&max_poll_interval=0.02`
      const driver = yield* SharedFileDriver.make()
      for (const run of [1, 2]) {
        yield* Effect.scoped(
          Effect.gen(function* () {
            const listener = yield* driver.listen(url)
            assert.strictEqual(listener.connectUrl, url)
            if (run === 1) {
              placeConnection(directory, "0123456789ab", { "active.0.log": frameOf(20, 1) })
            } else {
              rmSync(join(directory, "conns", "0123456789ab", "closed"))
            }
            const link = yield* listener.accept
            assert.deepStrictEqual(yield* link.receive, [frameOf(20, 1)])
          })
        )
      }
      assert.isTrue(existsSync(directory))
    })
  )

  it.live("a listener whose directory is taken away says so", () =>
    Effect.gen(function* () {
      const { directory, listener } = yield* makeListener()
      const waiting = yield* Effect.forkScoped(Effect.flip(listener.accept))
      renameSync(join(directory, "conns"), join(directory, "gone"))
      const error = yield* Fiber.join(waiting)
      assert.strictEqual(byOf(error), "io")
      assert.include(error.message, "conns is gone")
    })
  )

  it.live("an append that fails ends the connection, with the system's word for it", () =>
    Effect.gen(function* () {
      const { connection, passive } = yield* makeLinks({ max_log_size: 10 })
      // The log itself is unlinked and takes the frame; the next log has no place.
      rmSync(connection, { recursive: true })
      const { reason } = yield* Effect.flip(passive.send([frameOf(20, 1)]))
      assert.strictEqual(reason._tag === "IoFailed" && reason.code, "ENOENT")
      assert.include(reason.message, "passive.0.sealed")
      assert.strictEqual(byOf(yield* Effect.flip(passive.send([frameOf(20, 1)]))), "io")
      assert.strictEqual(byOf(yield* Effect.flip(passive.receive)), "io")
    })
  )

  it("a full disk is named, with the file and what to do", () => {
    const error = ioFailed("append to", "/shared/passive.0.log", { code: "ENOSPC" })
    assert.strictEqual(error.reason._tag === "IoFailed" && error.reason.code, "ENOSPC")
    assert.include(error.message, "/shared/passive.0.log")
    assert.include(error.message, "free space")
  })

  it.live("a link that a peer planted is not followed, a pipe does not block", () =>
    Effect.gen(function* () {
      const { directory, listener, root } = yield* makeListener()
      const precious = join(root, "precious")
      writeFileSync(precious, "keep me")
      utimesSync(precious, 5, 5)
      const plant = (name: string, links: ReadonlyArray<string>) => {
        const hidden = join(directory, "conns", `.${name}`)
        mkdirSync(hidden)
        if (!links.includes("active.0.log")) {
          writeFileSync(join(hidden, "active.0.log"), frameOf(20, 1))
        }
        for (const link of links) {
          symlinkSync(precious, join(hidden, link))
        }
        renameSync(hidden, join(directory, "conns", name))
      }
      const other = join(root, "elsewhere")
      mkdirSync(other)
      writeFileSync(join(other, "active.0.log"), frameOf(20, 1))
      symlinkSync(other, join(directory, "conns", "000000000000"))
      plant("000000000001", ["active.0.log"])
      plant("000000000002", ["passive.0.log"])
      plant("000000000003", ["passive.lease", "active.lease", "active.1.log"])
      const third = join(directory, "conns", "000000000003")
      execFileSync("/usr/bin/mkfifo", [join(third, "active.0.sealed")])
      // The first and second are refused; of the third only its lease is a link.
      const link = yield* listener.accept
      assert.include(link.info.localAddress, "000000000003")
      assert.deepStrictEqual(yield* link.receive, [frameOf(20, 1)])
      const waiting = yield* Effect.forkScoped(link.receive)
      const lease = () => lstatSync(join(third, "passive.lease")).mtimeMs
      const before = lease()
      yield* until(() => lease() !== before)
      yield* Fiber.interrupt(waiting)
      yield* until(() =>
        ["000000000001", "000000000002"].every((name) => existsSync(join(directory, "conns", name, "closed")))
      )
      assert.strictEqual(readFileSync(precious, "utf8"), "keep me")
      assert.strictEqual(statSync(precious).mtimeMs, 5000)
      assert.deepStrictEqual(names(other), ["active.0.log"])
    }).pipe(silently)
  )

  it.live("nobody there is NotReady; what can't be opened is typed", () =>
    Effect.gen(function* () {
      const root = yield* makeRoot
      const driver = yield* SharedFileDriver.make()
      const absent = yield* Effect.flip(driver.connect(`shared-file://0${root}/lst_none`))
      assert.strictEqual(absent.reason._tag, "NotReady")
      assert.include(absent.message, `${root}/lst_none`)
      assert.strictEqual((yield* Effect.flip(driver.connect("shared-file://host/a"))).reason._tag, "BadConfig")
      assert.strictEqual((yield* Effect.flip(driver.listen("shared-file"))).reason._tag, "BadConfig")
      assert.strictEqual((yield* Effect.flip(driver.listen("tcp://h:1"))).reason._tag, "BadConfig")
      writeFileSync(join(root, "file"), "")
      const blocked = yield* Effect.flip(driver.listen("shared-file", { root_dir: join(root, "file") }))
      assert.strictEqual(blocked.reason._tag, "IoFailed")
      assert.include(blocked.message, join(root, "file"))
    })
  )

  it.live("modes are exact for what the driver makes, and untouched else", () =>
    Effect.gen(function* () {
      const root = yield* makeRoot
      chmodSync(root, 0o711)
      const driver = yield* SharedFileDriver.make()
      const modes = { dir_mode: "0o2750", file_mode: "640", poll_interval: 0.001 }
      const listener = yield* driver.listen("shared-file", { ...modes, root_dir: root })
      const active = yield* driver.connect(listener.connectUrl)
      yield* listener.accept
      yield* active.send([frameOf(20, 1)])
      assert.strictEqual(statSync(root).mode & 0o7777, 0o711)
      const entries = snapshot(root)
      assert.isAbove(entries.length, 8)
      for (const { mode, path, type } of entries) {
        assert.strictEqual(mode, type === "dir" ? "02750" : "0640", path)
      }
    })
  )

  it.live("cells' connections work over it, both names known", () =>
    Effect.gen(function* () {
      const drivers = yield* Drivers
      const root = yield* makeRoot
      const driver = yield* drivers.forUrl("shared-file")
      const listener = yield* driver.listen("shared-file", { ...quick, root_dir: root })
      const { active, passive } = yield* Effect.all(
        {
          active: Effect.flatMap(driver.connect(listener.connectUrl), (link) =>
            Connection.make(link, { role: "active", local: "site-1.-client_api_t" })
          ),
          passive: Effect.flatMap(listener.accept, (link) =>
            Connection.make(link, { role: "passive", local: "site-1.job" })
          )
        },
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual([active.peer, passive.peer], ["site-1.job", "site-1.-client_api_t"])
      yield* active.send(new Map([["k", "v"]]), [fromHex("0102")])
      const [message] = yield* passive.receive
      assert.deepStrictEqual([message.headers, message.payload], [new Map([["k", "v"]]), fromHex("0102")])
    }).pipe(Effect.provide(SharedFileDriver.layer()))
  )
})
