/** Replays what a reference CJ and its trainer said to each other, with our backend in the CJ's place. */
import { readFileSync } from "node:fs"
import { assert } from "@effect/vitest"
import { Effect, Fiber, Result } from "effect"
import type { AttachOptions } from "../../src/attach/AttachConfig.ts"
import type { CellReply } from "../../src/cell/Cell.ts"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import type { Codec } from "../../src/fobs/Fobs.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { DownloadRef } from "../../src/fobs/Values.ts"
import * as ModelCodec from "../../src/model/ModelCodec.ts"
import { Header, Shareable } from "../../src/model/Shareable.ts"
import * as support from "./support.ts"

// ---- What the fixtures hold (docs/wire/attach.md, section 15).

interface Message {
  readonly begin: number
  readonly dir: string
  readonly kind: string
  readonly via: string
  readonly channel: string
  readonly topic: string
  readonly secure?: boolean
  readonly optional?: boolean
  readonly raw_b64?: string
  readonly reply?: {
    readonly headers?: { readonly cn__return_code?: string } | null
    readonly raw_b64?: string
    readonly payload?: unknown
  } | null
}

export interface Transcript {
  readonly cj: string
  readonly args: { readonly [name: string]: unknown }
  readonly events: ReadonlyArray<Message>
}

export const load = (name: string) =>
  JSON.parse(readFileSync(new URL(`../fixtures/attach/${name}.json`, import.meta.url), "utf8"))

const bytesOf = (base64: string | undefined): Uint8Array => new Uint8Array(Buffer.from(base64 ?? "", "base64"))

const decode = (bytes: Uint8Array, lossless = false): unknown =>
  Result.getOrThrow(ModelCodec.codec.decode(bytes, { items: "keep", lossless }))

/** A copy with every value replaced that `f` has something for. */
const mapDeep = (value: unknown, f: (value: unknown) => unknown): unknown => {
  const changed = f(value)
  if (changed !== undefined) return changed
  if (value instanceof Shareable) {
    return new Shareable(
      mapDeep(value.headers, f) as ReadonlyMap<string, unknown>,
      mapDeep(value.entries, f) as ReadonlyMap<unknown, unknown>
    )
  }
  if (value instanceof Map) return new Map([...value].map(([key, each]) => [key, mapDeep(each, f)]))
  return Array.isArray(value) ? value.map((each) => mapDeep(each, f)) : value
}

const isArray = (value: unknown) => value instanceof NdArray || value instanceof DownloadRef
/** References can't be fetched from a recording: a small array takes the place of each. */
const inline = (value: unknown) =>
  mapDeep(value, (each) => (each instanceof DownloadRef ? NdArray.fromTyped(new Float32Array(3)) : undefined))
const withoutArrays = (value: unknown) => mapDeep(value, (each) => (isArray(each) ? "an array" : undefined))

const hasReferences = (bytes: Uint8Array): boolean =>
  Result.getOrThrow(ModelCodec.codec.parse(bytes)).downloads.length > 0

const ids = ["session_id", "task_id", "attempt_id", "result_id", "accepted_attempt_id"]

const idsIn = (payload: unknown): ReadonlyArray<readonly [string, string]> =>
  payload instanceof Map
    ? ids.flatMap((key) => {
        const id = payload.get(key)
        return typeof id === "string" ? [[key, id] as const] : []
      })
    : []

// ---- Replaying.

const isFromJob = (transcript: Transcript, { dir }: Message) => dir.startsWith(`${transcript.cj}->`)
const code = (message: Message) => message.reply?.headers?.cn__return_code ?? ""
/** Nobody was there to hear it. */
const isUnheard = (message: Message) =>
  message.topic === "client_api.session_open" && ["target_unreachable", "comm_error"].includes(code(message))

const optionsOf = ({ args }: Transcript): AttachOptions => {
  const seconds = (value: unknown) => `${Number(value)} seconds`
  return {
    attachId: String(args.attach_id),
    heartbeatInterval: seconds(args.heartbeat_interval),
    heartbeatTimeout: seconds(args.heartbeat_timeout),
    allowReconnect: args.allow_reconnect === true,
    paramsTransferType: args.diff === true ? "DIFF" : "FULL",
    decodeGrace: "0 seconds",
    ...(args.attach_timeout === null ? {} : { attachTimeout: seconds(args.attach_timeout) })
  }
}

