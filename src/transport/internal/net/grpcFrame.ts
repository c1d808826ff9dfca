/** The message `Frame { int32 seq = 1; bytes data = 2; }`. Source: docs/wire/transport.md, section 8. */

const seqTag = 0x08
const dataTag = 0x12
const maxSeq = 0x7fffffff

/** 1, 2, ...; below 2^31, where the reference would break. */
export const makeSeq = (): (() => number) => {
  let last = 0
  return () => {
    last = last >= maxSeq ? 1 : last + 1
    return last
  }
}

const putVarint = (bytes: Array<number>, value: number): void => {
  let rest = value
  while (rest >= 0x80) {
    bytes.push((rest % 0x80) | 0x80)
    rest = Math.floor(rest / 0x80)
  }
  bytes.push(rest)
}

/** One frame, given as pieces, in one message. */
export const encode = (seq: number, pieces: ReadonlyArray<Uint8Array>): Buffer => {
  const size = pieces.reduce((sum, piece) => sum + piece.byteLength, 0)
  const head: Array<number> = []
  head.push(seqTag)
  putVarint(head, seq)
  head.push(dataTag)
  putVarint(head, size)
  return Buffer.concat([Uint8Array.from(head), ...pieces], head.length + size)
}

interface Cursor {
  readonly bytes: Uint8Array
  at: number
}

const maxVarintBytes = 10

/** Lengths and tags beyond 2^53 come out too large, which is enough to refuse them. */
const takeVarint = (cursor: Cursor): number | undefined => {
  let value = 0
  let factor = 1
  for (let count = 0; count < maxVarintBytes; count += 1) {
    const byte = cursor.bytes[cursor.at]
    if (byte === undefined) {
      return undefined
    }
    cursor.at += 1
    value += (byte & 0x7f) * factor
    if (byte < 0x80) {
      return value
    }
    factor *= 0x80
  }
  return undefined
}

const take = (cursor: Cursor, size: number): Uint8Array | undefined => {
  if (size > cursor.bytes.length - cursor.at) {
    return undefined
  }
  cursor.at += size
  return cursor.bytes.subarray(cursor.at - size, cursor.at)
}

/** Takes a field's value: bytes of it where it has some, `true` where it has not, `undefined` where it is broken. */
const takeField = (cursor: Cursor, wireType: number): Uint8Array | true | undefined => {
  switch (wireType) {
    case 0:
      return takeVarint(cursor) === undefined ? undefined : true
    case 1:
      return take(cursor, 8)
    case 2: {
      const size = takeVarint(cursor)
      return size === undefined ? undefined : take(cursor, size)
    }
    case 5:
      return take(cursor, 4)
    default:
      return undefined
  }
}

const noData = new Uint8Array(0)

/** The frame in a message, as a view of it; `undefined` where the bytes are no such message. Its `seq` is not looked at. */
export const decode = (message: Uint8Array): Uint8Array | undefined => {
  const cursor: Cursor = { bytes: new Uint8Array(message.buffer, message.byteOffset, message.byteLength), at: 0 }
  let data: Uint8Array = noData
  while (cursor.at < cursor.bytes.length) {
    const tag = takeVarint(cursor)
    const number = tag === undefined ? 0 : Math.floor(tag / 8)
    if (tag === undefined || number === 0) {
      return undefined
    }
    const field = takeField(cursor, tag % 8)
    if (field === undefined) {
      return undefined
    }
    if (tag === dataTag && field !== true) {
      data = field
    }
  }
  return data
}
