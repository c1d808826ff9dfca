/** What the protection of a round costs by itself: no connection, no frame, no process but this one. */
import { createCipheriv, generateKeyPairSync, randomBytes } from "node:crypto"
import { Effect, Result } from "effect"
import { MessageCipher } from "fl-attach/cell"
import { table } from "./report.ts"

const mebi = 2 ** 20
const chunks = 256
/** TLS has records of 16 KiB. */
const record = 16 * 1024

/** Milliseconds of CPU of this thread. */
const took = (run: () => void): number => {
  const before = process.threadCpuUsage()
  run()
  const { system, user } = process.threadCpuUsage(before)
  return (system + user) / 1000
}

/** CPU for 256 MiB, in chunks of 1 MiB: medians would hide little here, each figure is the sum of 256 chunks. */
export const cipherTable = (): string => {
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 })
  const content = Result.getOrThrow(MessageCipher.wrap(randomBytes(32), publicKey))
  const cipher = Effect.runSync(Effect.service(MessageCipher.MessageCipher))
  const clear = randomBytes(mebi)
  const seal = () => Effect.runSync(cipher.seal(privateKey, content, randomBytes(12), [clear]))
  const envelope = Result.getOrThrow(MessageCipher.parse(Buffer.concat(seal().pieces)))
  const open = () => {
    if (!Effect.runSync(cipher.isSignedBy(envelope, publicKey))) throw new Error("a good signature was refused")
    Result.getOrThrow(MessageCipher.decrypt(content, envelope))
  }
  const tls = () => {
    const stream = createCipheriv("aes-256-gcm", content.key, randomBytes(12))
    for (let at = 0; at < mebi; at += record) stream.update(clear.subarray(at, at + record))
    stream.final()
  }
  const times = (run: () => void) => took(() => Array.from({ length: chunks }, run))
  for (const run of [seal, open, tls]) took(run)
  const [sealing, opening, records] = [times(() => seal().release()), times(open), times(tls)]
  // Each way: sealed and opened once; TLS encrypts and decrypts on both connections.
  const round = 2 * (sealing + opening + 4 * records)
  return table(
    ["256 MiB", "protect", "open", "the records of TLS, once", "a round: each way all three, TLS four times"],
    [["ms of CPU", ...[sealing, opening, records, round].map((ms) => ms.toFixed(0))]]
  )
}
