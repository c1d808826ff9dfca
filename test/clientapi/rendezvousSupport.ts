import { Effect, Layer } from "effect"
import * as SecureRandom from "effect/crypto/SecureRandom"
import type { RendezvousError, RendezvousErrorReason } from "../../src/clientapi/RendezvousError.ts"
import { FileLock } from "../../src/platform/FileLock.ts"
import { PrivateFiles } from "../../src/platform/PrivateFiles.ts"

export const memory = Layer.mergeAll(
  Layer.provideMerge(FileLock.layerMemory, PrivateFiles.layerMemory),
  SecureRandom.layerWebCrypto
)

export const node = Layer.mergeAll(FileLock.layerNode, PrivateFiles.layerNode, SecureRandom.layerWebCrypto)

/** The layer in memory, with a change to the files that its users see. */
export const memoryWith = (change: (files: PrivateFiles["Service"]) => PrivateFiles["Service"]) =>
  Layer.mergeAll(
    Layer.provideMerge(FileLock.layerMemory, PrivateFiles.layerMemory).pipe((inner) =>
      Layer.provideMerge(Layer.effect(PrivateFiles, Effect.map(PrivateFiles, change)), inner)
    ),
    SecureRandom.layerWebCrypto
  )

/** A listener as the shared-file driver makes it. */
export const makeListener = Effect.fnUntraced(function* (root: string, name = "lst_0123abcd") {
  const files = yield* PrivateFiles
  yield* files.makeDirectory(`${root}/${name}`, 0o770)
  yield* files.makeDirectory(`${root}/${name}/conns`, 0o770)
  yield* files.write(`${root}/${name}/.nvf_file_transport`, "", { mode: 0o660 })
  return `shared-file://0${root}/${name}`
})

export const reason = <A, R>(self: Effect.Effect<A, RendezvousError, R>): Effect.Effect<RendezvousErrorReason, A, R> =>
  Effect.map(Effect.flip(self), (error) => error.reason)
