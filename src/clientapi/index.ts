/**
 * What a service and its trainer agree on: topics and bodies, names, and how they find each other.
 *
 * @since 0.1.0
 */
export * as AttachUrl from "./AttachUrl.ts"
export * as ClientApi from "./ClientApi.ts"
export * from "./DurationInput.ts"
export { EndpointRecord, parseEndpointRecord } from "./EndpointRecord.ts"
export { FieldError } from "./FieldError.ts"
export * as Rendezvous from "./Rendezvous.ts"
export * from "./RendezvousError.ts"
export {
  AttachId,
  JobName,
  parseJobName,
  TrainerName,
  trainerFqcn,
  trainerName,
  trainerPrefix
} from "./TrainerName.ts"
