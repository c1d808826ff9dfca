/**
 * Named peers: routes, requests, streams.
 *
 * @since 0.1.0
 */
export * as ByteStream from "./ByteStream.ts"
export {
  type Address,
  Cell,
  type CellOptions,
  type CellReply,
  type CellRequest,
  type ConnectOptions,
  type GuardRule,
  type GuardVerdict,
  type Handler,
  type Headers,
  type LinkFailure,
  type ListenOptions,
  type PeerChange,
  type PeerStatus,
  type ProtectionSettings,
  type RequestOptions,
  type ReturnCode
} from "./Cell.ts"
export * as CellCredentials from "./CellCredentials.ts"
export * from "./CellError.ts"
export * as CellMessage from "./CellMessage.ts"
export * as CertificateExchange from "./CertificateExchange.ts"
export * from "./CipherError.ts"
export * as CoreCell from "./CoreCell.ts"
export type {
  DownloadSettings,
  Offer,
  OfferOptions,
  TransferOutcome
} from "./DownloadService.ts"
export * as MessageCipher from "./MessageCipher.ts"
export { type TransferProgress, transferBytes } from "./TransferProgress.ts"