type Topic = Parameters<support.ScriptedTrainer["of"]>[0]
const requestTopics: ReadonlyArray<Topic> = ["sessionOpen", "taskReady", "taskStatus", "abort", "shutdown"]

export interface ReplayOptions {
  /** Messages of the reference's CJ that ours does not send, by place among those of their topic; said why. */
  readonly omitted?: Partial<Record<Topic, ReadonlyArray<number>>>
  /** Messages that ours sends beyond those of the recording. */
  readonly more?: Partial<Record<Topic, number>>
  /** Fields of SESSION_OPEN that the recording set wrong on purpose. */
  readonly overridden?: ReadonlyArray<string>
}

/** Replays a transcript and compares what our backend says; the value is how its tasks ended. */
export const replay = Effect.fnUntraced(function* (name: string, given: ReplayOptions = {}) {
  const transcript: Transcript = load(name)
  const messages = transcript.events.filter(({ channel }) => channel === "client_api")
  const ofJob = (topic: Topic) =>
    messages
      .filter((each) => isFromJob(transcript, each) && each.topic === ClientApi.Topic[topic].topic && !isUnheard(each))
      .filter((_, index) => given.omitted?.[topic]?.includes(index) !== true)

  /** The recording's ids to ours, and back. */
  const known = new Map<string, string>()
  const ours = (value: unknown) =>
    mapDeep(value, (each) => (typeof each === "string" ? (known.get(each) ?? each) : undefined))
  const learn = (theirs: unknown, mine: unknown) => {
    const seen = new Map(idsIn(mine))
    for (const [key, id] of idsIn(theirs)) {
      const own = seen.get(key)
      assert.isDefined(own, `${key} is missing`)
      assert.strictEqual(known.get(id) ?? own, own, `${key} changed`)
      known.set(id, own)
    }
  }

  // ---- What the trainer answers: what was answered to the same message of the recording.
  const dropped = Number(transcript.args.drop_task_reply ?? 0)
  const raws: Array<Uint8Array> = []
  const differences: Array<unknown> = []
  const codec: Codec = {
    ...ModelCodec.codec,
    parse: (bytes) => {
      raws.push(bytes)
      return ModelCodec.codec.parse(bytes)
    }
  }
  const compare = (topic: Topic, index: number, body: ReadonlyMap<unknown, unknown>) => {
    const recorded = ofJob(topic)[index]
    if (recorded === undefined) return
    const theirs = bytesOf(recorded.raw_b64)
    learn(decode(theirs), body)
    const wanted = ours(decode(theirs, true)) as Map<string, unknown>
    const raw = raws.findLast((bytes) => hasSession(bytes, body)) ?? new Uint8Array()
    const got = decode(raw, true) as Map<string, unknown>
    for (const key of given.overridden ?? []) {
      wanted.delete(key)
      got.delete(key)
    }
    const label = `${name}: ${topic} ${index}`
    assert.deepStrictEqual(withoutArrays(got), withoutArrays(wanted), label)
    assert.deepStrictEqual([...got.keys()], [...wanted.keys()], label)
    if (hasReferences(theirs) || given.overridden !== undefined) return
    let text = Buffer.from(theirs).toString("latin1")
    for (const [id, own] of known) text = text.replaceAll(id, own)
    assert.isTrue(text === Buffer.from(raw).toString("latin1"), `${label}: the bytes differ`)
  }
  const hasSession = (bytes: Uint8Array, body: ReadonlyMap<unknown, unknown>) => {
    const parsed = decode(bytes)
    return idsIn(body).every(([key, id]) => parsed instanceof Map && parsed.get(key) === id)
  }
  const answer = (topic: Topic) => {
    let turn = 0
    return (body: ReadonlyMap<unknown, unknown>): Effect.Effect<CellReply> => {
      const index = turn++
      const recorded = ofJob(topic)[index] ?? ofJob(topic).at(-1)
      // A difference thrown here would be an answer to the backend.
      try {
        compare(topic, index, body)
      } catch (difference) {
        differences.push(difference)
      }
      const lost: CellReply = { returnCode: "comm_error", error: "the recording lost it" }
      if (topic === "taskReady" && index < dropped) return Effect.succeed(lost)
      if (recorded === undefined || code(recorded) === "timeout") return Effect.never
      const payload = recorded.reply?.raw_b64
      return Effect.succeed({
        returnCode: code(recorded),
        ...(payload === undefined ? {} : { payload: ours(decode(bytesOf(payload))) })
      })
    }
  }

  // ---- The course of events.
  const { backend, close } = yield* support.openBackend(optionsOf(transcript))
  const fqcn = `site-1.-client_api_${String(transcript.args.attach_id)}`
  const answers = Object.fromEntries(requestTopics.map((topic) => [topic, answer(topic)]))
  let trainer: support.ScriptedTrainer | undefined
  const tasks: Array<Fiber.Fiber<Shareable, unknown>> = []
  const started = new Set<unknown>()
  let closing: Fiber.Fiber<void> | undefined
  let refused = Number(transcript.args.drop_result_reply ?? 0)

  const startTask = Effect.fnUntraced(function* (model: Shareable, taskName: string) {
    const headers = [...model.headers].filter(([key]) => key !== Header.jobId && key !== Header.siteName)
    const data = new Shareable(headers, model.entries)
    tasks.push(yield* support.start(backend, { name: taskName, data }))
  })

  /** What the recording's CJ did by itself, and what its job had it do. */
  const job = Effect.fnUntraced(function* (message: Message) {
    if (isUnheard(message)) return
    if (trainer === undefined) trainer = yield* support.startTrainer(answers, { fqcn, codec })
    const body = decode(bytesOf(message.raw_b64))
    assert.instanceOf(body, Map)
    const id = body.get("task_id")
    if (message.topic === "client_api.task_ready" && !started.has(id)) {
      started.add(id)
      yield* startTask(inline(body.get("model")) as Shareable, String(body.get("task_name")))
    } else if (message.topic === "client_api.abort") {
      const running = tasks.at(-1)
      if (running !== undefined) yield* Fiber.interrupt(running)
    } else if (message.topic === "client_api.shutdown") {
      closing = yield* close
    }
  })

  const said = Effect.fnUntraced(function* (message: Message) {
    if (trainer === undefined) return
    const body = ours(inline(decode(bytesOf(message.raw_b64))))
    const address = { channel: message.channel, topic: message.topic }
    if (message.kind === "oneway") return yield* Effect.orDie(trainer.cell.send(support.cjFqcn, address, body))
    const reply = yield* Effect.orDie(
      trainer.cell.request(support.cjFqcn, address, body, { timeout: "2 seconds", optional: message.optional ?? false })
    )
    if (message.topic === "client_api.result_ready" && refused > 0) {
      refused -= 1
      return
    }
    assert.strictEqual(reply.returnCode, code(message), `${name}: the answer to ${message.topic}`)
    const wanted = { ...Object.fromEntries(Object.entries(message.reply?.payload ?? {})) }
    const got = support.bodyOf(reply)
    assert.deepStrictEqual(Object.keys(got), Object.keys(wanted), message.topic)
    for (const each of [wanted, got]) delete each.reason
    assert.deepStrictEqual(got, Object.fromEntries(ours(new Map(Object.entries(wanted))) as Map<string, unknown>))
  })

  if (!messages.some(({ topic }) => topic === "client_api.task_ready")) {
    yield* startTask(new Shareable(), "train")
  }
  for (const message of messages) {
    const ahead = message.begin * 1000 - (yield* support.now)
    yield* support.pass(Math.max(0, Math.ceil(ahead)))
    yield* isFromJob(transcript, message) ? job(message) : said(message)
    yield* support.pass()
    if (differences.length > 0) throw differences[0]
  }
  yield* support.pass("20 seconds")
  if (closing === undefined) closing = yield* close
  yield* support.advance(Fiber.join(closing))

  for (const topic of requestTopics) {
    const heard = trainer === undefined ? 0 : trainer.of(topic).length
    assert.strictEqual(heard, ofJob(topic).length + (given.more?.[topic] ?? 0), `${name}: how many ${topic}`)
  }
  if (trainer !== undefined) yield* support.advance(trainer.stop)
  return yield* Effect.forEach(tasks, (task) =>
    Effect.map(Effect.exit(Fiber.join(task)), (exit) => (exit._tag === "Success" ? exit.value.returnCode : "failed"))
  )
})
