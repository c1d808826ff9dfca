import { Effect } from "effect"
import type { FrameLink } from "../../transport/Drivers.ts"

/** Frames and bytes of a connection, each way, counted as they go by. */
export interface Traffic {
  framesReceived: number
  bytesReceived: number
  framesSent: number
  bytesSent: number
}

/** A link that counts what goes over it: whole frames, those that keep the connection alive included. */
export const counted = (link: FrameLink): { readonly link: FrameLink; readonly traffic: Traffic } => {
  const traffic: Traffic = { framesReceived: 0, bytesReceived: 0, framesSent: 0, bytesSent: 0 }
  const receive = Effect.map(link.receive, (frames) => {
    traffic.framesReceived += frames.length
    for (const frame of frames) {
      traffic.bytesReceived += frame.byteLength
    }
    return frames
  })
  const send: FrameLink["send"] = (pieces) => {
    let size = 0
    for (const piece of pieces) {
      size += piece.byteLength
    }
    return Effect.map(link.send(pieces), () => {
      traffic.framesSent += 1
      traffic.bytesSent += size
    })
  }
  return { link: { ...link, send, receive }, traffic }
}
