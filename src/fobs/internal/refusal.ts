/**
 * How the synchronous reader and writer give up: they throw a {@link Refusal}, which {@link attempt} turns into a
 * Result once, at the public edge. Neither carries a stack, so that refusing hostile bytes stays cheap.
 */
import { Result } from "effect"
import { FobsError, InvalidValue, Malformed, MissingReference, NotEncodable, UnknownType } from "../FobsError.ts"

/** Carries a typed error up to {@link attempt}; nothing else may be thrown. */
class Refusal {
  readonly error: FobsError
  constructor(error: FobsError) {
    this.error = error
  }
}

const raise = (reason: FobsError["reason"]): never => {
  throw new Refusal(new FobsError({ reason }))
}

export const malformed = (message: string, offset?: number): never =>
  raise(new Malformed({ offset, message: offset === undefined ? message : `${message} (at byte ${offset})` }))

export const unknownType = (typeName: string, message: string): never => raise(new UnknownType({ typeName, message }))

export const invalidValue = (typeName: string, message: string): never =>
  raise(new InvalidValue({ typeName, message: `${typeName}: ${message}` }))

export const notEncodable = (message: string): never => raise(new NotEncodable({ message }))

export const missingReference = (id: string, message: string): never => raise(new MissingReference({ id, message }))

/** The success of a Result, or its failure as a refusal. */
export const unwrap = <A>(result: Result.Result<A, FobsError>): A => {
  if (Result.isFailure(result)) throw new Refusal(result.failure)
  return result.success
}

/** What TextDecoder throws; its class is a bare TypeError. */
const isEncodingError = (cause: unknown): boolean =>
  cause instanceof TypeError && "code" in cause && cause.code === "ERR_ENCODING_INVALID_ENCODED_DATA"

/**
 * Runs `run`; a refusal becomes a failure. `foreign` turns what a user's own code threw into an error; where it
 * answers `undefined`, the exception goes on as the defect that it is.
 */
export const attempt = <A>(
  run: () => A,
  foreign?: (cause: unknown) => FobsError | undefined
): Result.Result<A, FobsError> =>
  Result.try({
    try: run,
    catch: (cause) => {
      if (cause instanceof Refusal) return cause.error
      if (isEncodingError(cause)) {
        return new FobsError({ reason: new Malformed({ offset: undefined, message: "a text is not valid utf-8" }) })
      }
      const error = foreign?.(cause)
      if (error === undefined) throw cause
      return error
    }
  })
