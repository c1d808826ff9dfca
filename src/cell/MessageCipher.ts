/**
 * Protected payloads, byte for byte: AES-256-GCM under a key that RSA-OAEP wraps, signed by RSA-PSS.
 *
 * Only bytes and keys here: whose they are is the business of {@link CertificateExchange}, and which are used again of
 * the cell. Source: docs/wire/security.md, section 1.
 *
 * @since 0.1.0
 */
import {
  constants,
  createCipheriv,
  createDecipheriv,
  createVerify,
  type KeyObject,
  privateDecrypt,
  publicEncrypt,
  sign,
  verify
} from "node:crypto"
import { Context, Effect, Layer, Result } from "effect"
import * as OwnedBytes from "../platform/OwnedBytes.ts"
import { byteLength, concat } from "./CellMessage.ts"
import { CipherError } from "./CipherError.ts"

/**
 * Bytes that protection adds to a payload; no envelope is shorter.
 *
 * @category constants
 * @since 0.1.0
 */
export const overhead = 541

const version = 1
const nonceBytes = 12
const rsaBytes = 256
const tagBytes = 16
const contentKeyBytes = 32
const saltLength = 222

const wrappedAt = 1 + nonceBytes
const signatureAt = wrappedAt + rsaBytes
const sealedAt = signatureAt + rsaBytes

/**
 * A key for payloads, and the same wrapped for one receiver.
 *
 * @category models
 * @since 0.1.0
 */
export interface ContentKey {
  /** 32 bytes. */
  readonly key: Uint8Array
  /** 256 bytes. */
  readonly wrapped: Uint8Array
}

/**
 * An envelope cut into its fields, as views.
 *
 * @category models
 * @since 0.1.0
 */
export interface Envelope {
  readonly nonce: Uint8Array
  readonly wrapped: Uint8Array
  readonly signature: Uint8Array
  /** The ciphertext, the tag behind it. */
  readonly sealed: Uint8Array
}

const refused = (stage: CipherError["stage"], message: string) => new CipherError({ stage, message })

/**
 * Cuts an envelope. Needs no key. Fails with stage `length` or `version`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const parse = (envelope: Uint8Array): Result.Result<Envelope, CipherError> => {
  if (envelope.byteLength < overhead) {
    return Result.fail(
      refused("length", `${envelope.byteLength} bytes are no protected payload: ${overhead} is the least`)
    )
  }
  if (envelope[0] !== version) {
    return Result.fail(refused("version", `a protected payload of version ${envelope[0]} is not known: ${version} is`))
  }
  return Result.succeed({
    nonce: envelope.subarray(1, wrappedAt),
    wrapped: envelope.subarray(wrappedAt, signatureAt),
    signature: envelope.subarray(signatureAt, sealedAt),
    sealed: envelope.subarray(sealedAt)
  })
}

/**
 * Wraps a content key for the holder of an RSA key of 2048 bits. Fails with stage `seal`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const wrap = (key: Uint8Array, receiver: KeyObject): Result.Result<ContentKey, CipherError> =>
  Result.flatMap(
    Result.try({
      try: () => publicEncrypt({ key: receiver, padding: constants.RSA_PKCS1_OAEP_PADDING, oaepHash: "sha256" }, key),
      catch: (error) => refused("seal", `the content key can't be wrapped for its receiver: ${String(error)}`)
    }),
    (wrapped) =>
      wrapped.byteLength === rsaBytes
        ? Result.succeed({ key, wrapped })
        : Result.fail(refused("seal", `the receiver's key has ${wrapped.byteLength * 8} bits: 2048 is the only size`))
  )

/**
 * Unwraps a content key. Which step failed is not told. Fails with stage `unwrap`.
 *
 * @category combinators
 * @since 0.1.0
 */
export const unwrap = (wrapped: Uint8Array, receiver: KeyObject): Result.Result<ContentKey, CipherError> =>
  Result.try({
    try: () =>
      privateDecrypt({ key: receiver, padding: constants.RSA_PKCS1_OAEP_PADDING, oaepHash: "sha256" }, wrapped),
    catch: () => refused("unwrap", notForUs)
  }).pipe(
    Result.filterOrFail(
      (key) => key.byteLength === contentKeyBytes,
      () => refused("unwrap", notForUs)
    ),
    Result.map((key) => ({ key, wrapped }))
  )

const notForUs = "the content key is not wrapped for this cell's certificate, or is no key for AES-256"

const pssOf = (key: KeyObject) => ({ key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength })

/** Version and wrapped key: what the cipher authenticates beside the payload. */
const associatedData = (wrapped: Uint8Array): Uint8Array => {
  const data = new Uint8Array(1 + rsaBytes)
  data[0] = version
  data.set(wrapped, 1)
  return data
}

/** Everything that is signed, in one buffer: head, ciphertext, tag. */
const encrypt = (content: ContentKey, nonce: Uint8Array, clear: ReadonlyArray<Uint8Array>): Uint8Array => {
  const signed = new Uint8Array(signatureAt + byteLength(clear) + tagBytes)
  signed[0] = version
  signed.set(nonce, 1)
  signed.set(content.wrapped, wrappedAt)
  const cipher = createCipheriv("aes-256-gcm", content.key, nonce, { authTagLength: tagBytes })
  cipher.setAAD(associatedData(content.wrapped))
  let at = signatureAt
  for (const piece of clear) {
    const part = cipher.update(piece)
    signed.set(part, at)
    OwnedBytes.free(part)
    at += piece.byteLength
  }
  cipher.final()
  signed.set(cipher.getAuthTag(), at)
  return signed
}

/**
 * Decrypts what lies in an envelope whose signature is known to be good. The memory of what it answers is the caller's.
 * Fails with stage `gcm`.
 *
 * @category combinators
 * @since 0.1.0
 */
