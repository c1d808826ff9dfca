import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { type ReplayOptions, replay } from "./replay.ts"

const job = "site-1.job1"
const trainer = "site-1.-client_api_x"
const parent = "site-1"

interface Case {
  readonly name: string
  readonly as: ReadonlyArray<string>
  readonly options?: { readonly [me: string]: ReplayOptions }
  /** How the calls of the job cell end. */
  readonly outcomes?: ReadonlyArray<ReadonlyArray<string>>
}

// The guard is one for plain and streamed messages, and answers a plain request as the reference's interceptor does.
const refuseAll: ReplayOptions["prepare"] = (engine) => engine.cell.guard(() => "refuse")
const isReturn: ReplayOptions["except"] = (headers) => headers.get("cn__msg_type")?.value === "return"
const isReply: ReplayOptions["except"] = (headers) => headers.get("cn__msg_type")?.value === "reply"

const cases: ReadonlyArray<Case> = [
  { name: "02_core_request_dict", as: [job, parent], outcomes: [["ok"]] },
  { name: "03_core_request_bytes_and_none", as: [job, parent], outcomes: [["ok"], ["ok"]] },
  { name: "04_core_request_forwarded", as: [job, parent, trainer], outcomes: [["ok"]] },
  {
    name: "05_core_reply_codes",
    as: [job, parent],
    outcomes: [["process_exception"], ["authentication_error"], ["process_exception"], ["invalid_request"]]
  },
  {
    name: "06_core_unknown_topic",
    as: [job, parent, trainer],
    outcomes: [["process_exception"], ["process_exception"]]
  },
  { name: "07_core_timeout_late_reply", as: [job, parent], outcomes: [["RequestTimeout"], ["RequestTimeout"]] },
  { name: "08_core_fire_and_forget", as: [job, parent, trainer] },
  { name: "09_core_broadcast", as: [parent, trainer] },
  {
    name: "10_core_delayed_reply",
    as: [job],
    options: {
      [job]: {
        calls: [{ op: "core_request", channel: "client_command", topic: "hold", target: "site-1", payload: { i: 1 } }]
      }
    },
    // A delayed reply has no return code.
    outcomes: [[""]]
  },
  { name: "11_core_return_cant_forward", as: [job, parent], outcomes: [["TargetUnreachable"]] },
  { name: "20_cell_request_small", as: [job, parent, trainer], outcomes: [[""]] },
  { name: "21_cell_request_one_hop", as: [job, parent], outcomes: [[""], [""]] },
  { name: "22_cell_request_3_5MiB", as: [job, parent], outcomes: [[""]] },
  { name: "23_cell_request_3_5MiB_dict_forwarded", as: [job, parent, trainer], outcomes: [[""]] },
  {
    name: "24_cell_reply_codes",
    as: [job, parent],
    outcomes: [
      ["PeerFailed"],
      ["PeerFailed"],
      ["process_exception"],
      ["process_exception"],
      ["invalid_request"],
      ["ok"],
      [""]
    ]
  },
  { name: "25_cell_unknown_topic", as: [job, parent, trainer], outcomes: [["PeerFailed"], ["PeerFailed"]] },
  { name: "26_cell_timeout_late_reply", as: [job, parent], outcomes: [["RequestTimeout"]] },
  { name: "27_cell_fire_and_forget", as: [job, parent, trainer] },
  { name: "28_cell_broadcast", as: [job, parent, trainer], outcomes: [["", ""]] },
  {
    name: "29_cell_unreachable",
    as: [job, parent],
    outcomes: [["RequestTimeout"], ["TargetUnreachable"], [""]]
  },
  {
    name: "30_filter_incoming_drops",
    as: [job, parent, trainer],
    options: { [trainer]: { prepare: refuseAll, except: isReturn } },
    outcomes: [["RequestTimeout"], ["RequestTimeout"]]
  },
  {
    name: "31_filter_incoming_request_rejects",
    as: [job, parent, trainer],
    options: { [trainer]: { prepare: refuseAll, except: (headers) => isReturn(headers) || isReply(headers) } },
    outcomes: [["authentication_error"], ["RequestTimeout"]]
  },
  {
    name: "32_interceptor_rejects",
    as: [job, parent, trainer],
    options: { [trainer]: { prepare: refuseAll } },
    outcomes: [["authentication_error"], ["RequestTimeout"]]
  },
  {
    name: "33_bye_on_stop",
    as: [job, parent, trainer],
    options: { [trainer]: { byeTimeout: "500 millis" } },
    outcomes: [["TargetUnreachable"]]
  },
  { name: "40_blob_small_chunks", as: [job, parent], outcomes: [[""]] },
  { name: "41_blob_exact_multiple", as: [job, parent, trainer], outcomes: [[""]] },
  { name: "42_raw_stream_unknown_size", as: [job, parent], outcomes: [["ok"], ["ok"]] },
  { name: "43_raw_stream_empty", as: [job, parent], outcomes: [["ok"], ["ok"]] },
  {
    name: "44_consumer_error",
    as: [job, parent],
    // The chunks behind the first come after the error here, and each is answered by the error again.
    options: {
      [parent]: { except: (headers) => headers.has("sm__em") && headers.get("cn__optional")?.value === true }
    },
    outcomes: [["PeerFailed"], ["PeerFailed"]]
  },
  { name: "45_blob_too_big", as: [job, parent], outcomes: [["PeerFailed"]] },
  {
    name: "46_reliable_data_lost",
    as: [job, parent],
    options: { [parent]: { lose: (headers, count) => count < 1 && headers.get("sm__sq")?.value === 1 } },
    outcomes: [["ok"]]
  },
  {
    name: "47_reliable_ack_lost",
    as: [job, parent],
    options: { [job]: { lose: (_, count) => count < 2 } },
    outcomes: [["ok"]]
  },
  {
    name: "48_reliable_timeout",
    as: [job, parent, trainer],
    options: { [trainer]: { lose: (headers) => headers.has("sm__sq") } },
    outcomes: [["StreamFailed"]]
  },
  {
    name: "49_nonreliable_data_lost",
    as: [job, parent],
    options: { [parent]: { lose: (headers, count) => count < 1 && headers.get("sm__sq")?.value === 1 } },
    outcomes: [["ok"]]
  },
  { name: "50_blob_size_mismatch", as: [job, parent], outcomes: [["ok"]] },
  // Here the consumer is as fast as the sender, so the stream fails before its end would be acknowledged.
  { name: "51_blob_overrun", as: [job, parent], options: { [parent]: { acks: false } }, outcomes: [["ok"]] }
]

describe("captured exchanges, with a live cell in the place of each side", () => {
  for (const { as, name, options, outcomes } of cases) {
    for (const me of as) {
      it.effect(`${name} as ${me}`, () =>
        Effect.gen(function* () {
          const played = yield* replay(name, me, options?.[me])
          if (me === job && outcomes !== undefined) {
            assert.deepStrictEqual(played.outcomes, outcomes)
          }
        })
      )
    }
  }
})
