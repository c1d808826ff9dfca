/**
 * A decoded value as JSON that tells everything apart: what `fl-attach dump --json` prints.
 *
 * Each node has `t`, its kind. Long texts, bytes, lists and arrays are given by length and hash. The value should have
 * been decoded with `lossless`: without it, a float of integer value shows as an int.
 *
 * Source: test/fixtures/fobs/README.md, "Canonical description".
 *
 * @since 0.1.0
 */
import { createHash } from "node:crypto"
import { Result } from "effect"
import { Datum } from "../fobs/Datum.ts"
import { NdArray } from "../fobs/NdArray.ts"
import { Tensor } from "../fobs/Tensor.ts"
import { DownloadRef, EnumValue, Ext, Float, NumpyScalar, OrderedDict, PyDateTime, Tuple } from "../fobs/Values.ts"
import { Dxo } from "../model/Dxo.ts"
import { FLContext } from "../model/FLContext.ts"
import { FLModel } from "../model/FLModel.ts"
import { FLModelEnvelope } from "../model/FLModelEnvelope.ts"
import { Learnable, ModelLearnable } from "../model/Learnable.ts"
import { headersKey, Shareable } from "../model/Shareable.ts"

/**
 * One node of a description: `t` names its kind, the other fields depend on it.
 *
 * @category models
 * @since 0.1.0
 */
export interface Node {
  readonly t: string
  readonly [field: string]: unknown
}

const maxHex = 256
const maxText = 4096
const maxEntries = 1024
const minNested = 64

const sha256 = (data: string | Uint8Array): string => createHash("sha256").update(data).digest("hex")

const hex = (bytes: Uint8Array): string => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("hex")

const sortKeys = (_key: string, value: unknown): unknown =>
  typeof value === "object" && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1)))
    : value

