/**
 * `fl-attach dump`: what FOBS bytes say, one line a file.
 *
 * @since 0.1.0
 */
import * as NodePath from "node:path"
import { Console, Effect, FileSystem, Option, Result } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { codec } from "../model/ModelCodec.ts"
import { canonicalJson, describe } from "./Describe.ts"
import { failed, wrongUsage } from "./internal/Failure.ts"
import { fileHint } from "./internal/fileHint.ts"
import { plural } from "./internal/ServeView.ts"

interface DumpOptions {
  readonly json: boolean
  readonly reencode: Option.Option<string>
  readonly files: ReadonlyArray<string>
}

const reencodeTo = Effect.fnUntraced(function* (folder: string, file: string, value: unknown) {
  const fs = yield* FileSystem.FileSystem
  const pieces = yield* Effect.mapError(Effect.fromResult(codec.encode(value)), ({ message }) => message)
  const target = NodePath.join(folder, NodePath.basename(file))
  yield* Effect.mapError(
    fs.writeFile(target, Buffer.concat(pieces)),
    (error) => `cannot write ${target}: ${fileHint(error, target)}`
  )
})

/** The line of one file; the error is a text. */
const dumpFile = Effect.fnUntraced(function* (file: string, reencode: Option.Option<string>) {
  const fs = yield* FileSystem.FileSystem
  const bytes = yield* Effect.mapError(fs.readFile(file), (error) => `cannot read ${file}: ${fileHint(error, file)}`)
  const decoded = codec.decode(bytes, { lossless: true, items: "keep" })
  const value = yield* Effect.mapError(Effect.fromResult(decoded), ({ message }) => message)
  if (Option.isSome(reencode)) yield* reencodeTo(reencode.value, file, value)
  return canonicalJson(describe(value))
})

/** The folder is there, and holds none of the files that are read. */
const checkFolder = Effect.fnUntraced(function* (folder: string, files: ReadonlyArray<string>) {
  const fs = yield* FileSystem.FileSystem
  const there = yield* Effect.option(fs.stat(folder))
  if (Option.isNone(there) || there.value.type !== "Directory") {
    return yield* wrongUsage(`--reencode ${folder}: the folder is not there: make it first`)
  }
  const own = files.find((file) => NodePath.resolve(NodePath.dirname(file)) === NodePath.resolve(folder))
  if (own !== undefined) {
    return yield* wrongUsage(`--reencode ${folder} would write over ${own}: name another folder`)
  }
})

/** Prints one line for each file, also for those that are malformed; then it fails, if there are any. */
const dump = Effect.fn("dump")(function* ({ files, json, reencode }: DumpOptions) {
  if (!json) return yield* wrongUsage("dump prints JSON only, for now: give --json")
  if (Option.isSome(reencode)) yield* checkFolder(reencode.value, files)
  let bad = 0
  for (const file of files) {
    const line = yield* Effect.result(dumpFile(file, reencode))
    if (Result.isFailure(line)) bad++
    yield* Console.log(Result.getOrElse(line, (error) => JSON.stringify({ error, file })))
  }
  if (bad > 0) return yield* failed(`${bad} of ${plural(files.length, "file")} can't be decoded`)
})

/**
 * @category commands
 * @since 0.1.0
 */
export const command = Command.make(
  "dump",
  {
    json: Flag.Boolean("json").pipe(
      Flag.withDefault(false),
      Flag.withDescription("Print the canonical description as JSON, one line a file")
    ),
    reencode: Flag.String("reencode").pipe(
      Flag.withMetavar("folder"),
      Flag.withDescription("Write each value, encoded again, to this folder under the same name"),
      Flag.optional
    ),
    files: Argument.String("file").pipe(Argument.withDescription("Files of FOBS bytes"), Argument.variadic({ min: 1 }))
  },
  dump
).pipe(Command.withDescription("Decode FOBS bytes and print what they say, one line a file"))
