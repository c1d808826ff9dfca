import { createHash } from "node:crypto"
import { readFileSync } from "node:fs"
import { assert } from "@effect/vitest"
import { Clock, Duration, Effect, Exit, Layer, Result, Scope, Stream } from "effect"
import { SecureRandom } from "effect/crypto"
import { TestClock } from "effect/testing"
import type { StreamSettings } from "../../src/cell/ByteStream.ts"
import type { CellReply, CellRequest, Handler } from "../../src/cell/Cell.ts"
import { type CellEngine, makeEngine } from "../../src/cell/internal/CellEngine.ts"
import { streamFailed } from "../../src/cell/internal/errors.ts"
import * as Msgpack from "../../src/fobs/Msgpack.ts"
import { Float } from "../../src/fobs/Values.ts"
import { Drivers } from "../../src/transport/Drivers.ts"
import * as MemoryDriver from "../../src/transport/MemoryDriver.ts"
import { type Heard, puppet, type Typed } from "./puppet.ts"
import { settle as quiet } from "./support.ts"

// ---- What the fixtures hold (test/fixtures/cellnet/README.md).

interface FixtureFrame {
  readonly n: number
  readonly t: number
  readonly from: string
  readonly to: string | null
  readonly kind: string
  readonly headers?: ReadonlyArray<{ readonly key: string } & Typed>
  readonly headers_hex?: string
  readonly payload: { readonly length: number; readonly sha256?: string; readonly hex?: string }
}

interface FixtureCall {
  readonly cell: string
  readonly call?: { readonly [key: string]: unknown }
  readonly outcome?: { readonly ok?: unknown }
}

export interface Fixture {
  readonly name: string
  readonly calls: ReadonlyArray<FixtureCall>
  readonly frames: ReadonlyArray<FixtureFrame>
  readonly sender_config_env?: { readonly [key: string]: string }
}

const load = (name: string): Fixture =>
  JSON.parse(readFileSync(new URL(`../fixtures/cellnet/${name}.json`, import.meta.url), "utf8"))

const det = (n: number, seed = 0): Uint8Array =>
  Uint8Array.from({ length: n }, (_, i) => (31 * i + 7 + seed + (i >> 8)) & 255)

/** A payload as the calls of the fixtures write it. */
const payloadOf = (json: unknown): unknown => {
  if (Array.isArray(json)) {
    return json.map(payloadOf)
  }
  if (typeof json === "object" && json !== null) {
    const { _det, seed } = json as { readonly _det?: number; readonly seed?: number }
    return _det === undefined
      ? new Map(Object.entries(json).map(([key, value]) => [key, payloadOf(value)]))
      : det(_det, seed)
  }
  return json
}

/** What a long payload consists of: bytes of the blob of one of the calls. */
const bodyOf = (fixture: Fixture, frame: FixtureFrame): Uint8Array => {
  const { hex, length, sha256 } = frame.payload
  if (hex !== undefined || length === 0) {
    return new Uint8Array(Buffer.from(hex ?? "", "hex"))
  }
  const blobs = fixture.calls.flatMap(({ call }) => {
    const given = call?.payload as
      | { readonly _det?: number; readonly blob?: { readonly _det: number; readonly seed: number } }
      | null
      | undefined
    if (given?.blob !== undefined) {
      return [Result.getOrThrow(fobs(payloadOf(given)))]
    }
    return given?._det === undefined ? [] : [det(given._det)]
  })
  const offset = Number(frame.headers?.find(({ key }) => key === "sm__os")?.value ?? 0)
  for (const blob of blobs) {
    const body = blob.subarray(offset, offset + length)
    if (createHash("sha256").update(body).digest("hex") === sha256) {
      return body
    }
  }
  throw new Error(`${fixture.name}: the payload of frame ${frame.n} is unknown`)
}

