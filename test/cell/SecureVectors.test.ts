import { createPrivateKey } from "node:crypto"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Result, Scope } from "effect"
import { SecureRandom } from "effect/crypto"
import { makeKeyring } from "../../src/cell/internal/Keyring.ts"
import * as MessageCipher from "../../src/cell/MessageCipher.ts"
import * as Fobs from "../../src/fobs/Fobs.ts"
import * as CertificateChain from "../../src/identity/CertificateChain.ts"
import { TrainerProfile } from "../../src/trainer/TrainerProfile.ts"
import * as Frame from "../../src/transport/Frame.ts"
import { securityVectors } from "../pki.ts"
import { pki, secureCell, today, toToday } from "./secure.ts"
import { makeWorld, settle, until } from "./support.ts"

const text = (path: string) => readFileSync(join(pki, "..", path), "utf8")
const root = text("pki/rootCA.pem")

interface Step {
  readonly wire_b64: string
  readonly outcome: string
  readonly stage?: string
  readonly clear_b64?: string
  readonly clock?: string
}

/** A receiver as cells have it: the chain first, then the keyring. What the reference does on a hit, too, is done anew. */
const makeReceiver = Effect.fnUntraced(function* (receiverKey: string) {
  const cipher = yield* MessageCipher.MessageCipher
  const random = yield* SecureRandom.SecureRandom
  const keyring = makeKeyring(cipher, random, {
    rotateMessages: 10,
    rotateAfter: Duration.infinity,
    repeatMemory: 100,
    refuseReflections: true
  })
  const key = createPrivateKey(text(receiverKey))
  return Effect.fnUntraced(
    function* (pem: string, { clock, wire_b64 }: Step) {
      const now = clock === undefined || clock === "now" ? today : Date.parse(clock)
      const checked = CertificateChain.check(pem, root, now)
      if (Result.isFailure(checked)) {
        return { stage: checked.failure.kind === "validity" ? "chain" : checked.failure.kind }
      }
      const keyed = CertificateChain.checkKey(checked.success.publicKey)
      if (Result.isFailure(keyed)) return { stage: "key" }
      const opened = yield* Effect.result(keyring.open(Buffer.from(wire_b64, "base64"), [checked.success], [key]))
      return Result.isFailure(opened)
        ? { stage: opened.failure.stage }
        : { stage: "accept", clear: Buffer.from(opened.success.clear).toString("base64") }
    },
    Effect.provideService(MessageCipher.MessageCipher, cipher)
  )
})

/** Where this library refuses what the reference takes, or earlier. */
const stricter: Readonly<Record<string, string>> = {
  replay: "repeat",
  // By its nonce, before anything is computed.
  "flip-ciphertext-warm": "repeat",
  "salt-32": "signature",
  "salt-221": "signature",
  "aes-16": "unwrap",
  "ec-signer": "key",
  "rsa3072-signer": "key",
  "rsa1024-signer": "key"
}

describe("tampered envelopes, at a receiver", () => {
  const { cases, sequences } = securityVectors("tampered.json")
  for (const one of cases) {
    it.effect(`${one.id}: ${one.what}`, () =>
      Effect.gen(function* () {
        const receive = yield* makeReceiver(one.receiver_key)
        if (one.warm === true) {
          const good = cases.find(({ id }: { readonly id: string }) => id === "good")
          assert.strictEqual((yield* receive(text(good.origin_pem), good)).stage, "accept")
        }
        const pem = one.origin_pem === null ? one.origin_pem_text : text(one.origin_pem)
        const { clear, stage } = yield* receive(pem, one)
        const expected = stricter[one.id] ?? one.stage ?? "accept"
        assert.strictEqual(stage, expected)
        assert.strictEqual(clear, stage === "accept" ? one.clear_b64 : undefined)
      }).pipe(Effect.provide(SecureRandom.layerWebCrypto))
    )
  }

  for (const one of sequences) {
    it.effect(`${one.id}: ${one.what}`, () =>
      Effect.gen(function* () {
        const receive = yield* makeReceiver(one.receiver_key)
        const steps: ReadonlyArray<Step> = one.steps
        const found: Array<string> = []
        for (const step of steps) found.push((yield* receive(text(one.origin_pem), step)).stage)
        // An expired certificate is not used any longer, known or not.
        assert.deepStrictEqual(found, one.id === "expiry-after-first-use" ? ["accept", "chain"] : ["chain"])
      }).pipe(Effect.provide(SecureRandom.layerWebCrypto))
    )
  }
})

