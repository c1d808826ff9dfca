/** The process: its exit code, and what signals do to it. */
import { Exit, Runtime } from "effect"

const signals = new Map<"SIGINT" | "SIGTERM", number>([
  ["SIGINT", 130],
  ["SIGTERM", 143]
])

/**
 * Runs an effect as the process; its value is the exit code. The first SIGINT or SIGTERM interrupts it, and the process
 * ends with 130 or 143 when all is closed; a second signal ends it at once.
 */
export const runMain = Runtime.makeRunMain(({ fiber, teardown }) => {
  let signalled: number | undefined
  const onSignal = (code: number) => {
    if (signalled !== undefined) process.exit(code)
    signalled = code
    process.stderr.write("fl-attach: closing; a second signal ends at once\n")
    fiber.interruptUnsafe(fiber.id)
  }
  for (const [name, code] of signals) process.on(name, () => onSignal(code))
  // Whoever reads our output may go away, as `head` does.
  process.stdout.on("error", () => process.exit(1))
  fiber.addObserver((exit) => teardown(exit, (code) => process.exit(signalled ?? code)))
})

/** The exit code is the value. */
export const teardown: Runtime.Teardown = (exit, onExit) => {
  if (Exit.isSuccess(exit) && typeof exit.value === "number") return onExit(exit.value)
  return Runtime.defaultTeardown(exit, onExit)
}
