/** The captured exchanges, with our trainer in the place of the reference's. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as ClientApi from "../../src/clientapi/ClientApi.ts"
import { FLModel } from "../../src/model/FLModel.ts"
import * as TestTrainer from "../../src/testing/TestTrainer.ts"
import * as Trainer from "../../src/trainer/Trainer.ts"
import { exactly, filled, load, losslessCodec, outline, valueOf } from "./fixtures.ts"
import { advance, makeJob, modelOf, settle } from "./support.ts"

const { Topic } = ClientApi

interface Event {
  readonly seq: number
  readonly dir: string
  readonly via: "core" | "stream" | "handler"
  readonly kind: "request" | "oneway"
  readonly topic: string
  readonly payload: { readonly [key: string]: unknown }
  readonly raw_b64?: string
  readonly reply: {
    readonly headers: { readonly [name: string]: unknown }
    readonly payload: { readonly [key: string]: unknown } | null
    readonly raw_b64?: string
  } | null
}

interface Transcript {
  readonly name: string
  /** Answers that are not compared. */
  readonly except?: (event: Event) => boolean
}

const transcripts: ReadonlyArray<Transcript> = [
  { name: "happy_inline_tcp" },
  { name: "happy_small_tcp" },
  { name: "happy_small_file" },
  { name: "happy_large_tcp" },
  { name: "happy_large_file" },
  { name: "trainer_first_file" },
  { name: "diff" },
  { name: "metrics_only" },
  { name: "heartbeats" },
  { name: "lost_task_reply" },
  { name: "lost_result_reply" },
  { name: "abort_round" },
  // An aborted trainer can't fetch the next model (comm_error); one that comes inside the message it refuses itself.
  { name: "abort_then_next", except: ({ reply }) => reply?.headers.cn__return_code !== "ok" },
  { name: "paused_trainer" },
  { name: "reconnect_tcp" },
  // The question to the first trainer was answered by the second, which had no session yet.
  { name: "reconnect_file", except: ({ reply }) => reply?.payload?.reply_topic === ClientApi.ReplyTopic.error },
  { name: "reject_attach_id" },
  { name: "reject_version" }
]

/** How far the trainer was is a matter of chance, and texts are for people. */
const volatile: ReadonlySet<string> = new Set(["task_state", "result_source_live", "reason"])

const isFromTrainer = ({ dir }: Event) => dir.split("->")[0]?.includes("-client_api_") === true

/** Each life of a trainer: from a SESSION_OPEN that it accepted to before the next, or the only refused one. */
const livesOf = (events: ReadonlyArray<Event>): ReadonlyArray<ReadonlyArray<Event>> => {
  const lives: Array<Array<Event>> = []
  for (const event of events) {
    if (!event.topic.startsWith("client_api.")) continue
    const isOpen = event.topic === Topic.sessionOpen.topic
    if (isOpen && event.reply?.headers.cn__return_code !== "ok") continue
    if (lives.length === 0 || (isOpen && event.reply?.payload?.reply_topic === ClientApi.ReplyTopic.sessionAccepted)) {
      lives.push([])
    }
    lives.at(-1)?.push(event)
  }
  return lives
}

const exactPayload = ({ payload, raw_b64 }: Event): unknown =>
  raw_b64 === undefined ? valueOf(payload) : filled(exactly(raw_b64), valueOf(payload))

const entriesOf = (body: unknown) => {
  assert.isTrue(body instanceof Map, "a body is a map")
  return [...(body as Map<string, unknown>)]
}

/** Replaces ids that the trainer made itself by their place among those of the same kind. */
const outlined = (body: unknown, own: ReadonlyMap<string, unknown>) =>
  entriesOf(body).map(([key, value]) => [
    key,
    own.has(key) ? `own ${key}` : volatile.has(key) ? typeof value : outline(value)
  ])

