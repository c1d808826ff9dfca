/** A service and a trainer in secure mode, below a client parent, in one process. Files take real time: no TestClock. */
import { chmodSync, cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Result, Stream } from "effect"
import { AttachBackend } from "../../src/attach/AttachBackend.ts"
import * as AttachRoute from "../../src/attach/AttachRoute.ts"
import * as Cell from "../../src/cell/Cell.ts"
import * as CellCredentials from "../../src/cell/CellCredentials.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { rulesOf } from "../../src/identity/CertificateIdentity.ts"
import { inFolder } from "../../src/identity/Credentials.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as ModelExchange from "../../src/model/ModelExchange.ts"
import * as ClientParent from "../../src/parent/ClientParent.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import * as Trainer from "../../src/trainer/Trainer.ts"
import { TrainerProfile } from "../../src/trainer/TrainerProfile.ts"
import * as Frame from "../../src/transport/Frame.ts"
import { pki } from "../cell/secure.ts"

const url = "memory://site-1"
const cj = "site-1.job-1"

/** Copies of certificate folders, so that a test may spoil them. */
const certificates = (folder: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const dir = mkdtempSync(join(tmpdir(), "fl-attach-secure-"))
      cpSync(join(pki, folder), dir, { recursive: true })
      chmodSync(join(dir, "client.key"), 0o600)
      return dir
    }),
    (dir) => Effect.sync(() => rmSync(dir, { recursive: true, force: true }))
  )

const profileOf = (caCert: string | undefined, secureMode = true) =>
  new TrainerProfile({
    attachId: "a",
    siteName: "site-1",
    source: { _tag: "Url", connectUrl: url, security: "clear", cpFqcn: "site-1", authIdentity: "site-1" },
    secureMode,
    ...(caCert === undefined ? {} : { caCert })
  })

const layerService = (certs: string, secure: boolean) =>
  AttachBackend.layer({ attachId: "a", attachTimeout: "3 seconds", settleLinger: "100 millis" }).pipe(
    Layer.provideMerge(AttachRoute.layerClientParent({ url, secure })),
    Layer.provideMerge(
      Layer.effect(
        Cell.Cell,
        Effect.gen(function* () {
          const rules = rulesOf({ local: cj, parent: "site-1", identity: "site-1" })
          const credentials = yield* CellCredentials.watch(inFolder(certs), { rules })
          return yield* Cell.make({ fqcn: cj, ...(secure ? { credentials } : {}) })
        })
      )
    )
  )

const model = (values: ReadonlyArray<number>) =>
  new FLModel({ params: [["w", NdArray.fromTyped(Float32Array.from(values))]] })

const floats = (received: FLModel) => {
  const typed = received.arrays.get("w")?.toTyped()
  return typed === undefined || Result.isFailure(typed) ? [] : Array.from(typed.success as Float32Array)
}

const train = (received: FLModel) => Effect.succeed(model(floats(received).map((x) => x + 1)))

/** Payloads of the Client API that anybody on the way can read. */
const readable: Array<string> = []
const network = MemoryNetwork.layer({
  faults: {
    onFrame: ({ bytes }) =>
      Effect.sync(() => {
        const frame = Frame.decode(bytes)
        const headers = Result.isSuccess(frame) ? frame.success.headers : undefined
        const channel = headers?.get("sm__ch") ?? headers?.get("cn__channel")
        const topic = String(headers?.get("sm__tp") ?? headers?.get("cn__topic"))
        if (headers?.get("cn__topic") === "sm__ACK" || channel === "sm__STREAM" || channel === "cellnet.channel") {
          return "deliver" as const
        }
        if (channel !== undefined && headers?.get("cn__encrypted") !== true) readable.push(topic)
        return "deliver" as const
      })
  }
})

