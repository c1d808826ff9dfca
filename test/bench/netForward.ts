/** Passes connections on to a port, both ways, and does nothing else. usage: netForward.ts PORT */
import { connect, createServer } from "node:net"

const target = Number(process.argv[2])

const server = createServer({ noDelay: true }, (socket) => {
  const other = connect({ port: target, host: "127.0.0.1", noDelay: true })
  socket.pipe(other).pipe(socket)
  for (const end of [socket, other]) end.on("error", () => process.exit(1))
})
server.listen(0, "127.0.0.1", () => {
  const address = server.address()
  console.log(JSON.stringify({ event: "listening", port: typeof address === "object" ? address?.port : 0 }))
})
process.on("disconnect", () => process.exit(0))
