import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { Datum } from "../../src/fobs/Datum.ts"
import * as Decomposer from "../../src/fobs/Decomposer.ts"
import * as Fobs from "../../src/fobs/Fobs.ts"
import { NdArray } from "../../src/fobs/NdArray.ts"
import { Tensor } from "../../src/fobs/Tensor.ts"
import { DownloadRef, EnumValue, Float, OrderedDict, Tuple } from "../../src/fobs/Values.ts"
import { concat, sink } from "./fixtures.ts"
import { bodyOf, datum, datumRef, envelope, hexOf, join, messageOf, section } from "./messages.ts"

const codec = Fobs.make()
const id = "01234567-89ab-4cde-8f01-23456789abcd"
const other = "11234567-89ab-4cde-8f01-23456789abcd"

const encode = (value: unknown, options?: Fobs.EncodeOptions): Uint8Array =>
  concat(Result.getOrThrow(codec.encode(value, options)))
const decode = (message: Uint8Array, options?: Fobs.DecodeOptions): unknown =>
  Result.getOrThrow(codec.decode(message, options))
const reason = (result: Result.Result<unknown, { readonly reason: { readonly _tag: string } }>): string =>
  Result.isFailure(result) ? result.failure.reason._tag : "success"

const note = (fqcn: string, refId: string): string => JSON.stringify({ fqcn, ref_id: refId })
const ref = (itemId: string, type = "numpy.ndarray"): unknown => envelope(type, { type: "ref", data: itemId })

describe("sections", () => {
  it("are cut without reading the body", () => {
    const message = join(bodyOf(0xc1), datum(102, 0, id, Uint8Array.of(1)), datum(101, 3, other, note("a.b", "r")))
    const sections = Result.getOrThrow(codec.parse(message))
    assert.deepStrictEqual(Array.from(sections.body), [0xc1])
    assert.strictEqual(sections.body.buffer, message.buffer)
    assert.deepStrictEqual(sections.datums.get(id), new Datum(Uint8Array.of(1), id))
    assert.deepStrictEqual(sections.downloads, [{ dot: 3, fqcn: "a.b", refId: "r" }])
    assert.strictEqual(reason(codec.decode(sections)), "Malformed")
  })

  it("name the last download of a kind, whatever its marker and spelling", () => {
    const first = datum(101, 3, id, note("a", "1"))
    const last = datum(102, 3, id, `{ "x": [], "ref_id" : "2", "fqcn" : "b"}`)
    const six = datum(101, 6, other, note("c", "3"))
    const { downloads } = Result.getOrThrow(codec.parse(join(bodyOf(0xc0), first, six, last)))
    assert.deepStrictEqual(downloads, [
      { dot: 3, fqcn: "b", refId: "2" },
      { dot: 6, fqcn: "c", refId: "3" }
    ])
  })

  it.each<[string, Uint8Array]>([
    ["nothing", new Uint8Array(0)],
    ["half a header", Uint8Array.of(100, 0, 0)],
    ["a datum first", datum(102, 0, id, "x")],
    ["an empty body", section(100, 0, new Uint8Array(0))],
    ["a size of 2^63", Uint8Array.of(100, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0xc0)],
    ["a size of 2^64-1", Uint8Array.of(100, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0xc0)],
    ["a second main", join(bodyOf(0xc0), bodyOf(0xc0))],
    ["a byte at the end", join(bodyOf(0xc0), Uint8Array.of(0))],
    ["an unknown marker", join(bodyOf(0xc0), datum(104, 0, id, "x"))],
    ["a file", join(bodyOf(0xc0), datum(103, 0, id, "x"))],
    ["an empty datum", join(bodyOf(0xc0), datum(102, 0, id, ""))],
    ["a datum shorter than its id", join(bodyOf(0xc0), section(102, 0, new Uint8Array(15)))],
    ["a text datum that is no utf-8", join(bodyOf(0xc0), datum(101, 0, id, Uint8Array.of(0xff)))],
    ["a tensor file", join(bodyOf(0xc0), datum(101, 5, id, "x"))],
    ["a download that is no JSON", join(bodyOf(0xc0), datum(101, 3, id, "{"))],
    ["a download that is null", join(bodyOf(0xc0), datum(101, 3, id, "null"))],
    ["a download without fqcn", join(bodyOf(0xc0), datum(101, 3, id, `{"ref_id":"r"}`))],
    ["a download whose ref_id is a number", join(bodyOf(0xc0), datum(101, 3, id, `{"ref_id":1,"fqcn":"a"}`))]
  ])("refuse %s", (_, message) => {
    assert.strictEqual(reason(codec.parse(message)), "Malformed")
    assert.strictEqual(reason(codec.decode(message)), "Malformed")
  })
})

