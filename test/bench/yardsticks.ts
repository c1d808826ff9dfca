/** What the machine does at best with the same bytes, both ways: the bounds that no protocol can beat. */
import { closeSync, openSync, readSync, unlinkSync, writeSync } from "node:fs"
import { connect, type Socket } from "node:net"
import { join } from "node:path"
import { startOurs, withFolder } from "./processes.ts"

const step = 2 ** 22

const throughFile = (path: string, data: Buffer, target: Buffer): void => {
  const out = openSync(path, "w")
  for (let at = 0; at < data.length; ) at += writeSync(out, data, at, Math.min(step, data.length - at))
  closeSync(out)
  const back = openSync(path, "r")
  for (let at = 0; at < target.length; ) at += readSync(back, target, at, Math.min(step, target.length - at), null)
  closeSync(back)
  unlinkSync(path)
}

/** Milliseconds of each time that `bytes` go into a file and out of it, twice: once each way. */
export const runFile = (bytes: number, rounds: number): Promise<ReadonlyArray<number>> =>
  withFolder(async (folder) => {
    const data = Buffer.alloc(bytes, 1)
    const target = Buffer.alloc(bytes, 2)
    const times: Array<number> = []
    for (let round = 0; round < rounds; round++) {
      const started = performance.now()
      throughFile(join(folder, "task"), data, target)
      throughFile(join(folder, "result"), target, data)
      times.push(performance.now() - started)
    }
    return times
  })

const exchange = (socket: Socket, data: Buffer): Promise<void> =>
  new Promise((resolve, reject) => {
    let received = 0
    const onData = (chunk: Buffer) => {
      received += chunk.length
      if (received < data.length) return
      socket.off("data", onData)
      socket.off("error", reject)
      resolve()
    }
    socket.on("data", onData)
    socket.once("error", reject)
    socket.write(data)
  })

/** One of the programs that print the port at which they listen. */
const startListener = (script: string, argument: number) => {
  let onPort: (port: number) => void = () => {}
  const port = new Promise<number>((resolve) => {
    onPort = resolve
  })
  return { port, running: startOurs(script, [String(argument)], (event) => onPort(Number(event.port))) }
}

/**
 * Milliseconds of each time that `bytes` go to another process over a local socket, and as many come back; `forwarded`,
 * by way of a third process.
 */
export const runNet = async (bytes: number, rounds: number, forwarded = false): Promise<ReadonlyArray<number>> => {
  const echo = startListener("netEcho.ts", bytes)
  const forwarder = forwarded ? startListener("netForward.ts", await echo.port) : undefined
  try {
    const socket = connect({ port: await (forwarder ?? echo).port, host: "127.0.0.1", noDelay: true })
    const data = Buffer.alloc(bytes, 1)
    const times: Array<number> = []
    for (let round = 0; round < rounds; round++) {
      const started = performance.now()
      await exchange(socket, data)
      times.push(performance.now() - started)
    }
    socket.destroy()
    return times
  } finally {
    echo.running.process.kill()
    forwarder?.running.process.kill()
  }
}
