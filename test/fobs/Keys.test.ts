import { assert, describe, it } from "@effect/vitest"
import * as Keys from "../../src/fobs/Keys.ts"
import { EnumValue, Ext, Float, NumpyScalar, PyDateTime, Tuple } from "../../src/fobs/Values.ts"

const kind = (name: string) => new EnumValue("nvflare.apis.dxo.DataKind", name)
const writer = (name: string) => new EnumValue("nvflare.apis.analytix.LogWriterName", name)

describe("Keys", () => {
  it.each<[unknown, unknown]>([
    [1, true],
    [1, new Float(1)],
    [0, new Float(-0)],
    [2 ** 53, 2n ** 53n],
    [new NumpyScalar("int64", 3), 3],
    [new Tuple([1, "a"]), new Tuple([true, "a"])],
    [new Tuple([new Tuple([])]), new Tuple([new Tuple([])])],
    [Uint8Array.of(1), Uint8Array.of(1)],
    [kind("WEIGHTS"), kind("WEIGHTS")],
    [kind("WEIGHTS"), "WEIGHTS"],
    [writer("WANDB"), writer("WANDB")],
    [new PyDateTime("2026-01-01T00:00:00"), new PyDateTime("2026-01-01T00:00:00")],
    [new Ext(1, Uint8Array.of(2)), new Ext(1, Uint8Array.of(2))],
    [null, null]
  ])("%o equals %o", (left, right) => {
    assert.isTrue(Keys.equals(left, right))
    assert.strictEqual(Keys.get(new Map([[left, "found"]]), right), "found")
    assert.isTrue(Keys.has(new Map([[left, undefined]]), right))
  })

  it.each<[unknown, unknown]>([
    [1, "1"],
    ["a", Uint8Array.of(0x61)],
    [null, 0],
    [2n ** 53n + 1n, 2 ** 53],
    [new Tuple([1, 23]), new Tuple([12, 3])],
    [new Tuple(["a", "b"]), new Tuple(["a1:sb"])],
    [new Tuple([]), null],
    [writer("WANDB"), "WANDB"],
    [[1], [1]],
    [new Map(), new Map()],
    [new Tuple([[]]), new Tuple([[]])]
  ])("%o does not equal %o", (left, right) => {
    assert.isFalse(Keys.equals(left, right))
    assert.isUndefined(Keys.get(new Map([[left, "found"]]), right))
    assert.isFalse(Keys.has(new Map([[left, 1]]), right))
  })
})
