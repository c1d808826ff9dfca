// Run by node: locks the file named by the first argument, says so, and holds it until it is killed.
import { Effect } from "effect"
import { FileLock } from "../../src/platform/FileLock.ts"

const program = Effect.gen(function* () {
  const locks = yield* FileLock
  yield* locks.tryLock(process.argv[2] ?? "", { create: true })
  process.stdout.write("held\n")
  return yield* Effect.never
})

// A fiber that waits keeps no process alive; an open stdin does, and ends with the test that started this.
process.stdin.resume()
process.stdin.once("end", () => process.exit())

Effect.runFork(Effect.scoped(program).pipe(Effect.provide(FileLock.layerNode)))
