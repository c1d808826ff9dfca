/**
 * The `fl-attach` command as a function from arguments to an exit code.
 *
 * @since 0.1.0
 */
import { Cause, Console, Effect, Layer } from "effect"
import { CliConfig, CliError, CliOutput, Command, GlobalFlag } from "effect/cli"
import * as Certs from "./Certs.ts"
import * as Dump from "./Dump.ts"
import { Failure } from "./internal/Failure.ts"
import { layerLogger, type Screen } from "./internal/Screen.ts"
import { version } from "./internal/version.ts"
import * as Parent from "./Parent.ts"
import * as Probe from "./Probe.ts"
import * as Serve from "./Serve.ts"

const command = Command.make("fl-attach").pipe(
  Command.withDescription("Federated learning with trainers that others started, by NVFlare's Client API Attach"),
  Command.withSubcommands([Serve.command, Probe.command, Parent.command, Dump.command, Certs.command])
)

const globalFlags = CliConfig.layer({
  builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions, GlobalFlag.LogLevel]
})

/** Wrong usage in one line; the whole help is one flag away. */
const presenter: CliOutput.Presenter = {
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? Console.error(
          `fl-attach: ${event.errors.map(({ message }) => message.replace(/\s+/g, " ")).join("; ")} (see ${event.commandPath.join(" ")} --help)`
        )
      : CliOutput.defaultPresenter.present(event)
}

const exitCode = (error: unknown): Effect.Effect<number> => {
  if (CliError.isCliError(error)) return Effect.succeed(2)
  if (error instanceof Failure) return Effect.as(Console.error(`fl-attach: ${oneLine(error.message)}`), error.exitCode)
  return Effect.as(Console.error(`fl-attach: unexpected failure: ${oneLine(String(error))}`), 1)
}

const oneLine = (text: string): string => text.replace(/\s*\n\s*/g, " ")

/**
 * Runs the command. The value is the exit code: 0 done, 1 failed, 2 wrong usage or configuration. Failures are told in one
 * line on standard error; an interruption stays one.
 *
 * @category running
 * @since 0.1.0
 */
export const run = (args: ReadonlyArray<string>): Effect.Effect<number, never, Command.Environment | Screen> =>
  Command.runWith(command, { version })(args).pipe(
    Effect.as(0),
    Effect.catchCauseIf(
      (cause) => !Cause.hasInterruptsOnly(cause),
      (cause) => exitCode(Cause.squash(cause))
    ),
    Effect.orDie,
    Effect.provide(Layer.mergeAll(CliOutput.layerPresenter(presenter), layerLogger, globalFlags))
  )
