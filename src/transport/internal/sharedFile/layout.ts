/** Names in a listener directory. Source: docs/wire/transport.md, section 9.1. */
import * as NodePath from "node:path"

export type Side = "active" | "passive"

export const otherSide = (side: Side): Side => (side === "active" ? "passive" : "active")

export const listenerPrefix = "lst_"
const ownerMarker = ".nvf_file_transport"

export const connectionsOf = (listener: string): string => NodePath.join(listener, "conns")
export const listenerLease = (listener: string): string => NodePath.join(listener, "lease")
export const markerOf = (listener: string): string => NodePath.join(listener, ownerMarker)

export const logOf = (connection: string, side: Side, number: number): string =>
  NodePath.join(connection, `${side}.${number}.log`)
export const sealOf = (connection: string, side: Side, number: number): string =>
  NodePath.join(connection, `${side}.${number}.sealed`)
export const leaseOf = (connection: string, side: Side): string => NodePath.join(connection, `${side}.lease`)
export const closedOf = (connection: string): string => NodePath.join(connection, "closed")
