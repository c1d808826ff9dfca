/** The types that every codec knows (docs/wire/fobs.md, section 3.3). */
import { Result } from "effect"
import * as Decomposer from "../Decomposer.ts"
import type { FobsError } from "../FobsError.ts"
import { NdArray } from "../NdArray.ts"
import * as Npy from "../Npy.ts"
import { Pieces } from "../Pieces.ts"
import * as Safetensors from "../Safetensors.ts"
import { Tensor } from "../Tensor.ts"
import { DownloadRef, Float, NumpyScalar, OrderedDict, PyDateTime, Tuple } from "../Values.ts"
import { parseDateTime } from "./datetime.ts"
import { canonical, KeyedMap } from "./keys.ts"

const core = "nvflare.fuel.utils.fobs.decomposers.core_decomposers"
const numpy = "nvflare.app_common.decomposers.numpy_decomposers"

/** What Python gets from iterating over `data`; `undefined` where it can't. */
const elements = (data: unknown): ReadonlyArray<unknown> | undefined => {
  if (Array.isArray(data)) return data
  if (data instanceof Tuple) return data.items
  if (typeof data === "string" || data instanceof Uint8Array || data instanceof Set) return Array.from(data)
  if (data instanceof Map) return Array.from(data.keys())
  return undefined
}

const noElements = Result.fail("the data holds no elements")

const tuple = Decomposer.make<Tuple>({
  typeName: "tuple",
  decomposerName: `${core}.TupleDecomposer`,
  is: (value) => value instanceof Tuple,
  decompose: ({ items }) => items,
  recompose: (data) => {
    const items = elements(data)
    return items === undefined ? noElements : Result.succeed(new Tuple(items))
  }
})

const set = Decomposer.make<ReadonlySet<unknown>>({
  typeName: "set",
  decomposerName: `${core}.SetDecomposer`,
  is: (value) => value instanceof Set,
  decompose: (value) => {
    const items = Array.from(value)
    return items.some((item) => canonical(item) === undefined)
      ? Result.fail("a list, dict or object cannot be in a set")
      : items
  },
  recompose: (data) => {
    const items = elements(data)
    if (items === undefined) return noElements
    const unique = new KeyedMap(new Map())
    for (const item of items)
      if (!unique.set(item, item)) return Result.fail("a list, dict or object cannot be in a set")
    return Result.succeed(new Set(unique.map.keys()))
  }
})

const pair = (data: unknown): readonly [unknown, unknown] | undefined => {
  const items = elements(data)
  return items?.length === 2 ? [items[0], items[1]] : undefined
}

const orderedDict = Decomposer.make<OrderedDict>({
  typeName: "collections.OrderedDict",
  decomposerName: `${core}.OrderedDictDecomposer`,
  is: (value) => value instanceof OrderedDict,
  decompose: (value) => Array.from(value, (entry) => new Tuple(entry)),
  recompose: (data) => {
    const entries = data instanceof Map ? Array.from(data, (entry) => entry) : elements(data)
    if (entries === undefined) return noElements
    const dict = new OrderedDict()
    const keyed = new KeyedMap(dict)
    for (const entry of entries) {
      const both = pair(entry)
      if (both === undefined) return Result.fail("an entry is no pair")
      if (!keyed.set(both[0], both[1])) return Result.fail("a list, dict or object is no key")
    }
    return Result.succeed(dict)
  }
})

const datetime = Decomposer.make<PyDateTime>({
  typeName: "datetime.datetime",
  decomposerName: `${core}.DatetimeDecomposer`,
  is: (value) => value instanceof PyDateTime,
  decompose: ({ iso }) =>
    parseDateTime(iso) === undefined ? Result.fail(`${JSON.stringify(iso)} is no date and time`) : iso,
  recompose: (data) => {
    const iso = typeof data === "string" ? parseDateTime(data) : undefined
    return iso === undefined ? Result.fail("the data is no ISO date and time") : Result.succeed(new PyDateTime(iso))
  }
})

const ranges = { int64: 63n, int32: 31n } as const

/** The nearest value that the type holds, as numpy converts: towards zero, and an integer out of range is refused. */
const toScalar = (dtype: NumpyScalar["dtype"], value: number | bigint): number | bigint | undefined => {
  if (dtype === "float64") return Number(value)
  if (dtype === "float32") return Math.fround(Number(value))
  if (typeof value === "number" && !Number.isFinite(value)) return undefined
  const integer = typeof value === "bigint" ? value : BigInt(Math.trunc(value))
  const limit = 1n << ranges[dtype]
  if (integer < -limit || integer >= limit) return undefined
  const near = Number(integer)
  return Number.isSafeInteger(near) ? near : integer
}

const toNumber = (data: unknown): number | bigint | undefined => {
  if (typeof data === "number" || typeof data === "bigint") return data
  if (typeof data === "boolean") return data ? 1 : 0
  return data instanceof Float ? data.value : undefined
}

const scalar = (dtype: NumpyScalar["dtype"], decomposer: string): Decomposer.Decomposer<NumpyScalar> =>
  Decomposer.make<NumpyScalar>({
    typeName: `numpy.${dtype}`,
    decomposerName: `${numpy}.${decomposer}`,
    is: (value): value is NumpyScalar => value instanceof NumpyScalar && value.dtype === dtype,
    decompose: ({ value }) => {
      const form = toScalar(dtype, value)
      if (form === undefined) return Result.fail(`${value} is out of range`)
      return dtype === "float64" || dtype === "float32" ? new Float(Number(form)) : form
    },
    recompose: (data) => {
      const value = toNumber(data)
      if (value === undefined) return Result.fail("the data is no number")
      const form = toScalar(dtype, value)
      return form === undefined ? Result.fail(`${value} is out of range`) : Result.succeed(new NumpyScalar(dtype, form))
    }
  })

