import { assert, describe, it } from "@effect/vitest"
import { Duration } from "effect"
import { formatDuration } from "../../src/platform/DurationText.ts"

describe("durations for people", () => {
  it.each([
    [Duration.nanos(3_000_801_933n), "3s 1ms"],
    [Duration.nanos(3_801_933_000n), "3s 802ms"],
    [Duration.seconds(30), "30s"],
    [Duration.nanos(999_999_999n), "1s"],
    [Duration.nanos(5000n), "less than 1ms"],
    [Duration.zero, "0"],
    [Duration.infinity, "no limit"]
  ])("%s is %s", (duration, text) => assert.strictEqual(formatDuration(duration), text))
})