describe("security fields of profiles", () => {
  for (const one of securityVectors("profile.json").cases) {
    it(`${one.id}`, () => {
      const decoded = TrainerProfile.decode(one.profile)
      assert.strictEqual(Result.isSuccess(decoded) ? "accept" : "reject", one.outcome)
    })
  }
})

describe("captured sessions", () => {
  const plain = Fobs.make()
  for (const scenario of securityVectors("frames.json").scenarios) {
    it.effect(`${scenario.id}: all its envelopes open`, () =>
      Effect.gen(function* () {
        const cipher = yield* MessageCipher.MessageCipher
        /** The certificates that the cells have shown each other. */
        const shown = new Map<string, string>()
        const folders = [scenario.child_certs, scenario.cp_certs].filter((folder) => folder !== undefined)
        const keys = folders.flatMap((folder: string) =>
          ["client", "server"].flatMap((side) =>
            Result.match(
              Result.try(() => createPrivateKey(text(`${folder}/${side}.key`))),
              { onFailure: () => [], onSuccess: (key) => [key] }
            )
          )
        )
        let envelopes = 0
        let opened = 0
        for (const one of scenario.frames) {
          const frame = Result.getOrThrow(Frame.decode(Buffer.from(one.frame_b64, "base64")))
          const headers = frame.headers ?? new Map<string, unknown>()
          if (headers.get("cn__topic") === "key_exchange" && headers.get("cn__payload_encoding") === "fobs") {
            const fields = Result.getOrThrow(plain.decode(frame.payload)) as Map<string, unknown>
            const content = fields.get("cert_content")
            if (content instanceof Uint8Array) {
              shown.set(String(headers.get("cn__origin")), Buffer.from(content).toString("utf8"))
            }
          }
          if (headers.get("cn__encrypted") !== true) continue
          envelopes += 1
          const pem = shown.get(String(headers.get("cn__origin")))
          if (pem === undefined) continue
          const envelope = Result.getOrThrow(MessageCipher.parse(frame.payload))
          const { publicKey } = Result.getOrThrow(CertificateChain.check(pem, root, today))
          assert.isTrue(yield* cipher.isSignedBy(envelope, publicKey))
          const content = keys.map((key) => MessageCipher.unwrap(envelope.wrapped, key)).find(Result.isSuccess)
          assert.isDefined(content)
          if (content === undefined) continue
          const clear = Result.getOrThrow(MessageCipher.decrypt(content.success, envelope))
          assert.strictEqual(clear.byteLength, headers.get("cn__clear_payload_len"))
          opened += 1
        }
        assert.strictEqual(opened, envelopes)
        if (scenario.id === "mtls-secure-pair") assert.isAtLeast(opened, 8)
      })
    )
  }
})

// ---- The same calls make the same frames as the reference's cells.

interface Recorded {
  readonly kind: string
  readonly headers?: ReadonlyArray<{ readonly key: string; readonly value: unknown }>
  readonly payload: { readonly length: number }
}

const told = ["cn__origin", "cn__from", "cn__to", "cn__msg_type", "cn__topic", "cn__secure", "cn__encrypted"]
const more = [
  "cn__clear_payload_len",
  "cn__payload_encoding",
  "cn__return_code",
  "sm__tp",
  "sm__sq",
  "sm__dt",
  "sm__pe"
]