const fobs = (value: unknown): Result.Result<Uint8Array, unknown> =>
  Result.map(Msgpack.encode(value), (body) => {
    const head = new Uint8Array(10)
    head[0] = 100
    new DataView(head.buffer).setBigUint64(2, BigInt(body.length))
    return Buffer.concat([head, body])
  })

// ---- The live cell and what stands behind its topics.

const named = (name: string, message: string): Error => Object.assign(new Error(message), { name })

const isStreamed = (request: CellRequest): boolean => request.headers.has("sm__id")

const topics = (): ReadonlyMap<string, Handler> => {
  const reply =
    (reply: CellReply | undefined): Handler =>
    () =>
      Effect.succeed(reply)
  return new Map<string, Handler>([
    ["echo", ({ payload }) => Effect.succeed({ returnCode: "", headers: new Map([["x_app", "h"]]), payload })],
    ["none", reply(undefined)],
    ["raise", () => Effect.die(named("ValueError", "boom"))],
    [
      "auth",
      (request) =>
        isStreamed(request)
          ? Effect.die(named("AuthenticationError", "no"))
          : Effect.succeed({ returnCode: "authentication_error" })
    ],
    [
      "notmsg",
      (request) =>
        Effect.succeed(isStreamed(request) ? undefined : { returnCode: "process_exception", error: "bad cb result" })
    ],
    ["slow", () => Effect.as(Effect.sleep("1500 millis"), { returnCode: "", payload: new Map([["slow", true]]) })],
    ["rc", reply({ returnCode: "invalid_request", error: "bad thing", payload: new Map([["why", "x"]]) })],
    ["ok_none", reply({ returnCode: "ok" })],
    ["async", () => Effect.as(Effect.sleep("200 millis"), { returnCode: "", payload: new Map([["async", 1]]) })]
  ])
}

const serve = Effect.fnUntraced(function* (engine: CellEngine) {
  for (const [topic, handler] of topics()) {
    yield* engine.cell.handle({ channel: "client_command", topic }, handler)
    yield* engine.cell.handle({ channel: "vec_ch", topic }, handler)
  }
  yield* engine.streams.handle({ channel: "vec_stream", topic: "raw" }, ({ read }) =>
    Effect.gen(function* () {
      while ((yield* read) !== undefined) {
        // To the end.
      }
    })
  )
  yield* engine.streams.handle({ channel: "vec_stream", topic: "refuse" }, ({ origin, read }) =>
    Effect.andThen(read, Effect.fail(streamFailed(origin, "the consumer refuses")))
  )
})

/** Does what the fixture's test did, and tells how it ended: a return code, or the tag of the error. */
const perform = Effect.fnUntraced(function* (engine: CellEngine, call: { readonly [key: string]: unknown }) {
  const address = { channel: String(call.channel ?? "vec_stream"), topic: String(call.topic) }
  const headers = new Map(Object.entries((call.headers as object | undefined) ?? {}))
  const optional = call.optional === true
  const payload = payloadOf(call.payload ?? null)
  const targets = call.target === undefined ? (call.targets as ReadonlyArray<string>) : [String(call.target)]
  const ask = (mode: "plain" | "stream") => (target: string) =>
    Effect.map(
      engine.cell.request(target, address, payload, {
        timeout: Duration.seconds(Number(call.timeout ?? 10)),
        mode,
        optional,
        headers
      }),
      (reply) => reply.returnCode
    )
  const tell = (target: string) => Effect.as(engine.cell.send(target, address, payload, { optional, headers }), "")
  const stream = (target: string) =>
    Effect.as(
      engine.streams.send(target, address, [det(Number(call.n))], {
        headers,
        reliable: call.reliable === true,
        ...(call.size === undefined ? {} : { size: Number(call.size) })
      }),
      "ok"
    )
  const operations: Record<string, (target: string) => Effect.Effect<string, unknown>> = {
    core_request: ask("plain"),
    cell_request: ask("stream"),
    cell_broadcast: ask("stream"),
    core_faf: tell,
    cell_faf: tell,
    stream
  }
  const operation = operations[String(call.op)]
  assert.isDefined(operation, `the test can do ${call.op}`)
  return yield* Effect.forEach(
    targets,
    (target) =>
      Effect.catch(operation(target), (error) =>
        Effect.succeed((error as { readonly reason: { readonly _tag: string } }).reason._tag)
      ),
    { concurrency: "unbounded" }
  )
})

