import { createHash } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { downloadAddress } from "../../src/cell/internal/downloadWire.ts"
import type { Codec } from "../../src/fobs/Fobs.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import * as Npz from "../../src/fobs/Npz.ts"
import { DownloadRef } from "../../src/fobs/Values.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import { Shareable } from "../../src/model/Shareable.ts"
import { clean, duo, type Exchange, loadExchange, type RecordedArray, type RecordedMessage } from "./downloads.ts"

const names = ["exch_task_small", "exch_task_multichunk", "exch_task_20m", "exch_result_diff", "exch_result_20m"]

/** Bytes that go out as they are, said to be a FOBS message. */
class Recorded {
  readonly bytes: Uint8Array
  constructor(bytes: Uint8Array) {
    this.bytes = bytes
  }
}

const codec: Codec = {
  ...ModelCodec.codec,
  encode: (value, options) =>
    value instanceof Recorded ? Result.succeed([value.bytes]) : ModelCodec.codec.encode(value, options)
}

const decode = (bytes: Uint8Array): unknown => Result.getOrThrow(codec.decode(bytes, { items: "keep" }))
const encode = (value: unknown): Uint8Array => Buffer.concat(Result.getOrThrow(codec.encode(value)))

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex")

/** The message that refers to arrays, its answer, and what was said in between. */
const split = ({ messages }: Exchange) => {
  const [message, ...rest] = messages
  const answer = rest.pop()
  assert(message !== undefined && answer !== undefined)
  return { message, answer, between: rest }
}

const isReply = ({ channel }: RecordedMessage): boolean => channel === "return_only"

const paramsOf = (payload: unknown): ReadonlyMap<unknown, unknown> => {
  assert.instanceOf(payload, Map)
  const shareable = payload.get("model") ?? payload.get("result")
  assert.instanceOf(shareable, Shareable)
  const dxo = shareable.entries.get("DXO")
  assert.instanceOf(dxo, Map)
  const params = dxo.get("data")
  assert.instanceOf(params, Map)
  return params
}

const checkParams = (params: ReadonlyMap<unknown, unknown>, exchange: Exchange, where: string): void => {
  assert.deepStrictEqual(
    [...params.keys()],
    exchange.params.v.map(([key]) => key.v)
  )
  for (const [key, expected] of exchange.params.v) {
    const array = params.get(key.v)
    assert.instanceOf(array, NdArray, where)
    const inC = array.toC()
    const told: RecordedArray = {
      dtype: array.dtype,
      shape: array.shape,
      fortran: array.order === "F",
      sha256: sha256(inC.bytes)
    }
    const { dtype, fortran, shape, sha256: hash } = expected
    assert.deepStrictEqual(told, { dtype, shape, fortran, sha256: hash }, `${where}: ${key.v}`)
  }
}

const other = { server: "site-1", "site-1": "server" } as const
const roles = (exchange: Exchange, ends: Effect.Success<ReturnType<typeof duo>>) => {
  assert(exchange.source === "server" || exchange.source === "site-1")
  assert.strictEqual(exchange.receiver, other[exchange.source])
  return exchange.source === "server"
    ? { source: ends.server, receiver: ends.site }
    : { source: ends.site, receiver: ends.server }
}

