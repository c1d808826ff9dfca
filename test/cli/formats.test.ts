import { readdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestConsole } from "effect/testing"
import { Screen } from "../../src/cli/internal/Screen.ts"
import * as Main from "../../src/cli/Main.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import * as ModelFile from "../../src/service/ModelFile.ts"
import { modelArrays, runToEnd, serveArgs, start, type Workspace, workspace } from "./support.ts"

const bfloat = (...bytes: ReadonlyArray<number>) => new Tensor("BF16", [bytes.length / 2], Uint8Array.from(bytes))

/** 1 and -2.5, and what they are three higher. */
const [before, after] = [bfloat(0x80, 0x3f, 0x20, 0xc0), bfloat(0x80, 0x40, 0x00, 0x3f)]

const write = (path: string, arrays: Iterable<readonly [string, ModelFile.ModelArray]>, format?: string) =>
  ModelFile.write(path, arrays, { metadata: format === undefined ? [] : [["format", format]] }).pipe(
    Effect.provide(NodeFileSystem.layer)
  )
const read = (path: string) => Effect.provide(ModelFile.read(path), NodeFileSystem.layer)

/** The workspace's flags with other files, for one trainer, and more. */
const args = (w: Workspace, model: string, out: string, ...more: ReadonlyArray<string>) =>
  serveArgs({ ...w, model, out }, ["--attach-id", "a", ...more])

const files = Effect.map(workspace, (w) => ({
  w,
  model: join(w.folder, "in.safetensors"),
  out: join(w.folder, "out.safetensors")
}))

/** Three rounds of `probe --add 1`; answers what it printed. */
const train = Effect.fnUntraced(function* (w: Workspace, flags: ReadonlyArray<string>) {
  const service = yield* start(flags)
  const probed = yield* runToEnd(["probe", w.profile("a"), "--add", "1"])
  const served = yield* service.ended
  assert.deepStrictEqual([served.code, served.stderr], [0, ""])
  assert.deepStrictEqual([probed.code, probed.stderr], [0, ""])
  return probed.stdout
})

describe("formats of parameters", () => {
  it.live("tensors from .safetensors to .safetensors, with its metadata", () =>
    Effect.gen(function* () {
      const { model, out, w } = yield* files
      yield* write(model, [...modelArrays, ["b", before]], "pt")
      const formats = ["--exchange-format", "pytorch", "--server-format", "pytorch"]
      const told = yield* train(w, args(w, model, out, ...formats))
      assert.include(told, "float32 F32[2, 2]")
      assert.include(told, "b BF16[2]")
      const trained = yield* read(out)
      assert.deepStrictEqual(trained.get("b"), after)
      assert.deepStrictEqual(trained.get("scalar"), NdArray.fromTyped(Float32Array.of(10), []))
      assert.deepStrictEqual([...trained.keys()], [...modelArrays.map(([name]) => name), "b"])
      const metadata = yield* Effect.provide(ModelFile.readMetadata(out), NodeFileSystem.layer)
      assert.deepStrictEqual([...metadata], [["format", "pt"]])
    })
  )

  it.live.each([
    ["pytorch", "numpy", "F32"],
    ["pytorch", "raw", "F32"],
    ["numpy", "pytorch", "<f4"],
    ["numpy", "raw", "<f4"],
    ["raw", "pytorch", "F32"]
  ] as const)("%s at the trainer, %s at the service, from .npz to .safetensors", ([exchange, server, seen]) =>
    Effect.gen(function* () {
      const { out, w } = yield* files
      const formats = ["--exchange-format", exchange, "--server-format", server]
      const told = yield* train(w, args(w, w.model, out, ...formats))
      assert.include(told, `float32 ${seen}[2, 2]`)
      const trained = yield* read(out)
      assert.deepStrictEqual(trained.get("uint8"), NdArray.fromTyped(Uint8Array.of(3, 1)))
      assert.deepStrictEqual(trained.get("int64"), NdArray.fromTyped(BigInt64Array.of(2n ** 62n + 4n, -4n)))
    })
  )
})

const silent = Layer.succeed(
  Screen,
  Screen.of({ isTerminal: false, line: () => {}, errorLine: () => {}, bars: () => {} })
)

/** Wrong usage: exit code 2, one line that says this, and nothing was opened. */
const refused = Effect.fnUntraced(
  function* (w: Workspace, flags: ReadonlyArray<string>, ...told: ReadonlyArray<string>) {
    assert.strictEqual(yield* Main.run(flags), 2)
    const errors = (yield* TestConsole.errorLines).join("\n")
    assert.notInclude(errors, "\n")
    for (const text of told) assert.include(errors, text)
    assert.deepStrictEqual(readdirSync(w.shared), [])
  },
  Effect.provide(Layer.mergeAll(NodeServices.layer, silent, TestConsole.layer))
)

describe("formats that don't fit are refused before anything is opened", () => {
  it.live("bfloat16 where numpy's arrays travel", () =>
    Effect.gen(function* () {
      const { model, out, w } = yield* files
      yield* write(model, [["b", before]])
      const advice = "--exchange-format pytorch --server-format pytorch"
      yield* refused(w, args(w, model, out), `--model ${model}: array "b" is BF16, which numpy lacks`, advice)
    })
  )

  it.live("bfloat16 in an .npz", () =>
    Effect.gen(function* () {
      const { model, w } = yield* files
      yield* write(model, [["b", before]])
      const flags = args(w, model, w.out, "--exchange-format", "pytorch", "--server-format", "pytorch")
      yield* refused(w, flags, "--out: ", 'array "b" is BF16', "use .safetensors instead of .npz")
    })
  )

  it.live("a text where tensors travel", () =>
    Effect.gen(function* () {
      const { w } = yield* files
      yield* write(w.model, [["s", new NdArray("<U1", [1], new Uint8Array(4))]])
      yield* refused(
        w,
        args(w, w.model, w.out, "--server-format", "pytorch"),
        'parameter "s": no tensor has the dtype <U1',
        "give --server-format numpy"
      )
    })
  )

  it.live("a .safetensors that is none", () =>
    Effect.gen(function* () {
      const { model, w } = yield* files
      yield* Effect.sync(() => writeFileSync(model, "these are no tensors"))
      yield* refused(w, args(w, model, w.out), `--model: model file ${model}: safetensors: a header of`)
    })
  )

  it.live.each([
    ["numpy", "keras_layer_weights", "--server-format keras_layer_weights with --exchange-format numpy"],
    ["keras_layer_weights", "raw", "give --server-format numpy"],
    ["keras_layer_weights", "pytorch", "--server-format keras_layer_weights can't be converted to pytorch"],
    ["jax", "numpy", "--exchange-format"]
  ] as const)("%s at the trainer, %s at the service", ([exchange, server, told]) =>
    Effect.gen(function* () {
      const { w } = yield* files
      yield* refused(w, args(w, w.model, w.out, "--exchange-format", exchange, "--server-format", server), told)
    })
  )
})
