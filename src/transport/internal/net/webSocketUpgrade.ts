/** The dialer's side of a WebSocket. Source: docs/wire/transport.md, section 7. */
import type { Socket } from "node:net"
import { TLSSocket } from "node:tls"
import { Effect, type Scope } from "effect"
import { WebSocket } from "ws"
import { formatDuration } from "../../../platform/DurationText.ts"
import type { FrameLink } from "../../Drivers.ts"
import { NotReady, TransportError } from "../../TransportError.ts"
import { badData, closed } from "../errors.ts"
import type { Connector } from "./connector.ts"
import type { Limits } from "./options.ts"
import { brokenError } from "./socketErrors.ts"
import { addressesOf } from "./sockets.ts"
import { peerNameOf } from "./tls.ts"
import * as WebSocketLink from "./webSocketLink.ts"

/** By this a listener of ours knows a dialer of ours. */
export const userAgent = "fl-attach"

const codeOf = (error: Error): string => ("code" in error ? String(error.code) : "")

const upgradeError = (target: string, error: Error): TransportError => {
  const code = codeOf(error)
  if (code.startsWith("HPE_")) {
    return badData(
      `${target} does not answer in HTTP (${code}): another service has this port, or it wants TLS (https)`
    )
  }
  if (code === "ECONNRESET" || error.message === "socket hang up") {
    return closed(
      target,
      "peer",
      `${target} ended the connection instead of upgrading it to a WebSocket: another service has this port, or it wants TLS (https)`
    )
  }
  return code === ""
    ? badData(`${target} does not speak WebSocket: ${error.message}`)
    : brokenError(target, "active", error)
}

const unexpected = (target: string, status: number): TransportError =>
  new TransportError({
    reason: new NotReady({
      target,
      message: `${target}${WebSocketLink.path} answers with HTTP ${status}, not with a WebSocket: a web server, and no cell, has this port`
    })
  })

/** Asks for the upgrade over a connected socket. The link closes with the Scope. */
export const dial = Effect.fnUntraced(function* (
  connector: Connector,
  socket: Socket,
  limits: Limits,
  largest: number
): Effect.fn.Return<FrameLink, TransportError, Scope.Scope> {
  const target = `${connector.scheme}://${connector.host}:${connector.port}`
  const { local, peer } = addressesOf(socket)
  const secured =
    socket instanceof TLSSocket && connector.security !== "clear"
      ? { ...peerNameOf(socket), security: connector.security }
      : {}
  const webSocket = yield* Effect.acquireRelease(
    Effect.sync(
      () =>
        // The socket is there already, with TLS where that is wanted: `ws` alone here.
        new WebSocket(`ws://${connector.host}:${connector.port}${WebSocketLink.path}`, [], {
          createConnection: () => socket,
          perMessageDeflate: false,
          followRedirects: false,
          skipUTF8Validation: true,
          maxPayload: largest,
          headers: { "User-Agent": userAgent }
        })
    ),
    (webSocket) => Effect.sync(() => webSocket.terminate())
  )
  yield* Effect.callback<void, TransportError>((resume) => {
    webSocket.on("error", (error) => resume(Effect.fail(upgradeError(target, error))))
    webSocket.on("unexpected-response", (_request, response) => {
      resume(Effect.fail(unexpected(target, response.statusCode ?? 0)))
    })
    webSocket.once("open", () => {
      webSocket.pause()
      resume(Effect.void)
    })
    socket.resume()
  }).pipe(
    Effect.timeoutOrElse({
      duration: limits.handshakeTimeout,
      orElse: () => {
        const waited = formatDuration(limits.handshakeTimeout)
        const message = `${target} did not upgrade the connection to a WebSocket within ${waited} (handshakeTimeout): check the port`
        return Effect.fail(new TransportError({ reason: new NotReady({ target, message }) }))
      }
    })
  )
  const info = { scheme: connector.scheme, localAddress: local, peerAddress: peer, ...secured }
  return yield* WebSocketLink.make(webSocket, info, "active", limits, largest)
})
