/**
 * safetensors files of any size: tensors are read and written one at a time, without the whole file in memory.
 *
 * Source: docs/wire/fobs.md, section 4.2.
 *
 * @since 0.1.0
 */
import { Effect, Result, Stream } from "effect"
import type { ByteSink, ByteSource } from "./ByteSource.ts"
import { FobsError, InvalidValue } from "./FobsError.ts"
import { bufferLength, makeBatcher, makeWindow, readSteps, type Window } from "./internal/byteSteps.ts"
import { attempt } from "./internal/refusal.ts"
import * as Header from "./internal/safetensorsHeader.ts"
import { defaultMaxBytes } from "./Npz.ts"
import type { EncodeOptions } from "./Safetensors.ts"
import { Tensor } from "./Tensor.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface ReadOptions {
  /** The most bytes that header and tensors together may take. Default: 4 GiB. */
  readonly maxBytes?: number
}

const invalid = (message: string): FobsError =>
  new FobsError({ reason: new InvalidValue({ typeName: "safetensors", message: `safetensors: ${message}` }) })

/** The JSON of the header, and where the data begins. */
const readJson = Effect.fnUntraced(function* <E, R>(
  source: ByteSource<E, R>,
  maxBytes: number
): Effect.fn.Return<readonly [json: Uint8Array, dataStart: number], FobsError | E, R> {
  const first = new Uint8Array(Math.min(Header.lengthField, source.size))
  yield* source.readInto(0, first)
  const dataStart = yield* Effect.fromResult(attempt(() => Header.readLength(first, source.size)))
  if (dataStart > maxBytes) {
    return yield* Effect.fail(invalid(`its header has ${dataStart} bytes, the limit (maxBytes) is ${maxBytes}`))
  }
  const json = new Uint8Array(dataStart - Header.lengthField)
  yield* source.readInto(Header.lengthField, json)
  return [json, dataStart]
})

const readTensor = Effect.fnUntraced(function* <E, R>(
  source: ByteSource<E, R>,
  window: Window<E, R>,
  offset: number,
  { begin, dtype, end, name, shape }: Header.TensorPlace
): Effect.fn.Return<Tensor, FobsError | E, R> {
  const length = end - begin
  if (length <= bufferLength) return new Tensor(dtype, shape, (yield* window.at(offset, length)).slice())
  const data = yield* Effect.fromResult(
    Result.try({
      try: () => new Uint8Array(length),
      catch: () => invalid(`${JSON.stringify(name)} has ${length} bytes, more than there is memory for`)
    })
  )
  yield* readSteps(source, offset, data, () => undefined)
  return new Tensor(dtype, shape, data)
})

/**
 * The tensors of a file, each in a buffer of its own, in the order in which their data lies. Only the header and one
 * tensor at a time are held. A long tensor is read in steps, between which others may run.
 *
 * Fails with `InvalidValue` as `Safetensors.decode` and when there is more than `maxBytes`, and as the source does.
 *
 * @category decoding
 * @since 0.1.0
 */
export const stream = <E, R>(
  source: ByteSource<E, R>,
  options: ReadOptions = {}
): Stream.Stream<readonly [name: string, tensor: Tensor], FobsError | E, R> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const maxBytes = options.maxBytes ?? defaultMaxBytes
      const [json, dataStart] = yield* readJson(source, maxBytes)
      const places = yield* Effect.fromResult(attempt(() => Header.readHeader(json, source.size - dataStart)))
      const total = places.reduce((sum, { begin, end }) => sum + end - begin, dataStart)
      if (total > maxBytes) {
        return yield* Effect.fail(invalid(`its tensors have ${total} bytes, the limit (maxBytes) is ${maxBytes}`))
      }
      const window = makeWindow(source)
      return Stream.mapEffect(Stream.fromIterable(Header.inFileOrder(places)), (place) =>
        Effect.map(
          readTensor(source, window, dataStart + place.begin, place),
          (tensor) => [place.name, tensor] as const
        )
      )
    })
  )

/**
 * The texts in the header of a file (`__metadata__`); empty where there are none. The tensors are not read. Fails with
 * `InvalidValue` when the header is malformed, and as the source does.
 *
 * @category decoding
 * @since 0.1.0
 */
export const metadata = Effect.fnUntraced(function* <E, R>(
  source: ByteSource<E, R>,
  options: ReadOptions = {}
): Effect.fn.Return<ReadonlyMap<string, string>, FobsError | E, R> {
  const [json] = yield* readJson(source, options.maxBytes ?? defaultMaxBytes)
  return yield* Effect.fromResult(attempt(() => Header.readMetadata(json)))
})

/**
 * Writes tensors as `Safetensors.encode` does, in steps between which others may run. Data is not copied and must not
 * change before the end.
 *
 * Fails as `Safetensors.encode`, and as the sink does.
 *
 * @category encoding
 * @since 0.1.0
 */
export const write = Effect.fnUntraced(function* <E, R>(
  tensors: Iterable<readonly [name: string, tensor: Tensor]>,
  sink: ByteSink<E, R>,
  options: EncodeOptions = {}
): Effect.fn.Return<void, FobsError | E, R> {
  const all = Array.from(tensors)
  const batcher = makeBatcher(sink)
  yield* batcher.write(yield* Effect.fromResult(attempt(() => Header.writeHeader(all, options.metadata ?? []))))
  for (const [, { bytes }] of all) yield* batcher.write(bytes)
  yield* batcher.flush
})
