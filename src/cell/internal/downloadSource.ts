import { Clock, Deferred, Duration, Effect, type Scope, Stream } from "effect"
import type { SecureRandom } from "effect/crypto/SecureRandom"
import type { CellReply, Handler } from "../CellTypes.ts"
import type { Offer, OfferOptions, TransferOutcome } from "../DownloadTypes.ts"
import type { TransferProgress } from "../TransferProgress.ts"
import { chunkAt, type Dot, offerable } from "./downloadItems.ts"
import { optionalMillis, type Settings } from "./downloadSettings.ts"
import { judge, makeRef, type Ref, type Transaction } from "./downloadTransaction.ts"
import { isFalsy, type ReceiverStatus } from "./downloadWire.ts"
import { streamFailed } from "./errors.ts"

export interface SourceOptions {
  readonly fqcn: string
  readonly settings: Settings
  readonly random: SecureRandom["Service"]
  readonly publish: (event: TransferProgress) => void
  readonly transfers: Stream.Stream<TransferProgress>
}

/** Serves the arrays that a cell has on offer; docs/wire/fobs.md, sections 7.2 to 7.5. */
export interface Source {
  readonly offer: (options: OfferOptions) => Effect.Effect<Offer, never, Scope.Scope>
  readonly handle: Handler
  /** How many downloads are on offer. */
  readonly size: () => number
}

interface Finished {
  readonly statuses: ReadonlyMap<string, ReceiverStatus>
  readonly until: number
}

const retention = 1_800_000
const maxFinished = 10_000
/** Names are a peer's words: so many are kept in mind, beside those that are expected. */
const maxReceivers = 256
/** A receiver that confirms nothing gets so long to take its last reply before the source may go. */
const legacyWait = Duration.seconds(5)

const ok = (payload?: unknown): CellReply => ({ returnCode: "ok", payload: payload ?? null })
const invalidRequest: CellReply = { returnCode: "invalid_request", payload: null }
const processException: CellReply = { returnCode: "process_exception", payload: null }

const status = (word: string) => new Map<string, unknown>([["status", word]])

