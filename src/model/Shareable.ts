/**
 * The envelope of a task or result: headers and a body. Most users never meet it.
 *
 * Source: docs/wire/fobs.md, section 5.1.
 *
 * @since 0.1.0
 */

/**
 * Header names that this library reads or writes.
 *
 * @category constants
 * @since 0.1.0
 */
export const Header = {
  returnCode: "__rc__",
  contentType: "__content_type__",
  startRound: "start_round",
  currentRound: "current_round",
  totalRounds: "num_rounds",
  validateType: "_validate_type",
  submitModelName: "submit_model_name",
  jobId: "job_id",
  siteName: "site_name"
} as const

/**
 * The entry that holds the headers.
 *
 * @category constants
 * @since 0.1.0
 */
export const headersKey = "__headers__"

/**
 * A map with headers. Unknown headers and entries are kept.
 *
 * @category models
 * @since 0.1.0
 */
export class Shareable {
  readonly headers: ReadonlyMap<string, unknown>
  /** The entries beside `__headers__`. */
  readonly entries: ReadonlyMap<unknown, unknown>
  constructor(headers?: Iterable<readonly [string, unknown]>, entries?: Iterable<readonly [unknown, unknown]>) {
    this.headers = new Map(headers)
    this.entries = new Map(entries)
  }

  /** `OK` where the header is absent. */
  get returnCode(): string {
    const code = this.headers.get(Header.returnCode)
    return typeof code === "string" ? code : "OK"
  }

  /** A copy with these headers set. */
  withHeaders(headers: Iterable<readonly [string, unknown]>): Shareable {
    return new Shareable([...this.headers, ...headers], this.entries)
  }
}
