import { byteLength } from "../CellMessage.ts"

/** A frame's share of a blob: views, whose concatenation is `length` bytes. */
export interface Chunk {
  readonly sequence: number
  readonly offset: number
  readonly length: number
  readonly pieces: ReadonlyArray<Uint8Array>
  readonly isFinal: boolean
}

/**
 * Cuts a blob into chunks of `size` bytes without copying; the last is shorter, or empty when the blob is. There is no
 * empty last chunk behind full ones. Source: docs/wire/cellnet.md, section 10.2.
 */
export function* cut(blob: ReadonlyArray<Uint8Array>, size: number): Generator<Chunk, void> {
  const total = byteLength(blob)
  let offset = 0
  let index = 0
  let within = 0
  for (let sequence = 0; sequence === 0 || offset < total; sequence += 1) {
    const length = Math.min(size, total - offset)
    const pieces: Array<Uint8Array> = []
    for (let missing = length; missing > 0; ) {
      const piece = blob[index]
      if (piece === undefined) {
        break
      }
      const taken = Math.min(missing, piece.byteLength - within)
      if (taken > 0) {
        pieces.push(piece.subarray(within, within + taken))
      }
      missing -= taken
      within += taken
      if (within === piece.byteLength) {
        index += 1
        within = 0
      }
    }
    yield { sequence, offset, length, pieces, isFinal: offset + length === total }
    offset += length
  }
}
