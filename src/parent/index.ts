/**
 * A site's client parent, which routes between services and trainers.
 *
 * @since 0.1.0
 */
export {
  ClientParent,
  type Endpoint,
  type ParentChange,
  type ParentOptions,
  type ParentStatus
} from "./ClientParent.ts"
export * from "./ParentError.ts"
export * as PeerAdmission from "./PeerAdmission.ts"
