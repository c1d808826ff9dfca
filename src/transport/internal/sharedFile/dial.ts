/** The dialing side. Source: docs/wire/transport.md, section 9.3. */
import * as NodePath from "node:path"
import { Effect } from "effect"
import * as SecureRandom from "effect/crypto/SecureRandom"
import { notReady } from "../errors.ts"
import * as Files from "./files.ts"
import * as Layout from "./layout.ts"
import * as Link from "./link.ts"
import type { Settings } from "./settings.ts"

/** So many random bytes as hex text: unguessable is not needed, unique is. */
export const randomName = (bytes: number): Effect.Effect<string> =>
  Effect.sync(() => Buffer.from(SecureRandom.randomBytesUnsafe(bytes)).toString("hex"))

/** Prepares a connection directory under a dot name and puts it in place by one rename: that is the connect. */
const place = Effect.fnUntraced(function* (connections: string, settings: Settings) {
  const name = yield* randomName(6)
  const hidden = NodePath.join(connections, `.${name}`)
  const directory = NodePath.join(connections, name)
  yield* Files.makeDirectory(hidden, settings.dirMode)
  yield* Files.createFile(Layout.logOf(hidden, "active", 0), settings.fileMode).pipe(
    Effect.andThen(Files.createFile(Layout.logOf(hidden, "passive", 0), settings.fileMode)),
    Effect.andThen(Files.rename(hidden, directory)),
    Effect.onError(() => Effect.ignore(Files.removeTree(hidden)))
  )
  return directory
})

/** Connects to a listener directory, until the Scope closes. */
export const dial = Effect.fnUntraced(function* (listener: string, settings: Settings) {
  const connections = Layout.connectionsOf(listener)
  if (!(yield* Files.isDirectory(connections))) {
    return yield* Effect.fail(notReady(listener, `no listener in ${listener} (yet): ${connections} is no directory`))
  }
  const directory = yield* place(connections, settings)
  // Where nobody ever answered, nobody will collect it.
  let close: Link.Link["close"] | undefined
  yield* Effect.addFinalizer(() =>
    Effect.gen(function* () {
      const closing = close === undefined ? undefined : yield* close
      if (closing?.hasReceived !== true) {
        yield* Effect.ignore(Files.removeTree(directory))
      }
    })
  )
  const link = yield* Link.make(directory, "active", settings)
  close = link.close
  return link.frames
}, Effect.uninterruptible)