describe("datums", () => {
  it("stand for values inside data of types, in lists and in dicts", () => {
    const body = { a: [datumRef(id)], t: envelope("tuple", [datumRef(id)]), s: envelope("set", datumRef(other)) }
    const message = join(messageOf(body), datum(102, 0, id, Uint8Array.of(7)), datum(101, 0, other, "xyx"))
    const seven = Uint8Array.of(7)
    const expected = new Map<string, unknown>([
      ["a", [seven]],
      ["t", new Tuple([seven])],
      ["s", new Set(["x", "y"])]
    ])
    assert.deepStrictEqual(decode(message), expected)
  })

  it("stay datums where unwrap is false or nil", () => {
    for (const unwrap of [false, null]) {
      const message = join(messageOf(datumRef(id, { unwrap })), datum(101, 0, id, "hi"))
      assert.deepStrictEqual(decode(message), new Datum("hi", id))
    }
  })

  it.each<[string, unknown, string]>([
    ["an id that is not there", datumRef(other), "MissingReference"],
    ["an upper-case id", datumRef(id.toUpperCase()), "MissingReference"],
    ["no id", envelope("nvflare.fuel.utils.fobs.datum.DatumRef", { data: { unwrap: true } }), "InvalidValue"],
    ["no unwrap", datumRef(id, {}), "InvalidValue"],
    ["an unwrap of text", datumRef(id, { unwrap: "yes" }), "InvalidValue"],
    ["no attributes", envelope("nvflare.fuel.utils.fobs.datum.DatumRef", { datum_id: id }), "InvalidValue"],
    ["a list", envelope("nvflare.fuel.utils.fobs.datum.DatumRef", [id]), "InvalidValue"]
  ])("refuse a reference with %s", (_, reference, expected) => {
    assert.strictEqual(reason(codec.decode(join(messageOf(reference), datum(101, 0, id, "hi")))), expected)
  })

  it("are no keys", () => {
    const reference = messageOf(datumRef(id)).subarray(10)
    for (const marker of [101, 102]) {
      const message = join(bodyOf(0x81, ...reference, 0xc0), datum(marker, 0, id, "hi"))
      assert.strictEqual(reason(codec.decode(message)), "Malformed")
    }
  })

  it("take texts by code points and bytes by length, and keys never", () => {
    const options = { maxInlineSize: 10 }
    const sections = (value: unknown) => Result.getOrThrow(codec.parse(encode(value, options))).datums.size
    assert.strictEqual(sections("a".repeat(9)), 0)
    assert.strictEqual(sections("a".repeat(10)), 1)
    assert.strictEqual(sections("\u{1f600}".repeat(9)), 0)
    assert.strictEqual(sections("\u{1f600}".repeat(10)), 1)
    assert.strictEqual(sections(new Uint8Array(9)), 0)
    assert.strictEqual(sections(new Uint8Array(10)), 1)
    assert.strictEqual(
      sections(
        new Map<unknown, unknown>([
          ["k".repeat(20), 1],
          [new Uint8Array(20), 2]
        ])
      ),
      0
    )
    const same = new Uint8Array(10)
    assert.strictEqual(sections([same, same, new Tuple([same])]), 3)
  })

  it("begin at 10 MiB, uncopied", () => {
    const below = new Uint8Array(10_485_759)
    const at = new Uint8Array(10_485_760)
    for (const [bytes, count] of [
      [below, 0],
      [at, 1]
    ] as const) {
      const chunks = Result.getOrThrow(codec.encode({ bytes }))
      assert.isTrue(chunks.includes(bytes))
      assert.strictEqual(Result.getOrThrow(codec.parse(concat(chunks))).datums.size, count)
    }
    assert.strictEqual(Result.getOrThrow(codec.parse(encode("é".repeat(10_485_759)))).datums.size, 0)
  })

  it("come back whatever the limit", () => {
    const value = new Map<string, unknown>([
      ["text", "some text that is long enough"],
      ["empty", ["", new Uint8Array(0)]],
      ["bytes", new Tuple([Uint8Array.of(1), new Uint8Array(50)])],
      ["array", NdArray.fromTyped(new Float32Array([1, 2, 3]))]
    ])
    for (const maxInlineSize of [0, 1, 5, 36, 1000]) {
      assert.deepStrictEqual(decode(encode(value, { maxInlineSize })), value)
    }
  })

  it("of an application are written once, and refused where no decoder takes them", () => {
    const own = new Datum("hi", id)
    const message = encode([own, new Tuple([own])])
    assert.strictEqual(Result.getOrThrow(codec.parse(message)).datums.size, 1)
    assert.deepStrictEqual(decode(message), [own, new Tuple([own])])
    assert.deepStrictEqual(decode(encode(new Datum(Uint8Array.of(1), id))), new Datum(Uint8Array.of(1), id))
    for (const bad of [[new Datum("", id)], [new Datum("a", "x")], [own, new Datum("hi", id)]]) {
      assert.strictEqual(reason(codec.encode(bad)), "NotEncodable")
    }
  })

  it("never share an id with an application's own", () => {
    const [first] = Result.getOrThrow(codec.parse(encode("a".repeat(20), { maxInlineSize: 20 }))).datums.keys()
    const own = new Datum("mine", first ?? "")
    const value = [own, "a".repeat(20)]
    assert.deepStrictEqual(decode(encode(value, { maxInlineSize: 20 })), value)
  })
})

