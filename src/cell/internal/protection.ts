import type { KeyObject } from "node:crypto"
import { Duration, Effect, type Scope } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import type { CheckedCertificate } from "../../identity/CertificateChain.ts"
import * as OwnedBytes from "../../platform/OwnedBytes.ts"
import type { CellCredentials } from "../CellCredentials.ts"
import * as CellMessage from "../CellMessage.ts"
import type { ProtectionSettings } from "../CellOptions.ts"
import * as CertificateExchange from "../CertificateExchange.ts"
import { CipherError } from "../CipherError.ts"
import type { CoreCell } from "../CoreCell.ts"
import { MessageCipher } from "../MessageCipher.ts"
import type { Protection } from "../Protection.ts"
import { protectionFailed } from "./errors.ts"
import { makeKeyring } from "./Keyring.ts"
import { makeRefusals } from "./refusals.ts"

const { header } = CellMessage

/** What is smaller is not worth the while; the chunks of streams have 1 MiB. */
const lentBytes = 64 * 1024

export const makeProtection = Effect.fnUntraced(function* (
  core: Pick<CoreCell, "fqcn" | "request">,
  random: SecureRandom["Service"],
  credentials: CellCredentials,
  settings: ProtectionSettings
): Effect.fn.Return<Protection, never, Scope.Scope> {
  const { fqcn } = core
  const timeout = Duration.fromInputUnsafe(settings.exchangeTimeout ?? CertificateExchange.defaultTimeout)
  const keyring = makeKeyring(yield* MessageCipher, random, {
    rotateMessages: settings.rotateMessages ?? 2 ** 20,
    rotateAfter: Duration.fromInputUnsafe(settings.rotateAfter ?? "1 hour"),
    repeatMemory: settings.repeatMemory ?? 65_536,
    refuseReflections: settings.refuseReflections ?? true
  })
  const exchange = yield* CertificateExchange.make({
    fqcn,
    credentials,
    onRefused: makeRefusals(fqcn).count,
    request: (target, pieces) =>
      core.request(target, CellMessage.keyExchangeAddress, { encoded: { encoding: "fobs", pieces }, timeout })
  })

  // A renewed certificate does not make the former key useless: peers may not have heard of it yet.
  let keys: ReadonlyArray<KeyObject> = []
  const ownKeys = () => {
    const { privateKey } = credentials.current()
    if (keys[0] !== privateKey) {
      keys = [privateKey, ...keys].slice(0, 2)
    }
    return keys
  }
  ownKeys()

  const seal: Protection["seal"] = Effect.fnUntraced(function* (target, headers, payload) {
    const receiver = yield* exchange.forSealing(target)
    headers.set(header.encrypted, true)
    headers.set(header.clearPayloadLength, CellMessage.byteLength(payload))
    return yield* Effect.mapError(
      keyring.seal(credentials.current().privateKey, receiver, payload),
      ({ message, stage }) => protectionFailed(target, stage, `no protected message can go to ${target}: ${message}`)
    )
  })

  const refusal = (origin: string) => (error: CipherError) =>
    protectionFailed(origin, error.stage, `a protected message of ${origin} is refused: ${error.message}`)

  const tryWith = (message: CellMessage.IncomingMessage, senders: ReadonlyArray<CheckedCertificate>) =>
    Effect.filterOrFail(
      keyring.open(message.payload, senders, ownKeys()),
      ({ clear }) => CellMessage.int(message.headers, header.clearPayloadLength) === clear.byteLength,
      () => new CipherError({ stage: "length", message: "its clear length is not the one declared" })
    )

  const open: Protection["open"] = Effect.fnUntraced(function* (message) {
    const origin = CellMessage.text(message.headers, header.origin)
    const known = yield* exchange.forOpening(origin)
    const opened = yield* tryWith(message, known.certificates).pipe(
      Effect.mapError(refusal(origin)),
      // A certificate that was merely shown in its name may not be the sender's: it is asked before it is given up.
      Effect.catchReason("CellError", "ProtectionFailed", (reason, error) =>
        known.isCertain || reason.stage !== "signature"
          ? Effect.fail(error)
          : Effect.flatMap(exchange.askInDoubt(origin), (certificate) =>
              Effect.mapError(tryWith(message, [certificate]), refusal(origin))
            )
      )
    )
    exchange.proved(origin, opened.sender)
    const headers = new Map(message.headers)
    headers.delete(header.encrypted)
    const { clear } = opened
    const lent = clear.byteLength < lentBytes ? {} : { release: () => OwnedBytes.free(clear) }
    return { headers, payload: clear, isProtected: true, ...lent }
  })

  const isKnown: Protection["isKnown"] = (origin) =>
    Effect.map(exchange.forOpening(origin), ({ isCertain }) => isCertain)

  return { seal, open, isKnown, exchange: exchange.answer }
})
