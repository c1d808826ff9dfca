/**
 * Values to bytes and back: FOBS, msgpack, and the formats of arrays.
 *
 * @since 0.1.0
 */

export * from "./ByteSource.ts"
export * from "./Datum.ts"
export * as Decomposer from "./Decomposer.ts"
export * as Fobs from "./Fobs.ts"
export * from "./FobsError.ts"
export * as Half from "./Half.ts"
export * as Keys from "./Keys.ts"
export * as Msgpack from "./Msgpack.ts"
export * from "./NdArray.ts"
export * as NdMath from "./NdMath.ts"
export * as Npy from "./Npy.ts"
export * as Npz from "./Npz.ts"
export * as NpzFile from "./NpzFile.ts"
export * from "./Pieces.ts"
export * as Safetensors from "./Safetensors.ts"
export * as SafetensorsFile from "./SafetensorsFile.ts"
export * from "./Tensor.ts"
export * as TensorMath from "./TensorMath.ts"
export * from "./Values.ts"