export const makeSource = Effect.fnUntraced(function* (
  options: SourceOptions
): Effect.fn.Return<Source, never, Scope.Scope> {
  const { fqcn, publish, random, settings, transfers } = options
  const clock = yield* Clock.Clock
  const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
  const refs = new Map<string, Ref>()
  const finished = new Map<string, Finished>()

  const remember = (ref: Ref) => {
    const time = now()
    for (const [id, { until }] of finished) {
      if (until > time && finished.size < maxFinished) {
        break
      }
      finished.delete(id)
    }
    finished.set(ref.id, { statuses: ref.statuses, until: time + retention })
  }

  const report = (ref: Ref, receiver: string, state: TransferProgress["state"]) => {
    const { bytes, items } = ref.reached.get(receiver) ?? { bytes: 0, items: 0 }
    publish({
      direction: "send",
      peer: receiver,
      refId: ref.id,
      bytes,
      totalBytes: ref.totalBytes,
      items,
      state
    })
  }

  const settle = (tx: Transaction, doneStatus: TransferOutcome["doneStatus"]): void => {
    if (tx.isDone) {
      return
    }
    tx.isDone = true
    const outcome = judge(tx, doneStatus)
    for (const ref of tx.refs.values()) {
      refs.delete(ref.id)
      if (doneStatus === "finished") {
        remember(ref)
      }
      for (const receiver of ref.reached.keys()) {
        if (!ref.statuses.has(receiver)) {
          report(ref, receiver, outcome.status)
        }
      }
      ref.release()
    }
    Deferred.doneUnsafe(tx.outcome, Effect.succeed(outcome))
  }

  const settleIfFinal = (tx: Transaction): void => {
    if (tx.isFinal()) {
      settle(tx, "finished")
    }
  }

  /** The first word about a receiver is the last. */
  const finalize = (ref: Ref, receiver: string, word: ReceiverStatus): boolean => {
    if (ref.statuses.has(receiver)) {
      return false
    }
    ref.statuses.set(receiver, word)
    report(ref, receiver, word === "success" ? "completed" : "failed")
    return true
  }

  // ---- Time.

  /** When something ends by itself, in milliseconds of the clock. */
  const enforce = (tx: Transaction): number => {
    const time = now()
    let next = tx.lastActive + tx.idleTimeout
    for (const receiver of tx.expected) {
      if ([...tx.refs.values()].every((ref) => ref.statuses.has(receiver))) {
        continue
      }
      const last = tx.activity.get(receiver)
      const limit = last === undefined ? tx.acquireTimeout : tx.receiverIdleTimeout
      if (limit === undefined) {
        continue
      }
      const end = (last ?? tx.created) + limit
      if (end > time) {
        next = Math.min(next, end)
      } else {
        for (const ref of tx.refs.values()) {
          finalize(ref, receiver, "failed")
        }
      }
    }
    settleIfFinal(tx)
    // A receiver that begins meanwhile has its whole idle time before it.
    return Math.min(next, time + (tx.receiverIdleTimeout ?? Number.POSITIVE_INFINITY))
  }

  const watch = Effect.fnUntraced(function* (tx: Transaction) {
    while (!tx.isDone) {
      const next = enforce(tx)
      const time = now()
      if (tx.isDone) {
        return
      }
      if (time >= tx.lastActive + tx.idleTimeout) {
        settle(tx, "timeout")
      } else {
        yield* Effect.sleep(Duration.millis(next - time))
      }
    }
  })

  // ---- Requests.

  const serve = Effect.fnUntraced(function* (
    ref: Ref,
    receiver: string,
    request: ReadonlyMap<unknown, unknown>
  ): Effect.fn.Return<CellReply> {
    const { tx } = ref
    if (!tx.expected.has(receiver) && !tx.activity.has(receiver) && tx.activity.size >= maxReceivers) {
      return invalidRequest
    }
    tx.touch(receiver, now())
    const chunk = chunkAt(request.get("state"), ref.size, ref.item, tx.chunkSize)
    switch (chunk.kind) {
      case "refused": {
        yield* Effect.logWarning(`${fqcn}: a request of ${receiver} for ${ref.id} can't be served: ${chunk.why}`)
        return processException
      }
      case "end":
        return yield* serveEnd(ref, receiver, settings.confirm && !isFalsy(request.get("confirm_capable")))
      default: {
        const items = chunk.items.length
        ref.advance(receiver, chunk.start + items)
        report(ref, receiver, "active")
        yield* Effect.forkIn(ref.prepare(chunk.start + items), tx.scope)
        return ok(
          new Map<string, unknown>([
            ["status", "ok"],
            [
              "state",
              new Map([
                ["start", chunk.start],
                ["count", items]
              ])
            ],
            ["data", chunk.items],
            ["cancel_capable", true]
          ])
        )
      }
    }
  })

  const serveEnd = Effect.fnUntraced(function* (ref: Ref, receiver: string, confirms: boolean) {
    const end = status("eof")
    if (!confirms) {
      const { tx } = ref
      if (finalize(ref, receiver, "success") && tx.isFinal()) {
        // Nobody will confirm: what waits for the outcome must not take the cell down before this reply has left.
        yield* Effect.sleep(legacyWait).pipe(
          Effect.andThen(Effect.sync(() => settleIfFinal(tx))),
          Effect.raceFirst(Deferred.await(tx.outcome)),
          Effect.forkIn(tx.scope)
        )
      }
      return ok(end)
    }
    const nonce = (yield* random.uuidV4()).replaceAll("-", "")
    // The receiver may have become final meanwhile.
    if (!ref.statuses.has(receiver)) {
      ref.nonces.set(receiver, nonce)
      end.set("confirm_expected", true).set("confirm_nonce", nonce)
    }
    return ok(end)
  })

  const confirm = (ref: Ref | undefined, receiver: string, word: unknown, nonce: unknown): void => {
    const isWord = word === "success" || word === "failed"
    if (ref === undefined || !isWord || typeof nonce !== "string" || ref.nonces.get(receiver) !== nonce) {
      return
    }
    if (finalize(ref, receiver, word)) {
      ref.tx.lastActive = now()
      settleIfFinal(ref.tx)
    }
  }

  const cancel = (ref: Ref | undefined, receiver: string): void => {
    if (ref?.tx.activity.has(receiver) !== true) {
      return
    }
    for (const each of ref.tx.refs.values()) {
      finalize(each, receiver, "failed")
    }
    settleIfFinal(ref.tx)
  }

  const late = (refId: string, receiver: string): CellReply => {
    const known = finished.get(refId)
    const word = known === undefined || known.until < now() ? undefined : known.statuses.get(receiver)
    return word === undefined ? invalidRequest : ok(status(word === "success" ? "eof" : "error"))
  }

  const handle: Handler = ({ origin, payload }) =>
    Effect.suspend(() => {
      if (!(payload instanceof Map)) {
        return Effect.fail(streamFailed(origin, `a download request of ${origin} is no dict`))
      }
      const request: ReadonlyMap<unknown, unknown> = payload
      const refId = request.get("ref_id")
      if (typeof refId !== "string" || refId === "") {
        return Effect.succeed(invalidRequest)
      }
      const ref = refs.get(refId)
      const word = request.get("confirm")
      if (word !== undefined && word !== null) {
        confirm(ref, origin, word, request.get("confirm_nonce"))
        return Effect.succeed(ok())
      }
      if (request.get("cancel") === true) {
        cancel(ref, origin)
        return Effect.succeed(ok())
      }
      return ref === undefined ? Effect.succeed(late(refId, origin)) : serve(ref, origin, request)
    })

  // ---- Offers.

  const offer: Source["offer"] = Effect.fn("Cell.offer")(function* (given) {
    const scope = yield* Effect.scope
    const ids: Record<Dot, string> = { 3: yield* random.uuidV4(), 6: yield* random.uuidV4() }
    const threshold = given.threshold ?? settings.threshold
    let room = Math.min(given.inlineBytes ?? 0, settings.maxInlineBytes)
    const hasRoom = room > 0
    const tx = yield* Effect.acquireRelease(
      Effect.sync(() => makeTransaction(given, scope)),
      (tx) => Effect.sync(() => settle(tx, "deleted"))
    )
    yield* watch(tx).pipe(Effect.raceFirst(Effect.asVoid(Deferred.await(tx.outcome))), Effect.forkScoped)

    const refOf = (dot: Dot): Ref => {
      const known = tx.refs.get(dot)
      if (known !== undefined) {
        return known
      }
      const ref = makeRef(tx, ids[dot], dot)
      tx.refs.set(dot, ref)
      refs.set(ref.id, ref)
      return ref
    }

    return {
      references: {
        add: (dot, value) => {
          const array = tx.isDone || tx.chunkSize <= 0 ? undefined : offerable(dot, value)
          const size = array?.bytes.length ?? 0
          const isInline = hasRoom ? size <= room : size < threshold
          room -= isInline ? size : 0
          return array === undefined || isInline ? undefined : refOf(dot).add(array)
        },
        downloads: () => Array.from(tx.refs.values(), ({ dot, id }) => ({ dot, fqcn, refId: id }))
      },
      hasTransfers: Effect.sync(() => tx.refs.size > 0),
      isPending: Effect.sync(() => tx.refs.size > 0 && !tx.isDone),
      served: Effect.sync(() => tx.served),
      outcome: Deferred.await(tx.outcome),
      progress: Stream.interruptWhen(
        Stream.filter(transfers, ({ refId }) => refId === ids[3] || refId === ids[6]),
        Deferred.await(tx.outcome)
      )
    }
  })

  const makeTransaction = (given: OfferOptions, scope: Scope.Scope): Transaction => {
    const time = now()
    const tx: Transaction = {
      scope,
      expected: new Set(given.receivers),
      chunkSize: given.chunkSize ?? settings.chunkSize,
      idleTimeout: optionalMillis(given.idleTimeout) ?? settings.idleTimeout,
      acquireTimeout: optionalMillis(given.receiverAcquireTimeout) ?? settings.receiverAcquireTimeout,
      receiverIdleTimeout: optionalMillis(given.receiverIdleTimeout) ?? settings.receiverIdleTimeout,
      created: time,
      lastActive: time,
      served: 0,
      activity: new Map(),
      refs: new Map(),
      outcome: Deferred.makeUnsafe(),
      isDone: false,
      touch: (receiver, at) => {
        tx.lastActive = at
        tx.served += 1
        tx.activity.set(receiver, at)
      },
      isFinal: () =>
        tx.expected.size > 0 &&
        tx.refs.size > 0 &&
        [...tx.refs.values()].every(({ statuses }) => [...tx.expected].every((receiver) => statuses.has(receiver)))
    }
    return tx
  }

  return { offer, handle, size: () => refs.size }
})
