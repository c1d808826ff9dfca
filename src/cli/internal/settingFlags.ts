/** The names of flags in what the command says. */
import { Failure, toFailure } from "./Failure.ts"

/** The settings of a backend by the flags that set them: whoever uses the command knows flags. */
const flagNames: ReadonlyMap<string, string> = new Map([
  ["attachId", "--attach-id"],
  ["attachTimeout", "--attach-timeout"],
  ["connectTimeout", "--connect-timeout"],
  ["heartbeatInterval", "--heartbeat-interval"],
  ["heartbeatTimeout", "--heartbeat-timeout"],
  ["taskWaitTimeout", "--task-timeout"],
  ["resultWaitTimeout", "--result-timeout"],
  ["trainTaskName", "--task"],
  ["paramsExchangeFormat", "--exchange-format"],
  ["serverExpectedFormat", "--server-format"],
  ["allowReconnect", "--allow-reconnect"],
  ["acceptChangedModel", "--accept-changed-model"]
])

/** A message with the names of flags in place of those of settings. */
export const inFlags = (message: string): string =>
  message
    .replace(/^([A-Za-z]+): /, (start, word: string) => (flagNames.has(word) ? `${flagNames.get(word)} ` : start))
    // A word of its own elsewhere, and a part of paths.
    .replace("(identity)", "(--identity)")
    .replace("give its path, or the folder of certificates", "give --certs, the folder of the site's certificates")
    .replace(/[A-Za-z]+/g, (word) => flagNames.get(word) ?? word)

/** How a command ends with an error, in the words of its flags. */
export const failureInFlags = (error: Parameters<typeof toFailure>[0]): Failure => {
  const { exitCode, message } = toFailure(error)
  return new Failure({ exitCode, message: inFlags(message) })
}