const settingsOf = (fixture: Fixture): Partial<StreamSettings> => {
  const env = fixture.sender_config_env ?? {}
  const number = (name: string) => {
    const text = env[`NVFLARE_STREAMING_${name}`]
    return text === undefined ? undefined : Number(text)
  }
  const seconds = (name: string) => {
    const value = number(name)
    return value === undefined ? undefined : Duration.seconds(value)
  }
  const given = {
    chunkSize: number("CHUNK_SIZE"),
    windowSize: number("WINDOW_SIZE"),
    ackInterval: number("ACK_INTERVAL"),
    retryWait: seconds("RETRY_WAIT"),
    retryTimeout: seconds("RETRY_TIMEOUT"),
    maxBlobSize: number("MAX_BLOB_SIZE")
  }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
}

// ---- The comparison.

const ids: ReadonlySet<string> = new Set(["cn__req_id", "sm__id", "sm__ri"])
const times: ReadonlySet<string> = new Set(["cn__send_time", "cn__route", "cn__original_headers", "sm__em"])

const at = (headers: Map<string, Typed>, key: string): unknown => headers.get(key)?.value

const expectedHeaders = (frame: FixtureFrame): Map<string, Typed> =>
  new Map((frame.headers ?? []).map(({ key, type, value }) => [key, { type, value }]))

const isAckOf = (me: string, headers: Map<string, Typed>): boolean =>
  at(headers, "cn__topic") === "sm__ACK" && at(headers, "cn__origin") === me && !headers.has("sm__em")

const signature = (hop: string | null, headers: Map<string, Typed>): string =>
  JSON.stringify([
    hop,
    ...[
      "cn__msg_type",
      "cn__origin",
      "cn__destination",
      "cn__channel",
      "cn__topic",
      "sm__ch",
      "sm__tp",
      "sm__dt",
      "sm__sq"
    ].map((key) => at(headers, key)),
    at(headers, "cn__topic") === "sm__ACK" ? at(headers, "sm__os") : null
  ])

const shape = (headers: Map<string, Typed>): Record<string, string> =>
  Object.fromEntries([...headers].map(([key, { type }]) => [key, type] as const).sort(([a], [b]) => (a < b ? -1 : 1)))

const routeNames = (value: unknown): unknown => (Array.isArray(value) ? value.map((hop) => hop[0]) : value)

export interface ReplayOptions {
  /** Frames that the live cell never gets, as the fixture's filter swallowed them. */
  readonly lose?: (headers: Map<string, Typed>, count: number) => boolean
  /** Frames of the live cell that are not compared: where it differs on purpose. */
  readonly except?: (headers: Map<string, Typed>) => boolean
  /** False where threads decide which acknowledgements there are at all. */
  readonly acks?: boolean
  readonly byeTimeout?: Duration.Input
  /** What the live cell is asked to do, where the fixture doesn't list it. */
  readonly calls?: ReadonlyArray<{ readonly [key: string]: unknown }>
  readonly prepare?: (engine: CellEngine) => Effect.Effect<void, never, Scope.Scope>
}

/**
 * Plays the frames of everybody else to a live cell that has the place of `me`, performs the calls of `me`, and
 * compares what the cell sends with what the reference sent.
 */
