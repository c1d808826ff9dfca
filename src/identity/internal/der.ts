/**
 * As much of DER as the rules of certificates need. Every length is checked: what does not fit is `undefined`.
 */

/** One element: its tag, and its content within the bytes it was read from. */
export interface Element {
  readonly tag: number
  readonly content: Uint8Array
}

export const tags = { boolean: 0x01, integer: 0x02, bits: 0x03, octets: 0x04, oid: 0x06, sequence: 0x30, set: 0x31 }

const lengthAt = (bytes: Uint8Array, at: number): { readonly length: number; readonly start: number } | undefined => {
  const first = bytes[at]
  if (first === undefined) return undefined
  if (first < 0x80) return { length: first, start: at + 1 }
  const count = first & 0x7f
  if (count === 0 || count > 4 || at + 1 + count > bytes.byteLength) return undefined
  let length = 0
  for (const byte of bytes.subarray(at + 1, at + 1 + count)) {
    length = length * 256 + byte
  }
  return { length, start: at + 1 + count }
}

/** The elements that lie side by side in `bytes`; `undefined` where they are broken. */
export const elements = (bytes: Uint8Array): ReadonlyArray<Element> | undefined => {
  const found: Array<Element> = []
  let at = 0
  while (at < bytes.byteLength) {
    const size = lengthAt(bytes, at + 1)
    if (size === undefined || size.start + size.length > bytes.byteLength) return undefined
    found.push({ tag: bytes[at] ?? 0, content: bytes.subarray(size.start, size.start + size.length) })
    at = size.start + size.length
  }
  return found
}

/** The children of an element of that tag; none where it is absent, of another kind, or broken. */
export const children = (element: Element | undefined, tag: number = tags.sequence): ReadonlyArray<Element> =>
  element?.tag === tag ? (elements(element.content) ?? []) : []

/** An object identifier's content as hexadecimal digits. */
export const oid = (element: Element | undefined): string =>
  element?.tag === tags.oid ? Buffer.from(element.content).toString("hex") : ""
