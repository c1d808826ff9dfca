/** TLS over a socket, on both sides. Source: docs/wire/transport.md, section 5. */
import * as NodeNet from "node:net"
import * as NodeTls from "node:tls"
import { Duration, Effect, type Scope } from "effect"
import * as CertificateCare from "../../../identity/CertificateCare.ts"
import type { CredentialFiles } from "../../../identity/Credentials.ts"
import type { CredentialsError } from "../../../identity/CredentialsError.ts"
import * as TlsContext from "../../../identity/TlsContext.ts"
import { formatDuration } from "../../../platform/DurationText.ts"
import type { Driver } from "../../Driver.ts"
import { BadConfig, TransportError } from "../../TransportError.ts"
import { type Binding, type Connector, forDial, type Params, textOf } from "./connector.ts"
import { handshakeError, handshakeTimeout } from "./socketErrors.ts"

const fileParams = [
  ["caCert", "ca_cert"],
  ["clientCert", "client_cert"],
  ["clientKey", "client_key"],
  ["serverCert", "server_cert"],
  ["serverKey", "server_key"],
  ["customCaCert", "custom_ca_cert"]
] as const

/** The driver's own files, overlaid by those of the connector. */
const filesOf = (own: CredentialFiles | undefined, params: Params): CredentialFiles => {
  const files: { -readonly [K in keyof CredentialFiles]: CredentialFiles[K] } = { ...own }
  for (const [name, param] of fileParams) {
    const path = textOf(params, param)
    if (path !== undefined) {
      files[name] = path
    }
  }
  return files
}

const unusable = ({ message, setting }: CredentialsError): TransportError =>
  new TransportError({ reason: new BadConfig({ setting, message }) })

const securityOf = (security: Connector["security"]): TlsContext.TlsSecurity => (security === "tls" ? "tls" : "mtls")

/** What a driver reads each time that it dials, and that its listeners look at again and again. */
export interface Contexts {
  readonly forDialer: (connector: Connector) => Effect.Effect<TlsContext.TlsContext, TransportError>
  readonly forListener: (binding: Binding) => Effect.Effect<TlsContext.TlsContext, TransportError>
}

/** Reads the files of a driver, and warns once of each key that others can read. */
export const makeContexts = (own: CredentialFiles | undefined, fallback: boolean): Contexts => {
  const warnOfOpenKey = CertificateCare.makeKeyWarnings()
  const checked = (context: Effect.Effect<TlsContext.TlsContext, CredentialsError>) =>
    context.pipe(
      Effect.mapError(unusable),
      Effect.tap(({ keyPath }) => (keyPath === undefined ? Effect.void : warnOfOpenKey(keyPath)))
    )
  return {
    forDialer: ({ params, security }) =>
      checked(TlsContext.forDialer(filesOf(own, params), { security: securityOf(security), fallback })),
    forListener: ({ params, security }) =>
      checked(TlsContext.forListener(filesOf(own, params), { security: securityOf(security), fallback }))
  }
}

/** A driver's `check`. */
export const makeCheck =
  (contexts: Contexts): NonNullable<Driver["check"]> =>
  (url, resources) =>
    Effect.flatMap(Effect.fromResult(forDial(url, resources)), (connector) =>
      connector.security === "clear"
        ? Effect.undefined
        : Effect.map(contexts.forDialer(connector), ({ cert, commonName }) =>
            cert === undefined ? undefined : { commonName }
          )
    )

const pems = ({ ca, cert, key }: TlsContext.TlsContext) => ({
  ca,
  ...(cert === undefined ? {} : { cert }),
  ...(key === undefined ? {} : { key })
})

/** What a listener's certificates decide; the rest stays as long as the listener. */
export const secureContext = (context: TlsContext.TlsContext): NodeTls.SecureContextOptions => ({
  ...pems(context),
  minVersion: TlsContext.minVersion
})

/** For Node's TLS, as a dialer. Whose certificate it is, and not of which host, decides: see `CertificateIdentity`. */
const dialerOptions = (context: TlsContext.TlsContext) => ({
  ...pems(context),
  minVersion: TlsContext.minVersion,
  rejectUnauthorized: true,
  checkServerIdentity: () => undefined
})

/** For Node's TLS, as a listener. */
export const listenerOptions = (context: TlsContext.TlsContext, timeout: Duration.Duration) => ({
  ...secureContext(context),
  requestCert: context.security === "mtls",
  rejectUnauthorized: context.security === "mtls",
  handshakeTimeout: Duration.toMillis(timeout)
})

/** The common name of the certificate that the other side has shown and this side has verified. */
export const peerNameOf = (socket: NodeTls.TLSSocket): { readonly peerCommonName?: string } => {
  const name = socket.authorized ? TlsContext.commonNameOf(socket.getPeerCertificate().subject ?? {}) : undefined
  return name === undefined ? {} : { peerCommonName: name }
}

/** Some dialers tell the host that they want, some don't. */
const serverNameOf = ({ host, scheme }: Connector): { readonly servername?: string } =>
  scheme === "stcp" || NodeNet.isIP(host) !== 0 ? {} : { servername: host }

/** Does the dialer's part of the handshake over a socket; ends with the socket's Scope. */
export const upgrade = Effect.fnUntraced(function* (
  socket: NodeNet.Socket,
  connector: Connector,
  context: TlsContext.TlsContext,
  timeout: Duration.Duration,
  more: Pick<NodeTls.ConnectionOptions, "ALPNProtocols" | "checkServerIdentity"> = {}
): Effect.fn.Return<NodeTls.TLSSocket, TransportError, Scope.Scope> {
  const target = `${connector.scheme}://${connector.host}:${connector.port}`
  const tls = yield* Effect.acquireRelease(
    Effect.sync(() => NodeTls.connect({ ...dialerOptions(context), ...serverNameOf(connector), ...more, socket })),
    (tls) => Effect.sync(() => tls.destroy())
  )
  return yield* Effect.callback<NodeTls.TLSSocket, TransportError>((resume) => {
    const onError = (error: Error) => resume(Effect.fail(handshakeError(target, "active", error)))
    tls.on("error", onError)
    tls.once("close", () => onError(Object.assign(new Error("closed"), { code: "ECONNRESET" })))
    tls.once("secureConnect", () => resume(Effect.succeed(tls)))
  }).pipe(
    Effect.timeoutOrElse({
      duration: timeout,
      orElse: () => Effect.fail(handshakeTimeout(target, formatDuration(timeout)))
    })
  )
})

/** Why a client of a listener did not get through the handshake. */
export const clientError = (peer: string, error: unknown, socket: NodeTls.TLSSocket): TransportError => {
  // Node keeps the code of a refused certificate here; its type says otherwise.
  const refused: unknown = socket.authorizationError
  const cause = typeof refused === "string" ? { code: refused } : error
  return handshakeError(peer, "passive", cause)
}
