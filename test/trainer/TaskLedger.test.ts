import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { TaskLedger } from "../../src/trainer/TaskLedger.ts"

const reserve = (ledger: TaskLedger, taskId: string, seq: number, attemptId = "a") =>
  ledger.reserve(taskId, seq, attemptId)

const complete = (ledger: TaskLedger, seq: number) => {
  assert.isTrue(Result.isSuccess(reserve(ledger, `task-${seq}`, seq)), `task ${seq} is new`)
  ledger.advance(`task-${seq}`, "QUEUED")
  ledger.advance(`task-${seq}`, "COMPLETE")
}

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index)

describe("TaskLedger", () => {
  it("16.38 a task is UNKNOWN while it is reserved, for its status and for a repeat", () => {
    const ledger = new TaskLedger()
    assert.deepStrictEqual(reserve(ledger, "t", 1), Result.succeed(undefined))
    assert.strictEqual(ledger.get("t")?.state, "UNKNOWN")
    const again = Result.getOrThrow(reserve(ledger, "t", 1, "b"))
    assert.deepStrictEqual([again?.state, again?.attemptId], ["UNKNOWN", "a"])
    ledger.forget("t")
    assert.isUndefined(ledger.get("t"))
  })

  it("16.43 300 completed tasks leave 256 entries; replays of all the forgotten are stale", () => {
    const ledger = new TaskLedger()
    for (const seq of range(1, 300)) complete(ledger, seq)
    assert.strictEqual(ledger.size, 256)
    assert.isUndefined(ledger.get("task-44"))
    assert.strictEqual(ledger.get("task-45")?.state, "COMPLETE")
    for (const seq of range(1, 44)) {
      assert.isTrue(Result.isFailure(reserve(ledger, `task-${seq}`, seq)), `replay of task ${seq}`)
    }
    assert.strictEqual(Result.getOrThrow(reserve(ledger, "task-45", 45))?.state, "COMPLETE")
  })

  it("16.43 256 entries are kept, the 257th completed one evicts the oldest", () => {
    const ledger = new TaskLedger()
    for (const seq of range(1, 256)) complete(ledger, seq)
    assert.strictEqual(ledger.size, 256)
    complete(ledger, 257)
    assert.strictEqual(ledger.size, 256)
    assert.isUndefined(ledger.get("task-1"))
  })

  it("16.43 an old task that is not complete stops the forgetting, and its end resumes it", () => {
    const ledger = new TaskLedger(2)
    reserve(ledger, "slow", 1)
    ledger.advance("slow", "DELIVERED")
    for (const seq of range(2, 5)) complete(ledger, seq)
    assert.strictEqual(ledger.size, 5)
    ledger.advance("slow", "COMPLETE")
    assert.strictEqual(ledger.size, 2)
    assert.isTrue(Result.isFailure(reserve(ledger, "slow", 1)))
  })

  it("16.74 the one task that was given up last may come again, with its own number alone", () => {
    const ledger = new TaskLedger()
    reserve(ledger, "a", 1)
    ledger.forget("a")
    assert.isTrue(Result.isFailure(reserve(ledger, "b", 1)), "another task with the burnt number")
    assert.deepStrictEqual(reserve(ledger, "a", 1), Result.succeed(undefined))
    ledger.forget("a")
    reserve(ledger, "b", 2)
    ledger.forget("b")
    assert.isTrue(Result.isFailure(reserve(ledger, "a", 1)), "only the last one")
    assert.deepStrictEqual(reserve(ledger, "b", 2), Result.succeed(undefined))
  })

  it("16.74 a retry is allowed once for each giving up", () => {
    const ledger = new TaskLedger(1)
    reserve(ledger, "a", 1)
    ledger.forget("a")
    complete(ledger, 2)
    complete(ledger, 3)
    assert.isTrue(Result.isFailure(reserve(ledger, "a", 1)), "what is not above the forgotten is stale")
  })

  it("16.74 numbers may jump up and never down; a known task keeps its own", () => {
    const ledger = new TaskLedger()
    complete(ledger, 5)
    for (const seq of [1, 4, 5]) assert.isTrue(Result.isFailure(reserve(ledger, "new", seq)), String(seq))
    assert.isTrue(Result.isFailure(reserve(ledger, "task-5", 6)))
    assert.deepStrictEqual(reserve(ledger, "new", 6), Result.succeed(undefined))
  })

  it("names of Object's own are tasks like any other", () => {
    const ledger = new TaskLedger()
    assert.isUndefined(ledger.get("__proto__"))
    assert.deepStrictEqual(reserve(ledger, "__proto__", 1), Result.succeed(undefined))
    assert.isUndefined(ledger.get("constructor"))
  })

  it("changes of a task that is not known are none", () => {
    const ledger = new TaskLedger()
    ledger.advance("t", "COMPLETE")
    ledger.forget("t")
    assert.strictEqual(ledger.size, 0)
  })
})
