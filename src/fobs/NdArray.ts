/**
 * An n-dimensional array as it travels: raw bytes and what they mean.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import { FobsError, InvalidValue } from "./FobsError.ts"
import { float16ToFloat32 } from "./Half.ts"
import * as DtypeInfo from "./internal/DtypeInfo.ts"
import * as ElementLayout from "./internal/ElementLayout.ts"

/**
 * A numpy dtype: its text (`<f4`, `|b1`, `>i8`, `<U5`), or the field list of a structured type as text that is kept
 * as it came.
 *
 * @category models
 * @since 0.1.0
 */
export type Dtype = string

/**
 * The typed arrays that hold array elements.
 *
 * @category models
 * @since 0.1.0
 */
export type TypedArray =
  | Int8Array
  | Uint8Array
  | Uint8ClampedArray
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array

/**
 * What ndarray-style libraries are built from: elements `data[i * stride[0] + j * stride[1] + ...]`, strides counted
 * in elements.
 *
 * @category models
 * @since 0.1.0
 */
export interface Strided {
  readonly shape: ReadonlyArray<number>
  readonly stride: ReadonlyArray<number>
  readonly data: TypedArray
}

/** By the name of the typed array: works for arrays of another realm too. Float16Array exists on newer runtimes only. */
const typedDtypes: ReadonlyMap<string, string> = new Map([
  ["Int8Array", "i1"],
  ["Uint8Array", "u1"],
  ["Uint8ClampedArray", "u1"],
  ["Int16Array", "i2"],
  ["Uint16Array", "u2"],
  ["Int32Array", "i4"],
  ["Uint32Array", "u4"],
  ["Float16Array", "f2"],
  ["Float32Array", "f4"],
  ["Float64Array", "f8"],
  ["BigInt64Array", "i8"],
  ["BigUint64Array", "u8"]
])

const product = (shape: ReadonlyArray<number>): number => shape.reduce((size, length) => size * length, 1)

/** The typed array over aligned bytes of this machine's byte order; `undefined` for what has no numbers. */
const typedView = ({ itemSize, kind }: DtypeInfo.DtypeInfo, bytes: Uint8Array): TypedArray | undefined => {
  const { buffer, byteOffset: at, length } = bytes
  switch (kind + itemSize) {
    case "b1":
    case "u1":
      return new Uint8Array(buffer, at, length)
    case "i1":
      return new Int8Array(buffer, at, length)
    case "i2":
      return new Int16Array(buffer, at, length / 2)
    case "u2":
      return new Uint16Array(buffer, at, length / 2)
    case "i4":
      return new Int32Array(buffer, at, length / 4)
    case "u4":
      return new Uint32Array(buffer, at, length / 4)
    case "i8":
    case "M8":
    case "m8":
      return new BigInt64Array(buffer, at, length / 8)
    case "u8":
      return new BigUint64Array(buffer, at, length / 8)
    case "f2":
      return float16ToFloat32(new Uint16Array(buffer, at, length / 2))
    case "f4":
    case "c8":
      return new Float32Array(buffer, at, length / 4)
    case "f8":
    case "c16":
      return new Float64Array(buffer, at, length / 8)
    default:
      return undefined
  }
}

/**
 * A view of array data. `bytes` holds the elements in `order` ("C" row-major, "F" column-major), in the byte order
 * that `dtype` names; it may be a view into a message and may start at any offset. Nobody copies it without need, so
 * it must not change while the array is in use.
 *
 * @category models
 * @since 0.1.0
 */
export class NdArray {
  readonly dtype: Dtype
  readonly shape: ReadonlyArray<number>
  readonly order: "C" | "F"
  readonly bytes: Uint8Array
  constructor(dtype: Dtype, shape: ReadonlyArray<number>, bytes: Uint8Array, order: "C" | "F" = "C") {
    this.dtype = dtype
    this.shape = shape
    this.bytes = bytes
    this.order = order
  }

