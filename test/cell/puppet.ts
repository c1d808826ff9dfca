import { assert } from "@effect/vitest"
import { Effect, Result } from "effect"
import * as Msgpack from "../../src/fobs/Msgpack.ts"
import { Float } from "../../src/fobs/Values.ts"
import type { FrameLink } from "../../src/transport/Drivers.ts"
import * as Frame from "../../src/transport/Frame.ts"

export interface Typed {
  readonly type: string
  readonly value: unknown
}

// ---- A peer that says what it is told, and keeps what it hears.

/** The value types on the wire, which a plain decoder does not tell: a float may be integral. */
const typedHeaders = (block: Uint8Array): Map<string, Typed> => {
  const view = new DataView(block.buffer, block.byteOffset, block.byteLength)
  let at = 0
  const type = (): string => {
    const byte = block[at] ?? 0
    if (byte === 0xca || byte === 0xcb) return "float64"
    if (byte === 0xc0) return "nil"
    if (byte === 0xc2 || byte === 0xc3) return "bool"
    if (byte >= 0xc4 && byte <= 0xc6) return "bin"
    if ((byte >= 0xa0 && byte <= 0xbf) || (byte >= 0xd9 && byte <= 0xdb)) return "str"
    if ((byte >= 0x90 && byte <= 0x9f) || byte === 0xdc || byte === 0xdd) return "array"
    if ((byte >= 0x80 && byte <= 0x8f) || byte === 0xde || byte === 0xdf) return "map"
    return "int"
  }
  const first = block[at] ?? 0
  const count = first === 0xde ? view.getUint16(1) : first & 0x0f
  at = first === 0xde ? 3 : 1
  // The decoder gives keys and values in order; only the types need the bytes, so each value is re-encoded for its length.
  const decoded = Result.getOrThrow(Msgpack.decode(block)) as Map<string, unknown>
  const headers = new Map<string, Typed>()
  assert.strictEqual(decoded.size, count)
  for (const [key, value] of decoded) {
    at += Result.getOrThrow(Msgpack.encode(key)).length
    const kind = type()
    headers.set(key, { type: kind, value })
    at += skip(block, at)
  }
  return headers
}

/** Bytes of the value at `at`. */
const skip = (block: Uint8Array, at: number): number => {
  const view = new DataView(block.buffer, block.byteOffset, block.byteLength)
  const byte = block[at] ?? 0
  const items = (count: number, head: number) => {
    let size = head
    for (let i = 0; i < count; i += 1) {
      size += skip(block, at + size)
    }
    return size
  }
  if (byte < 0x80 || byte >= 0xe0 || byte === 0xc0 || byte === 0xc2 || byte === 0xc3) return 1
  if (byte <= 0x8f) return items(2 * (byte & 15), 1)
  if (byte <= 0x9f) return items(byte & 15, 1)
  if (byte <= 0xbf) return 1 + (byte & 31)
  const fixed: Record<number, number> = {
    202: 5,
    203: 9,
    204: 2,
    205: 3,
    206: 5,
    207: 9,
    208: 2,
    209: 3,
    210: 5,
    211: 9
  }
  const size = fixed[byte]
  if (size !== undefined) return size
  if (byte === 0xc4 || byte === 0xd9) return 2 + (block[at + 1] ?? 0)
  if (byte === 0xc5 || byte === 0xda) return 3 + view.getUint16(at + 1)
  if (byte === 0xdc) return items(view.getUint16(at + 1), 3)
  if (byte === 0xde) return items(2 * view.getUint16(at + 1), 3)
  throw new Error(`no msgpack header value: ${byte}`)
}

export interface Heard {
  readonly by: string
  readonly headers: Map<string, Typed>
  readonly payload: Uint8Array
}

const greeting = (type: number, name: string) =>
  Result.getOrThrow(
    Frame.encode({
      type,
      appId: 0,
      streamId: 1,
      sequence: 1,
      headers: undefined,
      payload: [
        Result.getOrThrow(
          Msgpack.encode(
            new Map<string, unknown>([
              ["endpoint_name", name],
              ["timestamp", new Float(1)],
              ["fqcn", name]
            ])
          )
        )
      ]
    })
  )

/** A bare peer on a link; `heard` collects the DATA frames, greetings are answered. */
export const puppet = Effect.fnUntraced(function* (
  link: FrameLink,
  name: string,
  heard: Array<Heard>,
  isActive: boolean
) {
  if (isActive) {
    yield* link.send(greeting(Frame.types.hello, name))
  }
  yield* Effect.forever(
    Effect.flatMap(link.receive, (frames) =>
      Effect.forEach(frames, (bytes) => {
        const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
        const type = view.getUint8(6)
        if (type === Frame.types.hello) {
          return link.send(greeting(Frame.types.ready, name))
        }
        if (type === Frame.types.data) {
          const payloadAt = 16 + view.getUint16(4)
          heard.push({
            by: name,
            headers: typedHeaders(bytes.subarray(16, payloadAt)),
            payload: bytes.subarray(payloadAt)
          })
        }
        return Effect.void
      })
    )
  ).pipe(Effect.ignore, Effect.forkScoped)
  const say = (headers: ReadonlyMap<string, unknown>, payload: Uint8Array) =>
    link.send(
      Result.getOrThrow(Frame.encode({ type: 1, appId: 1, streamId: 17, sequence: 2, headers, payload: [payload] }))
    )
  return { name, say }
})
