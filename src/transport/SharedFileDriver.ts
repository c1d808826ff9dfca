/**
 * Connections through a directory that both peers see, for the scheme `shared-file`; no network is needed.
 *
 * Each direction is an append-only log that the other side reads. Changes are seen at once on a local disk, else by
 * polling; the rights on the directory are the only protection. Source: docs/wire/transport.md, section 9.
 *
 * @since 0.1.0
 */
import * as NodePath from "node:path"
import { Duration, Effect, Layer, type Scope } from "effect"
import { type Driver, Drivers, type Resources } from "./Drivers.ts"
import * as DriverTable from "./internal/driverTable.ts"
import { badConfig } from "./internal/errors.ts"
import { dial, randomName } from "./internal/sharedFile/dial.ts"
import * as Files from "./internal/sharedFile/files.ts"
import * as Janitor from "./internal/sharedFile/janitor.ts"
import * as Layout from "./internal/sharedFile/layout.ts"
import * as Listener from "./internal/sharedFile/listener.ts"
import { readSettings, type Settings } from "./internal/sharedFile/settings.ts"
import { listenerUrl, parseFileUrl, rootOf } from "./internal/sharedFile/url.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface Options {
  /**
   * How long the end of the driver's Scope may wait for peers to see that a listener has closed, before its directory
   * is removed under them. Default 1 second.
   */
  readonly linger?: Duration.Input
  /**
   * Whether the system is asked to tell of changes, beside polling. Default true; it does no harm where it can't.
   */
  readonly watch?: boolean
}

/** A new listener directory in a root: marker, `conns`, modes. */
const makeListenerDirectory = Effect.fnUntraced(function* (root: string, settings: Settings) {
  yield* Files.ensureDirectory(root, settings.dirMode)
  const directory = NodePath.join(root, `${Layout.listenerPrefix}${yield* randomName(4)}`)
  yield* Files.makeDirectory(directory, settings.dirMode)
  yield* Files.makeDirectory(Layout.connectionsOf(directory), settings.dirMode)
  yield* Files.createFile(Layout.markerOf(directory), settings.fileMode)
  return directory
}, Effect.uninterruptible)

/**
 * A driver for `shared-file://0/absolute/directory` URLs. It belongs to the Scope: a listener's directory is removed
 * when its peers have seen the end, which may be after the listener's own Scope has closed.
 *
 * `listen` with the bare scheme needs the resource `root_dir`. Both take the tuning of docs/wire/transport.md, section
 * 9.2, from resources or the URL's query (resources first): times in seconds, `max_log_size` in bytes, modes as octal
 * text. Both sides must agree on `max_log_size`; a peer takes it over from the URL.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fn("SharedFileDriver.make")(function* (
  options: Options = {}
): Effect.fn.Return<Driver, never, Scope.Scope> {
  const janitor = yield* Janitor.make(Duration.fromInputUnsafe(options.linger ?? "1 second"))

  const watch = options.watch ?? true
  const settingsOf = (url: string, resources: Resources | undefined) =>
    Effect.map(Effect.fromResult(readSettings(url, resources)), (settings): Settings => ({ ...settings, watch }))

  const connect: Driver["connect"] = Effect.fn("SharedFileDriver.connect")(function* (url, resources) {
    const directory = yield* Effect.fromResult(parseFileUrl(url))
    const settings = yield* settingsOf(url, resources)
    return yield* dial(directory, settings)
  })

  const listenInRoot = Effect.fnUntraced(function* (resources: Resources | undefined) {
    const root = yield* Effect.fromResult(rootOf(resources))
    const settings = yield* settingsOf("shared-file", resources)
    const directory = yield* makeListenerDirectory(root, settings)
    yield* janitor.sweep(root)
    return yield* Listener.make(directory, listenerUrl(directory, resources ?? {}), settings, janitor)
  })

  const listenAt = Effect.fnUntraced(function* (url: string, resources: Resources | undefined) {
    const directory = yield* Effect.fromResult(parseFileUrl(url))
    const settings = yield* settingsOf(url, resources)
    yield* Files.ensureDirectory(Layout.connectionsOf(directory), settings.dirMode)
    return yield* Listener.make(directory, url, settings, janitor)
  })

  const listen: Driver["listen"] = Effect.fn("SharedFileDriver.listen")(function* (schemeOrUrl, resources) {
    const scheme = DriverTable.schemeOf(schemeOrUrl)
    if (scheme !== "shared-file") {
      return yield* Effect.fail(badConfig("url", `${schemeOrUrl} is not of the scheme shared-file`))
    }
    return yield* schemeOrUrl.includes(":") ? listenAt(schemeOrUrl, resources) : listenInRoot(resources)
  })

  return { schemes: ["shared-file"], connect, listen }
})

/**
 * The driver as the program's only one.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options = {}): Layer.Layer<Drivers> =>
  Layer.effect(
    Drivers,
    Effect.map(make(options), (driver) => DriverTable.make([driver]))
  )