describe("recorded downloads", () => {
  for (const name of names) {
    it.effect(`${name}: our receiver asks the recorded source as the recorded receiver did`, () =>
      clean(
        Effect.gen(function* () {
          const exchange = loadExchange(name)
          const { answer, between, message } = split(exchange)
          const { receiver, source } = roles(exchange, yield* duo({ server: { codec }, site: { codec } }))
          const expected = between.filter((each) => !isReply(each))
          const replies = new Map(between.filter(isReply).map((reply) => [reply.headers.sm__ri, reply]))
          const heard: Array<Uint8Array> = []
          yield* source.cell.handle(downloadAddress, ({ headers, payload }) =>
            Effect.sync(() => {
              const next = expected[heard.length]
              assert.isDefined(next, `${name}: one request more than recorded`)
              heard.push(encode(payload))
              assert.strictEqual(headers.has("sm__ri"), next.headers.sm__ri !== undefined)
              const reply = replies.get(next.headers.sm__ri)
              return reply === undefined ? undefined : { returnCode: "ok", payload: new Recorded(reply.bytes) }
            })
          )
          const topic = { channel: message.channel, topic: message.topic }
          yield* receiver.cell.handle(topic, ({ payload }) =>
            Effect.sync(() => {
              checkParams(paramsOf(payload), exchange, name)
              return { returnCode: "ok", payload: decode(answer.bytes) }
            })
          )
          const reply = yield* source.cell.request(exchange.receiver, topic, new Recorded(message.bytes), {
            timeout: "30 seconds"
          })
          assert.deepStrictEqual(reply.payload, decode(answer.bytes))
          assert.deepStrictEqual(
            heard.map((bytes) => Buffer.from(bytes).toString("hex")),
            expected.map(({ bytes }) => Buffer.from(bytes).toString("hex"))
          )
        })
      )
    )

    it.effect(`${name}: our source answers the recorded receiver as the recorded source did`, () =>
      clean(
        Effect.gen(function* () {
          const exchange = loadExchange(name)
          const { answer, between, message } = split(exchange)
          const { receiver, source } = roles(exchange, yield* duo())
          const items = new Map<string, unknown>()
          for (const reply of between.filter(isReply)) {
            const value = decode(reply.bytes)
            assert.instanceOf(value, Map)
            for (const item of (value.get("data") as ReadonlyArray<Uint8Array> | undefined) ?? []) {
              for (const [id, array] of Result.getOrThrow(Npz.decode(item))) {
                items.set(id, array)
              }
            }
          }
          const model = Result.getOrThrow(codec.decode(message.bytes, { items: new Map([[3, items]]) }))
          checkParams(paramsOf(model), exchange, name)

          const offer = yield* source.cell.offer({ receivers: [exchange.receiver], threshold: 0 })
          // The receiver fetches by hand.
          receiver.hooks.resolve = () => Effect.succeed({ items: "keep", settle: () => Effect.void })
          const topic = { channel: message.channel, topic: message.topic }
          yield* receiver.cell.handle(topic, ({ payload }) =>
            Effect.gen(function* () {
              const ref = [...paramsOf(payload).values()][0]
              assert.instanceOf(ref, DownloadRef)
              let nonce: unknown
              for (const [index, each] of between.entries()) {
                if (isReply(each)) continue
                const request = decode(each.bytes)
                assert.instanceOf(request, Map)
                request.set("ref_id", ref.refId)
                if (request.has("confirm")) {
                  request.set("confirm_nonce", nonce)
                  yield* receiver.cell.send(exchange.source, downloadAddress, request)
                  continue
                }
                const reply = yield* receiver.cell.request(exchange.source, downloadAddress, request, {
                  timeout: "30 seconds"
                })
                assert.strictEqual(reply.returnCode, "ok")
                const expected = decode(between[index + 1]?.bytes ?? new Uint8Array())
                assert(reply.payload instanceof Map && expected instanceof Map)
                assert.deepStrictEqual([...reply.payload.keys()], [...expected.keys()])
                for (const [key, value] of expected) {
                  const got = reply.payload.get(key)
                  if (key === "data") {
                    assert.deepStrictEqual(got.map(sha256), value.map(sha256))
                  } else if (key === "confirm_nonce") {
                    nonce = got
                  } else {
                    assert.deepStrictEqual(got, value)
                  }
                }
              }
              return { returnCode: "ok", payload: decode(answer.bytes) }
            })
          )
          // Only the id of the download tells our message from the recorded one.
          const pieces = Result.getOrThrow(codec.encode(model, { references: offer.references }))
          assert.deepStrictEqual(
            Buffer.from(Result.getOrThrow(codec.parse(Buffer.concat(pieces))).body).toString("hex"),
            Buffer.from(Result.getOrThrow(codec.parse(message.bytes)).body).toString("hex")
          )
          yield* source.cell.request(exchange.receiver, topic, model, {
            timeout: "30 seconds",
            references: offer.references
          })
          const { doneStatus, reason, status, transfers } = yield* offer.outcome
          const [expected] = exchange.outcome
          assert.deepStrictEqual(
            [status, reason, doneStatus, transfers.map(({ receivers }) => Object.fromEntries(receivers))],
            [
              expected?.status,
              expected?.reason,
              expected?.done_status,
              expected?.refs.map(({ receiver_statuses }) => receiver_statuses)
            ]
          )
        })
      )
    )
  }
})
