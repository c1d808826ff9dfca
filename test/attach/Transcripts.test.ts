import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { asReference, layer } from "./support.ts"
import { type ReplayOptions, replay } from "./transcripts.ts"

interface Case {
  readonly name: string
  readonly ends: ReadonlyArray<string>
  readonly options?: ReplayOptions
  /** What ours does otherwise, and where docs/protocol.md says so. */
  readonly otherwise?: string
}

const cases: ReadonlyArray<Case> = [
  { name: "happy_inline_tcp", ends: ["OK", "OK"] },
  { name: "happy_small_tcp", ends: ["OK", "OK"] },
  { name: "happy_small_file", ends: ["OK", "OK"] },
  { name: "happy_large_tcp", ends: ["OK", "OK"] },
  { name: "happy_large_file", ends: ["OK", "OK"] },
  { name: "trainer_first_file", ends: ["OK", "OK"] },
  { name: "diff", ends: ["OK", "OK"] },
  { name: "metrics_only", ends: ["OK"] },
  { name: "heartbeats", ends: ["OK"] },
  { name: "lost_task_reply", ends: ["OK", "OK"] },
  { name: "lost_result_reply", ends: ["OK", "OK"] },
  { name: "abort_round", ends: ["OK", "failed"] },
  { name: "attach_timeout", ends: ["failed"] },
  { name: "reject_attach_id", ends: ["failed"], options: { overridden: ["attach_id"] } },
  { name: "reject_version", ends: ["failed"], options: { overridden: ["protocol_version"] } },
  {
    name: "reconnect_tcp",
    ends: ["OK", "failed", "OK"],
    options: { omitted: { taskStatus: [0] } },
    otherwise: "a dead session is not asked for the task's state (14.14)"
  },
  {
    name: "reconnect_file",
    ends: ["OK", "failed", "OK", "OK"],
    options: { omitted: { taskStatus: [0] } },
    otherwise: "a dead session is not asked for the task's state (14.14)"
  },
  {
    name: "abort_then_next",
    ends: ["failed", "failed"],
    options: { omitted: { taskReady: [1, 2, 3, 4, 5, 6, 7], taskStatus: Array.from({ length: 20 }, (_, n) => n) } },
    otherwise: "a session that got ABORT is offered no other task (14.5)"
  },
  {
    name: "paused_trainer",
    ends: ["OK"],
    // Until attachTimeout, 15 s after the loss.
    options: { more: { sessionOpen: 24, shutdown: 1 } },
    otherwise: "a trainer that is bound already is asked again (14.4)"
  }
]

describe("recorded exchanges, with our backend in the CJ's place", () => {
  for (const { ends, name, options, otherwise } of cases) {
    it.effect(`15 ${name}${otherwise === undefined ? "" : `; ${otherwise}`}`, () =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* replay(name, options), ends)
      }).pipe(Effect.provide(layer(asReference)))
    )
  }
})
