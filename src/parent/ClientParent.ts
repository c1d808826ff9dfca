/**
 * A site's client parent (CP): the cell that services and trainers of a site connect to, and that passes their messages
 * on.
 *
 * It never decodes what it passes on: payloads go through as views of the bytes that came, headers but for the few that
 * a hop has to write. A child that takes nothing holds back, at last, those who send to it, and nobody else.
 *
 * Source: docs/wire/cellnet.md, sections 4, 6 and 12.
 *
 * @since 0.1.0
 */
import { Context, type Duration, Effect, Layer, PubSub, Result, type Scope, Stream } from "effect"
import type { SecureRandom } from "effect/crypto"
import { Cell, type PeerChange, type PeerStatus } from "../cell/Cell.ts"
import type { CellError } from "../cell/CellError.ts"
import * as Fqcn from "../identity/Fqcn.ts"
import type { Drivers, Resources } from "../transport/Drivers.ts"
import { ConfigInvalid, ListenFailed, ParentError, UpstreamInvalid } from "./ParentError.ts"
import * as PeerAdmission from "./PeerAdmission.ts"

/**
 * Where a parent listens, or which cell it dials: a URL, and what its driver needs to know beside it (certificates, for
 * instance).
 *
 * @category models
 * @since 0.1.0
 */
export interface Endpoint {
  readonly url: string
  readonly resources?: Resources
}

/**
 * @category models
 * @since 0.1.0
 */
export interface ParentOptions {
  /** The parent's name: the site's, behind a relay `<relay>.<site>`. */
  readonly site: string
  /** One or more; services and trainers may use different ones. */
  readonly listeners: ReadonlyArray<Endpoint>
  /** The cell above, a relay for instance. Messages for cells that are not below this one go there. */
  readonly upstream?: Endpoint & {
    /** The common name of its certificate. Default: what its name says. */
    readonly identity?: string
  }
  /** The common name of the site's certificate. Default: the last part of the site's name. */
  readonly identity?: string
  /** Whether the children are other sites' parents, with certificates of their own. Default false. */
  readonly isRelay?: boolean
  /** How long a peer may take to say its name. Default 30 seconds. */
  readonly handshakeTimeout?: Duration.Input
  /** After so much silence of a peer it is sent a PING. Default 60 seconds. */
  readonly heartbeatInterval?: Duration.Input
  /** How long a closing parent waits for its peers to answer its bye. Default 0.5 seconds. */
  readonly byeTimeout?: Duration.Input
  /** Bytes that may wait for one child before those who send to it are held back. Default 256 MiB. */
  readonly forwardBytes?: number
  /** Bytes that may wait for all children together. Default 1 GiB. */
  readonly forwardTotalBytes?: number
  /** Whether children may speak for themselves and the cells below them only; see `CellOptions`. Default true. */
  readonly bindOrigins?: boolean
}

/**
 * Who is connected now, and what went over the connections.
 *
 * @category models
 * @since 0.1.0
 */
export interface ParentStatus {
  /** The cell above, while it is connected. */
  readonly upstream: PeerStatus | undefined
  readonly children: ReadonlyArray<PeerStatus>
}

/**
 * What happens at a parent's doors: connections that come, take the place of an older one of the same name, or end; peers
 * that are refused; attempts to reach the cell above that fail.
 *
 * @category models
 * @since 0.1.0
 */
export type ParentChange =
  | PeerChange
  | { readonly _tag: "Refused"; readonly name: string; readonly address: string; readonly why: string }
  | { readonly _tag: "UpstreamDown"; readonly url: string; readonly why: string }

/**
 * @category services
 * @since 0.1.0
 */
export class ClientParent extends Context.Service<
  ClientParent,
  {
    readonly fqcn: string
    /** The URLs by which peers reach the listeners, in the order of the options. */
    readonly connectUrls: ReadonlyArray<string>
    readonly status: Effect.Effect<ParentStatus>
    /** From the time of subscription on; a slow subscriber loses the oldest. */
    readonly changes: Stream.Stream<ParentChange>
  }
>()("fl-attach/parent/ClientParent") {
  /**
   * A parent as a layer; see {@link make}.
   *
   * @category layers
   * @since 0.1.0
   */
  static readonly layer = (
    options: ParentOptions
  ): Layer.Layer<ClientParent, ParentError, Drivers | SecureRandom.SecureRandom> =>
    Layer.effect(ClientParent, make(options))
  /**
   * @see {@link make}
   * @since 0.1.0
   */
  static readonly make = (options: ParentOptions) => make(options)
}

