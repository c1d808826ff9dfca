/**
 * A torch tensor as it travels: raw bytes and what they mean.
 *
 * @since 0.1.0
 */

/**
 * The element types of safetensors.
 *
 * @category models
 * @since 0.1.0
 */
export type TensorDtype =
  | "BOOL"
  | "U8"
  | "I8"
  | "I16"
  | "U16"
  | "F16"
  | "BF16"
  | "I32"
  | "U32"
  | "F32"
  | "F64"
  | "I64"
  | "U64"

/**
 * Bytes of one element, by type.
 *
 * @category constants
 * @since 0.1.0
 */
export const tensorWidth: Readonly<Record<TensorDtype, number>> = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  I16: 2,
  U16: 2,
  F16: 2,
  BF16: 2,
  I32: 4,
  U32: 4,
  F32: 4,
  F64: 8,
  I64: 8,
  U64: 8
}

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
}
