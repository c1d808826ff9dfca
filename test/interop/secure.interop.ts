/**
 * Secure mode over stcp: certificates on both sides of each connection, messages protected from end to end; with Python
 * in each place, and us in the others.
 */
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
import { freePorts, peer, python } from "./peers.ts"
import { runSite, startup } from "./site.ts"

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
      const url = `stcp://127.0.0.1:${yield* freePorts}`
      const parent = yield* peer("secure_pair.py", ["--role", "cp", "--url", url, "--fqcn", "site-1", "--certs", certs])
      // It takes connections before its cell has started, and loses what came then.
      yield* parent.says('"listening"')
      const cell = yield* ownCell(trainerFqcn, certs)
      yield* cell.connect(url, { ca_cert: join(certs, "rootCA.pem") })
      yield* connected(cell, "site-1")
      yield* talk(cell, "site-1")
    }).pipe(Effect.provide(layer))
  )

  it.live("a Python child dials us", () =>
    Effect.gen(function* () {
      const certs = yield* startup
      const url = `stcp://127.0.0.1:${yield* freePorts}`
      const cell = yield* ownCell("site-1", certs)
      yield* cell.listen(url, { ca_cert: join(certs, "rootCA.pem") })
      const role = ["--role", "child", "--url", url, "--fqcn", trainerFqcn, "--certs", certs]
      yield* peer("secure_pair.py", [...role, "--serve"])
      yield* connected(cell, trainerFqcn)
      yield* talk(cell, trainerFqcn)
    }).pipe(Effect.provide(layer))
  )
})

// ---- Whole rounds.

describe.skipIf(python === "")("rounds in secure mode over stcp", () => {
  const work = { rounds: 2, mib: 64, env: {} }
  for (const parent of ["ours", "Python"] as const) {
    it.live(`our service, a Python trainer, parent ${parent}: 64 MiB, values exact`, () =>
      runSite("stcp", parent, "ours", "Python", work)
    )
    it.live(`a Python job, our trainer, parent ${parent}: 64 MiB, values exact`, () =>
      runSite("stcp", parent, "Python", "ours", work)
    )
  }
})
