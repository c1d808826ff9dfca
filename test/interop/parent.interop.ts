/**
 * Service and trainer as children of a client parent: who is what, in all combinations of ours and the unmodified Python
 * ones, over all schemes; and again with the parent killed in a round and started anew. `npm run test:interop` has each
 * combination of roles once, and each scheme with each role played by both; `npm run test:interop:full` has all.
 */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { isLong } from "../support/long.ts"
import { python } from "./peers.ts"
import { inline, makeSite, runSite, type Scheme, type Side, schemes, startService, startTrainer } from "./site.ts"

const sides: ReadonlyArray<Side> = ["ours", "Python"]
const other = (side: Side): Side => (side === "ours" ? "Python" : "ours")

/** Parent, service, trainer. */
type Roles = readonly [Side, Side, Side]

const allRoles: ReadonlyArray<Roles> = sides.flatMap((parent) =>
  sides.flatMap((service) => sides.map((trainer) => [parent, service, trainer] as const))
)

interface Case {
  readonly scheme: Scheme
  readonly roles: Roles
  readonly mib: number
  /** Whether Python's arrays are within the messages, or fetched. */
  readonly isInline: boolean
}

const full: ReadonlyArray<Case> = schemes.flatMap((scheme) =>
  allRoles.flatMap((roles) => [
    { scheme, roles, mib: 4, isInline: true },
    { scheme, roles, mib: 64, isInline: false }
  ])
)

/** Four of the eight combinations of roles, each with its opposite, one such pair for each scheme. */
const chosen: ReadonlyArray<Case> = allRoles.slice(0, 4).flatMap(([parent, service, trainer], index) => {
  const scheme = schemes[index] ?? "tcp"
  return [
    { scheme, roles: [parent, service, trainer] as const, mib: 4, isInline: true },
    { scheme, roles: [other(parent), other(service), other(trainer)] as const, mib: 4, isInline: false }
  ]
})

describe.skipIf(python === "")("through a client parent", () => {
  for (const { isInline, mib, roles, scheme } of isLong ? full : chosen) {
    const [parent, service, trainer] = roles
    const way = isInline ? "inline" : "fetched"
    it.live(`${scheme}: parent ${parent}, service ${service}, trainer ${trainer}; ${mib} MiB, arrays ${way}`, () =>
      runSite(scheme, parent, service, trainer, { rounds: 2, mib, env: isInline ? inline : {} })
    )
  }
})

describe.skipIf(python === "")("through a client parent that is killed in a round", () => {
  const cases = [
    ["ours", "ours"],
    ["ours", "Python"],
    ["Python", "ours"]
  ] as const
  for (const scheme of isLong ? schemes : (["tcp"] as const)) {
    for (const [parent, service] of cases) {
      it.live(`${scheme}: parent ${parent}, service ${service}, a Python trainer at work; the round completes`, () =>
        Effect.gen(function* () {
          const site = yield* makeSite(parent, scheme)
          const work = { rounds: 1, mib: 3, env: inline }
          const first = yield* site.startParent
          const { check } = yield* startService(service, site, work)
          // It sends its result once all are connected again: a Python trainer tries twice, and gives up.
          const mark = join(site.dir, "connected")
          const trainer = yield* startTrainer("Python", site, work, "--wait-for", mark)
          yield* trainer.says('"event": "received"')
          first.process.kill("SIGKILL")
          yield* first.ended
          const second = yield* site.startParent
          yield* second.connected("site-1.job-1")
          yield* second.connected("site-1.-client_api_trainer_a")
          writeFileSync(mark, "")
          const trained = yield* trainer.ended
          assert.strictEqual(trained.code, 0, trained.out + trained.err)
          yield* check
        })
      )
    }
  }
})
