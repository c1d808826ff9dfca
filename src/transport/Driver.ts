/**
 * A driver carries whole frames to a peer, for the schemes that it names.
 *
 * It knows nothing of cells: it dials or listens, and hands out {@link FrameLink}s. Everything it opens belongs to the
 * Scope it was opened in. Source: docs/wire/transport.md, section 4.
 *
 * @since 0.1.0
 */
import type { Effect, Scope } from "effect"
import type { NonEmptyReadonlyArray } from "effect/Array"
import type { TransportError } from "./TransportError.ts"

/**
 * Where a link leads. Addresses are for people; `peerCommonName` is the CN of the peer's certificate where the
 * transport has verified one.
 *
 * @category models
 * @since 0.1.0
 */
export interface LinkInfo {
  readonly scheme: string
  readonly localAddress: string
  readonly peerAddress: string
  readonly peerCommonName?: string
  /** Where TLS is spoken: whether the listener alone has shown a certificate, or both ends. */
  readonly security?: "tls" | "mtls"
}

/**
 * One connection, as a carrier of whole frames in both directions, before any handshake.
 *
 * @category models
 * @since 0.1.0
 */
export interface FrameLink {
  readonly info: LinkInfo
  /**
   * Sends one frame, given as a vector of pieces (no copy is made before the socket or file). The pieces belong to the
   * link until the effect ends: don't change them before. Frames are sent whole and in the order of the calls.
   */
  readonly send: (frame: ReadonlyArray<Uint8Array>) => Effect.Effect<void, TransportError>
  /**
   * The next whole frames, in the order of arrival; suspends until there is at least one. Each frame is a view that
   * the caller owns from then on. Fails with `ConnectionClosed` when the link has ended, `BadData` on a broken frame.
   */
  readonly receive: Effect.Effect<NonEmptyReadonlyArray<Uint8Array>, TransportError>
  /**
   * How to give the memory of a received frame back to a link that uses it again; `undefined` for a frame whose memory
   * it does not use again. Who calls what is answered says that nobody looks at the frame any more, nor at a view of it:
   * its bytes may change at once. A frame that is never given back stays as it is; further calls do nothing.
   */
  readonly releaseOf?: (frame: Uint8Array) => (() => void) | undefined
}

/**
 * Text parameters of a connector, as a URL's query and the caller's resources give them.
 *
 * @category models
 * @since 0.1.0
 */
export type Resources = { readonly [name: string]: string | number | boolean }

/**
 * An open listener.
 *
 * @category models
 * @since 0.1.0
 */
export interface DriverListener {
  /** The URL by which a peer reaches this listener. */
  readonly connectUrl: string
  /** Waits for the next peer; the link lives as long as the Scope it is accepted in. */
  readonly accept: Effect.Effect<FrameLink, TransportError, Scope.Scope>
}

/**
 * Whose certificate a dialer shows.
 *
 * @category models
 * @since 0.1.0
 */
export interface Shown {
  /** `undefined` where the certificate has none. */
  readonly commonName: string | undefined
}

/**
 * A way to carry frames, for the schemes it names.
 *
 * @category models
 * @since 0.1.0
 */
export interface Driver {
  readonly schemes: ReadonlyArray<string>
  /**
   * Fails with `BadConfig` where the address or the files that the URL and `resources` name can't be used, whatever the
   * peer. Answers what the dialer will show; `undefined` where it shows no certificate.
   */
  readonly check?: (url: string, resources?: Resources) => Effect.Effect<Shown | undefined, TransportError>
  /** Dials `url`; the link lives as long as the Scope. */
  readonly connect: (url: string, resources?: Resources) => Effect.Effect<FrameLink, TransportError, Scope.Scope>
  /**
   * Opens a listener that lives as long as the Scope, either at a URL or, given a bare scheme, where `resources` say
   * (for `shared-file` the key `root_dir`).
   */
  readonly listen: (
    schemeOrUrl: string,
    resources?: Resources
  ) => Effect.Effect<DriverListener, TransportError, Scope.Scope>
}
