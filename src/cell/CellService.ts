/**
 * What a cell does.
 *
 * @since 0.1.0
 */
import type { Effect, Scope, Stream } from "effect"
import type { Resources } from "../transport/Drivers.ts"
import type { CellError } from "./CellError.ts"
import type {
  Address,
  CellReply,
  ConnectOptions,
  GuardRule,
  HandleOptions,
  Handler,
  Headers,
  LinkFailure,
  ListenOptions,
  PeerChange,
  PeerStatus,
  RequestOptions
} from "./CellTypes.ts"
import type { DownloadService } from "./DownloadTypes.ts"

/**
 * The service of a cell; see `Cell`.
 *
 * @category models
 * @since 0.1.0
 */
export interface CellService {
  readonly fqcn: string
  /** Whether it has credentials: only then can it send and take protected messages. */
  readonly isSecure: boolean
  /** Asks `target` and waits for its answer, whatever its return code; fails where there is none. */
  readonly request: (
    target: string,
    address: Address,
    payload: unknown,
    options: RequestOptions
  ) => Effect.Effect<CellReply, CellError>
  /** One-way: ends when the message was handed to the transport; delivery is not known. */
  readonly send: (
    target: string,
    address: Address,
    payload: unknown,
    options?: { readonly optional?: boolean; readonly secure?: boolean; readonly headers?: Headers }
  ) => Effect.Effect<void, CellError>
  /**
   * Serves an address, on the plain and the streamed path, until the Scope closes. With `origin`, only messages of
   * that cell; a message whose origin has no handler of its own goes to the newest handler of the address.
   */
  readonly handle: (
    address: Address,
    handler: Handler,
    options?: HandleOptions
  ) => Effect.Effect<void, never, Scope.Scope>
  /**
   * Offers the arrays of one message for download instead of sending them in it: its `references` go into the
   * request. Closing the Scope withdraws the offer, so keep it open until the arrays have been fetched.
   */
  readonly offer: DownloadService["offer"]
  /** Fails the downloads that run from a source, for `reason`, and so the messages that refer to them. */
  readonly cancelDownloads: DownloadService["cancel"]
  /**
   * The progress of all downloads, and of requests of more than one chunk, to this cell and from it, from now on. A slow
   * reader misses some.
   */
  readonly transfers: DownloadService["transfers"]
  /** The bytes of arrays that this cell takes inside one message: to be told to those that send it arrays. */
  readonly maxInlineBytes: number
  /** Adds a rule to the cell's guard until the Scope closes. */
  readonly guard: (rule: GuardRule) => Effect.Effect<void, never, Scope.Scope>
  /** Whether a direct connection to `peer` is up: the present value first, then each change. */
  readonly connected: (peer: string) => Stream.Stream<boolean>
  /**
   * Waits until every answer this cell owes `peer` has been computed and acknowledged by it, so that a route may be
   * taken down behind it. Not bounded by itself.
   */
  readonly flush: (peer: string) => Effect.Effect<void>
  /** Opens a listener for other cells until the Scope closes. */
  readonly listen: (
    schemeOrUrl: string,
    resources?: Resources,
    options?: ListenOptions
  ) => Effect.Effect<{ readonly connectUrl: string }, CellError, Scope.Scope>
  /** Dials `url` now and again after each loss, until the Scope closes. */
  readonly connect: (
    url: string,
    resources?: Resources,
    options?: ConnectOptions
  ) => Effect.Effect<void, CellError, Scope.Scope>
  /** The cells that are directly connected now, the oldest connection first. */
  readonly peers: Effect.Effect<ReadonlyArray<PeerStatus>>
  /** Connections that come and go, from the time of subscription on; a slow subscriber loses the oldest. */
  readonly peerChanges: Stream.Stream<PeerChange>
  /**
   * Of the connections with `peer`, and of those that this cell dials, the last that an error of the system or broken
   * data ended: what may have made a later request or lease fail. Kept after the connection is there again.
   */
  readonly linkFailure: (peer: string) => Effect.Effect<LinkFailure | undefined>
}
