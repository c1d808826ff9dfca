import { createPrivateKey, randomBytes } from "node:crypto"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Result } from "effect"
import { SecureRandom } from "effect/crypto"
import { concat } from "../../src/cell/CellMessage.ts"
import { CipherError } from "../../src/cell/CipherError.ts"
import { type KeyringSettings, makeKeyring } from "../../src/cell/internal/Keyring.ts"
import * as MessageCipher from "../../src/cell/MessageCipher.ts"
import { times, within } from "../support/long.ts"
import { watchMemory } from "../support/memory.ts"
import { certificateOf, pki } from "./secure.ts"
import { freshSeed, seeded } from "./wire.ts"

const site = certificateOf("site-1")
const server = certificateOf("server", "server")
const cj = createPrivateKey(readFileSync(join(pki, "site-1", "client.key")))

const keyring = Effect.fnUntraced(function* (settings: Partial<KeyringSettings> = {}) {
  return makeKeyring(yield* MessageCipher.MessageCipher, yield* SecureRandom.SecureRandom, {
    rotateMessages: 100,
    rotateAfter: Duration.infinity,
    repeatMemory: 4,
    refuseReflections: true,
    ...settings
  })
})

const stageOf = (result: Result.Result<unknown, CipherError>) =>
  Result.isFailure(result) ? result.failure.stage : "accept"

const live = (name: string, test: Effect.Effect<void, CipherError, SecureRandom.SecureRandom>) =>
  it.effect(name, () => Effect.provide(test, SecureRandom.layerWebCrypto))

