/**
 * What the author of a federated-learning service needs. Each floor has an export of its own besides: `fl-attach/cell`,
 * `fl-attach/trainer`, `fl-attach/testing`, ...
 *
 * @since 0.1.0
 */
export { AttachBackend } from "./attach/AttachBackend.ts"
export { AttachConfig, type AttachOptions, decodeAttachConfig } from "./attach/AttachConfig.ts"
export * from "./attach/AttachError.ts"
export {
  AttachRoute,
  type ClientParentOptions,
  layerClientParent,
  layerListener,
  layerSharedFile,
  type OpenRoute
} from "./attach/AttachRoute.ts"
export type { AttachTask } from "./attach/AttachTask.ts"
export * from "./attach/SessionState.ts"
export { Cell } from "./cell/Cell.ts"
export { CellError } from "./cell/CellError.ts"
export { NdArray } from "./fobs/NdArray.ts"
export { AnalyticsRecord } from "./model/Analytics.ts"
export { FLModel, type ParamsType } from "./model/FLModel.ts"
export * as ModelExchange from "./model/ModelExchange.ts"
export { Header, Shareable } from "./model/Shareable.ts"
export * from "./service/index.ts"
