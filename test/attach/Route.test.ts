import * as NodeFs from "node:fs"
import * as NodePath from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import { AttachBackend } from "../../src/attach/AttachBackend.ts"
import type { AttachError } from "../../src/attach/AttachError.ts"
import { AttachRoute, layerClientParent, layerListener, layerSharedFile } from "../../src/attach/AttachRoute.ts"
import * as Cell from "../../src/cell/Cell.ts"
import type { CellError } from "../../src/cell/CellError.ts"
import { trainerName } from "../../src/clientapi/TrainerName.ts"
import { FileLock } from "../../src/platform/FileLock.ts"
import { PrivateFiles } from "../../src/platform/PrivateFiles.ts"
import * as MemoryNetwork from "../../src/testing/MemoryNetwork.ts"
import * as SharedFileDriver from "../../src/transport/SharedFileDriver.ts"
import { tempDirectory } from "../platform/support.ts"
import * as support from "./support.ts"

const platform = Layer.mergeAll(
  SharedFileDriver.layer(),
  FileLock.layerNode,
  PrivateFiles.layerNode,
  SecureRandom.layerWebCrypto
)

const folder = (root: string) =>
  layerSharedFile({ root }).pipe(Layer.provideMerge(Cell.layer({ fqcn: support.cjFqcn })), Layer.provideMerge(platform))

const trainer = Result.getOrThrow(trainerName(support.cjFqcn, "a"))
const open = Effect.flatMap(AttachRoute, (route) => route.open(trainer))

describe("the route over a shared folder", () => {
  it.live("16.23 it is unprotected, seen by this very cell, and published with its URL", () =>
    Effect.gen(function* () {
      const root = yield* tempDirectory
      yield* Effect.gen(function* () {
        const route = yield* open
        assert.isFalse(route.secure)
        assert.isTrue(route.direct)
        const claim = NodePath.join(root, ".nvflare/client_api_attach/site-1/a.claim/endpoint.json")
        assert.strictEqual(JSON.parse(NodeFs.readFileSync(claim, "utf8")).connect_url, route.connectUrl)
      }).pipe(Effect.provide(folder(root)))
    })
  )

  it.live("16.24 a listener's folder that everybody may enter is refused", () =>
    Effect.gen(function* () {
      const root = yield* tempDirectory
      yield* Effect.gen(function* () {
        const listener = NodeFs.readdirSync(root).find((name) => name.startsWith("lst_"))
        assert.isDefined(listener)
        NodeFs.chmodSync(NodePath.join(root, listener), 0o777)
        const { reason } = yield* Effect.flip(open)
        assert.strictEqual(reason._tag, "RouteFailed")
        assert.strictEqual(reason._tag === "RouteFailed" && reason.kind, "ListenerUnsafe")
      }).pipe(Effect.provide(folder(root)))
    })
  )

  it.live("16.24 a root that everybody may write is refused", () =>
    Effect.gen(function* () {
      const root = yield* tempDirectory
      NodeFs.chmodSync(root, 0o777)
      const failing = Effect.flip(Effect.provide(open, folder(root)))
      assert.strictEqual((yield* failing).reason._tag, "RouteFailed")
    })
  )

  it.live("16.79 a second service can't have a claimed attach id, and can once it is let go", () =>
    Effect.gen(function* () {
      const root = yield* tempDirectory
      const place = Effect.map(AttachBackend, ({ attachId }) => attachId)
      const service = AttachBackend.layer({ attachId: "a" }).pipe(Layer.provide(folder(root)))
      yield* Effect.gen(function* () {
        const { reason } = yield* Effect.flip(Effect.provide(place, Layer.fresh(service), { local: true }))
        assert.strictEqual(reason._tag === "RouteFailed" && reason.kind, "ClaimHeld")
      }).pipe(Effect.provide(service))
      assert.strictEqual(yield* Effect.provide(place, Layer.fresh(service), { local: true }), "a")
      // Nothing of the claims is left but the lock file.
      assert.deepStrictEqual(NodeFs.readdirSync(NodePath.join(root, ".nvflare/client_api_attach/site-1")), [".a.lock"])
    })
  )
})

describe("the route over a listener", () => {
  it.effect("16.22 a scheme that there is no driver for is refused", () =>
    Effect.gen(function* () {
      const { reason } = yield* Effect.flip(
        Effect.scoped(
          Effect.flatMap(Effect.scope, (scope) => Layer.buildWithScope(layerListener("carrier://x"), scope))
        )
      )
      assert.strictEqual(reason._tag, "RouteFailed")
      assert.include(reason.message, "carrier")
    }).pipe(Effect.provide(support.layer()))
  )
})

describe("a secure route on a cell without credentials", () => {
  const cell = Layer.provideMerge(Cell.layer({ fqcn: support.cjFqcn }), MemoryNetwork.layer())
  const reasonOf = <A>(layer: Layer.Layer<A, AttachError | CellError>) =>
    Effect.map(Effect.flip(Effect.scoped(Layer.build(layer))), ({ reason }) => reason)

  const holds = (reason: (AttachError | CellError)["reason"]) => {
    assert.deepInclude(reason, { _tag: "ConfigInvalid", setting: "secure", isRetryable: false })
    assert.include(reason.message, `the cell ${support.cjFqcn} has no credentials: make it with "credentials"`)
  }

  it.effect("is refused at once, before the client parent is dialed", () =>
    Effect.gen(function* () {
      // Nobody listens there: a route that dialed would wait.
      const url = "memory://site-1"
      holds(yield* reasonOf(Layer.provide(layerClientParent({ url, secure: true }), cell)))
    })
  )

  it.effect("is refused by the backend, whatever route it is, and nothing of it stays open", () =>
    Effect.gen(function* () {
      let isOpen = false
      const route = Layer.succeed(AttachRoute, {
        open: () =>
          Effect.acquireRelease(
            Effect.sync(() => {
              isOpen = true
              return { secure: true, direct: true, connectUrl: "memory://service" }
            }),
            () =>
              Effect.sync(() => {
                isOpen = false
              })
          )
      })
      const backend = AttachBackend.layer({ attachId: "a", attachTimeout: "1 hour" })
      holds(yield* reasonOf(Layer.provide(backend, Layer.merge(route, cell))))
      assert.isFalse(isOpen)
    })
  )
})
