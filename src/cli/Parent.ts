/**
 * `fl-attach parent`: a site's client parent, which services and trainers connect to.
 *
 * @since 0.1.0
 */
import { DateTime, Effect, Option, Schedule, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import type { PeerStatus } from "../cell/Cell.ts"
import { ClientParent, type ParentChange } from "../parent/ClientParent.ts"
import * as NodeAttach from "../service/NodeAttach.ts"
import * as Flags from "./internal/flags.ts"
import {
  certs,
  checkCerts,
  checkScheme,
  connectionSecurity,
  identity,
  type NetworkOptions,
  resourcesOf
} from "./internal/networkFlags.ts"
import { Screen } from "./internal/Screen.ts"
import { plural } from "./internal/ServeView.ts"
import { failureInFlags } from "./internal/settingFlags.ts"

const flags = {
  site: Flag.String("site").pipe(Flag.withDescription("The site's name; behind a relay <relay>.<site> (required)")),
  listen: Flag.String("listen").pipe(
    Flag.withMetavar("url"),
    Flag.withDescription(
      "Where services and trainers connect, such as tcp://127.0.0.1:18104; several are possible (required)"
    ),
    Flag.atLeast(1)
  ),
  certs,
  connectionSecurity,
  upstream: Flag.String("upstream").pipe(
    Flag.withMetavar("url"),
    Flag.withDescription("The cell above, a relay for instance"),
    Flag.optional
  ),
  identity,
  status: Flags.duration("status", "Print who is connected, and the traffic, this often").pipe(Flag.optional)
}

interface Options extends NetworkOptions {
  readonly site: string
  readonly listen: ReadonlyArray<string>
  readonly upstream: Option.Option<string>
  readonly identity: Option.Option<string>
  readonly status: Option.Option<Parameters<typeof Schedule.spaced>[0]>
}

const units = ["B", "KiB", "MiB", "GiB", "TiB"] as const

const formatBytes = (bytes: number): string => {
  const step = bytes < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10))
  return step === 0 ? `${bytes} B` : `${(bytes / 1024 ** step).toFixed(1)} ${units[step]}`
}

const formatTime = (millis: number): string =>
  Option.match(DateTime.make(millis), { onNone: () => "?", onSome: (time) => DateTime.formatIso(time).slice(0, 19) })

const describePeer = (peer: PeerStatus): string =>
  [
    `${peer.name} (${peer.address}) since ${formatTime(peer.since)}Z`,
    `received ${plural(peer.framesReceived, "frame")}, ${formatBytes(peer.bytesReceived)}`,
    `sent ${plural(peer.framesSent, "frame")}, ${formatBytes(peer.bytesSent)}`,
    ...(peer.bytesWaiting === 0 ? [] : [`${formatBytes(peer.bytesWaiting)} waiting`])
  ].join("; ")

/** A line for what happened; refusals are warnings already. */
const describeChange = (change: ParentChange): string | undefined => {
  switch (change._tag) {
    case "Connected":
      return `${change.name} connected (${change.address})`
    case "Replaced":
      return `${change.name} connected anew (${change.address}), in the place of ${change.before}`
    case "Disconnected":
      return `${change.name} is gone (${change.address}): ${change.why}`
    case "UpstreamDown":
      return `no connection to ${change.url}: ${change.why}`
    case "Refused":
      return undefined
  }
}

const isOpenToAll = (url: string): boolean => {
  const match = /^(?:tcp|atcp|http|grpc|agrpc):\/\/([^:/]*)/i.exec(url)
  return match !== null && !/^(?:localhost|127\..*)$/i.test(match[1] ?? "")
}

/** Opens the parent and passes messages on until it is interrupted. */
const parent = Effect.fn("parent")(function* (options: Options) {
  const screen = yield* Screen
  yield* checkCerts(options)
  for (const url of options.listen) yield* checkScheme("--listen", url, options)
  if (Option.isSome(options.upstream)) yield* checkScheme("--upstream", options.upstream.value, options)
  const resources = resourcesOf(options)
  const opened = yield* ClientParent.make({
    site: options.site,
    listeners: options.listen.map((url) => ({ url, resources })),
    ...(Option.isSome(options.identity) ? { identity: options.identity.value } : {}),
    ...(Option.isSome(options.upstream) ? { upstream: { url: options.upstream.value, resources } } : {})
  })
  let last: string | undefined
  yield* Effect.forkScoped(
    Stream.runForEach(opened.changes, (change) =>
      Effect.sync(() => {
        const line = describeChange(change)
        // Each failed attempt upwards says the same.
        if (line !== undefined && line !== last) screen.line(line)
        last = line
      })
    ),
    { startImmediately: true }
  )
  for (const url of opened.connectUrls) screen.line(`${opened.fqcn} listens at ${url}`)
  for (const url of opened.connectUrls.filter(isOpenToAll)) {
    yield* Effect.logWarning(
      `${url} is in clear and not on the loopback interface: whoever reaches it may take the name of any child; use stcp with --certs, or an isolated network`
    )
  }
  const peers = Effect.map(opened.status, ({ children, upstream }) =>
    [...(upstream === undefined ? [] : [upstream]), ...children].map(describePeer)
  )
  if (screen.isTerminal) {
    yield* Effect.forkScoped(Effect.repeat(Effect.map(peers, screen.bars), Schedule.spaced("1 second")))
  }
  if (Option.isSome(options.status)) {
    const print = Effect.map(peers, (lines) => {
      screen.line(`${plural(lines.length, "cell")} connected`)
      for (const line of lines) screen.line(`  ${line}`)
    })
    yield* Effect.forkScoped(Effect.schedule(print, Schedule.spaced(options.status.value)))
  }
  return yield* Effect.never
}, Effect.scoped)

/**
 * @category commands
 * @since 0.1.0
 */
export const command = Command.make("parent", flags, (options) =>
  parent(options).pipe(Effect.provide(NodeAttach.layerPlatform), Effect.mapError(failureInFlags))
).pipe(
  Command.withDescription("The site's client parent: services and trainers connect to it, and it passes messages on"),
  Command.withExamples([
    {
      command: "fl-attach parent --site site-1 --listen tcp://127.0.0.1:18104",
      description: "In clear, for this machine alone"
    },
    {
      command: "fl-attach parent --site site-1 --listen stcp://0:18105 --certs /etc/site-1/startup",
      description: "For the site's network, with the certificates that provisioning made"
    }
  ])
)