export const decrypt = ({ key }: ContentKey, envelope: Envelope): Result.Result<Uint8Array, CipherError> => {
  const { nonce, sealed, wrapped } = envelope
  const tagAt = sealed.byteLength - tagBytes
  return Result.try({
    try: () => {
      const decipher = createDecipheriv("aes-256-gcm", key, nonce, { authTagLength: tagBytes })
      decipher.setAAD(associatedData(wrapped))
      decipher.setAuthTag(sealed.subarray(tagAt))
      const clear = decipher.update(sealed.subarray(0, tagAt))
      decipher.final()
      // A Buffer's slices would be views.
      return new Uint8Array(clear.buffer, clear.byteOffset, clear.byteLength)
    },
    catch: () => refused("gcm", "the payload was not sealed with the key that came with it")
  })
}

/** What is signed of an envelope, in pieces: all but the signature. */
const signedPieces = ({ nonce, sealed, wrapped }: Envelope): ReadonlyArray<Uint8Array> => [
  Uint8Array.of(version),
  nonce,
  wrapped,
  sealed
]

type Sign = (key: KeyObject, data: Uint8Array) => Effect.Effect<Uint8Array, CipherError>
type Verify = (key: KeyObject, data: ReadonlyArray<Uint8Array>, signature: Uint8Array) => Effect.Effect<boolean>

const cantSign = (error: unknown) => refused("seal", `the own private key can't sign: ${String(error)}`)

const signInline: Sign = (key, data) => Effect.try({ try: () => sign("sha256", data, pssOf(key)), catch: cantSign })

const verifyInline: Verify = (key, data, signature) =>
  Effect.sync(() =>
    Result.getOrElse(
      Result.try(() => {
        const hash = createVerify("sha256")
        for (const piece of data) hash.update(piece)
        return hash.verify(pssOf(key), signature)
      }),
      () => false
    )
  )

/** A call that reports by a callback, or throws at once when it does not like its arguments. */
const inPool = <A, E>(
  call: (done: (error: Error | null, value: A) => void) => void,
  failed: (error: unknown) => Effect.Effect<A, E>
): Effect.Effect<A, E> =>
  Effect.callback((resume) => {
    const started = Result.try(() =>
      call((error, value) => resume(error === null ? Effect.succeed(value) : failed(error)))
    )
    if (Result.isFailure(started)) {
      resume(failed(started.failure))
    }
  })

const signInPool: Sign = (key, data) =>
  inPool<Uint8Array, CipherError>(
    (done) => sign("sha256", data, pssOf(key), done),
    (error) => Effect.fail(cantSign(error))
  )

const verifyInPool: Verify = (key, data, signature) =>
  inPool(
    (done) => verify("sha256", concat(data), pssOf(key), signature, done),
    () => Effect.succeed(false)
  )

/**
 * A payload, protected.
 *
 * @category models
 * @since 0.1.0
 */
export interface Sealed {
  /** The envelope. */
  readonly pieces: ReadonlyArray<Uint8Array>
  /** Frees its memory at once: nobody may look at the pieces any more. Nobody has to call it. */
  readonly release: () => void
}

/**
 * Seals payloads and judges signatures: the work of which most is RSA and hashing.
 *
 * @category models
 * @since 0.1.0
 */
export interface Cipher {
  /**
   * Protects a payload, given in pieces that must not be changed before the end. The nonce, 12 bytes, must never be
   * used twice with a key. Fails with stage `seal`.
   */
  readonly seal: (
    sender: KeyObject,
    content: ContentKey,
    nonce: Uint8Array,
    clear: ReadonlyArray<Uint8Array>
  ) => Effect.Effect<Sealed, CipherError>
  /** Whether the holder of `sender` signed the envelope, with a salt of 222 bytes. */
  readonly isSignedBy: (envelope: Envelope, sender: KeyObject) => Effect.Effect<boolean>
}

const make = (signing: Sign, verifying: Verify): Cipher => ({
  seal: Effect.fnUntraced(function* (sender, content, nonce, clear) {
    const signed = yield* Effect.try({
      try: () => encrypt(content, nonce, clear),
      catch: (error) => refused("seal", `the payload can't be encrypted: ${String(error)}`)
    })
    const signature = yield* signing(sender, signed)
    if (signature.byteLength !== rsaBytes) {
      const bits = signature.byteLength * 8
      return yield* refused("seal", `the own key has ${bits} bits: protected messages are made with 2048`)
    }
    return {
      pieces: [signed.subarray(0, signatureAt), signature, signed.subarray(signatureAt)],
      release: () => OwnedBytes.free(signed)
    }
  }),
  isSignedBy: (envelope, sender) => Effect.suspend(() => verifying(sender, signedPieces(envelope), envelope.signature))
})

const inline = make(signInline, verifyInline)

/**
 * How a cell seals and judges. Without a layer it is done where it is asked for, at once, so that it takes no time of a
 * TestClock.
 *
 * @category services
 * @since 0.1.0
 */
export class MessageCipher extends Context.Reference<Cipher>("fl-attach/cell/MessageCipher", {
  defaultValue: () => inline
}) {
  /**
   * Done at once, by the thread that runs everything else.
   *
   * @since 0.1.0
   */
  static readonly layerInline: Layer.Layer<never> = Layer.succeed(MessageCipher, inline)

  /**
   * Hashing, signing and verifying are done by Node's thread pool: for services that move large models, on machines
   * with several cores. A TestClock does not wait for it.
   *
   * @since 0.1.0
   */
  static readonly layerThreadPool: Layer.Layer<never> = Layer.sync(MessageCipher, () => make(signInPool, verifyInPool))
}
