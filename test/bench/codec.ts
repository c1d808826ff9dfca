/** The codec beside @msgpack/msgpack on control messages, and large models through it. */
import { Decoder, Encoder } from "@msgpack/msgpack"
import { Result } from "effect"
import { Fobs, Msgpack, NdArray } from "fl-attach/fobs"
import { median, type Report, ratio, show, table } from "./report.ts"

/** Headers of a streamed request, and two payloads, as they are on the wire. */
const maps: ReadonlyArray<readonly [string, Record<string, unknown>]> = [
  [
    "stream headers",
    {
      cn__channel: "cellnet.stream",
      cn__topic: "data",
      cn__origin: "site-1.job-1",
      cn__destination: "site-1.ext_trainer_a",
      cn__from: "site-1.job-1",
      cn__to: "site-1.ext_trainer_a",
      cn__msg_type: "req",
      cn__payload_encoding: "bytes",
      cn__payload_len: 65_536,
      cn__reply_expected: false,
      sm__id: "5f0c1b7e-2a52-4cc2-b3ab-1f7c85a1a0b7",
      sm__sq: 17,
      sm__os: 1_114_112,
      sm__dt: 1
    }
  ],
  [
    "heartbeat",
    { session_id: "8d7c2b1f0e9d4c3ba2918f7e6d5c4b3a", attach_id: "trainer_a", seq: 41, time: 1_764_432_000.123_456 }
  ],
  [
    "session offer",
    {
      protocol_version: 1,
      session_id: "8d7c2b1f0e9d4c3ba2918f7e6d5c4b3a",
      attach_id: "trainer_a",
      job_id: "job-1",
      site_name: "site-1",
      task_exchange: {
        exchange_format: "numpy",
        server_expected_format: "numpy",
        transfer_type: "FULL",
        train_with_eval: false,
        train_task_name: "train",
        eval_task_name: "validate",
        submit_model_task_name: "submit_model"
      },
      heartbeat_interval: 5.5,
      heartbeat_timeout: 30.5,
      accepted: true,
      error: null
    }
  ]
]

const turns = 31
const turnMs = 12

/** Milliseconds of CPU that this thread took: what other processes do does not count. */
const now = (): number => {
  const { system, user } = process.threadCpuUsage()
  return (system + user) / 1000
}

/** Nanoseconds of a call of each function, measured in turn; medians. */
const inTurn = (runs: ReadonlyArray<() => unknown>): ReadonlyArray<number> => {
  const counts = runs.map((run) => {
    let count = 0
    for (const end = now() + 150; now() < end; count++) run()
    return Math.ceil((count / 150) * turnMs)
  })
  const times: Array<Array<number>> = runs.map(() => [])
  for (let turn = 0; turn < turns; turn++) {
    for (const [n, run] of runs.entries()) {
      const count = counts[n] ?? 1
      const started = now()
      for (let i = 0; i < count; i++) run()
      times[n]?.push(((now() - started) * 1e6) / count)
    }
  }
  return times.map(median)
}

const controlRows = (): ReadonlyArray<ReadonlyArray<string>> => {
  const theirs = { encoder: new Encoder(), decoder: new Decoder() }
  const fobs = Fobs.make()
  return maps.flatMap(([name, value]) => {
    const bytes = theirs.encoder.encode(value)
    const message = Buffer.concat(Result.getOrThrow(fobs.encode(value)))
    const encoded = inTurn([() => theirs.encoder.encode(value), () => Msgpack.encode(value), () => fobs.encode(value)])
    const decoded = inTurn([
      () => theirs.decoder.decode(bytes),
      () => Msgpack.decode(bytes),
      () => fobs.decode(message)
    ])
    return [
      [`${name} (${bytes.length} bytes)`, "encode", ...encoded] as const,
      [`${name} (${bytes.length} bytes)`, "decode", ...decoded] as const
    ].map(([what, how, other = 0, plain = 0, full = 0]) => [
      what,
      how,
      ...[other, plain, full].map((ns) => (ns / 1000).toFixed(2)),
      ratio(other, plain),
      ratio(other, full)
    ])
  })
}

const largeRows = (): ReadonlyArray<ReadonlyArray<string>> => {
  const fobs = Fobs.make()
  const large = new Map(
    Array.from({ length: 4 }, (_, n) => [`layer_${n}`, NdArray.fromTyped(new Float32Array(2 ** 24).fill(n))] as const)
  )
  const many = new Map(
    Array.from({ length: 10_000 }, (_, n) => [`layer_${n}`, NdArray.fromTyped(new Float32Array(16).fill(n))] as const)
  )
  return [["256 MiB in 4 arrays", large] as const, ["10,000 arrays of 64 bytes", many] as const].map(
    ([name, value]) => {
      const pieces = Result.getOrThrow(fobs.encode(value))
      const own = new Set([...value.values()].map(({ bytes }) => bytes.buffer))
      const copied = pieces
        .filter(({ buffer }) => !own.has(buffer as ArrayBuffer))
        .reduce((sum, { length }) => sum + length, 0)
      const message = Buffer.concat(pieces)
      const [encoded, decoded] = inTurn([() => fobs.encode(value), () => fobs.decode(message)])
      return [name, show((encoded ?? 0) / 1e6), show((decoded ?? 0) / 1e6), String(copied)]
    }
  )
}

/** The part of `npm run bench` about the codec. */
export const codecBench = async (): Promise<Report> => {
  const control = table(
    ["map", "", "@msgpack/msgpack", "Msgpack", "Fobs", "@msgpack / Msgpack", "@msgpack / Fobs"],
    controlRows()
  )
  const large = table(["model", "encode", "decode", "bytes beside the arrays"], largeRows())
  return { title: "The codec", text: `Microseconds a message:\n\n${control}\n\nMilliseconds a model:\n\n${large}` }
}