const play = Effect.fnUntraced(function* (transcript: Transcript, life: ReadonlyArray<Event>) {
  const job = yield* makeJob({ codec: losslessCodec })
  const spoken = life.filter(isFromTrainer)
  const of = (topic: string) => spoken.filter((event) => event.topic === topic)
  const results = of(Topic.resultReady.topic)

  const train = (index: number) => {
    const event = results[index]
    if (event === undefined) return Effect.never
    const sent = modelOf(valueOf(event.payload.result))
    const { meta, metrics, params, startRound } = sent
    return Effect.succeed(
      new FLModel({
        meta,
        ...(params === undefined ? {} : { params }),
        ...(metrics === undefined ? {} : { metrics }),
        ...(startRound === undefined ? {} : { startRound })
      })
    )
  }

  // Our ids take the place of the recorded ones in the recorded answers.
  const replaced = new Map<unknown, unknown>()
  for (const address of [Topic.resultReady, Topic.resultStatus, Topic.resultSourceSettled, Topic.heartbeat]) {
    job.answer(address, (body, index) => {
      const event = of(address.topic)[index]
      if (event === undefined) return Effect.never
      for (const key of ["result_id", "attempt_id"]) {
        if (body.has(key)) replaced.set(event.payload[key], body.get(key))
      }
      const { headers, payload } = event.reply ?? assert.fail("an answer was recorded")
      const answer = Object.entries(payload ?? {}).map(([key, value]) => [key, replaced.get(value) ?? value] as const)
      return Effect.succeed({
        returnCode: String(headers.cn__return_code),
        ...(payload === null ? {} : { payload: new Map(answer) })
      })
    })
  }

  // Its cell stays until the end, as that of a program whose session is over and which goes on.
  let tasks = 0
  const profile = TestTrainer.profile({ attachId: String(life[0]?.dir.split("-client_api_")[1]) })
  const trainer = yield* job.attaching(profile)
  yield* Fiber.join(trainer.session).pipe(
    Effect.flatMap((session) => Trainer.serveTasks(session, () => train(tasks++))),
    Effect.exit,
    Effect.forkScoped
  )
  const target = `site-1.-client_api_${profile.attachId}`
  yield* settle

  let heartbeats = 0
  for (const [index, event] of life.entries()) {
    if (isFromTrainer(event)) {
      if (event.topic === Topic.heartbeat.topic) {
        heartbeats += 1
        if (job.heard(Topic.heartbeat).length < heartbeats) yield* advance("500 millis")
      }
      continue
    }
    // What the trainer had said by then, it has said now.
    for (const address of [Topic.resultReady, Topic.resultStatus, Topic.resultSourceSettled]) {
      const count = life.slice(0, index).filter((each) => isFromTrainer(each) && each.topic === address.topic).length
      if (count > 0) yield* job.message(address, count - 1)
    }
    const mode = event.via === "core" ? ("plain" as const) : ("stream" as const)
    const address = { channel: ClientApi.channel, topic: event.topic }
    if (event.kind === "oneway") {
      yield* job.cell.send(target, address, exactPayload(event))
      yield* settle
      continue
    }
    const asking = yield* Effect.forkChild(
      Effect.exit(job.cell.request(target, address, exactPayload(event), { timeout: 2000, mode }))
    )
    const recorded = event.reply
    if (recorded?.raw_b64 === undefined || transcript.except?.(event) === true) {
      yield* settle
      continue
    }
    const reply = yield* yield* Fiber.join(asking)
    assert.strictEqual(reply.returnCode, recorded.headers.cn__return_code, `event ${event.seq}`)
    const none = new Map<string, unknown>()
    assert.deepStrictEqual(
      outlined(reply.payload, none),
      outlined(exactly(recorded.raw_b64), none),
      `the answer to event ${event.seq}, ${event.topic}`
    )
  }
  yield* settle

  const own = new Map([
    ["result_id", 1],
    ["attempt_id", 1]
  ])
  for (const address of [Topic.resultReady, Topic.resultStatus, Topic.resultSourceSettled]) {
    const recorded = of(address.topic)
    const heard = job.heard(address)
    assert.strictEqual(heard.length, recorded.length, `messages of ${address.topic}`)
    for (const [index, event] of recorded.entries()) {
      assert.deepStrictEqual(
        outlined(heard[index]?.body, own),
        outlined(exactly(event.raw_b64 ?? assert.fail("the bytes were recorded")), own),
        `${address.topic}, number ${index}`
      )
    }
  }
  const [beat] = of(Topic.heartbeat.topic)
  if (beat !== undefined) {
    assert.deepStrictEqual(
      outlined(job.heard(Topic.heartbeat)[0]?.body, own),
      outlined(exactly(beat.raw_b64 ?? assert.fail("the bytes were recorded")), own)
    )
  }
  yield* trainer.close
})

describe("captured exchanges, in the trainer's place", () => {
  it.effect.each(transcripts)("$name", (transcript) =>
    Effect.gen(function* () {
      const lives = livesOf(load(transcript.name).events)
      assert.isNotEmpty(lives)
      for (const life of lives) yield* play(transcript, life)
    })
  )
})
