/** Takes `BYTES` bytes from each connection, then sends as many back. usage: netEcho.ts BYTES */
import { createServer } from "node:net"

const bytes = Number(process.argv[2])
const answer = Buffer.alloc(bytes)

const server = createServer({ noDelay: true }, (socket) => {
  let received = 0
  socket.on("data", (chunk) => {
    received += chunk.length
    if (received < bytes) return
    received -= bytes
    socket.write(answer)
  })
})
server.listen(0, "127.0.0.1", () => {
  const address = server.address()
  console.log(JSON.stringify({ event: "listening", port: typeof address === "object" ? address?.port : 0 }))
})
process.on("disconnect", () => process.exit(0))
