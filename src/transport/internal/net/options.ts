/** Settings that the network drivers have in common. */
import { Duration, Result } from "effect"
import type { CredentialFiles } from "../../../identity/Credentials.ts"
import type { TransportError } from "../../TransportError.ts"
import { numberOf, type Params } from "./connector.ts"
import type * as Link from "./link.ts"

export interface NetworkOptions {
  /**
   * Certificates for connectors with TLS, for instance `Credentials.inFolder("/site/certs")`. They are read anew for each
   * dialing; a listener looks for changed files every `renewInterval`. The parameters `ca_cert`, `client_cert`,
   * `client_key`, `server_cert`, `server_key` and `custom_ca_cert` of a connector override them.
   */
  readonly credentials?: CredentialFiles
  /**
   * How often a listener with TLS looks for changed files of certificates. It shows new ones to who connects from then
   * on, and drops no connection. Default 1 minute.
   */
  readonly renewInterval?: Duration.Input
  /** How long dialing may take until the peer's system has answered. Default 10 seconds. */
  readonly connectTimeout?: Duration.Input
  /** How long a peer may take for the TLS handshake, or the upgrade of HTTP. Default 10 seconds. */
  readonly handshakeTimeout?: Duration.Input
  /**
   * How long a peer may take no byte of what is sent to it before the connection is closed. Default 30 seconds; the
   * parameter `streaming_send_timeout` (seconds) of a connector overrides it.
   */
  readonly sendTimeout?: Duration.Input
  /** How long a closing connection waits for the peer to take what was sent last. Default 1 second. */
  readonly closeTimeout?: Duration.Input
  /** Bytes of frames that may wait for their receiver before reading stops. Default 4 MiB. */
  readonly receiveBytes?: number
}

export interface Limits extends Omit<Link.Settings, "batchBytes"> {
  readonly connectTimeout: Duration.Duration
  readonly handshakeTimeout: Duration.Duration
}

export const limitsOf = (options: NetworkOptions, params: Params): Result.Result<Limits, TransportError> => {
  const sendTimeout = Duration.fromInputUnsafe(options.sendTimeout ?? "30 seconds")
  return Result.map(
    numberOf(params, "streaming_send_timeout", Duration.toSeconds(sendTimeout), 0.001),
    (seconds): Limits => ({
      connectTimeout: Duration.fromInputUnsafe(options.connectTimeout ?? "10 seconds"),
      handshakeTimeout: Duration.fromInputUnsafe(options.handshakeTimeout ?? "10 seconds"),
      sendTimeout: Duration.seconds(seconds),
      closeTimeout: Duration.fromInputUnsafe(options.closeTimeout ?? "1 second"),
      receiveBytes: options.receiveBytes ?? 4 * 1024 * 1024
    })
  )
}
