/**
 * Secure mode over stcp: certificates on both sides of each connection, messages protected from end to end; with Python
 * in each place, and us in the others.
 */
import { chmodSync, cpSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import * as Cell from "../../src/cell/Cell.ts"
import * as CellCredentials from "../../src/cell/CellCredentials.ts"
import { rulesOf } from "../../src/identity/CertificateIdentity.ts"
import { inFolder } from "../../src/identity/Credentials.ts"
import { Drivers } from "../../src/transport/Drivers.ts"
import * as PeerIdentity from "../../src/transport/PeerIdentity.ts"
import * as TcpDriver from "../../src/transport/TcpDriver.ts"
import { unpackPki } from "../pki.ts"
import { flAttach, folder, jsonLines, type Peer, peer, python, runPython } from "./peers.ts"

const freePort = Effect.callback<number>((resume) => {
  const server = createServer()
  server.listen(0, "127.0.0.1", () => {
    const address = server.address()
    const port = typeof address === "object" && address !== null ? address.port : 0
    server.close(() => resume(Effect.succeed(port)))
  })
})

/** A site's folder of certificates, its keys for its owner alone. */
const startup = Effect.map(folder, (dir) => {
  cpSync(join(unpackPki(), "pki", "site-1"), dir, { recursive: true })
  chmodSync(join(dir, "client.key"), 0o600)
  return dir
})

// ---- Two cells, by hand.

const trainerFqcn = "site-1.-client_api_t1"
const interop = (topic: string) => ({ channel: "interop", topic })
const pattern = (size: number) => Uint8Array.from({ length: size }, (_, index) => (index * 7 + 3) & 255)

const ownCell = Effect.fnUntraced(function* (fqcn: string, certs: string) {
  const rules = rulesOf({ local: fqcn, parent: "site-1", identity: "site-1" })
  const credentials = yield* CellCredentials.watch(inFolder(certs), { rules })
  const cell = yield* Cell.make({ fqcn, credentials, verify: PeerIdentity.verifyWith(rules) })
  yield* cell.handle(interop("echo"), ({ headers, payload }) =>
    Effect.sync(() => {
      const data = payload instanceof Map ? payload.get("data") : undefined
      const secure = headers.get("cn__secure")
      return data instanceof Uint8Array
        ? {
            returnCode: "ok",
            payload: new Map<string, unknown>([
              ["data", data],
              ["by", fqcn],
              ["secure", secure]
            ])
          }
        : { returnCode: "ok", payload }
    })
  )
  return cell
})

const bytes = (value: unknown) => (value instanceof Uint8Array ? new Uint8Array(value) : new Uint8Array(0))

/** Asks a Python cell in all ways, and has it ask back. */
const talk = Effect.fnUntraced(function* (cell: Cell.Cell["Service"], to: string) {
  for (const size of [0, 1, 1000, 70_000, 5_000_000]) {
    const data = pattern(size)
    const plain = yield* cell.request(to, interop("echo"), data, { timeout: "20 seconds", mode: "plain", secure: true })
    assert.strictEqual(plain.returnCode, "ok")
    assert.isTrue(Buffer.from(bytes(plain.payload)).equals(data), `plain ${size}`)
    const body = new Map([["data", data]])
    const streamed = yield* cell.request(to, interop("echo"), body, { timeout: "20 seconds", secure: true })
    const answer = streamed.payload as Map<string, unknown>
    assert.isTrue(Buffer.from(bytes(answer.get("data"))).equals(data), `stream ${size}`)
    assert.strictEqual(answer.get("secure"), true)
  }
  const call = new Map<string, unknown>([
    ["mode", "stream"],
    ["size", 70_000],
    ["secure", true]
  ])
  const called = yield* cell.request(to, interop("call_me"), call, { timeout: "20 seconds", secure: true })
  assert.deepInclude(Object.fromEntries(called.payload as Map<string, unknown>), { ok: true, reply_secure: true })
})

const layer = Layer.mergeAll(Drivers.layer([TcpDriver.make()]), SecureRandom.layerWebCrypto)
const connected = (cell: Cell.Cell["Service"], to: string) =>
  Stream.runHead(Stream.filter(cell.connected(to), (up) => up))

describe.skipIf(python === "")("secure cells over stcp", () => {
  it.live("we dial a Python parent", () =>
    Effect.gen(function* () {
      const certs = yield* startup
      const url = `stcp://127.0.0.1:${yield* freePort}`
      yield* peer("secure_pair.py", ["--role", "cp", "--url", url, "--fqcn", "site-1", "--certs", certs])
      const cell = yield* ownCell(trainerFqcn, certs)
      yield* cell.connect(url, { ca_cert: join(certs, "rootCA.pem") })
      yield* connected(cell, "site-1")
      yield* talk(cell, "site-1")
    }).pipe(Effect.provide(layer))
  )

  it.live("a Python child dials us", () =>
    Effect.gen(function* () {
      const certs = yield* startup
      const url = `stcp://127.0.0.1:${yield* freePort}`
      const cell = yield* ownCell("site-1", certs)
      yield* cell.listen(url, { ca_cert: join(certs, "rootCA.pem") })
      const role = ["--role", "child", "--url", url, "--fqcn", trainerFqcn, "--certs", certs]
      yield* peer("secure_pair.py", [...role, "--serve"])
      yield* connected(cell, trainerFqcn)
      yield* talk(cell, trainerFqcn)
    }).pipe(Effect.provide(layer))
  )
})

// ---- Whole rounds. `place` is who is the parent.

const rounds = "2"

const makeModel = `
import numpy as np, sys
r = np.random.default_rng(7)
big = int(float(sys.argv[2]) * 1024 * 1024 / 4)
np.savez(sys.argv[1], big=r.standard_normal(big).astype(np.float32), f64=r.standard_normal(7), i64=np.arange(-3, 3))
`

const compare = `
import numpy as np, sys
a, b = np.load(sys.argv[1]), np.load(sys.argv[2])
assert sorted(a.files) == sorted(b.files)
for k in a.files:
    want = a[k]
    for _ in range(int(sys.argv[3])):
        want = np.asarray(want + np.asarray(1, dtype=want.dtype))
    assert want.dtype == b[k].dtype and want.shape == b[k].shape and want.tobytes() == b[k].tobytes(), k
print("same")
`

/** A parent that is ready: ours, or Python's. */
const startParent = Effect.fnUntraced(function* (place: "our" | "a Python", certs: string) {
  const url = `stcp://127.0.0.1:${yield* freePort}`
  const parent: Peer =
    place === "our"
      ? yield* flAttach("parent", "--site", "site-1", "--listen", url, "--certs", certs)
      : yield* peer("secure_pair.py", [
          ...["--role", "cp", "--url", url, "--fqcn", "site-1", "--certs", certs, "--identity", "site-1.job-1=site-1"]
        ])
  yield* parent.says(place === "our" ? "listens at" : "listening")
  return url
})

const writeProfile = (path: string, url: string, certs: string) =>
  Effect.sync(() =>
    writeFileSync(
      path,
      JSON.stringify({
        schema_version: 1,
        execution_mode: "attach",
        attach_id: "trainer_a",
        site_name: "site-1",
        connect_url: url,
        connection_security: "mtls",
        secure_mode: true,
        ca_cert: join(certs, "rootCA.pem"),
        job_wait_timeout: 60
      })
    )
  )

describe.skipIf(python === "")("rounds in secure mode over stcp", () => {
  for (const place of ["our", "a Python"] as const) {
    it.live(`our service, through ${place} parent, with a Python trainer: 64 MiB, values exact`, () =>
      Effect.gen(function* () {
        const dir = yield* folder
        const certs = yield* startup
        const [input, output, profile] = [join(dir, "in.npz"), join(dir, "out.npz"), join(dir, "profile.json")]
        yield* runPython(makeModel, input, "64")
        const url = yield* startParent(place, certs)
        yield* writeProfile(profile, url, certs)
        const service = yield* flAttach(
          ...["serve", "--site", "site-1", "--job", "job-1", "--attach-id", "trainer_a", "--parent", url],
          ...["--certs", certs, "--secure", "--model", input, "--rounds", rounds, "--out", output],
          ...["--attach-timeout", "60s"]
        )
        const trainer = yield* peer("trainer_np.py", [profile, "--add", "1"])
        const trained = yield* trainer.ended
        assert.strictEqual(trained.code, 0, trained.err)
        const served = yield* service.ended
        assert.strictEqual(served.code, 0, served.err)
        assert.strictEqual(yield* runPython(compare, input, output, rounds), "same")
      })
    )

    it.live(`a Python job, through ${place} parent, with our trainer: 64 MiB, values exact`, () =>
      Effect.gen(function* () {
        const dir = yield* folder
        const certs = yield* startup
        const profile = join(dir, "profile.json")
        const url = yield* startParent(place, certs)
        yield* writeProfile(profile, url, certs)
        const job = yield* peer("cj_ref.py", [
          ...["--connect-url", url, "--connection-security", "mtls", "--startup", certs, "--secure"],
          ...["--rounds", rounds, "--mib", "64", "--attach-timeout", "60"]
        ])
        const probe = yield* flAttach("probe", profile, "--add", "1")
        const ran = yield* job.ended
        assert.strictEqual(ran.code, 0, ran.out + ran.err)
        const probed = yield* probe.ended
        assert.strictEqual(probed.code, 0, probed.err)
        const checks = jsonLines(ran.out).filter(({ event }) => event === "round")
        assert.deepStrictEqual(
          checks.map(({ check }) => check),
          [true, true]
        )
      })
    )
  }
})
