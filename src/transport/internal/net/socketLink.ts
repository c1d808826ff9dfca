/** A TCP or TLS socket as a frame link. Source: docs/wire/transport.md, section 6. */
import type { Socket } from "node:net"
import { Effect, Result, type Scope } from "effect"
import * as OwnedBytes from "../../../platform/OwnedBytes.ts"
import type { FrameLink, LinkInfo } from "../../Drivers.ts"
import { FrameReader } from "../../FrameReader.ts"
import type { TransportError } from "../../TransportError.ts"
import { badData, closed } from "../errors.ts"
import type { FramePool } from "../framePool.ts"
import { strangerIn } from "./firstWords.ts"
import type { Inlet } from "./inlet.ts"
import * as Link from "./link.ts"
import { brokenError } from "./socketErrors.ts"

/** A sent chunk of a stream (1 MiB) with its headers goes out in one write. */
const batchBytes = 1024 * 1024 + 128 * 1024

export interface Settings extends Omit<Link.Settings, "batchBytes"> {
  readonly pool: FramePool
}

/** A frame gets no more memory than this beyond what has come of it, but for what is used again. */
const readSize = 64 * 1024

type Split = Result.Result<ReadonlyArray<Uint8Array>, TransportError>

/** Splits what comes, and judges the first frame: before it nothing is known of the peer. */
const makeSplitter = (peer: string, role: "active" | "passive", pool: FramePool) => {
  const reader = new FrameReader(pool)
  const start: Array<number> = []
  let isGreeted = false

  const judge = (chunk: Uint8Array): TransportError | undefined => {
    const known = start.length
    for (const byte of chunk.subarray(0, 64 - known)) {
      start.push(byte)
    }
    const stranger = start.length < 4 ? undefined : strangerIn(Uint8Array.from(start), peer, role)
    return stranger === undefined ? undefined : badData(stranger)
  }

  const split = (chunk: Uint8Array, cut: () => Split): Split => {
    if (!isGreeted) {
      const problem = judge(chunk)
      if (problem !== undefined) {
        return Result.fail(problem)
      }
    }
    return Result.map(cut(), (frames) => {
      isGreeted ||= frames.length > 0
      return frames
    })
  }
  let offered: Uint8Array = new Uint8Array(0)
  return {
    push: (chunk: Uint8Array): Split => split(chunk, () => reader.push(chunk)),
    /** Where to read next, and how to tell how much came. */
    space: (): Uint8Array => {
      offered = reader.space(readSize)[0]
      return offered
    },
    filled: (count: number): Split => split(offered.subarray(0, count), () => reader.filled(count)),
    releaseOf: (frame: Uint8Array) => reader.releaseOf(frame)
  }
}

/** Frees what was read, once none of the frames lies in it: Node has fresh memory for each read, of 64 KiB at most. */
const freeUnlessUsed = (chunk: Uint8Array, frames: ReadonlyArray<Uint8Array>): void => {
  if (frames.every((frame) => frame.buffer !== chunk.buffer)) {
    OwnedBytes.free(chunk)
  }
}

const nothingSaid = (peer: string, role: "active" | "passive", isTls: boolean): TransportError => {
  const hint = isTls
    ? "it may refuse this side's certificate"
    : "it may want TLS (scheme stcp), or be another service: check port and scheme"
  return closed(
    peer,
    "peer",
    role === "active" ? `${peer} ended the connection before it said a word: ${hint}` : `${peer} left without a word`
  )
}

/** Takes over a connected socket, which closes with the Scope; `inlet` is what it was made with. */
export const make = Effect.fnUntraced(function* (
  socket: Socket,
  info: LinkInfo,
  role: "active" | "passive",
  settings: Settings,
  inlet?: Inlet
): Effect.fn.Return<FrameLink, never, Scope.Scope> {
  const peer = info.peerAddress
  const splitter = makeSplitter(peer, role, settings.pool)
  let isSpoken = false
  let isOver = false

  const carrier: Link.Carrier = {
    info,
    write: (pieces, done) => {
      const taken = (error?: Error | null) => done(error ? brokenError(peer, role, error) : undefined)
      socket.cork()
      for (let index = 0; index < pieces.length - 1; index += 1) {
        const piece = pieces[index]
        if (piece !== undefined && piece.byteLength > 0) {
          socket.write(piece)
        }
      }
      socket.write(pieces[pieces.length - 1] ?? new Uint8Array(0), taken)
      socket.uncork()
    },
    pause: () => socket.pause(),
    resume: () => socket.resume(),
    close: () => {
      isOver = true
      // What still comes is thrown away: unread bytes would make the system reset the connection.
      socket.resume()
      socket.destroySoon()
    },
    destroy: () => socket.destroy()
  }
  const link = yield* Link.make(carrier, { ...settings, batchBytes })

  const take = (split: () => Split): ReadonlyArray<Uint8Array> => {
    isSpoken = true
    if (isOver) {
      return []
    }
    const frames = split()
    if (Result.isSuccess(frames)) {
      link.deliver(frames.success)
      return frames.success
    }
    link.end(frames.failure)
    carrier.close()
    return []
  }
  if (inlet === undefined) {
    socket.on("data", (chunk: Uint8Array) =>
      freeUnlessUsed(
        chunk,
        take(() => splitter.push(chunk))
      )
    )
  } else {
    inlet.attach({
      space: () => (isOver ? new Uint8Array(readSize) : splitter.space()),
      filled: (count) => void take(() => splitter.filled(count)),
      push: (bytes) => void take(() => splitter.push(bytes))
    })
  }
  socket.on("end", () => {
    link.end(
      isSpoken
        ? closed(peer, "peer", `${peer} closed the connection`)
        : nothingSaid(peer, role, info.security !== undefined)
    )
    socket.destroySoon()
  })
  socket.on("error", (error) => link.end(brokenError(peer, role, error)))
  socket.on("close", () => {
    link.end(closed(peer, "peer", `the connection with ${peer} is gone`))
    link.gone()
  })
  if (socket.destroyed) {
    link.end(closed(peer, "peer", `${peer} left at once`))
    link.gone()
  }
  socket.resume()
  return { ...link.frames, releaseOf: splitter.releaseOf }
})
