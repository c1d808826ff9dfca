import * as NodePath from "node:path"
import { NodeFileSystem } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, FileSystem, Layer, PlatformError, Result } from "effect"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import * as ModelFile from "../../src/service/ModelFile.ts"
import { elements, floats, longs } from "../fobs/arrays.ts"

const arrays = new Map([
  ["layer.weight", floats([1, 2, 3, 4, 5, 6], [2, 3])],
  ["n", longs([7n], [])],
  ["empty", floats([], [0, 4])],
  ["columns", new NdArray(">i2", [2, 2], Uint8Array.of(0, 1, 0, 2, 0, 3, 0, 4), "F")]
])

const folder = Effect.flatMap(FileSystem.FileSystem, (fs) => fs.makeTempDirectoryScoped())
const here = Effect.map(folder, (path) => NodePath.join(path, "model.npz"))

/** Folder and file names that are there. */
const namesBeside = (path: string) =>
  Effect.flatMap(FileSystem.FileSystem, (fs) => fs.readDirectory(NodePath.dirname(path)))

const provideFiles = Effect.provide(NodeFileSystem.layer)

/** Real files, but what `change` says about the files that are opened. */
const changedFiles = (change: (file: FileSystem.File) => Partial<FileSystem.File>) =>
  Layer.effect(
    FileSystem.FileSystem,
    Effect.map(FileSystem.FileSystem, (fs) => ({
      ...fs,
      open: (path: string, options?: Parameters<typeof fs.open>[1]) =>
        Effect.map(fs.open(path, options), (file): FileSystem.File => {
          const changes = change(file)
          return new Proxy(file, { get: (target, key) => Reflect.get(key in changes ? changes : target, key, target) })
        })
    }))
  ).pipe(Layer.provide(NodeFileSystem.layer))

const diskFull = PlatformError.systemError({
  _tag: "Unknown",
  module: "FileSystem",
  method: "writeAll",
  cause: Object.assign(new Error("no space"), { code: "ENOSPC" })
})