  /**
   * An array over the memory of a typed array, without a copy; later changes of one show in the other. `shape` is
   * one-dimensional when left out.
   *
   * Throws a `RangeError` when the shape does not have as many elements as the typed array: a mistake in the program.
   */
  static fromTyped(elements: TypedArray, shape: ReadonlyArray<number> = [elements.length]): NdArray {
    const name = Object.prototype.toString.call(elements).slice(8, -1)
    const type = typedDtypes.get(name)
    if (type === undefined) throw new RangeError(`NdArray.fromTyped: ${name} is no typed array`)
    if (product(shape) !== elements.length || !shape.every((length) => Number.isInteger(length) && length >= 0)) {
      throw new RangeError(`NdArray.fromTyped: shape [${shape.join(", ")}] does not fit ${elements.length} elements`)
    }
    const bytes = new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength)
    return new NdArray((type.endsWith("1") ? "|" : ElementLayout.hostByteOrder) + type, [...shape], bytes)
  }

  /** Elements: the product of the shape, 1 without dimensions. */
  get size(): number {
    return product(this.shape)
  }

  /** Bytes an element; 0 for types without width (`|S0`) and for text that is no dtype. */
  get itemSize(): number {
    return Result.match(DtypeInfo.parse(this.dtype), { onFailure: () => 0, onSuccess: ({ itemSize }) => itemSize })
  }

  /** Bytes of all elements. */
  get byteLength(): number {
    return this.bytes.length
  }

  /**
   * The elements in row-major (C) order. A view of `bytes` where they lie so, aligned and in this machine's byte
   * order (a change of the view then changes the array), else one copy.
   *
   * 64-bit ints, datetime64 and timedelta64 come as bigints, bools as 0 and 1, float16 as a Float32Array copy, complex
   * numbers as real and imaginary parts in turn. Fails with `InvalidValue` for text, raw, structured and 128-bit
   * types: take `bytes` of those.
   */
  toTyped(): Result.Result<TypedArray, FobsError> {
    return this.toC().storedElements()
  }

  /**
   * The elements as they are stored, with strides, for ndarray-style libraries (for instance
   * `ndarray(data, shape, stride)`): nothing is rearranged. Complex numbers get a last axis of length 2. Fails as
   * {@link toTyped}.
   */
  toStrided(): Result.Result<Strided, FobsError> {
    return Result.map(this.storedElements(), (data) => {
      const stride = ElementLayout.strides(this.shape, this.order)
      if (data.length === this.size) return { shape: this.shape, stride, data }
      return { shape: [...this.shape, 2], stride: [...stride.map((step) => step * 2), 1], data }
    })
  }

  /** This array in row-major order: itself, or a rearranged copy. */
  toC(): NdArray {
    if (this.order === "C") return this
    const itemSize = this.itemSize
    const isWhole = itemSize > 0 && this.size * itemSize === this.bytes.length
    const bytes = isWhole ? ElementLayout.rowMajor(this.bytes, this.shape, itemSize) : this.bytes
    return new NdArray(this.dtype, this.shape, bytes)
  }

  /** This array with `<` byte order: itself, or a copy. Structured types stay as they are, field by field. */
  toLittleEndian(): NdArray {
    const info = Result.getOrUndefined(DtypeInfo.parse(this.dtype))
    if (info === undefined || info.byteOrder !== ">") return this
    const bytes = ElementLayout.swapped(this.bytes, ElementLayout.swapWidth(info))
    return new NdArray(`<${info.text.slice(1)}`, this.shape, bytes, this.order)
  }

  /** Whether elements are stored with the highest byte first; not so for structured types. */
  get isBigEndian(): boolean {
    return Result.getOrUndefined(DtypeInfo.parse(this.dtype))?.byteOrder === ">"
  }

  /** This array with `>` byte order: itself, or a copy. What has no byte order stays as it is. */
  toBigEndian(): NdArray {
    const info = Result.getOrUndefined(DtypeInfo.parse(this.dtype))
    if (info === undefined || info.byteOrder !== "<") return this
    const bytes = ElementLayout.swapped(this.bytes, ElementLayout.swapWidth(info))
    return new NdArray(`>${info.text.slice(1)}`, this.shape, bytes, this.order)
  }

  private storedElements(): Result.Result<TypedArray, FobsError> {
    const refuse = (what: string) =>
      Result.fail(new FobsError({ reason: new InvalidValue({ typeName: "numpy.ndarray", message: what }) }))
    const info = Result.getOrUndefined(DtypeInfo.parse(this.dtype))
    if (info === undefined) return refuse(`${JSON.stringify(this.dtype.slice(0, 60))} is no dtype`)
    if (this.size * info.itemSize !== this.bytes.length) {
      return refuse(`shape [${this.shape.join(", ")}] of ${info.text} does not fit ${this.bytes.length} bytes`)
    }
    const width = ElementLayout.swapWidth(info)
    const isForeign = width > 1 && info.byteOrder !== "|" && info.byteOrder !== ElementLayout.hostByteOrder
    const bytes = isForeign ? ElementLayout.swapped(this.bytes, width) : ElementLayout.aligned(this.bytes, width)
    const elements = typedView(info, bytes)
    return elements === undefined
      ? refuse(`elements of ${info.text.slice(0, 60)} have no typed array; use the bytes of the array`)
      : Result.succeed(elements)
  }
}
