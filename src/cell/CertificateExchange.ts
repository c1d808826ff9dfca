/**
 * Whose certificate belongs to which cell: asked for when it is needed, checked before it is believed.
 *
 * What is known of a cell is graded. A certificate that somebody showed in a cell's name may be anybody's: certificates
 * are public, and a name is only a word in a header. One that came in answer to a question of our own is better. One
 * whose key has signed a message of that cell is proven. A lesser one never replaces a better one, so a bad answer, or a
 * foreign certificate shown in a peer's name, does no harm to what works.
 *
 * Source: docs/wire/security.md, sections 4 and 9.
 *
 * @since 0.1.0
 */
import { Clock, Deferred, Duration, Effect, FiberSet, Result, type Scope } from "effect"
import * as Fobs from "../fobs/Fobs.ts"
import * as CertificateChain from "../identity/CertificateChain.ts"
import { CertificateError } from "../identity/CertificateError.ts"
import * as CertificateIdentity from "../identity/CertificateIdentity.ts"
import type { CellCredentials } from "./CellCredentials.ts"
import type { CellError } from "./CellError.ts"
import * as CellMessage from "./CellMessage.ts"
import type { CellReply } from "./CellTypes.ts"
import { peerFailed, protectionFailed, unreachable } from "./internal/errors.ts"

type Certificate = CertificateChain.CheckedCertificate

/**
 * How certificates are exchanged.
 *
 * @category models
 * @since 0.1.0
 */
export interface ExchangeOptions {
  readonly fqcn: string
  readonly credentials: CellCredentials
  /** Sends the clear request of the exchange, its payload in pieces, and answers what came back. */
  readonly request: (
    target: string,
    payload: ReadonlyArray<Uint8Array>
  ) => Effect.Effect<CellMessage.IncomingMessage, CellError>
  /** Told of certificates that others show in vain: the kind of what is wrong with them, and all in words. */
  readonly onRefused: (kind: string, why: string) => Effect.Effect<void>
}

/**
 * The certificates of a cell's peers.
 *
 * @category models
 * @since 0.1.0
 */
export interface CertificateExchange {
  /** The certificate to protect a message for; asks the peer for it when it has not answered yet. */
  readonly forSealing: (target: string) => Effect.Effect<Certificate, CellError>
  /**
   * The certificates by one of which a message may be signed, the best first. Certain: the peer has shown one of them
   * when it was asked, or has proved it.
   */
  readonly forOpening: (
    origin: string
  ) => Effect.Effect<{ readonly certificates: ReadonlyArray<Certificate>; readonly isCertain: boolean }>
  /** Asks a cell that seems to have sent a protected message; not again and again. */
  readonly askInDoubt: (origin: string) => Effect.Effect<Certificate, CellError>
  /** A message of `origin` was signed by the certificate's key. */
  readonly proved: (origin: string, certificate: Certificate) => void
  /** Answers another cell's request; `undefined`: not at all. */
  readonly answer: (message: CellMessage.IncomingMessage) => Effect.Effect<CellReply | undefined>
}

const trust = { shown: 0, answered: 1, proved: 2 } as const

interface Candidate {
  readonly certificate: Certificate
  trust: number
}

interface Known {
  candidates: ReadonlyArray<Candidate>
  /** The fingerprint of the own certificate that the peer was shown last. */
  introduced: string
}

/** Candidates for one cell. */
const maxCandidates = 4
const maxCells = 4096
/** Questions to cells that merely claimed to have sent a protected message. */
const maxDoubtful = 64
/** After a failure such a cell is not asked again for so long. */
const doubtMillis = 1000
const maxPayloadBytes = 256 * 1024

// Core types only: no type of an application is made from what anybody may send.
const codec = Fobs.make()

const isValidAt = (now: number) => (certificate: Certificate) =>
  Result.isSuccess(CertificateChain.checkValidity(certificate, now))

const fieldsOf = (message: CellMessage.IncomingMessage): ReadonlyMap<unknown, unknown> | undefined => {
  const isFobs = CellMessage.text(message.headers, CellMessage.header.payloadEncoding) === "fobs"
  if (!isFobs || message.payload.byteLength > maxPayloadBytes) return undefined
  const fields = Result.flatMap(codec.parse(message.payload), (sections) => codec.decode(sections))
  return Result.isSuccess(fields) && fields.success instanceof Map ? fields.success : undefined
}

