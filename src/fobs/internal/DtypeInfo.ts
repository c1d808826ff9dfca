/**
 * What a numpy dtype text means: kind, width, byte order.
 *
 * Source: docs/wire/fobs.md, section 4.1.
 */
import { Result } from "effect"
import * as PythonLiteral from "./PythonLiteral.ts"

/** numpy's kind letters, and `struct` for a field list. */
export type DtypeKind = "b" | "i" | "u" | "f" | "c" | "U" | "S" | "V" | "M" | "m" | "struct"

export interface DtypeInfo {
  readonly kind: DtypeKind
  /** Bytes an element. */
  readonly itemSize: number
  /** `|` where byte order has no meaning, and for field lists. */
  readonly byteOrder: "<" | ">" | "|"
  /** The text that numpy itself writes (`f4` becomes `<f4`); a field list stays as it came. */
  readonly text: string
}

/** Names and one-letter codes that numpy takes beside its own spelling. */
const otherSpellings: ReadonlyMap<string, string> = new Map([
  ["?", "b1"],
  ["bool", "b1"],
  ["bool_", "b1"],
  ["b", "i1"],
  ["B", "u1"],
  ["h", "i2"],
  ["H", "u2"],
  ["i", "i4"],
  ["I", "u4"],
  ["l", "i8"],
  ["L", "u8"],
  ["q", "i8"],
  ["Q", "u8"],
  ["e", "f2"],
  ["f", "f4"],
  ["d", "f8"],
  ["F", "c8"],
  ["D", "c16"],
  ["int", "i8"],
  ["uint", "u8"],
  ["float", "f8"],
  ["complex", "c16"],
  ["half", "f2"],
  ["single", "f4"],
  ["double", "f8"],
  ["int8", "i1"],
  ["int16", "i2"],
  ["int32", "i4"],
  ["int64", "i8"],
  ["uint8", "u1"],
  ["uint16", "u2"],
  ["uint32", "u4"],
  ["uint64", "u8"],
  ["float16", "f2"],
  ["float32", "f4"],
  ["float64", "f8"],
  ["complex64", "c8"],
  ["complex128", "c16"]
])

const numericWidths: ReadonlyMap<string, ReadonlyArray<number>> = new Map([
  ["b", [1]],
  ["i", [1, 2, 4, 8]],
  ["u", [1, 2, 4, 8]],
  ["f", [2, 4, 8, 16]],
  ["c", [8, 16, 32]]
])
const timeUnits: ReadonlySet<string> = new Set(["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"])
const maxItemSize = 2 ** 31 - 1
const maxDimensions = 64

const digitsEnd = (text: string, from: number): number => {
  let end = from
  while (end < text.length && text.charAt(end) >= "0" && text.charAt(end) <= "9") end++
  return end
}

/** A count of at most ten digits without a sign; empty text is `ifEmpty`. */
const count = (text: string, ifEmpty: number): number | undefined => {
  if (text === "") return ifEmpty
  if (text.length > 10 || digitsEnd(text, 0) !== text.length) return undefined
  return Number(text)
}

/** The unit as numpy writes it (`[ns]` for `[1ns]`), empty without one; `undefined` for what is none. */
const timeUnit = (text: string): string | undefined => {
  if (text === "" || text === "[generic]") return ""
  if (!text.startsWith("[") || !text.endsWith("]")) return undefined
  const inner = text.slice(1, -1)
  const end = digitsEnd(inner, 0)
  const multiple = count(inner.slice(0, end), 1)
  const unit = inner.slice(end)
  if (multiple === undefined || multiple < 1 || multiple > maxItemSize || !timeUnits.has(unit)) return undefined
  return multiple === 1 ? `[${unit}]` : `[${multiple}${unit}]`
}

const refuse = (text: string): Result.Result<never, string> =>
  Result.fail(`${JSON.stringify(text.slice(0, 60))} is no dtype that can travel`)

