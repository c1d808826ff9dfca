/** A WebSocket as a frame link. Source: docs/wire/transport.md, section 7. */
import { Effect, type Scope } from "effect"
import type { RawData, WebSocket } from "ws"
import type { FrameLink, LinkInfo } from "../../Drivers.ts"
import type { TransportError } from "../../TransportError.ts"
import { badData, closed } from "../errors.ts"
import * as Link from "./link.ts"
import { brokenError } from "./socketErrors.ts"

export const path = "/f3"

const normalClosure = 1000
const tooBig = 1009

/** Views of what came; fragments of a message are joined by then. */
const bytesOf = (data: RawData): Uint8Array => {
  const whole = Array.isArray(data) ? Buffer.concat(data) : data
  return whole instanceof ArrayBuffer
    ? new Uint8Array(whole)
    : new Uint8Array(whole.buffer, whole.byteOffset, whole.byteLength)
}

const protocolError = (peer: string, role: "active" | "passive", error: Error): TransportError =>
  "code" in error && String(error.code).startsWith("WS_ERR")
    ? badData(`${peer} broke the rules of WebSocket, which ends the connection: ${error.message}`)
    : brokenError(peer, role, error)

/** Why the peer closed, in words. */
const closedByPeer = (peer: string, code: number, isSpoken: boolean): TransportError => {
  if (code === tooBig) {
    return closed(
      peer,
      "peer",
      `${peer} closed the connection because a frame was too large for it: send smaller chunks`
    )
  }
  return closed(
    peer,
    "peer",
    isSpoken
      ? `${peer} closed the connection`
      : `${peer} closed the connection before it said a word: check that a cell listens there`
  )
}

/** Takes over an open WebSocket, which closes with the Scope; `largest` is what the peer takes, in bytes. */
export const make = Effect.fnUntraced(function* (
  socket: WebSocket,
  info: LinkInfo,
  role: "active" | "passive",
  settings: Omit<Link.Settings, "batchBytes">,
  largest: number
): Effect.fn.Return<FrameLink, never, Scope.Scope> {
  const peer = info.peerAddress
  let isSpoken = false
  const carrier: Link.Carrier = {
    info,
    write: (pieces, done) => {
      const [only] = pieces
      const message = pieces.length === 1 && only !== undefined ? only : Buffer.concat(pieces)
      socket.send(message, { binary: true, compress: false, fin: true }, (error) =>
        done(error === undefined || error === null ? undefined : brokenError(peer, role, error))
      )
    },
    pause: () => socket.pause(),
    resume: () => socket.resume(),
    close: () => {
      socket.resume()
      socket.close(normalClosure)
    },
    destroy: () => socket.terminate()
  }
  const link = yield* Link.make(carrier, { ...settings, batchBytes: undefined })

  socket.on("message", (data, isBinary) => {
    isSpoken = true
    // Text is no frame; the reference ignores it, too.
    if (isBinary) {
      link.deliver([bytesOf(data)])
    }
  })
  socket.on("error", (error) => link.end(protocolError(peer, role, error)))
  socket.on("close", (code) => {
    link.end(closedByPeer(peer, code, isSpoken))
    link.gone()
  })
  if (socket.readyState !== socket.OPEN) {
    link.end(closed(peer, "peer", `${peer} left at once`))
  }
  socket.resume()

  const send: FrameLink["send"] = (pieces) => {
    const size = pieces.reduce((sum, piece) => sum + piece.byteLength, 0)
    const message = `a frame of ${size} bytes is too large for ${peer}, which takes ${largest} (maxReferenceDialerBytes): send it as a stream`
    return size > largest ? Effect.fail(badData(message)) : link.frames.send(pieces)
  }
  return { ...link.frames, send }
})
