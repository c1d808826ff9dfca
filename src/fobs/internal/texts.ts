/** Short cuts past the decoding of texts that come again and again. Answers are the same with and without. */

/** ASCII texts by their length. */
export type KnownTexts = ReadonlyArray<ReadonlyArray<string> | undefined>

const isAscii = (text: string): boolean => /^[\0-\x7f]*$/.test(text)

/** A table of texts; only those of ASCII characters are taken in. */
export const knownTexts = (texts: Iterable<string>): KnownTexts => {
  const table: Array<Array<string> | undefined> = []
  for (const text of new Set(texts)) {
    if (!isAscii(text)) continue
    const row = table[text.length] ?? []
    row.push(text)
    table[text.length] = row
  }
  return Array.from(table)
}

/** Whether the bytes at `begin` are those of an ASCII text. */
const isAt = (text: string, bytes: Uint8Array, begin: number): boolean => {
  let i = text.length - 1
  while (i >= 0 && text.charCodeAt(i) === bytes[begin + i]) i--
  return i < 0
}

export const findKnown = (table: KnownTexts, bytes: Uint8Array, begin: number, length: number): string | undefined => {
  const row = table[length]
  if (row === undefined) return undefined
  for (const text of row) if (isAt(text, bytes, begin)) return text
  return undefined
}

const slots = 512

/**
 * The keys that a codec met last, up to 512 short ones: layer and field names come with every message. A slot holds one
 * key; a new one takes its place.
 */
export class KeyMemo {
  private readonly keys: Array<string> = new Array(slots).fill("")

  find(bytes: Uint8Array, begin: number, length: number): string | undefined {
    const key = this.keys[slotOf(bytes, begin, length)]
    return key !== undefined && key.length === length && isAt(key, bytes, begin) ? key : undefined
  }

  add(bytes: Uint8Array, begin: number, length: number, text: string): void {
    // One byte a character: the text is ASCII.
    if (text.length === length) this.keys[slotOf(bytes, begin, length)] = text
  }
}

const slotOf = (bytes: Uint8Array, begin: number, length: number): number => {
  const last = bytes[begin + length - 1] ?? 0
  const before = bytes[begin + length - 2] ?? 0
  const middle = bytes[begin + (length >> 1)] ?? 0
  return (length * 31 + last * 7 + before * 61 + middle * 17 + (bytes[begin] ?? 0)) & (slots - 1)
}
