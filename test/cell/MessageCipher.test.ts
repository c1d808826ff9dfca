import {
  createHash,
  createPrivateKey,
  createPublicKey,
  type KeyObject,
  randomBytes,
  X509Certificate
} from "node:crypto"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { concat } from "../../src/cell/CellMessage.ts"
import * as MessageCipher from "../../src/cell/MessageCipher.ts"
import { securityVectors, unpackPki } from "../pki.ts"

const folder = unpackPki()
const text = (path: string) => readFileSync(join(folder, path), "utf8")
const privateKey = (path: string): KeyObject => createPrivateKey(text(path))
const certificateKey = (path: string): KeyObject => new X509Certificate(text(path)).publicKey
const pattern = (size: number) => Uint8Array.from({ length: size }, (_, index) => (index * 7 + 3) & 255)
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex")

const open = Effect.fnUntraced(function* (wire: Uint8Array, sender: KeyObject, receiver: KeyObject) {
  const cipher = yield* MessageCipher.MessageCipher
  const envelope = yield* Effect.fromResult(MessageCipher.parse(wire))
  if (!(yield* cipher.isSignedBy(envelope, sender))) return yield* Effect.fail({ stage: "signature" })
  const content = yield* Effect.fromResult(MessageCipher.unwrap(envelope.wrapped, receiver))
  return { clear: yield* Effect.fromResult(MessageCipher.decrypt(content, envelope)), content, envelope }
})

const layers = {
  inline: MessageCipher.MessageCipher.layerInline,
  "thread pool": MessageCipher.MessageCipher.layerThreadPool
}

const { cases } = securityVectors("cipher.json")
/** Only the key is judged here; PEM and chains are judged elsewhere. */
const damaged: ReadonlyArray<{
  readonly id: string
  readonly what: string
  readonly stage?: string
  readonly origin_pem: string | null
  readonly origin_pem_text: string
  readonly receiver_key: string
  readonly wire_b64: string
  readonly clear_b64?: string
}> = securityVectors("tampered.json").cases.filter(
  ({ stage }: { readonly stage?: string }) => stage !== "pem" && stage !== "chain"
)

const stages: Readonly<Record<string, string>> = {
  "ec-signer": "signature",
  // Stricter than the reference, which always sends 222 bytes of salt and keys of 32.
  "salt-32": "signature",
  "salt-221": "signature",
  "aes-16": "unwrap"
}

describe.each(Object.entries(layers))("MessageCipher, %s", (_, layer) => {
  for (const one of cases) {
    it.live(`opens ${one.id}, and makes such`, () =>
      Effect.gen(function* () {
        const wire = Buffer.from(one.wire_b64, "base64")
        assert.strictEqual(sha256(wire), one.wire_sha256)
        const sender = certificateKey(one.sender_cert)
        const receiver = privateKey(one.receiver_key)
        const { clear, content, envelope } = yield* open(wire, sender, receiver)
        assert.strictEqual(sha256(clear), one.clear_sha256)
        assert.strictEqual(Buffer.from(content.key).toString("hex"), one.aes_key_hex)
        assert.strictEqual(Buffer.from(envelope.nonce).toString("hex"), one.nonce_hex)

        // The same key, nonce and payload give the same bytes but for the salted signature.
        const cipher = yield* MessageCipher.MessageCipher
        const own = privateKey(one.sender_cert.replace(".crt", ".key"))
        const payload = pattern(one.clear_len)
        const pieces = [payload.subarray(0, 3), payload.subarray(3, 3), payload.subarray(3)]
        const again = concat((yield* cipher.seal(own, content, envelope.nonce, pieces)).pieces)
        assert.strictEqual(again.byteLength, one.wire_len)
        assert.deepEqual(again.subarray(0, 269), wire.subarray(0, 269))
        assert.notDeepEqual(again.subarray(269, 525), wire.subarray(269, 525))
        assert.deepEqual(again.subarray(525), wire.subarray(525))
        assert.deepEqual((yield* open(again, sender, receiver)).clear, Buffer.from(payload))

        // Nor does a key of our own differ.
        const fresh = yield* Effect.fromResult(MessageCipher.wrap(randomBytes(32), certificateKey(one.receiver_cert)))
        const mine = concat((yield* cipher.seal(own, fresh, randomBytes(12), [payload])).pieces)
        assert.deepEqual((yield* open(mine, sender, receiver)).clear, Buffer.from(payload))
      }).pipe(Effect.provide(layer))
    )
  }

  for (const one of damaged) {
    it.live(`${one.id}: ${one.what}`, () =>
      Effect.gen(function* () {
        const pem = one.origin_pem === null ? one.origin_pem_text : text(one.origin_pem)
        const sender = new X509Certificate(pem).publicKey
        const outcome = yield* Effect.result(
          open(Buffer.from(one.wire_b64, "base64"), sender, privateKey(one.receiver_key))
        )
        const stage = stages[one.id] ?? one.stage ?? "accept"
        assert.strictEqual(Result.isSuccess(outcome) ? "accept" : outcome.failure.stage, stage)
        if (Result.isSuccess(outcome)) {
          assert.strictEqual(Buffer.from(outcome.success.clear).toString("base64"), one.clear_b64)
        }
      }).pipe(Effect.provide(layer))
    )
  }

  it.live("refuses keys that can't protect messages", () =>
    Effect.gen(function* () {
      const cipher = yield* MessageCipher.MessageCipher
      const good = yield* Effect.fromResult(
        MessageCipher.wrap(randomBytes(32), certificateKey("pki/site-1/client.crt"))
      )
      for (const name of ["rsa1024", "rsa3072", "ec"]) {
        const wrapped = MessageCipher.wrap(randomBytes(32), certificateKey(`pki/${name}/client.crt`))
        assert.isTrue(Result.isFailure(wrapped) && wrapped.failure.stage === "seal", name)
        const sealed = yield* Effect.result(
          cipher.seal(privateKey(`pki/${name}/client.key`), good, randomBytes(12), [])
        )
        assert.isTrue(Result.isFailure(sealed) && sealed.failure.stage === "seal", name)
      }
      const publicKey = createPublicKey(text("pki/site-1/client.key"))
      const unusable = yield* Effect.result(cipher.seal(publicKey, good, randomBytes(12), []))
      assert.isTrue(Result.isFailure(unusable))
    }).pipe(Effect.provide(layer))
  )
})