interface Body {
  readonly type: unknown
  readonly data: unknown
}

/** The common form of arrays and tensors; an empty `data` counts as none. */
const arrayBody = (data: unknown): Body | undefined => {
  if (!(data instanceof Map)) return undefined
  const body = { type: data.get("type"), data: data.get("data") }
  return body.type === "native" || (body.type === "ref" && typeof body.data === "string" && body.data !== "")
    ? body
    : undefined
}

/** A class whose values travel inline or as references to a download of `dot`. */
const arrays = <T>(options: {
  readonly typeName: string
  readonly decomposerName: string
  readonly dot: 3 | 6
  readonly is: (value: unknown) => value is T
  readonly encode: (value: T) => Result.Result<ReadonlyArray<Uint8Array>, FobsError>
  readonly decode: (bytes: Uint8Array) => Result.Result<T, FobsError | string>
}): Decomposer.Decomposer<T | DownloadRef> =>
  Decomposer.make<T | DownloadRef>({
    typeName: options.typeName,
    decomposerName: options.decomposerName,
    is: options.is as (value: unknown) => value is T | DownloadRef,
    decompose: (value, context) => {
      const itemId = context.reference(options.dot, value)
      if (itemId !== undefined) return { type: "ref", data: itemId }
      // A DownloadRef never comes here: `is` knows arrays alone.
      return Result.map(options.encode(value as T), (parts) => ({ type: "native", data: new Pieces(parts) }))
    },
    recompose: (data, context): Result.Result<T | DownloadRef, FobsError | string> => {
      const body = arrayBody(data)
      if (body === undefined) return Result.fail("the data is neither a native array nor a reference")
      // What a reference stands for is the business of whoever fetched it.
      if (typeof body.data === "string" && body.type === "ref") {
        return context.item(options.dot, body.data) as Result.Result<T | DownloadRef, FobsError>
      }
      return body.data instanceof Uint8Array && body.data.length > 0
        ? options.decode(body.data)
        : Result.fail("the data of a native array is no bytes, or empty")
    }
  })

const ndarray = arrays<NdArray>({
  typeName: "numpy.ndarray",
  decomposerName: `${numpy}.NumpyArrayDecomposer`,
  dot: 3,
  is: (value) => value instanceof NdArray,
  encode: Npy.encode,
  decode: Npy.decode
})

const tensor = arrays<Tensor>({
  typeName: "torch.Tensor",
  decomposerName: "nvflare.app_opt.pt.decomposers.TensorDecomposer",
  dot: 6,
  is: (value) => value instanceof Tensor,
  encode: (value) => Safetensors.encode([["t", value]]),
  decode: (bytes) =>
    Result.flatMap(Safetensors.decode(bytes), (tensors): Result.Result<Tensor, string> => {
      const value = tensors.get("t")
      return value === undefined ? Result.fail('the data holds no tensor "t"') : Result.succeed(value)
    })
})

const lazyRef = Decomposer.make<DownloadRef>({
  typeName: "nvflare.fuel.utils.fobs.decomposers.via_downloader.LazyDownloadRef",
  decomposerName: "nvflare.fuel.utils.fobs.decomposers.via_downloader.LazyDownloadRefDecomposer",
  is: (value) => value instanceof DownloadRef,
  decompose: ({ dot, itemId }) => ({ type: "ref", data: itemId, lazy_dot: dot }),
  recompose: (data, context): Result.Result<DownloadRef, FobsError | string> => {
    const body = arrayBody(data)
    const dot: unknown = data instanceof Map ? data.get("lazy_dot") : undefined
    if (body?.type !== "ref" || typeof body.data !== "string" || (dot !== 3 && dot !== 6)) {
      return Result.fail("the data is no reference with a lazy_dot")
    }
    return context.item(dot, body.data) as Result.Result<DownloadRef, FobsError>
  }
})

/** Members of the enums that a receiver takes without registration; `undefined` where any name passes. */
const enums: Readonly<Record<string, ReadonlyArray<string> | undefined>> = {
  "nvflare.apis.dxo.DataKind":
    "FL_MODEL WEIGHTS WEIGHT_DIFF METRICS ANALYTIC COLLECTION STATISTICS PSI APP_DEFINED".split(" "),
  "nvflare.app_common.abstract.fl_model.ParamsType": ["FULL", "DIFF"],
  "nvflare.apis.analytix.AnalyticsDataType":
    "SCALARS SCALAR IMAGE TEXT LOG_RECORD PARAMETER PARAMETERS METRIC METRICS MODEL TAG TAGS INIT_DATA".split(" "),
  "nvflare.apis.analytix.LogWriterName": ["TORCH_TB", "MLFLOW", "WANDB"],
  "nvflare.apis.job_def.JobMetaKey": undefined,
  "xgboost.core.DataSplitMode": undefined
}

export const coreTypes: ReadonlyArray<Decomposer.Decomposer<unknown>> = [
  ndarray,
  tuple,
  tensor,
  ...Object.entries(enums).map(([className, members]) => Decomposer.enumeration(className, members)),
  scalar("float64", "Float64ScalarDecomposer"),
  scalar("float32", "Float32ScalarDecomposer"),
  scalar("int64", "Int64ScalarDecomposer"),
  scalar("int32", "Int32ScalarDecomposer"),
  lazyRef,
  orderedDict,
  set,
  datetime
]