describe("references", () => {
  const array = NdArray.fromTyped(new Float32Array([1, 2]))
  const tensor = new Tensor("F32", [1], new Uint8Array(4))
  const at = { dot: 3, fqcn: "server", refId: "205f76ce-d752-407d-97c4-8777d3f92fb3" } as const

  it("are written with one note behind the message", () => {
    const references = sink([at])
    const first = NdArray.fromTyped(new Float32Array(2))
    const bytes = encode({ w: first, again: first, b: array }, { references })
    assert.deepStrictEqual([references.taken.get(first), references.taken.get(array)], ["T0", "T1"])
    const { datums, downloads } = Result.getOrThrow(codec.parse(bytes))
    assert.deepStrictEqual(downloads, [at])
    const [text] = Array.from(datums.values(), (value) => (value instanceof Datum ? value.value : ""))
    assert.strictEqual(text, `{"fqcn": "server", "ref_id": "${at.refId}"}`)
  })

  it("become the items that were fetched, or stay references", () => {
    const six = { dot: 6, fqcn: "site-1", refId: "r6" } as const
    const references = sink([at, six])
    const bytes = encode({ a: array, t: tensor, again: array }, { references })
    const ref3 = new DownloadRef("server", at.refId, "T0", 3)
    assert.deepStrictEqual(
      decode(bytes, { items: "keep" }),
      new Map<string, unknown>([
        ["a", ref3],
        ["t", new DownloadRef("site-1", "r6", "T0", 6)],
        ["again", ref3]
      ])
    )
    const items = new Map<3 | 6, ReadonlyMap<string, unknown>>([
      [3, new Map([["T0", array]])],
      [6, new Map([["T0", tensor]])]
    ])
    const value = decode(bytes, { items })
    assert.instanceOf(value, Map)
    assert.strictEqual(value instanceof Map ? value.get("a") : undefined, array)
    assert.strictEqual(value instanceof Map ? value.get("t") : undefined, tensor)
    assert.strictEqual(reason(codec.decode(bytes)), "MissingReference")
    assert.strictEqual(reason(codec.decode(bytes, { items: new Map([[3, new Map()]]) })), "MissingReference")
    assert.strictEqual(
      reason(codec.decode(bytes, { items: new Map([[3, new Map([["T0", array]])]]) })),
      "MissingReference"
    )
  })

  it("look among the items of their own kind", () => {
    const message = join(messageOf(ref("T0")), datum(101, 6, id, note("a", "r")))
    assert.strictEqual(reason(codec.decode(message, { items: "keep" })), "MissingReference")
    const lazy = "nvflare.fuel.utils.fobs.decomposers.via_downloader.LazyDownloadRef"
    const forwarded = envelope(lazy, { type: "ref", data: "T1", lazy_dot: 6 })
    const kept = decode(join(messageOf(forwarded), datum(101, 6, id, note("a", "r"))), { items: "keep" })
    assert.deepStrictEqual(kept, new DownloadRef("a", "r", "T1", 6))
  })

  it("are forwarded with the name of their source, one download of a kind", () => {
    const first = new DownloadRef("server", "r", "T0", 3)
    const second = new DownloadRef("server", "r", "T1", 3)
    const six = new DownloadRef("else", "s", "T0", 6)
    assert.deepStrictEqual(decode(encode([first, second, six]), { items: "keep" }), [first, second, six])
    assert.strictEqual(reason(codec.encode([first, new DownloadRef("server", "x", "T0", 3)])), "NotEncodable")
    assert.strictEqual(reason(codec.encode([first, array], { references: sink([at]) })), "NotEncodable")
  })

  it("leave an array inline where the sink does", () => {
    const references = { add: () => undefined, downloads: () => [] }
    assert.deepStrictEqual(decode(encode([array, tensor], { references })), [array, tensor])
    assert.strictEqual(hexOf(encode([array], { references })), hexOf(encode([array])))
  })
})

