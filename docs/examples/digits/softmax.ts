/** Softmax regression: the plainest classifier that reads digits. */
import { classes, type Digits, pixels } from "./data.ts"

/** `weights` is pixels x classes, row by row. */
export interface Softmax {
  readonly weights: Float32Array
  readonly bias: Float32Array
}

export const initial = (): Softmax => ({
  weights: new Float32Array(pixels * classes),
  bias: new Float32Array(classes)
})

/** The probability of each class for the image that starts at `offset`. */
const predict = ({ bias, weights }: Softmax, images: Float32Array, offset: number): Float64Array => {
  const scores = Float64Array.from(bias)
  for (let p = 0; p < pixels; p++) {
    const pixel = images[offset + p] ?? 0
    if (pixel === 0) continue
    for (let c = 0; c < classes; c++) scores[c] = (scores[c] ?? 0) + pixel * (weights[p * classes + c] ?? 0)
  }
  const highest = Math.max(...scores)
  let sum = 0
  for (let c = 0; c < classes; c++) {
    scores[c] = Math.exp((scores[c] ?? 0) - highest)
    sum += scores[c] ?? 0
  }
  return scores.map((score) => score / sum)
}

/** The same random numbers for the same seed (mulberry32). */
const random = (seed: number) => () => {
  seed = (seed + 0x6d2b79f5) | 0
  let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
}

const shuffled = (count: number, seed: number): Uint32Array => {
  const next = random(seed)
  const order = Uint32Array.from({ length: count }, (_, i) => i)
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(next() * (i + 1))
    const held = order[i] ?? 0
    order[i] = order[j] ?? 0
    order[j] = held
  }
  return order
}

/** One pass over the digits by stochastic gradient descent. Answers a new model and the mean loss on the way. */
export const trainEpoch = (
  model: Softmax,
  digits: Digits,
  options: { readonly learningRate: number; readonly seed: number }
): { readonly model: Softmax; readonly loss: number } => {
  const weights = model.weights.slice()
  const bias = model.bias.slice()
  let loss = 0
  for (const n of shuffled(digits.labels.length, options.seed)) {
    const offset = n * pixels
    const label = digits.labels[n] ?? 0
    const gradient = predict({ weights, bias }, digits.images, offset)
    loss -= Math.log(Math.max(gradient[label] ?? 0, 1e-12))
    gradient[label] = (gradient[label] ?? 0) - 1
    for (let c = 0; c < classes; c++) bias[c] = (bias[c] ?? 0) - options.learningRate * (gradient[c] ?? 0)
    for (let p = 0; p < pixels; p++) {
      const pixel = options.learningRate * (digits.images[offset + p] ?? 0)
      if (pixel === 0) continue
      for (let c = 0; c < classes; c++) {
        weights[p * classes + c] = (weights[p * classes + c] ?? 0) - pixel * (gradient[c] ?? 0)
      }
    }
  }
  return { model: { weights, bias }, loss: loss / Math.max(1, digits.labels.length) }
}

/** The share of digits that the model reads right. */
export const accuracy = (model: Softmax, { images, labels }: Digits): number => {
  let right = 0
  for (const [n, label] of labels.entries()) {
    const probabilities = predict(model, images, n * pixels)
    if (probabilities.indexOf(Math.max(...probabilities)) === label) right++
  }
  return right / labels.length
}