/**
 * Makes the exchange of a cell; questions under way end with the Scope.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fnUntraced(function* (
  options: ExchangeOptions
): Effect.fn.Return<CertificateExchange, never, Scope.Scope> {
  const { credentials, fqcn } = options
  const fibers = yield* FiberSet.make<unknown, unknown>()
  const cells = new Map<string, Known>()
  const asking = new Map<string, Deferred.Deferred<Certificate, CellError>>()
  const doubted = new Map<string, number>()
  let doubtful = 0

  const knownOf = (name: string): Known => {
    const known = cells.get(name) ?? { candidates: [], introduced: "" }
    cells.delete(name)
    cells.set(name, known)
    for (const oldest of cells.keys()) {
      if (cells.size <= maxCells) break
      cells.delete(oldest)
    }
    return known
  }

  const remember = (name: string, certificate: Certificate, grade: number) => {
    const known = knownOf(name)
    const same = known.candidates.find((other) => other.certificate.fingerprint === certificate.fingerprint)
    const candidate = { certificate, trust: Math.max(grade, same?.trust ?? 0) }
    const others = known.candidates.filter((other) => other !== same)
    known.candidates = [candidate, ...others].sort((a, b) => b.trust - a.trust).slice(0, maxCandidates)
  }

  const valid = (name: string, now: number): ReadonlyArray<Candidate> => {
    const isValid = isValidAt(now)
    return (cells.get(name)?.candidates ?? []).filter(({ certificate }) => isValid(certificate))
  }

  /** Chain, validity, key and name, all before anything is remembered. */
  const judge = (name: string, pem: unknown, now: number): Result.Result<Certificate, CertificateError> =>
    Result.gen(function* () {
      if (!(pem instanceof Uint8Array)) {
        return yield* Result.fail(new CertificateError({ kind: "pem", message: "cert_content holds no bytes" }))
      }
      const certificate = yield* CertificateChain.check(pem, credentials.current().root, now)
      yield* CertificateChain.checkKey(certificate.publicKey)
      if (credentials.rules !== undefined) {
        yield* Result.mapError(
          CertificateIdentity.check(credentials.rules, name, certificate.commonName),
          ({ message }) => new CertificateError({ kind: "name", message })
        )
      }
      return certificate
    })

  const own = () => {
    const { certificate, checked, root } = credentials.current()
    const payload = new Map<string, unknown>([
      ["cert_content", certificate],
      ["cert_ca_content", root]
    ])
    return { fingerprint: checked.fingerprint, payload }
  }

  const learn = Effect.fnUntraced(function* (target: string, message: CellMessage.IncomingMessage) {
    const failed = (stage: string, why: string) =>
      Effect.fail(protectionFailed(target, stage, `no protected message can go to ${target}: ${why}`))
    if (CellMessage.text(message.headers, CellMessage.header.messageType) === "return") {
      const by = CellMessage.text(message.headers, CellMessage.header.origin)
      return yield* Effect.fail(
        unreachable(target, `${by} can't forward to ${target}: it is not connected there (yet)`)
      )
    }
    const code = CellMessage.text(message.headers, CellMessage.header.returnCode)
    if (code !== "ok") {
      const { topic } = CellMessage.keyExchangeAddress
      return yield* Effect.fail(peerFailed(target, topic, `${target} refuses the exchange of certificates (${code})`))
    }
    const fields = fieldsOf(message)
    if (fields === undefined) return yield* failed("exchange", "its answer to the exchange of certificates is broken")
    const error = fields.get("cert_error")
    if (error !== undefined) return yield* failed("exchange", `it has no certificate (${String(error).slice(0, 200)})`)
    const judged = judge(target, fields.get("cert_content"), yield* Clock.currentTimeMillis)
    return Result.isFailure(judged)
      ? yield* failed(judged.failure.kind, `its certificate is refused: ${judged.failure.message}`)
      : judged.success
  })

  const question = Effect.fnUntraced(function* (target: string) {
    const { fingerprint, payload } = own()
    const pieces = yield* Effect.orDie(Effect.fromResult(codec.encode(payload)))
    const certificate = yield* Effect.flatMap(options.request(target, pieces), (reply) => learn(target, reply))
    remember(target, certificate, trust.answered)
    knownOf(target).introduced = fingerprint
    return certificate
  })

  /** One question at a time to each cell, on a fiber of its own: who waits may go away. */
  const ask = (target: string): Effect.Effect<Certificate, CellError> =>
    Effect.suspend(() => {
      const under = asking.get(target)
      if (under !== undefined) return Deferred.await(under)
      const answer = Deferred.makeUnsafe<Certificate, CellError>()
      asking.set(target, answer)
      const asked = Effect.onExit(question(target), (exit) =>
        Effect.sync(() => {
          asking.delete(target)
          Deferred.doneUnsafe(answer, exit)
        })
      )
      return Effect.andThen(FiberSet.run(fibers, asked), Deferred.await(answer))
    })

  const forSealing: CertificateExchange["forSealing"] = Effect.fnUntraced(function* (target) {
    const [best] = valid(target, yield* Clock.currentTimeMillis)
    const isIntroduced = cells.get(target)?.introduced === credentials.current().checked.fingerprint
    return best !== undefined && best.trust >= trust.answered && isIntroduced ? best.certificate : yield* ask(target)
  })

  const monotonicMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6)

  /** Asks a cell of which there is no more than a header's word that it sent something. */
  const askInDoubt: CertificateExchange["askInDoubt"] = Effect.fnUntraced(function* (origin) {
    const until = doubted.get(origin)
    if (until !== undefined && (yield* monotonicMillis) < until) {
      return yield* Effect.fail(protectionFailed(origin, "exchange", `${origin} has just failed to show a certificate`))
    }
    if (doubtful >= maxDoubtful && !asking.has(origin)) {
      return yield* Effect.fail(protectionFailed(origin, "exchange", `too many cells are being asked for certificates`))
    }
    doubtful += 1
    return yield* ask(origin).pipe(
      Effect.tapError(() =>
        Effect.map(monotonicMillis, (now) => {
          if (doubted.size >= maxCells) doubted.clear()
          doubted.set(origin, now + doubtMillis)
        })
      ),
      Effect.tap(() => Effect.sync(() => doubted.delete(origin))),
      Effect.ensuring(
        Effect.sync(() => {
          doubtful -= 1
        })
      )
    )
  })

  const forOpening: CertificateExchange["forOpening"] = (origin) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      const candidates = valid(origin, now)
      return {
        certificates: candidates.map(({ certificate }) => certificate),
        isCertain: candidates.some((candidate) => candidate.trust >= trust.answered)
      }
    })

  const proved: CertificateExchange["proved"] = (origin, certificate) => {
    const [best] = cells.get(origin)?.candidates ?? []
    if (best?.certificate !== certificate || best.trust !== trust.proved) {
      remember(origin, certificate, trust.proved)
    }
  }

  const answer: CertificateExchange["answer"] = Effect.fnUntraced(function* (message) {
    const origin = CellMessage.text(message.headers, CellMessage.header.origin)
    const fields = fieldsOf(message)
    if (fields === undefined) {
      yield* Effect.logDebug(`${fqcn}: ${origin} asked for a certificate in a way that can't be read`)
      return undefined
    }
    const judged = judge(origin, fields.get("cert_content"), yield* Clock.currentTimeMillis)
    if (Result.isFailure(judged)) {
      const { kind, message: why } = judged.failure
      yield* options.onRefused(kind, `the certificate that ${origin} shows: ${why}`)
      return { returnCode: "process_exception" }
    }
    remember(origin, judged.success, trust.shown)
    const { fingerprint, payload } = own()
    knownOf(origin).introduced = fingerprint
    return { returnCode: "ok", payload }
  })

  return { forSealing, forOpening, askInDoubt, proved, answer }
})

/**
 * How long a cell waits for another's certificate. The reference has no such bound but that of all requests, an hour.
 *
 * @category constants
 * @since 0.1.0
 */
export const defaultTimeout: Duration.Duration = Duration.seconds(10)