const escape = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`

/**
 * JSON with sorted keys, no spaces and ASCII escapes: the form that lists are hashed and sorted in.
 *
 * @category combinators
 * @since 0.1.0
 */
export const canonicalJson = (node: unknown): string =>
  JSON.stringify(node, sortKeys).replace(/[\u007f-\uffff]/g, escape)

/**
 * The description of a value.
 *
 * @category constructors
 * @since 0.1.0
 */
export const describe = (value: unknown): Node => {
  switch (typeof value) {
    case "boolean":
      return { t: "bool", v: value }
    case "number":
      return number(value)
    case "bigint":
      return { t: "int", v: value.toString() }
    case "string":
      return text(value)
    default:
      return value === null || value === undefined ? { t: "none" } : (container(value) ?? typed(value))
  }
}

const number = (value: number): Node =>
  Number.isSafeInteger(value) && !Object.is(value, -0) ? { t: "int", v: value.toString() } : float(value)

const float = (value: number, bits?: bigint): Node => {
  const view = new DataView(new ArrayBuffer(8))
  view.setFloat64(0, value)
  return { t: "float", bits: (bits ?? view.getBigUint64(0)).toString(16).padStart(16, "0"), repr: String(value) }
}

const text = (value: string): Node => {
  if (value.length <= maxText) return { t: "str", v: value }
  const chars = Array.from(value).length
  if (chars <= maxText) return { t: "str", v: value }
  const utf8 = new TextEncoder().encode(value)
  return { t: "str", chars, utf8_len: utf8.length, sha256: sha256(utf8) }
}

const content = (bytes: Uint8Array): { readonly [field: string]: unknown } => ({
  len: bytes.length,
  sha256: sha256(bytes),
  ...(bytes.length <= maxHex ? { hex: hex(bytes) } : {})
})

const entries = (t: string, nodes: ReadonlyArray<unknown>): Node =>
  nodes.length > maxEntries ? { t, len: nodes.length, v_sha256: sha256(canonicalJson(nodes)) } : { t, v: nodes }

const pairs = (map: Iterable<readonly [unknown, unknown]>): ReadonlyArray<readonly [Node, Node]> =>
  Array.from(map, ([key, value]) => [describe(key), describe(value)] as const)

const list = (value: ReadonlyArray<unknown>): Node => {
  let depth = 0
  let leaf: unknown = value
  while (Array.isArray(leaf) && leaf.length === 1) {
    leaf = leaf[0]
    depth++
  }
  return depth > minNested ? { t: "nested_list", depth, leaf: describe(leaf) } : entries("list", value.map(describe))
}

const sorted = (value: ReadonlySet<unknown>): ReadonlyArray<Node> =>
  Array.from(value, (item) => ({ node: describe(item), json: canonicalJson(describe(item)) }))
    .sort((left, right) => (left.json < right.json ? -1 : 1))
    .map(({ node }) => node)

const container = (value: unknown): Node | undefined => {
  if (Array.isArray(value)) return list(value)
  if (value instanceof Tuple) return entries("tuple", value.items.map(describe))
  if (value instanceof OrderedDict) return entries("odict", pairs(value))
  if (value instanceof Map) return entries("dict", pairs(value))
  if (value instanceof Set) return entries("set", sorted(value))
  if (value instanceof Uint8Array) return { t: "bytes", ...content(value) }
  return undefined
}

/** A structured dtype is kept as Python wrote it; what cannot be read as a list of lists stays text. */
const dtype = (descr: string): unknown => {
  if (!descr.startsWith("[")) return descr
  const json = descr.replace(/'((?:[^'\\]|\\.)*)'|[()]|,\s*(?=[\])])/g, (part, quoted: string | undefined) =>
    quoted === undefined ? (part === "(" ? "[" : part === ")" ? "]" : "") : JSON.stringify(quoted)
  )
  return Result.getOrElse(
    Result.try((): unknown => JSON.parse(json)),
    () => descr
  )
}

const scalarCodes = { float32: "<f4", float64: "<f8", int32: "<i4", int64: "<i8" } as const

const scalar = ({ dtype: name, value }: NumpyScalar): Node => {
  const view = new DataView(new ArrayBuffer(name.endsWith("64") ? 8 : 4))
  if (name === "float64") view.setFloat64(0, Number(value), true)
  else if (name === "float32") view.setFloat32(0, Number(value), true)
  else if (name === "int64") view.setBigInt64(0, BigInt(value), true)
  else view.setInt32(0, Number(value), true)
  return { t: "npscalar", dtype: scalarCodes[name], hex: hex(new Uint8Array(view.buffer)) }
}

/** Members whose value is not their name. */
const enumValues: ReadonlyMap<string, string> = new Map([
  ["nvflare.apis.analytix.LogWriterName.TORCH_TB", "TORCH_TENSORBOARD"],
  ["nvflare.apis.analytix.LogWriterName.WANDB", "WEIGHTS_AND_BIASES"]
])

const enumValue = ({ className, name }: EnumValue): Node => ({
  t: "enum",
  class: className,
  name,
  value: text(enumValues.get(`${className}.${name}`) ?? name)
})

const ext = ({ bytes, code }: Ext): Node => {
  if (code !== -1) return { t: "ext", code, hex: hex(bytes) }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (bytes.length === 4) return { t: "timestamp", seconds: view.getUint32(0), nanoseconds: 0 }
  if (bytes.length === 12) {
    return { t: "timestamp", seconds: Number(view.getBigInt64(4)), nanoseconds: view.getUint32(0) }
  }
  const whole = view.getBigUint64(0)
  return { t: "timestamp", seconds: Number(whole & 0x3_ffff_ffffn), nanoseconds: Number(whole >> 34n) }
}

const typed = (value: unknown): Node => {
  if (value instanceof Float) return float(value.value, value.bits)
  if (value instanceof EnumValue) return enumValue(value)
  if (value instanceof NumpyScalar) return scalar(value)
  if (value instanceof PyDateTime) return { t: "datetime", iso: value.iso }
  if (value instanceof Ext) return ext(value)
  return array(value) ?? model(value) ?? { t: "object", class: className(value) }
}

const array = (value: unknown): Node | undefined => {
  if (value instanceof NdArray) {
    const { order, shape } = value
    const elements = content(value.toC().bytes)
    return { t: "ndarray", dtype: dtype(value.dtype), shape, fortran: order === "F", ...elements }
  }
  if (value instanceof Tensor) return { t: "tensor", dtype: value.dtype, shape: value.shape, ...content(value.bytes) }
  if (value instanceof DownloadRef) {
    return { t: "download_ref", fqcn: value.fqcn, ref_id: value.refId, item_id: value.itemId, dot: value.dot }
  }
  if (value instanceof Datum) {
    const kind = typeof value.value === "string" ? "TEXT" : "BLOB"
    return { t: "datum", kind, dot: value.dot, id: value.id, value: describe(value.value) }
  }
  return undefined
}

const model = (value: unknown): Node | undefined => {
  if (value instanceof Shareable) {
    return entries("shareable", pairs([[headersKey, value.headers], ...value.entries]))
  }
  if (value instanceof Dxo) {
    return { t: "dxo", kind: describe(value.wireKind), meta: describe(value.meta), data: describe(value.data) }
  }
  if (value instanceof FLModel) return flModel(FLModelEnvelope.fromModel(value))
  if (value instanceof FLModelEnvelope) return flModel(value)
  if (value instanceof FLContext) {
    return { t: "flcontext", model: describe(value.model), props: describe(value.props) }
  }
  if (value instanceof Learnable) {
    const name = value instanceof ModelLearnable ? "model.ModelLearnable" : "learnable.Learnable"
    return { ...entries("dictobj", pairs(value.entries)), class: `nvflare.app_common.abstract.${name}` }
  }
  return undefined
}

const flModel = (value: FLModelEnvelope): Node => ({
  t: "flmodel",
  params_type: describe(value.wireParamsType),
  params: describe(value.params),
  optimizer_params: describe(value.optimizerParams),
  metrics: describe(value.metrics),
  start_round: describe(value.startRound),
  current_round: describe(value.currentRound),
  total_rounds: describe(value.totalRounds),
  meta: describe(value.meta)
})

const className = (value: unknown): string =>
  typeof value === "object" && value !== null ? String(value.constructor?.name) : typeof value