describe("Keyring", () => {
  live(
    "takes each envelope once, as long as it remembers",
    Effect.gen(function* () {
      const sender = yield* keyring()
      const receiver = yield* keyring()
      const open = (envelope: Uint8Array) =>
        Effect.map(Effect.result(receiver.open(envelope, [site.checked], [server.privateKey])), stageOf)
      const made: Array<Uint8Array> = []
      for (let i = 0; i < 6; i += 1)
        made.push(concat((yield* sender.seal(cj, server.checked, [new Uint8Array([i])])).pieces))
      const [first = assert.fail(), ...others] = made
      assert.strictEqual(yield* open(first), "accept")
      assert.strictEqual(yield* open(first), "repeat")
      for (const other of others.slice(0, 3)) assert.strictEqual(yield* open(other), "accept")
      assert.strictEqual(yield* open(first), "repeat")
      for (const other of others.slice(3)) assert.strictEqual(yield* open(other), "accept")
      // Four later ones: the first is forgotten. The session's own ids must stand against this.
      assert.strictEqual(yield* open(first), "accept")
      const forgetful = yield* keyring({ repeatMemory: 0 })
      for (let i = 0; i < 2; i += 1) {
        const again = yield* Effect.result(forgetful.open(first, [site.checked], [server.privateKey]))
        assert.strictEqual(stageOf(again), "accept")
      }
    })
  )

  live(
    "refuses what carries its own key back, unless told otherwise",
    Effect.gen(function* () {
      for (const refuseReflections of [true, false]) {
        const own = yield* keyring({ refuseReflections, rotateMessages: 1 })
        const envelopes: Array<Uint8Array> = []
        for (let i = 0; i < 3; i += 1) envelopes.push(concat((yield* own.seal(cj, site.checked, [])).pieces))
        for (const envelope of envelopes) {
          const opened = yield* Effect.result(own.open(envelope, [site.checked], [cj]))
          assert.strictEqual(stageOf(opened), refuseReflections ? "reflection" : "accept")
        }
        const other = yield* keyring()
        const opened = yield* Effect.result(other.open(envelopes[0] ?? assert.fail(), [site.checked], [cj]))
        assert.strictEqual(stageOf(opened), "accept")
      }
    })
  )

  live(
    "tries each certificate and each own key, and says which one signed",
    Effect.gen(function* () {
      const sender = yield* keyring()
      const receiver = yield* keyring()
      const envelope = concat((yield* sender.seal(cj, server.checked, [new Uint8Array([7])])).pieces)
      const { clear, sender: signer } = yield* receiver.open(
        envelope,
        [server.checked, site.checked],
        [cj, server.privateKey]
      )
      assert.deepEqual([...clear], [7])
      assert.strictEqual(signer.fingerprint, site.checked.fingerprint)
    })
  )

  live(
    "refuses a repeat under a renewed certificate with the same key",
    Effect.gen(function* () {
      const sender = yield* keyring()
      const receiver = yield* keyring()
      const envelope = concat((yield* sender.seal(cj, server.checked, [new Uint8Array([7])])).pieces)
      yield* receiver.open(envelope, [site.checked], [server.privateKey])
      const renewed = { ...site.checked, fingerprint: "renewed" }
      const again = yield* Effect.result(receiver.open(envelope, [renewed], [server.privateKey]))
      assert.strictEqual(stageOf(again), "repeat")
    })
  )

  const seed = freshSeed()
  const mutations = times(50_000, 20)
  it.effect(
    `${mutations} mutated envelopes are refused by a stage, seed ${seed}`,
    () =>
      Effect.gen(function* () {
        const next = seeded(seed)
        const pick = (below: number) => Math.floor(next() * below)
        const sender = yield* keyring()
        const receiver = yield* keyring()
        const originals: Array<Uint8Array> = []
        for (const size of [0, 1, 100, 3000]) {
          originals.push(concat((yield* sender.seal(cj, server.checked, [new Uint8Array(size)])).pieces))
        }
        const stages = new Set<string>()
        const memory = watchMemory(mutations)
        for (let i = 0; i < mutations; i += 1) {
          memory.at(i)
          const original = originals[pick(originals.length)] ?? assert.fail()
          const cut = next() < 0.2 ? pick(original.byteLength) : original.byteLength
          const bytes = new Uint8Array(cut + (next() < 0.1 ? pick(40) : 0))
          bytes.set(original.subarray(0, cut))
          if (bytes.byteLength > 0 && (bytes.byteLength === original.byteLength || next() < 0.5)) {
            const at = pick(bytes.byteLength)
            bytes[at] = (bytes[at] ?? 0) ^ (1 << pick(8))
          }
          const opened = yield* Effect.exit(receiver.open(bytes, [site.checked], [server.privateKey]))
          assert.strictEqual(opened._tag, "Failure")
          const error = opened._tag === "Failure" ? opened.cause.reasons[0] : undefined
          const failure = error?._tag === "Fail" ? error.error : undefined
          assert.instanceOf(failure, CipherError)
          stages.add(failure?.stage ?? "")
        }
        memory.check()
        assert.deepStrictEqual([...stages].sort(), ["length", "signature", "version"])
      }).pipe(Effect.provide(SecureRandom.layerWebCrypto)),
    within(60_000)
  )

  live(
    "what a key holder signs wrongly is refused, too",
    Effect.gen(function* () {
      const cipher = yield* MessageCipher.MessageCipher
      const receiver = yield* keyring()
      const good = yield* Effect.fromResult(MessageCipher.wrap(randomBytes(32), server.checked.publicKey))
      const foreign = yield* Effect.fromResult(MessageCipher.wrap(randomBytes(32), site.checked.publicKey))
      const short = yield* Effect.fromResult(MessageCipher.wrap(randomBytes(16), server.checked.publicKey))
      const cases = [
        [{ key: randomBytes(32), wrapped: good.wrapped }, "gcm"],
        [foreign, "unwrap"],
        [{ key: randomBytes(32), wrapped: short.wrapped }, "unwrap"],
        [{ key: randomBytes(32), wrapped: randomBytes(256) }, "unwrap"],
        [good, "accept"]
      ] as const
      for (const [content, stage] of cases) {
        const envelope = concat((yield* cipher.seal(cj, content, randomBytes(12), [new Uint8Array(10)])).pieces)
        const opened = yield* Effect.result(receiver.open(envelope, [site.checked], [server.privateKey]))
        assert.strictEqual(stageOf(opened), stage)
      }
    })
  )
})