const parseScalar = (text: string): Result.Result<DtypeInfo, string> => {
  const first = text.charAt(0)
  const ordered = first === "<" || first === ">" || first === "=" || first === "|"
  const bare = ordered ? text.slice(1) : text
  const order = first === ">" ? ">" : "<"
  const body = otherSpellings.get(bare) ?? bare
  const kind = body.charAt(0)
  const rest = body.slice(1)
  const make = (kind: DtypeKind, itemSize: number, byteOrder: DtypeInfo["byteOrder"], tail: string) =>
    itemSize > maxItemSize ? refuse(text) : Result.succeed({ kind, itemSize, byteOrder, text: byteOrder + kind + tail })
  switch (kind) {
    case "b":
    case "i":
    case "u":
    case "f":
    case "c": {
      const width = count(rest, -1)
      if (width === undefined || numericWidths.get(kind)?.includes(width) !== true) return refuse(text)
      return make(kind, width, width === 1 ? "|" : order, String(width))
    }
    case "U":
    case "S":
    case "V": {
      const length = count(rest, 0)
      if (length === undefined) return refuse(text)
      return kind === "U" ? make("U", length * 4, order, String(length)) : make(kind, length, "|", String(length))
    }
    case "M":
    case "m": {
      const unit = rest.startsWith("8") ? timeUnit(rest.slice(1)) : undefined
      return unit === undefined ? refuse(text) : make(kind, 8, order, `8${unit}`)
    }
    default:
      return body === "O" || body === "O8" || body === "object"
        ? Result.fail("Python objects (dtype object) never travel: they would run code at the receiver")
        : refuse(text)
  }
}

/** The fields, in bytes; padding fields have an empty name. */
const parseFields = (literal: PythonLiteral.Literal, depth: number): Result.Result<number, string> =>
  Result.gen(function* () {
    if (literal.type !== "list" || literal.items.length === 0 || depth > 16) {
      return yield* Result.fail("the dtype is neither text nor a list of fields")
    }
    const names = new Set<string>()
    let total = 0
    for (const field of literal.items) {
      total += yield* parseField(field, names, depth)
      if (total > maxItemSize) return yield* Result.fail("an element of the dtype has more than 2^31 bytes")
    }
    return total
  })

const parseField = (field: PythonLiteral.Literal, names: Set<string>, depth: number): Result.Result<number, string> =>
  Result.gen(function* () {
    const [name, type, shape] = field.type === "tuple" && field.items.length <= 3 ? field.items : []
    if (name === undefined || type === undefined) {
      return yield* Result.fail("a field of the dtype is not (name, dtype) or (name, dtype, shape)")
    }
    yield* fieldNames(name, names)
    const size = type.type === "text" ? (yield* parseScalar(type.value)).itemSize : yield* parseFields(type, depth + 1)
    return size * (yield* subShape(shape))
  })

const fieldNames = (name: PythonLiteral.Literal, names: Set<string>): Result.Result<void, string> => {
  const all = name.type === "tuple" && name.items.length === 2 ? name.items : [name]
  for (const each of all) {
    if (each.type !== "text") return Result.fail("the name of a dtype field is not text")
    if (each.value !== "" && names.has(each.value)) return Result.fail("two fields of the dtype have the same name")
    names.add(each.value)
  }
  return Result.void
}

const subShape = (shape: PythonLiteral.Literal | undefined): Result.Result<number, string> => {
  if (shape === undefined) return Result.succeed(1)
  const items = shape.type === "tuple" && shape.items.length <= maxDimensions ? shape.items : [shape]
  let product = 1
  for (const item of items) {
    if (item.type !== "int" || item.value < 0n || item.value > BigInt(maxItemSize)) {
      return Result.fail("the shape of a dtype field is not made of ints from 0 to 2^31")
    }
    product *= Number(item.value)
  }
  return product > maxItemSize ? Result.fail("a field of the dtype has more than 2^31 bytes") : Result.succeed(product)
}

const structInfo = (literal: PythonLiteral.Literal, text: string): Result.Result<DtypeInfo, string> =>
  Result.map(parseFields(literal, 0), (itemSize) => ({ kind: "struct", itemSize, byteOrder: "|", text }))

/** The meaning of a dtype that stands as a literal in `source`; the failure is a sentence for a person. */
export const fromLiteral = (literal: PythonLiteral.Literal, source: string): Result.Result<DtypeInfo, string> =>
  literal.type === "text" ? parseScalar(literal.value) : structInfo(literal, source.slice(literal.start, literal.end))

/** The meaning of a dtype as `NdArray` keeps it: numpy's short text, or a field list as text. */
export const parse = (dtype: string): Result.Result<DtypeInfo, string> =>
  dtype.startsWith("[")
    ? Result.flatMap(PythonLiteral.parse(dtype), (literal) => structInfo(literal, dtype))
    : parseScalar(dtype)
