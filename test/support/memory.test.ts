import { assert, describe, it } from "vitest"
import { watchMemory } from "./memory.ts"

const messages = 1000
const size = 50_000

/** Makes messages on the heap, or beside it, and keeps them or not. */
const run = (make: () => unknown, isKept: boolean) => {
  const memory = watchMemory(messages)
  const kept: Array<unknown> = []
  for (let message = 0; message < messages; message += 1) {
    memory.at(message)
    const made = make()
    if (isKept) kept.push(made)
  }
  memory.check()
  return kept
}

const onHeap = () => Array.from({ length: size / 8 }, (_, index) => index + 0.5)
const beside = () => new Uint8Array(size).fill(1)

describe("watchMemory", () => {
  it("finds what is kept, on the heap and beside it", () => {
    assert.throws(() => run(onHeap, true), /heapUsed grew/)
    assert.throws(() => run(beside, true), /external grew/)
  })

  it("minds nothing else", () => {
    run(onHeap, false)
    run(beside, false)
  })
})
