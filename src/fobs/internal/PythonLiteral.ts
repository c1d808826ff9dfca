/**
 * A reader for the Python literals of npy headers: text, ints, True, False, None, tuples, lists and dicts.
 *
 * One pass over the text without backtracking or regular expressions; nesting is bounded, so hostile text costs no
 * more than its length.
 *
 * Source: docs/wire/fobs.md, section 4.1.
 */
import { Result } from "effect"

/** A literal and where it stands in the text; `end` is exclusive. */
export type Literal = { readonly start: number; readonly end: number } & LiteralValue

type LiteralValue =
  | { readonly type: "text"; readonly value: string }
  | { readonly type: "int"; readonly value: bigint }
  | { readonly type: "name"; readonly value: "True" | "False" | "None" }
  | { readonly type: "tuple" | "list"; readonly items: ReadonlyArray<Literal> }
  | { readonly type: "dict"; readonly entries: ReadonlyArray<readonly [Literal, Literal]> }

const maxDepth = 64
/** The largest dimension has 19 digits; Python's own limit is 4300. */
const maxDigits = 40

const isDigit = (c: string): boolean => c >= "0" && c <= "9"
const isSpace = (c: string): boolean => c === " " || c === "\n" || c === "\t" || c === "\r" || c === "\f"
const isHex = (c: string): boolean => isDigit(c) || (c >= "a" && c <= "f") || (c >= "A" && c <= "F")

const simpleEscapes: ReadonlyMap<string, string> = new Map([
  ["\\", "\\"],
  ["'", "'"],
  ['"', '"'],
  ["a", "\x07"],
  ["b", "\b"],
  ["f", "\f"],
  ["n", "\n"],
  ["r", "\r"],
  ["t", "\t"],
  ["v", "\v"]
])
const hexEscapes: ReadonlyMap<string, number> = new Map([
  ["x", 2],
  ["u", 4],
  ["U", 8]
])

class Reader {
  private readonly text: string
  private position = 0
  private failure: { readonly at: number; readonly what: string } | undefined

  constructor(text: string) {
    this.text = text
  }

  read(): Result.Result<Literal, string> {
    const value = this.value(0)
    if (value !== undefined) {
      this.skipSpace()
      if (this.position === this.text.length) return Result.succeed(value)
      this.fail("text behind the value")
    }
    const { at, what } = this.failure ?? { at: 0, what: "no value" }
    return Result.fail(`${what} at character ${at}`)
  }

  private fail(what: string): undefined {
    this.failure ??= { at: this.position, what }
    return undefined
  }

  private peek(): string {
    return this.text.charAt(this.position)
  }

  private isQuoteAt(position: number): boolean {
    const c = this.text.charAt(position)
    return c === "'" || c === '"'
  }

  private skipSpace(): void {
    while (this.position < this.text.length && isSpace(this.peek())) this.position++
  }

  private value(depth: number): Literal | undefined {
    if (depth > maxDepth) return this.fail(`more than ${maxDepth} levels of brackets`)
    this.skipSpace()
    const start = this.position
    const value = this.bare(this.peek(), depth)
    return value === undefined ? undefined : { ...value, start, end: this.position }
  }

  private bare(c: string, depth: number): LiteralValue | undefined {
    if (c === "(") return this.parenthesis(depth)
    if (c === "[") {
      const items = this.items("]", depth)?.items
      return items === undefined ? undefined : { type: "list", items }
    }
    if (c === "{") return this.dict(depth)
    if (c === "'" || c === '"') return this.quoted(c)
    if (c === "u" && this.isQuoteAt(this.position + 1)) {
      this.position++ // Python 2's unicode text
      return this.quoted(this.peek())
    }
    if (isDigit(c) || c === "-" || c === "+") return this.int()
    return this.name()
  }

