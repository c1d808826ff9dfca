/**
 * Bytes to and from peers.
 *
 * @since 0.1.0
 */
export * as Connection from "./Connection.ts"
export * from "./Drivers.ts"
export * as Frame from "./Frame.ts"
export * from "./FrameReader.ts"
export * as GrpcDriver from "./GrpcDriver.ts"
export * as MemoryDriver from "./MemoryDriver.ts"
export * as PeerIdentity from "./PeerIdentity.ts"
export * as SharedFileDriver from "./SharedFileDriver.ts"
export * as TcpDriver from "./TcpDriver.ts"
export * from "./TransportError.ts"
export * as WebSocketDriver from "./WebSocketDriver.ts"
