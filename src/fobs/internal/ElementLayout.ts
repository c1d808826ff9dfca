/**
 * Moving elements about: alignment, byte order, row-major and column-major.
 */
import type * as DtypeInfo from "./DtypeInfo.ts"

/** The byte order of this machine's typed arrays. */
export const hostByteOrder: "<" | ">" = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1 ? "<" : ">"

/** The same bytes at a multiple of `width`: the input where it lies so, else a copy. */
export const aligned = (bytes: Uint8Array, width: number): Uint8Array =>
  bytes.byteOffset % width === 0 ? bytes : new Uint8Array(bytes)

/** Bytes that change places together when an element's byte order is turned; 1 where order has no meaning. */
export const swapWidth = ({ itemSize, kind }: DtypeInfo.DtypeInfo): number => {
  if (kind === "struct" || kind === "S" || kind === "V") return 1
  if (kind === "U") return 4
  return kind === "c" ? itemSize / 2 : itemSize
}

/** A copy with every group of `width` bytes reversed. */
export const swapped = (bytes: Uint8Array, width: number): Uint8Array => {
  const copy = new Uint8Array(bytes)
  const buffer = Buffer.from(copy.buffer)
  if (width === 2) buffer.swap16()
  else if (width === 4) buffer.swap32()
  else if (width === 8) buffer.swap64()
  else for (let i = 0; i < copy.length; i += width) copy.subarray(i, i + width).reverse()
  return copy
}

type Words = Uint8Array | Uint16Array | Uint32Array

/** Elements are copied as whole words, never as floats, which could change NaNs. */
const words = (bytes: Uint8Array, itemSize: number): { readonly view: Words; readonly each: number } => {
  if (itemSize % 4 === 0) {
    const at = aligned(bytes, 4)
    return { view: new Uint32Array(at.buffer, at.byteOffset, at.length / 4), each: itemSize / 4 }
  }
  if (itemSize % 2 === 0) {
    const at = aligned(bytes, 2)
    return { view: new Uint16Array(at.buffer, at.byteOffset, at.length / 2), each: itemSize / 2 }
  }
  return { view: bytes, each: itemSize }
}

/** Distances in elements between neighbours along each axis. */
export const strides = (shape: ReadonlyArray<number>, order: "C" | "F"): ReadonlyArray<number> => {
  const result = new Array<number>(shape.length).fill(1)
  let step = 1
  for (let n = 0; n < shape.length; n++) {
    const axis = order === "F" ? n : shape.length - 1 - n
    result[axis] = step
    step *= shape[axis] ?? 1
  }
  return result
}

/** A row-major copy of column-major elements. */
export const rowMajor = (bytes: Uint8Array, shape: ReadonlyArray<number>, itemSize: number): Uint8Array => {
  const result = new Uint8Array(bytes.length)
  if (bytes.length === 0) return result
  const from = words(bytes, itemSize)
  const to = words(result, itemSize)
  const axes = shape.length - 1
  const rowLength = shape[axes] ?? 1
  const steps = strides(shape, "F").map((step) => step * from.each)
  const rowStep = steps[axes] ?? from.each
  const index = new Array<number>(axes).fill(0)
  let row = 0
  for (let out = 0; out < to.view.length; ) {
    for (let i = 0, source = row; i < rowLength; i++, source += rowStep) {
      for (let w = 0; w < from.each; w++) to.view[out++] = from.view[source + w] ?? 0
    }
    row = advance(index, shape, steps, row)
  }
  return result
}

/** Moves the index over the outer axes on by one and answers the source position of its row. */
const advance = (
  index: Array<number>,
  shape: ReadonlyArray<number>,
  steps: ReadonlyArray<number>,
  row: number
): number => {
  let position = row
  for (let axis = index.length - 1; axis >= 0; axis--) {
    const next = (index[axis] ?? 0) + 1
    const step = steps[axis] ?? 0
    if (next < (shape[axis] ?? 1)) {
      index[axis] = next
      return position + step
    }
    index[axis] = 0
    position -= (next - 1) * step
  }
  return position
}
