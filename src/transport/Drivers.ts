/**
 * Which driver carries frames to a peer is chosen by the URL's scheme. Source: docs/wire/transport.md, section 4.
 *
 * @since 0.1.0
 */
import { Context, Effect, Layer, type Scope } from "effect"
import type { Driver } from "./Driver.ts"
import * as DriverTable from "./internal/driverTable.ts"
import type { TransportError } from "./TransportError.ts"

export type { Driver, DriverListener, FrameLink, LinkInfo, Resources, Shown } from "./Driver.ts"

/**
 * The drivers a program has, found by scheme.
 *
 * @category services
 * @since 0.1.0
 */
export class Drivers extends Context.Service<
  Drivers,
  {
    /** The driver for a URL or bare scheme; fails with `BadConfig` naming the schemes there are. */
    readonly forUrl: (schemeOrUrl: string) => Effect.Effect<Driver, TransportError>
  }
>()("fl-attach/transport/Drivers") {
  /** The given drivers; where two name the same scheme, the later one has it. */
  static readonly layer = (drivers: ReadonlyArray<Driver>): Layer.Layer<Drivers> =>
    Layer.succeed(Drivers, DriverTable.make(drivers))

  /** The same of drivers that hold something, as long as the layer lives. */
  static readonly layerScoped = <E = never, R = never>(
    drivers: ReadonlyArray<Effect.Effect<Driver, E, R>>
  ): Layer.Layer<Drivers, E, Exclude<R, Scope.Scope>> =>
    Layer.effect(Drivers, Effect.map(Effect.all(drivers), DriverTable.make))
}
