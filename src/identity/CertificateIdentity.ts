/**
 * Which certificate may speak for which cell.
 *
 * A certificate names a participant (a site, a server, a relay) by its common name; a cell's name says to whom the
 * cell belongs. Source: docs/wire/cellnet.md, section 1.1; docs/wire/security.md, section 5.
 *
 * @since 0.1.0
 */
import { Result, Schema } from "effect"
import * as Fqcn from "./Fqcn.ts"

/**
 * What a cell knows of identities.
 *
 * @category models
 * @since 0.1.0
 */
export interface IdentityRules {
  /** The name of the cell that checks. */
  readonly local: string
  /** Common names of single cells; holds at least the local cell's. */
  readonly exact: ReadonlyMap<string, string>
  /** Common names of whole branches of cells, by their topmost name; the longest fitting one counts. */
  readonly prefixes: ReadonlyMap<string, string>
}

/**
 * A peer claims a name that its certificate does not allow.
 *
 * @category errors
 * @since 0.1.0
 */
export class IdentityMismatch extends Schema.TaggedError<IdentityMismatch>()("IdentityMismatch", {
  claimed: Schema.String,
  /** The common name that the claimed cell must have, where one is known. */
  expected: Schema.optionalKey(Schema.String),
  /** The common name of the peer's certificate, where it has one. */
  found: Schema.optionalKey(Schema.String),
  message: Schema.String
}) {}

/**
 * The rules of a cell that knows its site: every cell at or below `parent`, the site's client parent, needs the site's
 * certificate. `others` adds further branches, for instance the server's or a relay's.
 *
 * @category constructors
 * @since 0.1.0
 */
export const rulesOf = (options: {
  readonly local: string
  readonly parent: string
  readonly identity: string
  readonly others?: ReadonlyMap<string, string>
}): IdentityRules => ({
  local: options.local,
  exact: new Map([[options.local, options.identity]]),
  prefixes: new Map([...(options.others ?? []), [options.parent, options.identity]])
})

const trainerMark = "-client_api_"
const adminName = /^_admin_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i

const branchIdentity = ({ local, prefixes }: IdentityRules, fqcn: string): string | undefined => {
  const isOwnChild = Fqcn.isAncestor(local, fqcn)
  for (let branch = fqcn; branch !== ""; branch = Fqcn.parent(branch)) {
    const identity = prefixes.get(branch)
    // What stands above this cell does not speak for the cells below it.
    if (identity !== undefined && !(isOwnChild && Fqcn.isAncestor(branch, local))) {
      return identity
    }
  }
  return undefined
}

const resolve = (rules: IdentityRules, claimed: string): string => {
  const known = rules.exact.get(claimed) ?? branchIdentity(rules, claimed)
  if (known !== undefined) {
    return known
  }
  const parent = Fqcn.parent(claimed)
  // A trainer has its site's certificate.
  if (parent !== "" && Fqcn.leaf(claimed).startsWith(trainerMark)) {
    return resolve(rules, parent)
  }
  return Fqcn.isAncestor(rules.local, claimed) ? Fqcn.root(claimed.slice(rules.local.length + 1)) : Fqcn.root(claimed)
}

/**
 * The common name that the certificate of a cell must have. White space around the name does not count.
 *
 * @category combinators
 * @since 0.1.0
 */
export const expectedCommonName = (rules: IdentityRules, claimed: string): string =>
  resolve(
    rules,
    Result.getOrElse(Fqcn.validate(claimed), () => claimed)
  )

/**
 * Judges the own certificate of the cell that the rules are for, since peers with the same rules would refuse another;
 * fails with the reason, for people.
 *
 * @category guards
 * @since 0.1.0
 */
export const checkOwn = (rules: IdentityRules, found: string | undefined): Result.Result<void, string> =>
  Result.mapError(
    check(rules, rules.local, found),
    ({ message }) => `${message}, or, where it is the site's certificate, name it (identity)`
  )

/**
 * Judges a peer that claims a name, by the common name of its verified certificate (`undefined` or `N/A`: none).
 * Names of administrators' sessions are refused: no listener here is for them.
 *
 * @category guards
 * @since 0.1.0
 */
export const check = (
  rules: IdentityRules,
  claimed: string,
  found: string | undefined
): Result.Result<void, IdentityMismatch> => {
  if (adminName.test(claimed)) {
    const message = `${claimed} is the name of an administrator's session, which may not connect here`
    return Result.fail(new IdentityMismatch({ claimed, message }))
  }
  const expected = expectedCommonName(rules, claimed)
  if (found === undefined || found === "" || found === "N/A") {
    const message = `${claimed} shows no certificate with a common name, "${expected}" is needed: give it the certificate of ${expected}`
    return Result.fail(new IdentityMismatch({ claimed, expected, message }))
  }
  if (found === expected) {
    return Result.void
  }
  const message = `the certificate of "${found}" may not be used by ${claimed}, that of "${expected}" is needed: check the site's name, or give the cell the certificate of ${expected}`
  return Result.fail(new IdentityMismatch({ claimed, expected, found, message }))
}
