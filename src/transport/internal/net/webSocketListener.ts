/** The listener's side of WebSockets. Source: docs/wire/transport.md, section 7. */
import * as NodeHttp from "node:http"
import * as NodeHttps from "node:https"
import type { Socket } from "node:net"
import { TLSSocket } from "node:tls"
import { Duration, Effect } from "effect"
import { type WebSocket, WebSocketServer } from "ws"
import type { TlsContext } from "../../../identity/TlsContext.ts"
import * as Arrivals from "./arrivals.ts"
import type { Binding } from "./connector.ts"
import { greetingLimit } from "./firstWords.ts"
import type { Limits } from "./options.ts"
import * as Renewal from "./renewal.ts"
import { addressesOf, keepAliveDelay, noDelayOf } from "./sockets.ts"
import * as Tls from "./tls.ts"
import * as WebSocketLink from "./webSocketLink.ts"
import { userAgent } from "./webSocketUpgrade.ts"

export interface Sizes {
  /** The largest frame that is taken. */
  readonly largest: number
  /** The largest frame that a dialer of the reference takes. */
  readonly toReference: number
}

const answer = (status: string): string => `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`

const pathOf = (url: string | undefined): string => (url ?? "").split("?")[0] ?? ""

/** Before its first message nothing is known of a client: it may not fill the memory. */
const limitGreeting = (socket: Socket, webSocket: WebSocket): void => {
  let size = 0
  const count = (chunk: Uint8Array) => {
    size += chunk.byteLength
    if (size > greetingLimit) {
      webSocket.terminate()
    }
  }
  socket.on("data", count)
  webSocket.once("message", () => socket.removeListener("data", count))
}

interface Served {
  readonly server: NodeHttp.Server
  readonly renew: Renewal.Renew
}

const makeServer = (binding: Binding, context: TlsContext | undefined, limits: Limits): Served => {
  const options = {
    noDelay: noDelayOf(binding.params),
    keepAlive: true,
    keepAliveInitialDelay: keepAliveDelay,
    headersTimeout: Duration.toMillis(limits.handshakeTimeout),
    requestTimeout: Duration.toMillis(limits.handshakeTimeout),
    connectionsCheckingInterval: Math.max(100, Duration.toMillis(limits.handshakeTimeout) / 4)
  }
  if (context === undefined) return { server: NodeHttp.createServer(options), renew: Renewal.nothingToRenew }
  const server = NodeHttps.createServer({ ...options, ...Tls.listenerOptions(context, limits.handshakeTimeout) })
  return { server, renew: (renewed) => server.setSecureContext(Tls.secureContext(renewed)) }
}

/** A server that is not open yet, and those who come to it. */
export const make = Effect.fnUntraced(function* (
  binding: Binding,
  context: TlsContext | undefined,
  limits: Limits,
  sizes: Sizes
) {
  const arrivals = yield* Arrivals.make(`${binding.scheme} listener of ${binding.host}`)
  const upgrades = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    skipUTF8Validation: true,
    maxPayload: sizes.largest
  })

  const arrive = (webSocket: WebSocket, socket: Socket, request: NodeHttp.IncomingMessage): void => {
    const { local, peer } = addressesOf(socket)
    const secured =
      context === undefined || !(socket instanceof TLSSocket)
        ? {}
        : { ...Tls.peerNameOf(socket), security: context.security }
    const info = { scheme: binding.scheme, localAddress: local, peerAddress: peer, ...secured }
    const isOurs = request.headers["user-agent"]?.includes(userAgent) === true
    const takes = isOurs ? Number.MAX_SAFE_INTEGER : sizes.toReference
    webSocket.on("error", () => {})
    webSocket.pause()
    limitGreeting(socket, webSocket)
    arrivals.add({
      take: WebSocketLink.make(webSocket, info, "passive", limits, takes),
      drop: () => webSocket.terminate()
    })
  }

  const { renew, server } = makeServer(binding, context, limits)
  server.on("request", (request, response) => {
    response.writeHead(pathOf(request.url) === WebSocketLink.path ? 400 : 404, { Connection: "close" }).end()
  })
  server.on("upgrade", (request: NodeHttp.IncomingMessage, socket: Socket, head: Buffer) => {
    socket.on("error", () => {})
    if (pathOf(request.url) !== WebSocketLink.path) {
      socket.end(answer("404 Not Found"))
      return
    }
    upgrades.handleUpgrade(request, socket, head, (webSocket) => arrive(webSocket, socket, request))
  })
  server.on("clientError", (error, socket) => {
    arrivals.complain(`a client does not speak HTTP (${error.message}): check its port and scheme`)
    if (socket.writable) {
      socket.end(answer("400 Bad Request"))
    } else {
      socket.destroy()
    }
  })
  server.on("tlsClientError", (error: Error, socket: TLSSocket) => {
    arrivals.complain(Tls.clientError(addressesOf(socket).peer, error, socket).message)
    socket.destroy()
  })
  return { arrivals, renew, server }
})
