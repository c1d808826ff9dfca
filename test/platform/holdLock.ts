// Run by node: locks the file named by the first argument, says so, and holds it until it is killed.
import { Effect } from "effect"
import { FileLock } from "../../src/platform/FileLock.ts"

const program = Effect.gen(function* () {
  const locks = yield* FileLock
  yield* locks.tryLock(process.argv[2] ?? "", { create: true })
  process.stdout.write("held\n")
  return yield* Effect.never
})

Effect.runFork(Effect.scoped(program).pipe(Effect.provide(FileLock.layerNode)))
