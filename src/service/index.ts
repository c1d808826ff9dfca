/**
 * What a federated-learning service is built from.
 *
 * @since 0.1.0
 */
export * from "./AttachFleet.ts"
export * as FedAvg from "./FedAvg.ts"
export * from "./FedAvgError.ts"
export * as ModelFile from "./ModelFile.ts"
export * from "./ModelFileError.ts"
export * as NodeAttach from "./NodeAttach.ts"
export * as Rounds from "./Rounds.ts"
