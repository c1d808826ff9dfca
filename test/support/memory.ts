/** Whether a run of many damaged messages keeps any of them. */
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { assert } from "vitest"

const mebibyte = 2 ** 20

/**
 * Between a quarter and the end of a run of 10^6 lie 750 000 messages: 22 bytes each. An error, a Map or a typed array takes
 * more (a typed array about 100, without its bytes), so one that is kept of each message is found; without any, memory was
 * seen to differ by less than 2 MiB. Shorter runs find only what is greater.
 */
const bound = 16 * mebibyte

const kinds = ["heapUsed", "external", "arrayBuffers"] as const

const collectGarbage = (() => {
  setFlagsFromString("--expose-gc")
  const collect = runInNewContext("gc") as () => void
  return () => {
    // What the first round has freed outside of the heap is counted off by the second.
    collect()
    collect()
  }
})()

const measure = (): NodeJS.MemoryUsage => {
  collectGarbage()
  return process.memoryUsage()
}

/**
 * `at` is told of each message, by its number; `check` asserts at the end that memory has not grown since a quarter of
 * them: until then code is compiled, and caches fill.
 */
export const watchMemory = (messages: number) => {
  const start = Math.floor(messages / 4)
  let before: NodeJS.MemoryUsage | undefined
  return {
    at: (message: number): void => {
      if (message === start) before = measure()
    },
    check: (): void => {
      const first = before ?? assert.fail("a quarter of the messages has not come")
      const last = measure()
      for (const kind of kinds) {
        assert.isBelow(last[kind] - first[kind], bound, `${kind} grew from ${first[kind]} to ${last[kind]} bytes`)
      }
    }
  }
}
