/**
 * `fl-attach certs`: a site's certificates, for trying secure mode out.
 *
 * @since 0.1.0
 */
import * as NodeFs from "node:fs/promises"
import * as NodePath from "node:path"
import { Clock, Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { SecureRandom } from "effect/crypto"
import { siteName } from "../clientapi/TrainerName.ts"
import { PrivateFiles } from "../platform/PrivateFiles.ts"
import * as NodeAttach from "../service/NodeAttach.ts"
import { failed, wrongUsage } from "./internal/Failure.ts"
import { Screen } from "./internal/Screen.ts"

const flags = {
  dir: Flag.String("dir").pipe(
    Flag.withMetavar("folder"),
    Flag.withDescription(
      "Where the site's files go: rootCA.pem, client.crt, client.key, server.crt, server.key (required)"
    )
  ),
  site: Flag.String("site").pipe(
    Flag.withDescription("The site's name, which becomes the certificates' common name (required)")
  ),
  ca: Flag.String("ca").pipe(
    Flag.withMetavar("folder"),
    Flag.withDescription(
      "The folder of an earlier run whose root (rootCA.pem, rootCA.key) issues; without it, a new root"
    ),
    Flag.optional
  ),
  hosts: Flag.String("host").pipe(
    Flag.withDescription("A host at which the site listens; several are possible. localhost and 127.0.0.1 always are"),
    Flag.atLeast(0)
  ),
  days: Flag.Int("days").pipe(Flag.withDefault(90), Flag.withDescription("How long the certificates hold"))
}

interface Options {
  readonly dir: string
  readonly site: string
  readonly ca: Option.Option<string>
  readonly hosts: ReadonlyArray<string>
  readonly days: number
}

const project = "fl-attach test project"
const day = 86_400_000
const maxDays = 825
const publicMode = 0o644
const privateMode = 0o600

const readText = (path: string) =>
  Effect.tryPromise({
    try: () => NodeFs.readFile(path, "utf8"),
    catch: () => wrongUsage(`--ca: ${path} can't be read: name a folder in which fl-attach certs has made a root`)
  })

/**
 * Makes the files; what is there already is not written over.
 *
 * @category combinators
 * @since 0.1.0
 */
export const certs = Effect.fn("certs")(function* ({ ca, days, dir, hosts, site }: Options) {
  yield* Effect.mapError(Effect.fromResult(siteName(site, "--site")), ({ message }) => wrongUsage(message))
  if (days < 1 || days > maxDays) return yield* wrongUsage(`--days ${days}: give 1 to ${maxDays}`)
  const folder = NodePath.resolve(dir)
  const files = yield* PrivateFiles
  const random = yield* SecureRandom.SecureRandom
  const screen = yield* Screen
  // The library is needed here alone.
  const Pki = yield* Effect.promise(() => import("./internal/testPki.ts"))

  const now = yield* Clock.currentTimeMillis
  const validity = { notBefore: new Date(now - day), notAfter: new Date(now + days * day) }
  // A positive number of 16 bytes.
  const serial = Effect.map(random.randomBytes(16), (bytes) => `4${Buffer.from(bytes).toString("hex").slice(1)}`)
  const root = Option.isSome(ca)
    ? yield* Pki.readRoot(
        yield* readText(NodePath.resolve(ca.value, "rootCA.pem")),
        yield* readText(NodePath.resolve(ca.value, "rootCA.key"))
      )
    : yield* Pki.makeRoot(project, yield* serial, validity)
  const client = yield* Pki.issue(root, site, [site], yield* serial, validity)
  const server = yield* Pki.issue(root, site, ["localhost", "127.0.0.1", ...hosts], yield* serial, validity)

  const made = [
    ["rootCA.pem", Pki.certificatePem(root), publicMode],
    ...(Option.isSome(ca) ? [] : ([["rootCA.key", yield* Pki.keyPem(root), privateMode]] as const)),
    ["client.crt", Pki.certificatePem(client), publicMode],
    ["client.key", yield* Pki.keyPem(client), privateMode],
    ["server.crt", Pki.certificatePem(server), publicMode],
    ["server.key", yield* Pki.keyPem(server), privateMode]
  ] as const
  yield* Effect.tryPromise({
    try: () => NodeFs.mkdir(folder, { recursive: true, mode: 0o700 }),
    catch: (cause) => failed(`${folder} can't be made: ${String(cause)}`)
  })
  const present = new Set(yield* Effect.mapError(files.list(folder), ({ message }) => failed(message)))
  const taken = made.find(([name]) => present.has(name))
  if (taken !== undefined) {
    return yield* wrongUsage(`--dir: ${NodePath.join(folder, taken[0])} is there already: name another folder`)
  }
  for (const [name, content, mode] of made) {
    yield* Effect.mapError(files.write(NodePath.join(folder, name), content, { mode }), ({ message }) =>
      failed(message)
    )
  }
  screen.line(`wrote ${made.map(([name]) => name).join(", ")} to ${folder}`)
  screen.line(`for tests only: who reads ${Option.isSome(ca) ? "the root's key" : "rootCA.key"} can be any site`)
})

/**
 * @category commands
 * @since 0.1.0
 */
export const command = Command.make("certs", flags, (options) =>
  Effect.provide(certs(options), NodeAttach.layerPlatform)
).pipe(
  Command.withDescription(
    "Make a site's certificates for trying secure mode out; a project's real ones come from provisioning"
  ),
  Command.withExamples([
    { command: "fl-attach certs --dir pki/site-1 --site site-1", description: "A new root, and the files of a site" },
    {
      command: "fl-attach certs --dir pki/site-2 --site site-2 --ca pki/site-1",
      description: "Another site of the same root"
    }
  ])
)
