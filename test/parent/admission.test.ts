/** Who gets in at a client parent with certificates. Numbers are those of docs/wire/security.md, section 8. */
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Layer, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import * as Cell from "../../src/cell/Cell.ts"
import * as ClientParent from "../../src/parent/ClientParent.ts"
import { Drivers } from "../../src/transport/Drivers.ts"
import * as TcpDriver from "../../src/transport/TcpDriver.ts"
import { unpackPki } from "../pki.ts"

const pki = join(unpackPki(), "pki")
const filesOf = (folder: string) => ({ ca_cert: join(pki, folder, "rootCA.pem") })
const layer = Layer.mergeAll(Drivers.layer([TcpDriver.make()]), SecureRandom.layerWebCrypto)

describe("a client parent with mTLS", () => {
  it.live("5, 6, 7: lets in the site's cells below it, and nobody else, while they go on", () =>
    Effect.gen(function* () {
      const parent = yield* ClientParent.make({
        site: "site-1",
        listeners: [{ url: "stcp://127.0.0.1:0", resources: filesOf("site-1") }]
      })
      const [url = ""] = parent.connectUrls
      const dial = (fqcn: string, folder: string, onDown: (why: string) => Effect.Effect<unknown>) =>
        Effect.tap(Cell.make({ fqcn, byeTimeout: 0 }), (cell) =>
          cell.connect(url, filesOf(folder), { onDown: ({ message }) => Effect.asVoid(onDown(message)) })
        )
      const trainer = yield* dial("site-1.-client_api_t", "site-1", () => Effect.void)
      yield* Stream.runHead(Stream.filter(trainer.connected("site-1"), (up) => up))
      for (const [fqcn, folder] of [
        ["site-1.-client_api_x", "site-2"],
        ["site-1.-client_api_t", "site-2"],
        ["site-1.job", "no-cn"],
        ["site-1.job", "foreign"],
        ["site-1.job", "foreign-full"],
        ["site-1.job", "expired"],
        ["site-2", "site-2"],
        ["site-2.job", "site-2"],
        ["site-1.job.deeper", "site-1"],
        ["server", "server"]
      ] as const) {
        const down = yield* Deferred.make<string>()
        yield* Effect.scoped(
          Effect.andThen(
            dial(fqcn, folder, (why) => Deferred.succeed(down, why)).pipe(
              // The dialer's own look at its files may come first.
              Effect.catch(({ message }) => Deferred.succeed(down, message))
            ),
            Deferred.await(down)
          )
        )
        const { children } = yield* parent.status
        assert.deepStrictEqual(
          children.map(({ name }) => name),
          ["site-1.-client_api_t"],
          `${fqcn} with the certificate of ${folder}`
        )
      }
      const job = yield* dial("site-1.job", "site-1", () => Effect.void)
      yield* trainer.handle({ channel: "chat", topic: "x" }, () => Effect.succeed({ returnCode: "ok" }))
      yield* Stream.runHead(Stream.filter(job.connected("site-1"), (up) => up))
      const reply = yield* job.request(trainer.fqcn, { channel: "chat", topic: "x" }, 1, { timeout: "5 seconds" })
      assert.strictEqual(reply.returnCode, "ok")
    }).pipe(Effect.provide(layer))
  )
})
