/**
 * The safetensors format: tensors by name, one after another behind a JSON header.
 *
 * Source: docs/wire/fobs.md, section 4.2.
 *
 * @since 0.1.0
 */
import type { Result } from "effect"
import type { FobsError } from "./FobsError.ts"
import { attempt } from "./internal/refusal.ts"
import * as Header from "./internal/safetensorsHeader.ts"
import { Tensor } from "./Tensor.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface EncodeOptions {
  /** Texts that are kept in the header (`__metadata__`), for instance `format`: `pt`. */
  readonly metadata?: Iterable<readonly [name: string, text: string]>
}

/**
 * The file of some tensors, in the order given: the header, then the data of each, uncopied. Fails with `NotEncodable`
 * when a tensor's bytes don't fit its shape, or a name comes twice.
 *
 * @category encoding
 * @since 0.1.0
 */
export const encode = (
  tensors: Iterable<readonly [name: string, tensor: Tensor]>,
  options: EncodeOptions = {}
): Result.Result<ReadonlyArray<Uint8Array>, FobsError> =>
  attempt(() => {
    const all = Array.from(tensors)
    return [Header.writeHeader(all, options.metadata ?? []), ...all.map(([, { bytes }]) => bytes)]
  })

/**
 * The tensors of a file, by name, in the order of the header; their bytes are views of `bytes`. Fails with
 * `InvalidValue` when the header is no valid JSON or asks for bytes that are not there, twice, or too few.
 *
 * @category decoding
 * @since 0.1.0
 */
export const decode = (bytes: Uint8Array): Result.Result<ReadonlyMap<string, Tensor>, FobsError> =>
  attempt(() => {
    const start = Header.readLength(bytes, bytes.length)
    const data = bytes.subarray(start)
    const tensors = new Map<string, Tensor>()
    for (const place of Header.readHeader(bytes.subarray(Header.lengthField, start), data.length)) {
      tensors.set(place.name, new Tensor(place.dtype, place.shape, data.subarray(place.begin, place.end)))
    }
    return tensors
  })

/**
 * The texts in the header of a file (`__metadata__`); empty where there are none. Fails with `InvalidValue` when the
 * header is malformed.
 *
 * @category decoding
 * @since 0.1.0
 */
export const decodeMetadata = (bytes: Uint8Array): Result.Result<ReadonlyMap<string, string>, FobsError> =>
  attempt(() => Header.readMetadata(bytes.subarray(Header.lengthField, Header.readLength(bytes, bytes.length))))