describe("a type of one's own", () => {
  class Point {
    readonly x: number
    readonly y: number
    constructor(x: number, y: number) {
      this.x = x
      this.y = y
    }
  }

  const points = Decomposer.make<Point>({
    typeName: "my.module.Point",
    decomposerName: "my.module.PointDecomposer",
    is: (value) => value instanceof Point,
    decompose: ({ x, y }) => (x === 666 ? Result.fail("no such point") : [new Float(x), new Float(y)]),
    recompose: (data) =>
      Array.isArray(data) && typeof data[0] === "number" && typeof data[1] === "number"
        ? Result.succeed(new Point(data[0], data[1]))
        : Result.fail("expected two numbers")
  })
  const own = Fobs.make({ decomposers: [points] })

  it("travels under its names", () => {
    const message = concat(Result.getOrThrow(own.encode([new Point(1, 2)])))
    assert.deepStrictEqual(Result.getOrThrow(own.decode(message)), [new Point(1, 2)])
    assert.strictEqual(
      hexOf(message),
      hexOf(
        messageOf([
          {
            __fobs_type__: "my.module.Point",
            __fobs_data__: [new Float(1), new Float(2)],
            __fobs_dc__: "my.module.PointDecomposer"
          }
        ])
      )
    )
    assert.strictEqual(reason(codec.decode(message)), "UnknownType")
    assert.strictEqual(reason(codec.encode(new Point(1, 2))), "NotEncodable")
  })

  it("says why it refuses", () => {
    const bad = own.decode(messageOf(envelope("my.module.Point", [1])))
    assert.strictEqual(Result.isFailure(bad) ? bad.failure.message : "", "my.module.Point: expected two numbers")
    const unwritten = own.encode(new Point(666, 0))
    assert.strictEqual(Result.isFailure(unwritten) ? unwritten.failure.message : "", "my.module.Point: no such point")
  })

  it("may throw without breaking the codec", () => {
    const careless = Decomposer.make<Point>({
      typeName: "Careless",
      is: (value) => value instanceof Point,
      decompose: ({ x }) => {
        if (x === 0) throw new Error("no zero")
        return { x }
      },
      recompose: (data) => {
        if (!(data instanceof Map)) throw new TypeError("not a map")
        return Result.succeed(new Point(data.get("x"), 0))
      }
    })
    const codec = Fobs.make({ decomposers: [careless] })
    const written = codec.encode([1, new Point(0, 0)])
    assert.strictEqual(reason(written), "NotEncodable")
    assert.include(Result.isFailure(written) ? written.failure.message : "", "no zero")
    const read = codec.decode(messageOf(envelope("Careless", 1)))
    assert.strictEqual(reason(read), "InvalidValue")
    assert.include(Result.isFailure(read) ? read.failure.message : "", "not a map")
  })

  it("may be a plain object, an enum, or take the place of a core type", () => {
    interface Tagged {
      readonly _tag: "Tagged"
      readonly n: number
    }
    const tagged = Decomposer.make<Tagged>({
      typeName: "my.Tagged",
      is: (value): value is Tagged =>
        typeof value === "object" && value !== null && "_tag" in value && value._tag === "Tagged",
      decompose: ({ n }) => n,
      recompose: (data) =>
        typeof data === "number" ? Result.succeed({ _tag: "Tagged", n: data }) : Result.fail("expected a number")
    })
    const colours = Decomposer.enumeration("my.Colour", ["RED"])
    const arrays = Decomposer.make<ReadonlySet<unknown>>({
      typeName: "set",
      is: (value) => value instanceof Set,
      decompose: (value) => Array.from(value).length,
      recompose: (data) => Result.succeed(new Set(["replaced", data]))
    })
    const codec = Fobs.make({ decomposers: [tagged, colours, arrays] })
    const value = [{ _tag: "Tagged", n: 3 }, { plain: 1 }, new EnumValue("my.Colour", "RED"), new Set([5, 6])]
    assert.deepStrictEqual(Result.getOrThrow(codec.decode(concat(Result.getOrThrow(codec.encode(value))))), [
      { _tag: "Tagged", n: 3 },
      new Map([["plain", 1]]),
      new EnumValue("my.Colour", "RED"),
      new Set(["replaced", 2])
    ])
    assert.strictEqual(reason(codec.encode(new EnumValue("my.Colour", "BLUE"))), "InvalidValue")
  })
})

