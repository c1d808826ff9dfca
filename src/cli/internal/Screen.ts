/** What people see: lines, and on a terminal bars below them that are drawn again and again. */
import { Cause, Context, Effect, Layer, Logger, References } from "effect"

/** Where text goes. `columns` is the width of the terminal at this moment. */
export interface Output {
  readonly isTerminal: boolean
  readonly columns: () => number
  readonly out: (text: string) => void
  readonly err: (text: string) => void
}

export interface ScreenShape {
  readonly isTerminal: boolean
  /** A line that stays. */
  readonly line: (text: string) => void
  /** A line that stays, on standard error. */
  readonly errorLine: (text: string) => void
  /** Draws these bars in place of the ones before. Without a terminal, nothing. */
  readonly bars: (texts: ReadonlyArray<string>) => void
}

const clip = (text: string, columns: number): string => (text.length > columns ? text.slice(0, columns) : text)

/** Text from a peer may hold anything, also what moves the cursor. */
const oneLine = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it removes
  text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, " ").trimEnd()

export const makeScreen = (output: Output): ScreenShape => {
  let shown: ReadonlyArray<string> = []
  const erase = () => (shown.length === 0 ? "" : `\u001b[${shown.length}A\r\u001b[J`)
  const draw = () => shown.map((text) => `${clip(text, Math.max(1, output.columns() - 1))}\n`).join("")
  const keep = (write: (text: string) => void, text: string) => {
    if (shown.length > 0) output.out(erase())
    write(`${oneLine(text)}\n`)
    if (shown.length > 0) output.out(draw())
  }
  return {
    isTerminal: output.isTerminal,
    line: (text) => keep(output.out, text),
    errorLine: (text) => keep(output.err, text),
    bars: (texts) => {
      if (!output.isTerminal) return
      const before = erase()
      shown = texts.map(oneLine)
      output.out(before + draw())
    }
  }
}

const nodeOutput: Output = {
  isTerminal: process.stdout.isTTY === true,
  columns: () => process.stdout.columns ?? 80,
  out: (text) => {
    process.stdout.write(text)
  },
  err: (text) => {
    process.stderr.write(text)
  }
}

export class Screen extends Context.Service<Screen, ScreenShape>()("fl-attach/cli/Screen") {
  static readonly layerNode: Layer.Layer<Screen> = Layer.sync(Screen, () => Screen.of(makeScreen(nodeOutput)))
}

const defaultLevel = "Warn"

/** What `serve` tells by itself, from the events of sessions and rounds. */
const toldElsewhere = /^(?:session [a-z]+|task "[^"]*" failed): /

/** What a failure says, in few words: the first of its reasons. */
const causeText = (cause: Cause.Cause<unknown>): string => {
  if (cause.reasons.length === 0) return ""
  const error = Cause.squash(cause)
  const text = error instanceof Error && error.message !== "" ? error.message : String(error)
  return `: ${text.split("\n")[0]}`
}

const textOf = (message: unknown): string =>
  Array.isArray(message) ? message.map(textOf).join(" ") : Cause.isCause(message) ? causeText(message) : String(message)

/** Log records as lines on standard error; from warnings on, unless `--log-level` says otherwise. */
export const layerLogger: Layer.Layer<never, never, Screen> = Layer.merge(
  Layer.unwrap(
    Effect.map(Screen, (screen) =>
      Logger.layer([
        Logger.make(({ cause, fiber, logLevel, message }) => {
          const notes = Object.entries(fiber.getRef(References.CurrentLogAnnotations))
          const suffix = notes.length === 0 ? "" : ` (${notes.map(([key, value]) => `${key}=${value}`).join(" ")})`
          const text = `${textOf(message)}${causeText(cause)}`
          const isDefault = fiber.getRef(References.MinimumLogLevel) === defaultLevel
          if (isDefault && toldElsewhere.test(text)) return
          screen.errorLine(`fl-attach: ${logLevel.toLowerCase()}: ${text}${suffix}`)
        })
      ])
    )
  ),
  Layer.succeed(References.MinimumLogLevel, defaultLevel)
)
