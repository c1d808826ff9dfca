/**
 * The values of federated learning as they travel.
 *
 * @since 0.1.0
 */
export * as Analytics from "./Analytics.ts"
export * from "./Dxo.ts"
export * from "./FLContext.ts"
export * from "./FLModel.ts"
export * from "./FLModelEnvelope.ts"
export * from "./Learnable.ts"
export * as ModelCodec from "./ModelCodec.ts"
export * from "./ModelError.ts"
export * as ModelExchange from "./ModelExchange.ts"
export * from "./Shareable.ts"
