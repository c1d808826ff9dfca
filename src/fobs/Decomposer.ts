/**
 * How one class travels inside a FOBS message.
 *
 * A typed object is written as its class name, the name of the Python class that takes it apart, and data made of
 * other values. A codec knows a fixed table of types: nothing is ever loaded by a name that a peer sent.
 *
 * Source: docs/wire/fobs.md, sections 3.2 and 3.3.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import { FobsError, InvalidValue } from "./FobsError.ts"
import { EnumValue } from "./Values.ts"

/**
 * What encoding offers to a decomposer.
 *
 * @category models
 * @since 0.1.0
 */
export interface EncodeContext {
  /** The item id under which an array may be fetched, or `undefined` to write it inline. */
  readonly reference: (dot: 3 | 6, value: unknown) => string | undefined
}

/**
 * What decoding offers to a decomposer.
 *
 * @category models
 * @since 0.1.0
 */
export interface DecodeContext {
  /** Whether plain numbers that would lose their kind come as `Float`. */
  readonly lossless: boolean
  /** What stands for a download reference: the fetched array, or a `DownloadRef`. */
  readonly item: (dot: 3 | 6, itemId: string) => Result.Result<unknown, FobsError>
}

/**
 * Takes a `T` apart and puts it together again.
 *
 * Types that are met often should be told apart cheaply: `is` is asked for each object that is no list, Map or bytes.
 *
 * @category models
 * @since 0.1.0
 */
export interface Decomposer<T> {
  /** The class name on the wire: module, dot, qualified name. */
  readonly typeName: string
  /** The Python decomposer that a receiver looks up. */
  readonly decomposerName: string
  is(value: unknown): value is T
  /** Data for the wire, or a failure. Texts and bytes in it may leave the body as datums by themselves. */
  decompose(value: T, context: EncodeContext): unknown
  /** Judges data that came from a peer: anything may be in it. */
  recompose(data: unknown, context: DecodeContext): Result.Result<T, FobsError>
}

const invalid = (typeName: string, message: string): FobsError =>
  new FobsError({ reason: new InvalidValue({ typeName, message: `${typeName}: ${message}` }) })

/**
 * A decomposer for a class of your own. `recompose` may fail with a plain text, which becomes `InvalidValue`;
 * `decompose` answers the data, or a `Result` of it. `decomposerName` is the name under which the Python peers have
 * registered the class; it defaults to the reference's decomposer of data classes.
 *
 * ```ts
 * const points = Decomposer.make({
 *   typeName: "my.module.Point",
 *   decomposerName: "my.module.PointDecomposer",
 *   is: (value) => value instanceof Point,
 *   decompose: (point) => [new Float(point.x), new Float(point.y)],
 *   recompose: (data) =>
 *     Array.isArray(data) && typeof data[0] === "number" && typeof data[1] === "number"
 *       ? Result.succeed(new Point(data[0], data[1]))
 *       : Result.fail("expected two numbers")
 * })
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = <T>(options: {
  readonly typeName: string
  readonly decomposerName?: string
  readonly is: (value: unknown) => value is T
  readonly decompose: (value: T, context: EncodeContext) => unknown
  readonly recompose: (data: unknown, context: DecodeContext) => Result.Result<T, FobsError | string>
}): Decomposer<T> => ({
  typeName: options.typeName,
  decomposerName: options.decomposerName ?? "nvflare.fuel.utils.fobs.decomposer.DataClassDecomposer",
  is: options.is,
  decompose: options.decompose,
  recompose: (data, context) =>
    Result.mapError(options.recompose(data, context), (error) =>
      typeof error === "string" ? invalid(options.typeName, error) : error
    )
})

/**
 * A decomposer for the members of a Python Enum class, as `EnumValue`s. With `members`, other names are refused, both
 * ways; without, any name is kept as it is. A receiver refuses an enum class that it doesn't know: plain texts are
 * safer.
 *
 * @category constructors
 * @since 0.1.0
 */
export const enumeration = (className: string, members?: ReadonlyArray<string>): Decomposer<EnumValue> => {
  const known =
    members === undefined ? undefined : new Map(members.map((name) => [name, new EnumValue(className, name)]))
  return make({
    typeName: className,
    decomposerName: "nvflare.fuel.utils.fobs.decomposer.EnumTypeDecomposer",
    is: (value): value is EnumValue => value instanceof EnumValue && value.className === className,
    decompose: ({ name }) =>
      known === undefined || known.has(name) ? name : Result.fail(invalid(className, `there is no member "${name}"`)),
    recompose: (data) => {
      if (typeof data !== "string") return Result.fail("a member is given by its name")
      if (known === undefined) return Result.succeed(new EnumValue(className, data))
      const member = known.get(data)
      return member === undefined ? Result.fail(`there is no member ${JSON.stringify(data)}`) : Result.succeed(member)
    }
  })
}