  private name(): LiteralValue | undefined {
    for (const value of ["True", "False", "None"] as const) {
      if (this.text.startsWith(value, this.position)) {
        this.position += value.length
        return { type: "name", value }
      }
    }
    return this.fail("no Python literal")
  }

  private int(): LiteralValue | undefined {
    const start = this.position
    if (!isDigit(this.peek())) this.position++
    const digits = this.position
    while (isDigit(this.peek())) this.position++
    const count = this.position - digits
    if (count === 0) return this.fail("a sign without digits")
    if (count > maxDigits) return this.fail("a number that is too long")
    const value = BigInt(this.text.slice(digits, this.position))
    if (value !== 0n && this.text.charAt(digits) === "0") return this.fail("a number with a leading zero")
    if (this.peek() === "L") this.position++ // Python 2 wrote long ints so
    return { type: "int", value: this.text.charAt(start) === "-" ? -value : value }
  }

  private quoted(quote: string): LiteralValue | undefined {
    this.position++
    const parts: Array<string> = []
    let from = this.position
    for (;;) {
      const c = this.peek()
      if (c === "" || c === "\n") return this.fail("text without a closing quote")
      if (c === quote) break
      if (c === "\\") {
        parts.push(this.text.slice(from, this.position))
        const escaped = this.escape()
        if (escaped === undefined) return undefined
        parts.push(escaped)
        from = this.position
      } else {
        this.position++
      }
    }
    parts.push(this.text.slice(from, this.position))
    this.position++
    return { type: "text", value: parts.join("") }
  }

  private escape(): string | undefined {
    const c = this.text.charAt(this.position + 1)
    const simple = simpleEscapes.get(c)
    if (simple !== undefined) {
      this.position += 2
      return simple
    }
    const width = hexEscapes.get(c)
    if (width === undefined) return this.fail("an unknown escape")
    const digits = this.text.slice(this.position + 2, this.position + 2 + width)
    const code = digits.length === width && [...digits].every(isHex) ? Number.parseInt(digits, 16) : Infinity
    if (code > 0x10ffff) return this.fail("an escape that is no character")
    this.position += 2 + width
    return String.fromCodePoint(code)
  }

  /** The elements up to `close`, with a trailing comma or without. */
  private items(
    close: string,
    depth: number
  ): { readonly items: ReadonlyArray<Literal>; readonly comma: boolean } | undefined {
    this.position++
    const items: Array<Literal> = []
    let comma = false
    for (;;) {
      this.skipSpace()
      if (this.peek() === close) break
      if (items.length > 0 && !comma) return this.fail("no comma between two elements")
      const item = this.value(depth + 1)
      if (item === undefined) return undefined
      items.push(item)
      comma = this.skipComma()
    }
    this.position++
    return { items, comma }
  }

  private skipComma(): boolean {
    this.skipSpace()
    if (this.peek() !== ",") return false
    this.position++
    return true
  }

  private parenthesis(depth: number): LiteralValue | undefined {
    const read = this.items(")", depth)
    if (read === undefined) return undefined
    const only = read.items[0]
    if (only !== undefined && read.items.length === 1 && !read.comma) return only
    return { type: "tuple", items: read.items }
  }

  private dict(depth: number): LiteralValue | undefined {
    this.position++
    const entries: Array<readonly [Literal, Literal]> = []
    let comma = true
    for (;;) {
      this.skipSpace()
      if (this.peek() === "}") break
      if (!comma) return this.fail("no comma between two entries")
      const key = this.value(depth + 1)
      if (key === undefined) return undefined
      this.skipSpace()
      if (this.peek() !== ":") return this.fail("no colon behind a key")
      this.position++
      const value = this.value(depth + 1)
      if (value === undefined) return undefined
      entries.push([key, value])
      comma = this.skipComma()
    }
    this.position++
    return { type: "dict", entries }
  }
}

/** Reads one literal that fills the whole text; the failure says what is wrong and at which character. */
export const parse = (text: string): Result.Result<Literal, string> => new Reader(text).read()
