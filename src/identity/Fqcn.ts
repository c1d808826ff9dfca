/**
 * Fully qualified cell names: `site-1`, `site-1.job-7`, `site-1.-client_api_t1`.
 *
 * A name is its parts joined by dots, from the root down; a cell's parent is the cell it connects to.
 * Source: docs/wire/cellnet.md, section 1.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import { FqcnError } from "./FqcnError.ts"

const allowed = /^[A-Za-z0-9_.~-]*$/

// What Python's str.strip takes away. String.prototype.trim differs: it keeps U+001C to U+001F and U+0085.
const blank = "\\u0009-\\u000d\\u001c-\\u0020\\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
const leadingBlank = new RegExp(`^[${blank}]+`)
const isBlank = new RegExp(`[${blank}]`)

// By hand at the end: a pattern such as /\s+$/ is quadratic on a long run of blanks within a name.
const strip = (text: string): string => {
  let end = text.length
  while (end > 0 && isBlank.test(text.charAt(end - 1))) {
    end -= 1
  }
  return text.slice(0, end).replace(leadingBlank, "")
}

const invalid = (name: string, problem: string): Result.Result<never, FqcnError> => {
  const shown = name.length > 80 ? `${name.slice(0, 80)}...` : name
  return Result.fail(
    new FqcnError({
      name: shown,
      problem,
      message: `${JSON.stringify(shown)} is no cell name (${problem}): use parts of A-Z a-z 0-9 _ ~ -, joined by dots, no part twice`
    })
  )
}

/**
 * Checks a name and answers it without the white space around it.
 *
 * @category constructors
 * @since 0.1.0
 */
export const validate = (name: unknown): Result.Result<string, FqcnError> => {
  if (typeof name !== "string") {
    return invalid(String(typeof name), "not a string")
  }
  const fqcn = strip(name)
  if (fqcn === "") {
    return invalid(name, "empty")
  }
  if (!allowed.test(fqcn)) {
    return invalid(name, "invalid char")
  }
  const seen = new Set<string>()
  for (const part of fqcn.split(".")) {
    if (part === "") {
      return invalid(name, "empty part")
    }
    if (seen.has(part)) {
      return invalid(name, `dup '${part}'`)
    }
    seen.add(part)
  }
  return Result.succeed(fqcn)
}

/**
 * The parts of a name, the root first.
 *
 * @category combinators
 * @since 0.1.0
 */
export const parts = (name: string): ReadonlyArray<string> => name.split(".")

/**
 * One name of parts or of names.
 *
 * @category combinators
 * @since 0.1.0
 */
export const join = (...names: ReadonlyArray<string>): string => names.filter((name) => name !== "").join(".")

/**
 * All parts but the last; `""` for a root.
 *
 * @category combinators
 * @since 0.1.0
 */
export const parent = (name: string): string => name.slice(0, Math.max(0, name.lastIndexOf(".")))

/**
 * The last part.
 *
 * @category combinators
 * @since 0.1.0
 */
export const leaf = (name: string): string => name.slice(name.lastIndexOf(".") + 1)

/**
 * The first part.
 *
 * @category combinators
 * @since 0.1.0
 */
export const root = (name: string): string => {
  const dot = name.indexOf(".")
  return dot < 0 ? name : name.slice(0, dot)
}

/**
 * Whether `a` stands above `b`, at any distance; never of itself.
 *
 * @category guards
 * @since 0.1.0
 */
export const isAncestor = (a: string, b: string): boolean => b.startsWith(`${a}.`)

/**
 * Whether `a` stands right above `b`.
 *
 * @category guards
 * @since 0.1.0
 */
export const isParent = (a: string, b: string): boolean => a !== "" && parent(b) === a

/**
 * Whether two names have the same root.
 *
 * @category guards
 * @since 0.1.0
 */
export const sameFamily = (a: string, b: string): boolean => root(a) === root(b)
