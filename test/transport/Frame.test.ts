import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as Frame from "../../src/transport/Frame.ts"
import { times } from "../support/long.ts"
import { watchMemory } from "../support/memory.ts"
import { asDecoded, asEncoded, fixture, fromHex, makeRandom, toHex, typed } from "./support.ts"

const get = <A, E>(result: Result.Result<A, E>): A => Result.getOrThrow(result)

const reasonOf = (result: Result.Result<unknown, { readonly reason: { readonly _tag: string } }>) =>
  Result.match(result, { onSuccess: () => "none", onFailure: (error) => error.reason._tag })

const data = (headers: ReadonlyMap<string, unknown> | undefined, payload: ReadonlyArray<Uint8Array> = []) => ({
  type: Frame.types.data,
  appId: 2,
  streamId: 17,
  sequence: 2,
  headers,
  payload
})

describe("Frame", () => {
  it("writes and reads prefixes as captured", () => {
    for (const { fields, hex } of fixture("transport/prefix.json").cases) {
      const payload = new Uint8Array(Math.max(0, Math.min(fields.length, 4096) - 16))
      const bytes = new Uint8Array([...fromHex(hex), ...payload])
      const view = new DataView(bytes.buffer)
      // Only the prefix is captured: as if it had no header block.
      view.setUint16(4, 0)
      const frame = get(Frame.decode(bytes))
      assert.deepStrictEqual(
        [frame.type, frame.appId, frame.streamId, frame.sequence, frame.headers],
        [fields.type, fields.app_id, fields.stream_id, fields.sequence, undefined]
      )
      if (fields.length < 4096 && fields.header_len === 0) {
        assert.strictEqual(toHex(...get(Frame.encode({ ...frame, payload: [payload] }))), toHex(bytes))
      }
    }
  })

  it("writes and reads header blocks as captured", () => {
    for (const { hex, name, value } of fixture("transport/headers.json").cases) {
      const headers = typed(value, asEncoded) as Map<string, unknown>
      const pieces = get(Frame.encode(data(headers)))
      assert.strictEqual(toHex(...pieces).slice(32), hex, name)
      const frame = get(Frame.decode(fromHex(toHex(...pieces))))
      assert.deepStrictEqual(frame.headers, typed(value, asDecoded) as typeof frame.headers, name)
      assert.deepStrictEqual([...(frame.headers?.keys() ?? [])], [...headers.keys()], name)
    }
  })

  const withBlock = (block: Uint8Array): Uint8Array => {
    const bytes = new Uint8Array(16 + block.length)
    const view = new DataView(bytes.buffer)
    view.setUint32(0, bytes.length)
    view.setUint16(4, block.length)
    view.setUint8(6, 1)
    bytes.set(block, 16)
    return bytes
  }

  it("refuses the header blocks that the reference refuses", () => {
    for (const { hex, name } of fixture("transport/headers.json").refused) {
      assert.strictEqual(reasonOf(Frame.decode(withBlock(fromHex(hex)))), "BadData", name)
    }
    assert.strictEqual(reasonOf(Frame.decode(withBlock(fromHex("90")))), "BadData", "a list")
    const deep = new Uint8Array(60_000).fill(0x91)
    assert.strictEqual(reasonOf(Frame.decode(withBlock(deep))), "BadData", "60000 nested lists")
  })

  it("accepts the oddities that the reference accepts", () => {
    const decoded = fixture("transport/headers.json").accepted_oddities.map(
      ({ hex }: { readonly hex: string }) => get(Frame.decode(withBlock(fromHex(hex)))).headers
    )
    assert.deepStrictEqual(decoded, [new Map([[fromHex("6b"), 1]]), new Map([["k", 1.5]]), new Map([["k", 1]])])
    assert.isUndefined(get(Frame.decode(withBlock(fromHex("c0")))).headers)
  })

  it("re-encodes every captured frame of a session byte for byte", () => {
    const frames = fixture("transport/tcp_cell_session.json").frames.filter((frame: object) => "hex" in frame)
    assert.isAbove(frames.length, 8)
    for (const captured of frames) {
      const bytes = fromHex(captured.hex)
      const frame = get(Frame.decode(bytes))
      const { app_id, sequence, stream_id, type } = captured.prefix
      assert.deepStrictEqual(
        [frame.type, frame.appId, frame.streamId, frame.sequence],
        [type, app_id, stream_id, sequence]
      )
      if (captured.type === "DATA") {
        assert.strictEqual(toHex(frame.payload), captured.payload_hex ?? "")
      }
      const headers = captured.headers === null ? undefined : typed(captured.headers, asEncoded)
      const again = Frame.encode({ ...frame, headers: headers as Map<string, unknown>, payload: [frame.payload] })
      assert.strictEqual(toHex(...get(again)), captured.hex)
    }
  })

  it("an empty header map has no block, and the payload's pieces are not copied", () => {
    const payload = [fromHex("0102"), fromHex(""), fromHex("03")]
    const pieces = get(Frame.encode(data(new Map(), payload)))
    assert.strictEqual(toHex(...pieces), "00000013000001000000000200110002010203")
    assert.strictEqual(pieces[1], payload[0])
    assert.strictEqual(pieces[3], payload[2])
  })

  it("refuses to send what doesn't fit", () => {
    const headers = (size: number) => data(new Map([["k", "x".repeat(size)]]))
    const fits = get(Frame.encode(headers(65535 - 6)))
    assert.strictEqual(fits[0]?.length, 16 + 65535)
    assert.strictEqual(reasonOf(Frame.encode(headers(65535 - 5))), "BadData")
    assert.strictEqual(reasonOf(Frame.encode(data(new Map([["k", () => 1]])))), "BadData")
    // Stands for pieces that are too large in sum, without the memory.
    const gigabyte = Object.defineProperty(new Uint8Array(0), "byteLength", { value: 2 ** 30 })
    assert.strictEqual(reasonOf(Frame.encode(data(undefined, [gigabyte, gigabyte]))), "BadData")
  })

  it("treats a declared length that differs as the reference does", () => {
    const bytes = (length: number, headerLength: number, rest: string) => {
      const whole = new Uint8Array([...new Uint8Array(16), ...fromHex(rest)])
      const view = new DataView(whole.buffer)
      view.setUint32(0, length)
      view.setUint16(4, headerLength)
      view.setUint8(6, 1)
      return get(Frame.decode(whole))
    }
    assert.strictEqual(toHex(bytes(99, 0, "0102").payload), "0102")
    assert.strictEqual(toHex(bytes(17, 1, "80ff").payload), "", "length <= 16 + header_len: no payload")
    assert.strictEqual(toHex(bytes(18, 1, "80ffee").payload), "ffee")
    assert.deepStrictEqual(bytes(17, 500, "80").headers, new Map())
    assert.strictEqual(reasonOf(Frame.decode(new Uint8Array(15))), "BadData")
  })

  it("decodes mutated frames or fails with BadData", () => {
    const seed = 20261129
    const random = makeRandom(seed)
    const captured: ReadonlyArray<Uint8Array> = [
      ...fixture("transport/tcp_cell_session.json").frames.flatMap(
        (frame: { readonly hex?: string }) => frame.hex ?? []
      ),
      ...fixture("transport/headers.json").cases.map(({ hex }: { readonly hex: string }) =>
        toHex(withBlock(fromHex(hex)))
      )
    ].map(fromHex)
    let refused = 0
    const runs = times(20_000, 50)
    const memory = watchMemory(runs)
    for (let run = 0; run < runs; run++) {
      memory.at(run)
      const original = captured[random(captured.length)]
      assert.isDefined(original)
      const bytes = original.slice(0, random(8) === 0 ? random(original.length + 1) : original.length)
      for (let change = random(4); change >= 0 && bytes.length > 0; change--) {
        bytes[random(bytes.length)] = random(256)
      }
      const reason = reasonOf(Frame.decode(bytes))
      assert.include(["none", "BadData"], reason, `seed ${seed}, run ${run}: ${toHex(bytes)}`)
      refused += reason === "BadData" ? 1 : 0
    }
    memory.check()
    assert.isAbove(refused, 1000)
  })
})