export const replay = Effect.fnUntraced(function* (name: string, me: string, options: ReplayOptions = {}) {
  const fixture = load(name)
  const label = `${name} as ${me}`
  const driver = yield* MemoryDriver.makeNetwork()
  const drivers = Layer.merge(
    Layer.succeed(Drivers, Drivers.of({ forUrl: () => Effect.succeed(driver) })),
    SecureRandom.layerWebCrypto
  )
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  const engine = yield* makeEngine({
    fqcn: me,
    streaming: settingsOf(fixture),
    byeTimeout: options.byeTimeout ?? 0
  }).pipe(Effect.provide(drivers), Scope.provide(scope))
  yield* Scope.provide(serve(engine), scope)
  if (options.prepare !== undefined) {
    yield* Scope.provide(options.prepare(engine), scope)
  }
  const heard: Array<Heard> = []
  const url = "memory://site-1"
  const names = me === "site-1" ? ["site-1.job1", "site-1.-client_api_x"] : ["site-1"]
  const puppets = new Map<
    string,
    { readonly say: (headers: ReadonlyMap<string, unknown>, payload: Uint8Array) => Effect.Effect<void, unknown> }
  >()
  if (me === "site-1") {
    yield* Scope.provide(engine.cell.listen(url), scope)
    for (const name of names) {
      puppets.set(name, yield* puppet(yield* driver.connect(url), name, heard, true))
    }
  } else {
    const listener = yield* driver.listen(url)
    yield* Scope.provide(engine.cell.connect(url), scope)
    puppets.set("site-1", yield* puppet(yield* listener.accept, "site-1", heard, false))
  }
  for (const name of names) {
    yield* Stream.runHead(Stream.filter(engine.cell.connected(name), (up) => up))
  }

  const outcomes: Array<ReadonlyArray<string>> = []
  const listed = fixture.calls.flatMap(({ call, cell }) => (cell === me && call !== undefined ? [call] : []))
  const own = options.calls ?? listed
  yield* Effect.gen(function* () {
    for (const call of own) {
      if (call.op === "stop") {
        yield* Scope.close(scope, Exit.void)
        outcomes.push(["ok"])
      } else {
        outcomes.push(yield* perform(engine, call))
      }
    }
  }).pipe(Effect.forkScoped({ startImmediately: true }))

  const mine = new Map<unknown, unknown>()
  const foreign = new Set<unknown>()
  let waiting: Array<FixtureFrame> = []
  const taken = new Set<Heard>()
  const acks: Array<FixtureFrame> = []

  const compareIds = (expected: unknown, actual: unknown, key: string) => {
    for (const [index, value] of (Array.isArray(expected) ? expected : [expected]).entries()) {
      const got = Array.isArray(actual) ? actual[index] : actual
      if (foreign.has(value) || value === "") {
        assert.strictEqual(got, value, `${label}: ${key}`)
      } else if (mine.has(value)) {
        assert.strictEqual(got, mine.get(value), `${label}: ${key}`)
      } else {
        mine.set(value, got)
      }
    }
  }

  const compare = (frame: FixtureFrame, got: Heard) => {
    const where = `${label}, frame ${frame.n}`
    const expected = expectedHeaders(frame)
    assert.deepStrictEqual(shape(got.headers), shape(expected), where)
    const isDefaultInterval = fixture.sender_config_env === undefined || fixture.sender_config_env === null
    for (const [key, { value }] of expected) {
      const actual = at(got.headers, key)
      if (ids.has(key)) {
        compareIds(value, actual, `${where} ${key}`)
      } else if (key === "cn__route") {
        assert.deepStrictEqual(routeNames(actual), routeNames(value), where)
      } else if (key === "cn__error" && at(expected, "cn__return_code") === "authentication_error") {
        assert.isString(actual)
      } else if (!times.has(key) && !(key === "sm__ai" && isDefaultInterval)) {
        assert.deepStrictEqual(actual, value, `${where}: ${key}`)
      }
    }
    assert.strictEqual(got.payload.length, frame.payload.length, where)
    if (frame.payload.sha256 !== undefined) {
      assert.strictEqual(createHash("sha256").update(got.payload).digest("hex"), frame.payload.sha256, where)
    }
  }

  const settle = () => {
    const rest: Array<FixtureFrame> = []
    for (const frame of waiting) {
      const wanted = signature(frame.to, expectedHeaders(frame))
      const found = heard.find((got) => !taken.has(got) && signature(got.by, got.headers) === wanted)
      if (found === undefined) {
        rest.push(frame)
      } else {
        taken.add(found)
        compare(frame, found)
      }
    }
    waiting = rest
  }

  const translate = (value: unknown): unknown => {
    if (value instanceof Map) {
      return new Map([...value].map(([key, item]) => [key, translate(item)]))
    }
    return Array.isArray(value) ? value.map(translate) : mine.has(value) ? mine.get(value) : value
  }

  const begin = fixture.frames[0]?.t ?? 0
  const startedAt = yield* Clock.currentTimeMillis
  let lost = 0
  for (const frame of fixture.frames) {
    if (frame.kind !== "DATA") {
      continue
    }
    const elapsed = (yield* Clock.currentTimeMillis) - startedAt
    yield* TestClock.adjust(Duration.millis(Math.max(0, Math.ceil((frame.t - begin) * 1000) - elapsed)))
    const headers = expectedHeaders(frame)
    settle()
    if (frame.from === me) {
      if (isAckOf(me, headers)) {
        acks.push(frame)
      } else if (options.except?.(headers) !== true) {
        waiting.push(frame)
        settle()
      }
    } else if (frame.to === me) {
      for (const key of ids) {
        const value = at(headers, key)
        for (const id of Array.isArray(value) ? value : [value]) {
          if (!mine.has(id)) {
            foreign.add(id)
          }
        }
      }
      if (options.lose?.(headers, lost) === true) {
        lost += 1
        continue
      }
      const decoded = Result.getOrThrow(
        Msgpack.decode(new Uint8Array(Buffer.from(frame.headers_hex ?? "", "hex")))
      ) as Map<string, unknown>
      // Integral floats would turn into ints on their way through the test.
      for (const [key, { type }] of headers) {
        if (type === "float64") {
          decoded.set(key, new Float(Number(decoded.get(key))))
        }
      }
      yield* puppets.get(frame.from)?.say(translate(decoded) as Map<string, unknown>, bodyOf(fixture, frame)) ??
        Effect.void
      yield* quiet
    }
  }
  yield* TestClock.adjust("5 millis")
  settle()
  assert.deepStrictEqual(
    waiting.map(({ n }) => n),
    [],
    `${label}: frames of the reference that never came`
  )

  // Acknowledgements: how many and when is a matter of threads, but the last says the same, in the same form.
  const left = heard.filter((got) => !taken.has(got))
  const acked = new Map<unknown, { readonly last: readonly [number, number]; readonly shape: unknown }>()
  const note = (into: typeof acked, id: unknown, headers: Map<string, Typed>) => {
    const last = [Number(at(headers, "sm__os")), Number(at(headers, "sm__sq"))] as const
    const before = into.get(id)?.last ?? [-1, -1]
    into.set(id, { last: [Math.max(last[0], before[0]), Math.max(last[1], before[1])], shape: shape(headers) })
  }
  const expectedAcks: typeof acked = new Map()
  for (const frame of acks) {
    const headers = expectedHeaders(frame)
    note(expectedAcks, at(headers, "sm__id"), headers)
  }
  for (const got of left) {
    if (isAckOf(me, got.headers)) {
      note(acked, at(got.headers, "sm__id"), got.headers)
    }
  }
  if (options.acks !== false) {
    assert.deepStrictEqual([...acked].sort(), [...expectedAcks].sort(), `${label}: acknowledgements`)
  }
  const extra = left.filter((got) => !isAckOf(me, got.headers) && options.except?.(got.headers) !== true)
  assert.deepStrictEqual(
    extra.map((got) => Object.fromEntries([...got.headers].map(([key, { value }]) => [key, value]))),
    [],
    `${label}: frames that the reference did not send`
  )
  yield* TestClock.adjust("10 seconds")
  return { outcomes, engine, heard }
})