describe("ModelFile", () => {
  it.live("reads what it has written, over an older file", () =>
    Effect.gen(function* () {
      const path = yield* here
      yield* ModelFile.write(path, [["old", floats([1])]])
      yield* ModelFile.write(path, arrays)
      const read = yield* ModelFile.read(path)
      assert.deepStrictEqual([...read.keys()], [...arrays.keys()])
      for (const [name, array] of arrays) {
        const other = read.get(name)
        if (!(other instanceof NdArray)) return assert.fail(`${name} is no NdArray`)
        assert.deepStrictEqual([other.dtype, other.shape, other.order], [array.dtype, array.shape, array.order])
        assert.deepStrictEqual(elements(other), elements(array))
      }
      assert.deepStrictEqual(yield* namesBeside(path), ["model.npz"])
    }).pipe(provideFiles)
  )

  const failure = <A, E extends { readonly reason: { readonly _tag: string }; readonly message: string }, R>(
    effect: Effect.Effect<A, E, R>
  ) => Effect.map(Effect.flip(effect), ({ message, reason }) => `${reason._tag}: ${message}`)

  it.live("says what is wrong with a path, and what to do", () =>
    Effect.gen(function* () {
      const fs = yield* FileSystem.FileSystem
      const path = yield* here
      const missing = NodePath.join(NodePath.dirname(path), "none", "model.npz")
      assert.match(
        yield* failure(ModelFile.write(missing, arrays)),
        /^ModelFileIo: .*none\/model.npz: the folder .*none is not there: create it/
      )
      assert.match(yield* failure(ModelFile.read(missing)), /^ModelFileIo: .*none\/model.npz: there is no such file/)
      assert.match(yield* failure(ModelFile.read(NodePath.dirname(path))), /^ModelFileInvalid: .*it is a folder/)
      assert.match(
        yield* failure(ModelFile.write(`${path}.pt`, arrays)),
        /^ModelFileInvalid: .*must end in .npz or .safetensors/
      )
      yield* ModelFile.write(path, arrays)
      assert.match(
        yield* failure(ModelFile.write(NodePath.join(path, "x.npz"), arrays)),
        /^ModelFileIo: .*model.npz is no folder/
      )
      yield* fs.writeFileString(path, "hello")
      assert.match(yield* failure(ModelFile.read(path)), /^ModelFileInvalid: .*model.npz: no npz file/)
      assert.match(
        yield* failure(ModelFile.read(path, { maxBytes: 4 })),
        /^ModelFileTooLarge: .*has 5 bytes, the limit \(maxBytes\) is 4/
      )
    }).pipe(provideFiles)
  )

  it.live("leaves the old file, and nothing else, when the arrays can't be written", () =>
    Effect.gen(function* () {
      const path = yield* here
      yield* ModelFile.write(path, arrays)
      const broken = new Map([["bad", new NdArray("<f4", [2], new Uint8Array(4))]])
      assert.match(yield* failure(ModelFile.write(path, broken)), /^ModelFileInvalid: .*array "bad"/)
      assert.strictEqual((yield* ModelFile.read(path)).size, arrays.size)
    }).pipe(provideFiles)
  )

  it.live.each(["the data", "the flush"] as const)(
    "leaves the old file, and nothing else, when the disk is full for %s",
    (what) =>
      Effect.gen(function* () {
        const path = yield* here
        yield* ModelFile.write(path, [["old", floats([1])]]).pipe(provideFiles)
        const fail = Effect.fail(diskFull)
        const full = changedFiles((file) =>
          what === "the flush"
            ? { sync: fail }
            : { writeAll: (bytes) => (bytes.length > 24 ? fail : file.writeAll(bytes)) }
        )
        const message = yield* failure(ModelFile.write(path, arrays).pipe(Effect.provide(full)))
        assert.match(message, /^ModelFileIo: cannot write model file .*model.npz: no space is left for/)
        assert.deepStrictEqual(yield* namesBeside(path), ["model.npz"])
        assert.deepStrictEqual([...(yield* ModelFile.read(path)).keys()], ["old"])
      }).pipe(provideFiles)
  )

  it.live("leaves the old file, and nothing else, when it is interrupted", () =>
    Effect.gen(function* () {
      const path = yield* here
      yield* ModelFile.write(path, [["old", floats([1])]])
      const reached = yield* Deferred.make<void>()
      const stuck = changedFiles(() => ({ sync: Effect.andThen(Deferred.succeed(reached, undefined), Effect.never) }))
      const fiber = yield* Effect.forkChild(ModelFile.write(path, arrays).pipe(Effect.provide(stuck)))
      yield* Deferred.await(reached)
      assert.strictEqual((yield* namesBeside(path)).length, 2)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(yield* namesBeside(path), ["model.npz"])
      assert.deepStrictEqual([...(yield* ModelFile.read(path)).keys()], ["old"])
    }).pipe(provideFiles)
  )

  it.live("does not wait for the rest of a file that shrinks under its hands", () =>
    Effect.gen(function* () {
      const path = yield* here
      yield* ModelFile.write(path, arrays)
      const shrunk = changedFiles(() => ({ read: () => Effect.succeed(0) }))
      const message = yield* failure(ModelFile.read(path).pipe(Effect.provide(shrunk)))
      assert.match(message, /^ModelFileInvalid: .*was cut to 0 bytes while it was read/)
    }).pipe(provideFiles)
  )

  it.live("reads and writes safetensors by the suffix, with metadata", () =>
    Effect.gen(function* () {
      const path = (yield* here).replace(".npz", ".safetensors")
      const bfloats = new Tensor("BF16", [2], Uint8Array.of(0x80, 0x3f, 0x20, 0xc0))
      yield* ModelFile.write(path, [...arrays, ["b", bfloats]], { metadata: [["format", "pt"]] })
      const read = yield* ModelFile.read(path)
      assert.deepStrictEqual([...read.keys()], [...arrays.keys(), "b"])
      assert.deepStrictEqual(read.get("b"), bfloats)
      const columns = read.get("columns")
      assert.deepStrictEqual(columns, NdArray.fromTyped(Int16Array.of(1, 3, 2, 4), [2, 2]))
      assert.deepStrictEqual(read.get("layer.weight"), arrays.get("layer.weight"))
      assert.deepStrictEqual(yield* ModelFile.readMetadata(path), new Map([["format", "pt"]]))
    }).pipe(provideFiles)
  )

  it.live("writes a tensor as npz where numpy has its type, and says what to do where not", () =>
    Effect.gen(function* () {
      const path = yield* here
      yield* ModelFile.write(path, [["t", Tensor.fromTyped(Float32Array.of(1, 2))]])
      assert.deepStrictEqual((yield* ModelFile.read(path)).get("t"), floats([1, 2]))
      assert.deepStrictEqual(yield* ModelFile.readMetadata(path), new Map())
      const bfloat = new Tensor("BF16", [1], new Uint8Array(2))
      assert.match(
        yield* failure(ModelFile.write(path, [["b", bfloat]])),
        /^ModelFileInvalid: .*array "b" is BF16.*use .safetensors instead of .npz, or widen it/
      )
      const text = new NdArray("<U1", [1], new Uint8Array(4))
      assert.match(
        yield* failure(ModelFile.write(`${path}.safetensors`, [["s", text]])),
        /^ModelFileInvalid: .*array "s": no tensor has the dtype <U1: use .npz instead of .safetensors/
      )
    }).pipe(provideFiles)
  )

  it("tells beforehand whether a format has a place for all arrays", () => {
    const check = (path: string, array: ModelFile.ModelArray) => {
      const result = ModelFile.check(path, [["x", array]])
      return Result.isFailure(result) ? result.failure.message : "fine"
    }
    const bfloat = new Tensor("BF16", [1], new Uint8Array(2))
    const eight = new Tensor("F8_E4M3", [1], new Uint8Array(1))
    const text = new NdArray("<U1", [1], new Uint8Array(4))
    assert.strictEqual(check("m.safetensors", bfloat), "fine")
    assert.strictEqual(check("m.safetensors", floats([1])), "fine")
    assert.strictEqual(check("m.npz", text), "fine")
    assert.strictEqual(check("m.npz", Tensor.fromTyped(Float32Array.of(1))), "fine")
    assert.include(check("m.npz", bfloat), "use .safetensors instead of .npz, or widen it first")
    assert.match(check("m.npz", eight), /is F8_E4M3, which numpy lacks: use .safetensors instead of .npz$/)
    assert.include(check("m.safetensors", text), "use .npz instead of .safetensors")
    assert.include(check("m.pt", text), "must end in .npz or .safetensors")
  })

  it.live("says what is wrong with a safetensors file, and with another suffix", () =>
    Effect.gen(function* () {
      const fs = yield* FileSystem.FileSystem
      const path = `${yield* here}.safetensors`
      yield* fs.writeFileString(path, "hello, this is no model")
      assert.match(
        yield* failure(ModelFile.read(path)),
        /^ModelFileInvalid: .*npz.safetensors: safetensors: a header of/
      )
      assert.match(yield* failure(ModelFile.readMetadata(path)), /^ModelFileInvalid: .*npz.safetensors: safetensors:/)
      yield* fs.writeFileString(`${path}.pt`, "hello")
      assert.match(
        yield* failure(ModelFile.read(`${path}.pt`)),
        /^ModelFileInvalid: .*must end in .npz or .safetensors/
      )
      assert.strictEqual(ModelFile.formatOf("/a/b.tar.npz"), "npz")
      assert.strictEqual(ModelFile.formatOf("/a/npz"), undefined)
    }).pipe(provideFiles)
  )

  it.live("lets others run while it reads and writes", () =>
    Effect.gen(function* () {
      const path = yield* here
      const large = NdArray.fromTyped(new Uint8Array(2 ** 25))
      const turns = { count: 0 }
      const others = yield* Effect.forkChild(
        Effect.forever(
          Effect.andThen(
            Effect.yieldNow,
            Effect.sync(() => turns.count++)
          )
        )
      )
      yield* ModelFile.write(path, [["large", large]])
      assert.isAtLeast(turns.count, 8)
      turns.count = 0
      yield* ModelFile.read(path)
      assert.isAtLeast(turns.count, 8)
      yield* Fiber.interrupt(others)
    }).pipe(provideFiles)
  )
})