const invalid = (setting: string, message: string): ParentError =>
  new ParentError({ reason: new ConfigInvalid({ setting, message }) })

/** A URL that its driver can't use is a wrong setting; anything else may be another time. */
const noListener = (url: string, { message, reason }: CellError): ParentError =>
  reason._tag === "CellMisconfigured" && reason.setting === "url"
    ? invalid("listeners", message)
    : new ParentError({ reason: new ListenFailed({ url, message }) })

const changesKept = 1024

const checkName = (site: string) =>
  Result.mapError(Fqcn.validate(site), ({ message }) => invalid("site", `the site's name can't be used: ${message}`))

/**
 * Opens a parent in the present Scope; closing it says bye to all. Fails when a name or a URL can't be used, or a
 * listener not opened. A cell above that is not there yet is dialed again and again.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fn("ClientParent.make")(function* (
  options: ParentOptions
): Effect.fn.Return<ClientParent["Service"], ParentError, Drivers | SecureRandom.SecureRandom | Scope.Scope> {
  const fqcn = yield* Effect.fromResult(checkName(options.site))
  if (options.listeners.length === 0) {
    return yield* invalid("listeners", "a client parent needs at least one listener: name its URL")
  }
  const { upstream } = options
  const rules: PeerAdmission.AdmissionRules = {
    fqcn,
    identity: options.identity ?? Fqcn.leaf(fqcn),
    isRelay: options.isRelay ?? false,
    upstreamIdentity: upstream?.identity
  }
  const own = yield* Effect.acquireRelease(PubSub.sliding<ParentChange>(changesKept), PubSub.shutdown)

  /** Tells of a refusal, to who watches and in the log. */
  const telling =
    (verify: PeerAdmission.Verify): PeerAdmission.Verify =>
    (name, info) =>
      Effect.tapError(verify(name, info), ({ message }) =>
        Effect.andThen(
          PubSub.publish(own, { _tag: "Refused", name, address: info.peerAddress, why: message }),
          Effect.logWarning(`${fqcn} refuses ${name}: ${message}`)
        )
      )

  const cell = yield* Effect.mapError(Cell.make(cellOptions(fqcn, options)), ({ message }) => invalid("site", message))
  const connectUrls: Array<string> = []
  for (const { resources, url } of options.listeners) {
    const listener = yield* cell
      .listen(url, resources, { verify: telling(PeerAdmission.forChildren(rules)) })
      .pipe(Effect.mapError((error) => noListener(url, error)))
    connectUrls.push(listener.connectUrl)
  }
  if (upstream !== undefined) {
    const { resources, url } = upstream
    const onDown = ({ message: why }: { readonly message: string }) =>
      PubSub.publish(own, { _tag: "UpstreamDown", url, why })
    yield* cell
      .connect(url, resources, { verify: PeerAdmission.forUpstream(rules), onDown: (e) => Effect.asVoid(onDown(e)) })
      .pipe(Effect.mapError(({ message }) => new ParentError({ reason: new UpstreamInvalid({ url, message }) })))
  }
  return ClientParent.of({
    fqcn,
    connectUrls,
    status: Effect.map(cell.peers, (peers) => ({
      upstream: peers.find(({ dialed }) => dialed),
      children: peers.filter(({ dialed }) => !dialed)
    })),
    changes: Stream.merge(cell.peerChanges, Stream.fromPubSub(own))
  })
})

const cellOptions = (fqcn: string, options: ParentOptions) => {
  const {
    bindOrigins = true,
    byeTimeout,
    forwardBytes,
    forwardTotalBytes,
    handshakeTimeout,
    heartbeatInterval
  } = options
  return {
    fqcn,
    bindOrigins,
    ...(byeTimeout === undefined ? {} : { byeTimeout }),
    ...(forwardBytes === undefined ? {} : { forwardBytes }),
    ...(forwardTotalBytes === undefined ? {} : { forwardTotalBytes }),
    ...(handshakeTimeout === undefined ? {} : { handshakeTimeout }),
    ...(heartbeatInterval === undefined ? {} : { heartbeatInterval })
  }
}
