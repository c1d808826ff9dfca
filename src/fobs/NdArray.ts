/**
 * An n-dimensional array as it travels: raw bytes and what they mean.
 *
 * @since 0.1.0
 */

/**
 * A numpy dtype: its text (`<f4`, `|b1`, `>i8`, `<U5`), or the field list of a structured type as text that is kept
 * as it came.
 *
 * @category models
 * @since 0.1.0
 */
export type Dtype = string

/**
 * A view of array data. `bytes` holds the elements in `order` ("C" row-major, "F" column-major), in the byte order
 * that `dtype` names; it may be a view into a message and may start at any offset.
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
}
