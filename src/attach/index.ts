/**
 * The client job's end of Attach: a trainer that others started, as a service.
 *
 * @since 0.1.0
 */
export { AttachBackend, make } from "./AttachBackend.ts"
export * from "./AttachConfig.ts"
export * from "./AttachError.ts"
export * as AttachGuard from "./AttachGuard.ts"
export * as AttachMetrics from "./AttachMetrics.ts"
export * from "./AttachRoute.ts"
export type { AttachTask } from "./AttachTask.ts"
export * from "./ClientApiExecutor.ts"
export * from "./SessionState.ts"