describe("secure mode, from the profile to the result", () => {
  it.live("rounds with nothing in clear but the exchange of certificates", () =>
    Effect.gen(function* () {
      readable.length = 0
      const certs = yield* certificates("site-1")
      yield* ClientParent.make({ site: "site-1", listeners: [{ url }] })
      const profile = profileOf(join(certs, "rootCA.pem"))
      const trainer = yield* Effect.forkScoped(Trainer.run(profile, train))
      yield* Effect.gen(function* () {
        const backend = yield* AttachBackend
        for (const values of [[1, 2, 3], Array.from({ length: 300_000 }, (_, i) => i)]) {
          const data = yield* Effect.fromResult(ModelExchange.toShareable(model(values)))
          const result = yield* backend.execute({ name: "train", data })
          const got = yield* Effect.fromResult(ModelExchange.fromShareable(result))
          assert.deepStrictEqual(
            floats(got),
            values.map((x) => x + 1)
          )
        }
      }).pipe(Effect.provide(layerService(certs, true)))
      yield* Fiber.join(trainer)
      assert.deepStrictEqual([...new Set(readable)], ["key_exchange"])
    }).pipe(Effect.provide(network))
  )

  for (const [who, isServiceSecure] of [
    ["trainer", false],
    ["service", true]
  ] as const) {
    it.live(`only the ${who} is secure: no session, and nothing given away`, () =>
      Effect.gen(function* () {
        const certs = yield* certificates("site-1")
        yield* ClientParent.make({ site: "site-1", listeners: [{ url }] })
        const profile = profileOf(join(certs, "rootCA.pem"), !isServiceSecure)
        let trained = 0
        yield* Effect.forkScoped(
          Trainer.run(profile, (received) => {
            trained += 1
            return train(received)
          })
        )
        yield* Effect.gen(function* () {
          const backend = yield* AttachBackend
          const data = yield* Effect.fromResult(ModelExchange.toShareable(model([1])))
          const failed = yield* Effect.flip(backend.execute({ name: "train", data }))
          assert.strictEqual(failed.reason._tag, "AttachTimeout")
          assert.match(failed.message, isServiceSecure ? /has no certificate/ : /authentication_error/)
          const states = yield* Stream.runCollect(Stream.take(backend.sessionChanges, 1))
          assert.notInclude(
            states.map(({ _tag }) => _tag),
            "Ready"
          )
        }).pipe(Effect.provide(layerService(certs, isServiceSecure)))
        assert.strictEqual(trained, 0)
      }).pipe(Effect.provide(network))
    )
  }

  it.live("a trainer with unusable certificates does not attach in clear: it says what is wrong", () =>
    Effect.gen(function* () {
      const cases = [
        ["expired", /expired|holds from/],
        ["foreign", /not issued by the own root/],
        ["ec", /RSA of 2048 bits/],
        ["rsa3072", /RSA of 2048 bits/]
      ] as const
      const fail = (caCert: string | undefined) => Effect.flip(Trainer.attach(profileOf(caCert)))
      for (const [folder, message] of cases) {
        const error = yield* fail(join(yield* certificates(folder), "rootCA.pem"))
        assert.deepInclude({ ...error.reason }, { kind: "CredentialsError" })
        assert.match(error.message, message)
      }
      assert.match((yield* fail(undefined)).message, /ca_cert is missing/)
      assert.match((yield* fail("/nowhere/rootCA.pem")).message, /ca_cert: \/nowhere\/rootCA\.pem is not there/)
      const mixed = yield* certificates("site-1")
      cpSync(join(pki, "site-2", "client.key"), join(mixed, "client.key"))
      assert.match((yield* fail(join(mixed, "rootCA.pem"))).message, /is not the key of/)
      writeFileSync(join(mixed, "client.key"), "no key")
      assert.match((yield* fail(join(mixed, "rootCA.pem"))).message, /holds no private key/)
    }).pipe(Effect.provide(network))
  )

  it.live("renewed files are taken over while the cell lives; broken ones are not", () =>
    Effect.gen(function* () {
      const certs = yield* certificates("site-1")
      const rules = rulesOf({ local: cj, parent: "site-1", identity: "site-1" })
      const credentials = yield* CellCredentials.watch(inFolder(certs), { rules, interval: "20 millis" })
      const before = credentials.current().checked.fingerprint
      writeFileSync(join(certs, "client.crt"), "broken")
      yield* Effect.sleep("80 millis")
      assert.strictEqual(credentials.current().checked.fingerprint, before)
      cpSync(join(pki, "site-1-listener", "server.key"), join(certs, "server.key"))
      chmodSync(join(certs, "server.key"), 0o600)
      cpSync(join(pki, "site-1-listener", "server.crt"), join(certs, "server.crt"))
      while (credentials.current().checked.fingerprint === before) yield* Effect.sleep("10 millis")
    })
  )
})
