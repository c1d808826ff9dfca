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
 * | msgpack ext type | {@link Ext} |
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

  /** The instant in UTC, with the three decimals that a Date has. */
  static fromDate(date: Date): PyDateTime {
    const iso = date.toISOString()
    const text = iso.endsWith(".000Z") ? iso.slice(0, -5) : `${iso.slice(0, -1)}000`
    return new PyDateTime(`${text}+00:00`)
  }

  /** The instant as a Date, cut to milliseconds; a datetime without an offset is read as UTC. */
  toDate(): Date {
    const parts = /^(.{19})(?:\.(\d{3})\d*)?(?:([+-]\d\d:\d\d)(?::(\d\d)(?:\.\d+)?)?)?$/.exec(this.iso)
    if (parts === null) return new Date(Number.NaN)
    const [, time, millis = "000", offset = "+00:00", seconds = "0"] = parts
    const instant = Date.parse(`${time}.${millis}${offset}`)
    return new Date(instant - Number(seconds) * 1000 * (offset.startsWith("-") ? -1 : 1))
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

/**
 * A msgpack ext type (docs/wire/fobs.md, section 3.1): nobody sends one, but it is kept. Code -1 is a timestamp whose
 * form was checked; `bytes` is a view of the message.
 *
 * @category models
 * @since 0.1.0
 */
export class Ext {
  readonly code: number
  readonly bytes: Uint8Array
  constructor(code: number, bytes: Uint8Array) {
    this.code = code
    this.bytes = bytes
  }
}