describe("lossless decoding", () => {
  const lossless = (message: Uint8Array): unknown => decode(message, { lossless: true })

  it.each<[string, ReadonlyArray<number>, unknown, unknown]>([
    ["1.0", [0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0], new Float(1), 1],
    ["1", [0x01], 1, 1],
    ["0.5", [0xcb, 0x3f, 0xe0, 0, 0, 0, 0, 0, 0], 0.5, 0.5],
    ["-0.0", [0xcb, 0x80, 0, 0, 0, 0, 0, 0, 0], -0, -0],
    ["2^53", [0xcb, 0x43, 0x40, 0, 0, 0, 0, 0, 0], 2 ** 53, 2 ** 53],
    ["NaN", [0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0], Number.NaN, Number.NaN],
    ["-NaN", [0xcb, 0xff, 0xf8, 0, 0, 0, 0, 0, 0], new Float(Number.NaN, 0xfff8_0000_0000_0000n), Number.NaN],
    [
      "a signalling NaN",
      [0xcb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 1],
      new Float(Number.NaN, 0x7ff0_0000_0000_0001n),
      Number.NaN
    ],
    ["float32 2.0", [0xca, 0x40, 0, 0, 0], new Float(2), 2],
    ["float32 NaN", [0xca, 0x7f, 0xc0, 0, 1], new Float(Number.NaN, 0x7ff8_0000_2000_0000n), Number.NaN]
  ])("tells %s apart", (_, body, wrapped, plain) => {
    assert.deepStrictEqual(lossless(bodyOf(...body)), wrapped)
    assert.deepStrictEqual(decode(bodyOf(...body)), plain)
    if (body[0] !== 0xca) assert.strictEqual(hexOf(encode(lossless(bodyOf(...body)))), hexOf(bodyOf(...body)))
  })

  it("keeps the kind of keys, where Map would make -0 an int", () => {
    for (const message of [bodyOf(0x81, 0xcb, 0x80, 0, 0, 0, 0, 0, 0, 0, 1), bodyOf(0x81, 0xca, 0x40, 0, 0, 0, 1)]) {
      const [key] = lossless(message) instanceof Map ? (lossless(message) as Map<unknown, unknown>).keys() : []
      assert.instanceOf(key, Float)
    }
  })
})

describe("the buffers", () => {
  it("of arrays are the caller's when written, and the message's when read", () => {
    const data = new Float32Array(4096)
    const array = NdArray.fromTyped(data)
    const chunks = Result.getOrThrow(codec.encode([array, new OrderedDict([["a", array]])]))
    assert.strictEqual(chunks.filter((chunk) => chunk.buffer === data.buffer).length, 2)
    const message = concat(chunks)
    const value = decode(message)
    const [first] = Array.isArray(value) ? value : []
    assert.strictEqual(first instanceof NdArray ? first.bytes.buffer : undefined, message.buffer)
  })

  it("of two messages are not shared", () => {
    const first = encode("first")
    const kept = hexOf(first)
    encode("second")
    assert.strictEqual(hexOf(first), kept)
  })
})
