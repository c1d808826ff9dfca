import { Effect, Result } from "effect"
import { FobsError, InvalidValue } from "../../fobs/FobsError.ts"
import { NdArray } from "../../fobs/NdArray.ts"
import * as Npy from "../../fobs/Npy.ts"
import * as Npz from "../../fobs/Npz.ts"
import { Pieces } from "../../fobs/Pieces.ts"
import * as Safetensors from "../../fobs/Safetensors.ts"
import { Tensor } from "../../fobs/Tensor.ts"
import { isFalsy } from "./downloadWire.ts"

/** 3: numpy arrays, in npz items; 6: torch tensors, in safetensors items (docs/wire/fobs.md, section 7.2). */
export type Dot = 3 | 6
export type ArrayValue = NdArray | Tensor

/** An item's name, by its place in the download (docs/wire/fobs.md, section 6.1). */
export const itemName = (index: number): string => `T${index}`

/** An array that an item can be made of; anything else is left inline, where its error is told. */
export const offerable = (dot: Dot, value: unknown): ArrayValue | undefined => {
  if (dot === 3) {
    return value instanceof NdArray && Result.isSuccess(Npy.encode(value)) ? value : undefined
  }
  return value instanceof Tensor && Result.isSuccess(Safetensors.encode([["t", value]])) ? value : undefined
}

/** An item's file, whose pieces are views of the array. */
export const encodeItem = (name: string, value: ArrayValue): Result.Result<Pieces, FobsError> =>
  Result.map(
    value instanceof NdArray ? Npz.encode([[name, value]]) : Safetensors.encode([[name, value]]),
    (parts) => new Pieces(parts)
  )

/** The same, with pauses in which others may run. */
export const encodeItemInSteps = (name: string, value: ArrayValue): Effect.Effect<Pieces, FobsError> =>
  value instanceof NdArray
    ? Effect.map(Npz.encodeInSteps([[name, value]]), (parts) => new Pieces(parts))
    : Effect.suspend(() => Effect.fromResult(encodeItem(name, value)))

/** What a receiver can hold still. */
export interface Budget {
  bytes: number
  items: number
}

/**
 * The arrays of one item, by name, as views of it where they are not packed. The item's own length must be off the
 * budget already; what it inflates to is taken from it here.
 */
export const decodeItem = (
  dot: Dot,
  item: Uint8Array,
  budget: Budget
): Result.Result<ReadonlyMap<string, ArrayValue>, FobsError> => {
  const arrays: Result.Result<ReadonlyMap<string, ArrayValue>, FobsError> = dot === 3
    ? Npz.decode(item, { maxBytes: budget.bytes + item.length, maxMembers: budget.items })
    : Safetensors.decode(item)
  return Result.flatMap(arrays, (values) => {
    for (const { bytes } of values.values()) {
      budget.bytes -= bytes.buffer === item.buffer ? 0 : bytes.length
    }
    budget.items -= values.size
    return budget.bytes < 0 || budget.items < 0
      ? Result.fail(new FobsError({ reason: new InvalidValue({ typeName: "npz", message: "it holds too much" }) }))
      : Result.succeed(values)
  })
}

/** The answer to a request for a chunk: a pure function of the items and the request. */
export type Chunk =
  | { readonly kind: "data"; readonly start: number; readonly items: ReadonlyArray<Pieces> }
  | { readonly kind: "end" }
  | { readonly kind: "refused"; readonly why: string }

const refused = (why: string): Chunk => ({ kind: "refused", why })

const count = (value: unknown): number | undefined => {
  const number = value === undefined ? 0 : typeof value === "bigint" ? Number(value) : value
  return typeof number === "number" && Number.isFinite(number) ? number : undefined
}

/** The index of the first item that a request asks for; `undefined` where its state makes no sense. */
const firstOf = (state: unknown): number | undefined => {
  if (isFalsy(state)) {
    return 0
  }
  if (!(state instanceof Map)) {
    return undefined
  }
  const start = count(state.get("start"))
  const length = count(state.get("count"))
  return start === undefined || length === undefined ? undefined : start + length
}

/** Takes the item that is asked for, and those behind it while all stay below `chunkSize` bytes. */
export const chunkAt = (
  state: unknown,
  size: number,
  item: (index: number) => Result.Result<Pieces, FobsError>,
  chunkSize: number
): Chunk => {
  const start = firstOf(state)
  if (start === undefined || start < 0) {
    return refused("its state is no place in the items")
  }
  if (start >= size) {
    return { kind: "end" }
  }
  if (!Number.isInteger(start)) {
    return refused("its state is no place in the items")
  }
  const items: Array<Pieces> = []
  let bytes = 0
  for (let index = start; index < size; index += 1) {
    const next = item(index)
    if (Result.isFailure(next)) {
      return refused(next.failure.message)
    }
    if (items.length > 0 && bytes + next.success.byteLength >= chunkSize) {
      break
    }
    items.push(next.success)
    bytes += next.success.byteLength
  }
  return { kind: "data", start, items }
}
