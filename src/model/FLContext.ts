/**
 * The context of a peer, which travels in the headers of tasks from a real server.
 *
 * Source: docs/wire/fobs.md, section 3.3.
 *
 * @since 0.1.0
 */

/**
 * The public properties of a peer, each `{ value, mask }`; mask bit 1 means sticky, bit 2 private. A trainer needs only
 * to let it pass. `props` is what the peer sent, unchecked.
 *
 * @category models
 * @since 0.1.0
 */
export class FLContext {
  readonly model: unknown
  readonly props: unknown
  constructor(model: unknown, props: unknown) {
    this.model = model
    this.props = props
  }

  /** The value of a property; `undefined` where there is none. */
  get(name: string): unknown {
    const prop: unknown = this.props instanceof Map ? this.props.get(name) : undefined
    return prop instanceof Map ? prop.get("value") : undefined
  }
}
