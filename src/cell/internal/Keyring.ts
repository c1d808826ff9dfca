import { createHash, type KeyObject } from "node:crypto"
import { Clock, Duration, Effect, Result } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import type { CheckedCertificate } from "../../identity/CertificateChain.ts"
import { CipherError } from "../CipherError.ts"
import * as MessageCipher from "../MessageCipher.ts"

/** When content keys are renewed, and what of the past is remembered. */
export interface KeyringSettings {
  /** Messages under one content key. */
  readonly rotateMessages: number
  /** How long a content key is used. */
  readonly rotateAfter: Duration.Duration
  /** How many envelopes are remembered, so that none is taken twice; 0: none. */
  readonly repeatMemory: number
  /** Whether envelopes that carry a content key of this cell's own making are refused. */
  readonly refuseReflections: boolean
}

/** The content keys of one cell, made and received. */
export interface Keyring {
  readonly seal: (
    sender: KeyObject,
    receiver: CheckedCertificate,
    clear: ReadonlyArray<Uint8Array>
  ) => Effect.Effect<MessageCipher.Sealed, CipherError>
  /** Opens an envelope that one of `senders` must have signed, for one of the own keys. */
  readonly open: (
    envelope: Uint8Array,
    senders: ReadonlyArray<CheckedCertificate>,
    own: ReadonlyArray<KeyObject>
  ) => Effect.Effect<{ readonly clear: Uint8Array; readonly sender: CheckedCertificate }, CipherError>
}

interface Sending extends MessageCipher.ContentKey {
  readonly madeAt: number
  messages: number
}

const nonceBytes = 12
const keyBytes = 32
/** Receivers and received keys that are remembered; each is there by a certificate that was found good. */
const maxKeys = 1024
const maxOwnKeys = 4096

/** A map that forgets what was used longest ago. */
const makeRecent = <A>(limit: number) => {
  const entries = new Map<string, A>()
  return {
    get: (key: string): A | undefined => {
      const value = entries.get(key)
      if (value !== undefined) {
        entries.delete(key)
        entries.set(key, value)
      }
      return value
    },
    has: (key: string): boolean => entries.has(key),
    set: (key: string, value: A): void => {
      entries.delete(key)
      entries.set(key, value)
      if (entries.size > limit) {
        for (const oldest of entries.keys()) {
          entries.delete(oldest)
          break
        }
      }
    }
  }
}

const latin = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1")

const refused = (stage: CipherError["stage"], message: string) => Effect.fail(new CipherError({ stage, message }))

/** Names of wrapped keys and nonces are public words; nothing here is compared with a secret. */
export const makeKeyring = (
  cipher: MessageCipher.Cipher,
  random: SecureRandom["Service"],
  settings: KeyringSettings
): Keyring => {
  const sending = makeRecent<Sending>(maxKeys)
  const made = makeRecent<true>(maxOwnKeys)
  const received = makeRecent<MessageCipher.ContentKey>(maxKeys)
  const taken = makeRecent<true>(settings.repeatMemory)
  const rotateMillis = Duration.toMillis(settings.rotateAfter)

  const fresh = Effect.fnUntraced(function* (receiver: CheckedCertificate, now: number) {
    const key = yield* random.randomBytes(keyBytes)
    const content = yield* Effect.fromResult(MessageCipher.wrap(key, receiver.publicKey))
    const entry: Sending = { ...content, madeAt: now, messages: 0 }
    sending.set(receiver.fingerprint, entry)
    made.set(latin(content.wrapped), true)
    return entry
  })

  const contentKey = Effect.fnUntraced(function* (receiver: CheckedCertificate) {
    const now = Number(yield* Clock.monotonicTimeNanos) / 1e6
    const known = sending.get(receiver.fingerprint)
    const isGood = known !== undefined && known.messages < settings.rotateMessages && now - known.madeAt < rotateMillis
    const entry = isGood ? known : yield* fresh(receiver, now)
    entry.messages += 1
    return entry
  })

  const seal: Keyring["seal"] = Effect.fnUntraced(function* (sender, receiver, clear) {
    const content = yield* contentKey(receiver)
    const nonce = yield* random.randomBytes(nonceBytes)
    return yield* cipher.seal(sender, content, nonce, clear)
  })

  const signerOf = Effect.fnUntraced(function* (
    envelope: MessageCipher.Envelope,
    senders: ReadonlyArray<CheckedCertificate>
  ) {
    for (const sender of senders) {
      if (yield* cipher.isSignedBy(envelope, sender.publicKey)) return sender
    }
    return yield* refused("signature", "the payload was not signed with the key of its sender's certificate")
  })

  const unwrapped = (envelope: MessageCipher.Envelope, sender: CheckedCertificate, own: ReadonlyArray<KeyObject>) => {
    const name = sender.fingerprint + latin(envelope.wrapped)
    const known = received.get(name)
    if (known !== undefined) return Result.succeed(known)
    let content: Result.Result<MessageCipher.ContentKey, CipherError> | undefined
    for (const key of own) {
      content = MessageCipher.unwrap(envelope.wrapped, key)
      if (Result.isSuccess(content)) {
        // A copy: the message that brought it must not be kept alive.
        const kept = { key: content.success.key, wrapped: content.success.wrapped.slice() }
        received.set(name, kept)
        return Result.succeed(kept)
      }
    }
    return content ?? Result.fail(new CipherError({ stage: "unwrap", message: "this cell has no key" }))
  }

  const repeated = "the same protected payload was taken before"

  const open: Keyring["open"] = Effect.fnUntraced(function* (bytes, senders, own) {
    const envelope = yield* Effect.fromResult(MessageCipher.parse(bytes))
    if (settings.refuseReflections && made.has(latin(envelope.wrapped))) {
      return yield* refused("reflection", "the payload carries a key that this cell made: it was sent back to it")
    }
    // Not by the certificate: a renewed one may have the same key.
    const name = latin(createHash("sha256").update(envelope.wrapped).update(envelope.nonce).digest())
    // The cheap look first: what was taken is not verified again.
    if (taken.has(name)) return yield* refused("repeat", repeated)
    const sender = yield* signerOf(envelope, senders)
    const content = yield* Effect.fromResult(unwrapped(envelope, sender, own))
    const clear = yield* Effect.fromResult(MessageCipher.decrypt(content, envelope))
    if (settings.repeatMemory > 0) {
      // Another copy may have been verified at the same time.
      if (taken.has(name)) return yield* refused("repeat", repeated)
      taken.set(name, true)
    }
    return { clear, sender }
  })

  return { seal, open }
}
