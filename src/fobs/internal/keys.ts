/** Equality of dict keys and set elements as Python has it (docs/wire/fobs.md, section 3.1). */
import { EnumValue, Ext, Float, NumpyScalar, PyDateTime, Tuple } from "../Values.ts"

/** Enum classes that are texts too: their members equal their values. */
const textEnums: ReadonlySet<string> = new Set([
  "nvflare.apis.dxo.DataKind",
  "nvflare.app_common.abstract.fl_model.ParamsType"
])

export const toHex = (bytes: Uint8Array): string => {
  let text = ""
  for (const byte of bytes) text += byte < 16 ? `0${byte.toString(16)}` : byte.toString(16)
  return text
}

const ofNumber = (value: number | bigint, self: unknown): unknown => {
  if (typeof value === "number") return Number.isNaN(value) ? self : value === 0 ? 0 : value
  const near = Number(value)
  return BigInt(near) === value ? near : value
}

const ofTuple = (tuple: Tuple): unknown => {
  let text = "t("
  for (const item of tuple.items) {
    const form = canonical(item)
    if (form === undefined) return undefined
    if (typeof form === "object" && form !== null) return tuple
    const part = typeof form === "string" ? form : `${typeof form}${String(form)}`
    text += `${part.length}:${part}`
  }
  return `${text})`
}

/**
 * What stands for a key: equal keys have the same form, compared as Map compares. `undefined` for what Python cannot
 * hash. A form that is the key object itself equals only itself.
 */
export const canonical = (key: unknown): unknown => {
  switch (typeof key) {
    case "string":
      return `s${key}`
    case "number":
    case "bigint":
      return ofNumber(key, key)
    case "boolean":
      return key ? 1 : 0
    case "object":
      break
    default:
      return undefined
  }
  if (key === null) return null
  if (key instanceof Float) return ofNumber(key.value, key)
  if (key instanceof Uint8Array) return `b${toHex(key)}`
  if (key instanceof Tuple) return ofTuple(key)
  if (key instanceof EnumValue) return textEnums.has(key.className) ? `s${key.name}` : `e${key.className}.${key.name}`
  if (key instanceof PyDateTime) return `d${key.iso}`
  if (key instanceof NumpyScalar) return ofNumber(key.value, key)
  if (key instanceof Ext) return `x${key.code}:${toHex(key.bytes)}`
  return undefined
}

/** Fills a Map so that an equal key keeps its first form and place, and gets the last value. */
export class KeyedMap {
  readonly map: Map<unknown, unknown>
  private readonly forms = new Map<unknown, unknown>()
  constructor(map: Map<unknown, unknown>) {
    this.map = map
    for (const key of map.keys()) this.forms.set(canonical(key), key)
  }

  /** False when the key cannot be hashed. */
  set(key: unknown, value: unknown): boolean {
    const form = canonical(key)
    if (form === undefined) return false
    const first = this.forms.get(form)
    if (first === undefined) {
      if (!this.forms.has(form)) this.forms.set(form, key)
      this.map.set(key, value)
    } else this.map.set(first, value)
    return true
  }
}
