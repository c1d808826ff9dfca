/**
 * A torch tensor as it travels: raw bytes and what they mean.
 *
 * @since 0.1.0
 */
import { Result } from "effect"
import { FobsError, InvalidValue } from "./FobsError.ts"
import { bfloat16ToFloat32 } from "./Half.ts"
import * as DtypeInfo from "./internal/DtypeInfo.ts"
import * as ElementLayout from "./internal/ElementLayout.ts"
import { NdArray, type TypedArray } from "./NdArray.ts"

/**
 * Bytes of one element, by type: all that torch writes. Of F4, two elements share a byte.
 *
 * @category constants
 * @since 0.1.0
 */
export const tensorWidth = {
  BOOL: 1,
  F4: 0.5,
  U8: 1,
  I8: 1,
  F8_E5M2: 1,
  F8_E4M3: 1,
  F8_E8M0: 1,
  F8_E4M3FNUZ: 1,
  F8_E5M2FNUZ: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  C64: 8,
  F64: 8,
  I64: 8,
  U64: 8
} as const

/**
 * The element types of safetensors. C64 is a pair of F32. Those of 4 and 8 bits (F4, F8_...) are carried, not read.
 *
 * @category models
 * @since 0.1.0
 */
export type TensorDtype = keyof typeof tensorWidth

/** What numpy and torch both have, by numpy's dtype. */
const numpyDtypes: ReadonlyMap<string, TensorDtype> = new Map([
  ["|b1", "BOOL"],
  ["|u1", "U8"],
  ["|i1", "I8"],
  ["<i2", "I16"],
  ["<u2", "U16"],
  ["<f2", "F16"],
  ["<i4", "I32"],
  ["<u4", "U32"],
  ["<f4", "F32"],
  ["<c8", "C64"],
  ["<f8", "F64"],
  ["<i8", "I64"],
  ["<u8", "U64"]
])
const dtypeOf: ReadonlyMap<TensorDtype, string> = new Map([...numpyDtypes].map(([numpy, torch]) => [torch, numpy]))

const refuse = (typeName: string, message: string): Result.Result<never, FobsError> =>
  Result.fail(new FobsError({ reason: new InvalidValue({ typeName, message }) }))

/**
 * A view of tensor data: elements in row-major order, little-endian. `bytes` may be a view into a message and may start
 * at any offset.
 *
 * Source: docs/wire/fobs.md, section 4.2.
 *
 * @category models
 * @since 0.1.0
 */
export class Tensor {
  readonly dtype: TensorDtype
  readonly shape: ReadonlyArray<number>
  readonly bytes: Uint8Array
  constructor(dtype: TensorDtype, shape: ReadonlyArray<number>, bytes: Uint8Array) {
    this.dtype = dtype
    this.shape = shape
    this.bytes = bytes
  }

  /**
   * A tensor over the elements of a typed array, without a copy; `shape` defaults to all elements in one dimension.
   * Throws a RangeError as `NdArray.fromTyped` does. Bytes are U8: for bool or half floats use the constructor.
   */
  static fromTyped(elements: TypedArray, shape?: ReadonlyArray<number>): Tensor {
    return Result.getOrThrow(Tensor.fromArray(NdArray.fromTyped(elements, shape)))
  }

  /**
   * An array as a tensor: the same bytes, or a copy where they are big-endian or column-major. Fails with
   * `InvalidValue` for a dtype that no tensor has: complex128, text, time, raw and structured.
   */
  static fromArray(array: NdArray): Result.Result<Tensor, FobsError> {
    const { bytes, dtype, shape } = array.toC().toLittleEndian()
    const torch = Result.getOrUndefined(Result.map(DtypeInfo.parse(dtype), ({ text }) => numpyDtypes.get(text)))
    if (torch === undefined) return refuse("torch.Tensor", `no tensor has the dtype ${array.dtype.slice(0, 60)}`)
    return Result.succeed(new Tensor(torch, shape, bytes))
  }

  /**
   * This tensor as an array over the same bytes. Fails with `InvalidValue` for what numpy lacks: BF16 (see
   * {@link widened}), and floats of 4 and 8 bits.
   */
  toArray(): Result.Result<NdArray, FobsError> {
    const dtype = dtypeOf.get(this.dtype)
    if (dtype === undefined) {
      const advice = this.dtype === "BF16" ? "; widen the tensor first (Tensor.widened)" : ""
      return refuse("numpy.ndarray", `numpy has no ${this.dtype}${advice}`)
    }
    return Result.succeed(new NdArray(dtype, this.shape, this.bytes))
  }

  /** A BF16 tensor as F32, which holds each of its values exactly; any other as it is. */
  widened(): Tensor {
    if (this.dtype !== "BF16") return this
    const floats = bfloat16ToFloat32(halves(this.bytes))
    return new Tensor("F32", this.shape, new Uint8Array(floats.buffer))
  }

  /** Bytes of all elements. */
  get byteLength(): number {
    return this.bytes.length
  }

  /**
   * The elements: a view of `bytes` where they lie aligned, else one copy. 64-bit ints come as bigints, bools as 0 and
   * 1, F16 and BF16 as a Float32Array copy, C64 as real and imaginary parts in turn. Fails with `InvalidValue` when
   * shape and bytes don't fit each other, and for floats of 4 and 8 bits.
   */
  toTyped(): Result.Result<TypedArray, FobsError> {
    return Result.flatMap(this.widened().toArray(), (array) => array.toTyped())
  }
}

/** Little-endian 16-bit elements as numbers of this machine. */
const halves = (bytes: Uint8Array): Uint16Array => {
  const own = ElementLayout.hostByteOrder === "<" ? ElementLayout.aligned(bytes, 2) : ElementLayout.swapped(bytes, 2)
  return new Uint16Array(own.buffer, own.byteOffset, own.length >> 1)
}