const summary = (headers: ReadonlyMap<string, unknown>, length: number): string => {
  const isExchange = headers.get("cn__topic") === "key_exchange"
  return JSON.stringify([...[...told, ...more].map((key) => headers.get(key) ?? null), isExchange ? "" : length])
}

const isCompared = (headers: ReadonlyMap<string, unknown>) =>
  !["bye", "sm__ACK", "sm__ERROR"].includes(String(headers.get("cn__topic")))

const det = (size: number) => Uint8Array.from({ length: size }, (_, i) => (31 * i + 7 + (i >> 8)) & 255)

describe("recorded secure calls", () => {
  const scenes = [
    {
      name: "60_secure_cell_request",
      frames: undefined,
      call: { target: "site-1.-client_api_x", address: { channel: "vec_ch", topic: "echo" }, payload: det(1500) },
      mode: "stream"
    },
    {
      name: "61_secure_core_request",
      frames: 4,
      call: { target: "site-1", address: { channel: "client_command", topic: "echo" }, payload: det(40) },
      mode: "plain"
    },
    {
      // The cells know each other's certificates already.
      name: "62_secure_empty_and_error",
      frames: 4,
      call: { target: "site-1", address: { channel: "vec_ch", topic: "ok_none" }, payload: undefined },
      mode: "stream"
    }
  ] as const
  for (const scene of scenes) {
    it.effect(scene.name, () =>
      Effect.gen(function* () {
        const recorded: ReadonlyArray<Recorded> = JSON.parse(
          readFileSync(new URL(`../fixtures/cellnet/${scene.name}.json`, import.meta.url), "utf8")
        ).frames
        const expected = recorded
          .slice(0, scene.frames)
          .map(({ headers = [], payload }) => ({
            headers: new Map(headers.map(({ key, value }) => [key, value])),
            length: payload.length
          }))
          .filter(({ headers }) => isCompared(headers))
          .map(({ headers, length }) => summary(headers, length))
        yield* toToday
        const sent: Array<string> = []
        const { cell } = yield* makeWorld({
          faults: {
            onFrame: ({ bytes }) =>
              Effect.sync(() => {
                const frame = Result.getOrThrow(Frame.decode(bytes))
                if (frame.headers !== undefined && isCompared(frame.headers)) {
                  sent.push(summary(frame.headers, frame.payload.byteLength))
                }
                return "deliver" as const
              })
          }
        })
        const streaming = { streaming: { chunkSize: 1000 } }
        const parent = yield* cell(secureCell("site-1", streaming))
        const job = yield* cell(secureCell("site-1.job1", streaming))
        const x = yield* cell(secureCell("site-1.-client_api_x", streaming))
        for (const served of [parent, x]) {
          yield* served.cell.handle({ channel: "vec_ch", topic: "ok_none" }, () => Effect.succeed({ returnCode: "ok" }))
          for (const channel of ["vec_ch", "client_command"]) {
            yield* served.cell.handle({ channel, topic: "echo" }, ({ payload }) =>
              Effect.succeed({ returnCode: channel === "vec_ch" ? "" : "ok", payload })
            )
          }
        }
        yield* Scope.provide(parent.cell.listen("memory://site-1"), parent.scope)
        for (const child of [job, x]) {
          yield* Scope.provide(child.cell.connect("memory://site-1"), child.scope)
          yield* until(parent.cell, child.cell.fqcn)
          yield* until(child.cell, "site-1")
        }
        const { address, payload, target } = scene.call
        yield* job.cell.request(target, address, payload, { timeout: "10 seconds", mode: scene.mode, secure: true })
        yield* settle
        const isWarm = !expected.some((line) => line.includes("key_exchange"))
        const compared = sent.filter((line) => !isWarm || !line.includes("key_exchange"))
        assert.deepStrictEqual(compared.sort(), expected.toSorted())
      })
    )
  }
})
