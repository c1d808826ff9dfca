/**
 * Memory of which nobody but its owner knows.
 *
 * V8 frees buffers only with a collection of all garbage, and starts one for every few dozens of MiB of them: what makes
 * a buffer for each chunk of a large model spends more time with collections than with its work.
 */

/**
 * Frees the memory at once, where the bytes are all of it. They, and every other view of it, are empty afterwards: only
 * for what was made here and given to nobody.
 */
export const free = ({ buffer, byteLength }: Uint8Array): void => {
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) {
    buffer.transfer(0)
  }
}
