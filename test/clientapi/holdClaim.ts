// Run by node: claims and publishes attach id t1 of site-1 in the root named by the first argument, then holds it.
import { Effect } from "effect"
import * as Rendezvous from "../../src/clientapi/Rendezvous.ts"
import { node } from "./rendezvousSupport.ts"

const root = process.argv[2] ?? ""

const program = Effect.gen(function* () {
  const claim = yield* Rendezvous.claim({ root, siteName: "site-1", attachId: "t1" })
  yield* claim.publish({ cjFqcn: "site-1.job-1", connectUrl: `shared-file://0${root}/lst_0123abcd` })
  process.stdout.write(claim.instanceId)
  return yield* Effect.never
})

// A fiber that waits keeps no process alive; an open stdin does, and ends with the test that started this.
process.stdin.resume()
process.stdin.once("end", () => process.exit())

Effect.runFork(Effect.scoped(program).pipe(Effect.provide(node)))
