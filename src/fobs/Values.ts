/**
 * The values of a FOBS message that JavaScript has no type of its own for.
 *
 * What a peer can send must round-trip without loss, so everything that Python tells apart stays apart here:
 *
 * | Python | here |
 * |---|---|
 * | int | `number` when it is a safe integer, else `bigint` |
 * | float | `number` (or {@link Float}, see there) |
 * | str, bytes | `string`, `Uint8Array` |
 * | list, tuple, set | `Array`, {@link Tuple}, `Set` |
 * | dict, OrderedDict | `Map`, {@link OrderedDict} |
 * | datetime | {@link PyDateTime} |
 * | Enum member | {@link EnumValue} |
 * | numpy scalar | {@link NumpyScalar} |
 * | numpy.ndarray | `NdArray` (its own module) |
 *
 * Source: docs/wire/fobs.md, section 3.
 *
 * @since 0.1.0
 */

/**
 * A float whose kind a plain `number` would lose.
 *
 * Encoding: `new Float(1)` travels as float64 where `1` would travel as an int. Decoding yields plain numbers, except
 * in lossless mode, where integer-valued floats and NaNs with a payload come out wrapped.
 *
 * @category models
 * @since 0.1.0
 */
export class Float {
  readonly value: number
  /** The IEEE-754 bits, set only where `value` cannot hold them (a NaN with a payload). */
  readonly bits: bigint | undefined
  constructor(value: number, bits?: bigint) {
    this.value = value
    this.bits = bits
  }
}

/**
 * A Python tuple. Not an Array subclass: `Array.isArray` would hide the difference.
 *
 * @category models
 * @since 0.1.0
 */
export class Tuple {
  readonly items: ReadonlyArray<unknown>
  constructor(items: ReadonlyArray<unknown>) {
    this.items = items
  }
}

/**
 * A Python `collections.OrderedDict`: a Map that remembers its class on the wire.
 *
 * @category models
 * @since 0.1.0
 */
export class OrderedDict extends Map<unknown, unknown> {}

/**
 * A member of a Python Enum class: the class by its full name, the member by its *name* (which may differ from its
 * value: `LogWriterName.TORCH_TB` has the value `TORCH_TENSORBOARD`).
 *
 * @category models
 * @since 0.1.0
 */
export class EnumValue {
  readonly className: string
  readonly name: string
  constructor(className: string, name: string) {
    this.className = className
    this.name = name
  }
}

/**
 * A Python datetime, kept as its ISO text: a `Date` loses microseconds and offsets.
 *
 * @category models
 * @since 0.1.0
 */
export class PyDateTime {
  readonly iso: string
  constructor(iso: string) {
    this.iso = iso
  }
}

/**
 * A numpy scalar that keeps its width on the wire. `int64` values beyond 2^53 are bigint.
 *
 * @category models
 * @since 0.1.0
 */
export class NumpyScalar {
  readonly dtype: "float64" | "float32" | "int64" | "int32"
  readonly value: number | bigint
  constructor(dtype: NumpyScalar["dtype"], value: number | bigint) {
    this.dtype = dtype
    this.value = value
  }
}

/**
 * An array that stayed at its source: `itemId` of the download `refId` that the cell `fqcn` serves
 * (docs/wire/fobs.md, section 6). `dot` 3 is numpy, 6 torch.
 *
 * @category models
 * @since 0.1.0
 */
export class DownloadRef {
  readonly fqcn: string
  readonly refId: string
  readonly itemId: string
  readonly dot: 3 | 6
  constructor(fqcn: string, refId: string, itemId: string, dot: 3 | 6) {
    this.fqcn = fqcn
    this.refId = refId
    this.itemId = itemId
    this.dot = dot
  }
}
