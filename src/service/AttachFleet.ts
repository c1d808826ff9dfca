/**
 * Several trainers on one cell: their backends are built when first asked for, and closed together.
 *
 * @since 0.1.0
 */
import { Context, Deferred, Effect, Equal, Exit, Layer, Scope } from "effect"
import type { SecureRandom } from "effect/crypto"
import { type AttachBackend, make } from "../attach/AttachBackend.ts"
import type { AttachOptions } from "../attach/AttachConfig.ts"
import { type AttachError, attachError, ConfigInvalid } from "../attach/AttachError.ts"
import type { AttachRoute } from "../attach/AttachRoute.ts"
import type { Cell } from "../cell/Cell.ts"

interface Member {
  readonly options: AttachOptions
  readonly scope: Scope.Closeable
  readonly built: Deferred.Deferred<AttachBackend["Service"], AttachError>
}

/**
 * @category services
 * @since 0.1.0
 */
export class AttachFleet extends Context.Service<
  AttachFleet,
  {
    /**
     * The backend of these options, built by the first call and kept until it is released or the fleet closes. A build
     * that failed is forgotten: the next call tries again, and the other members never notice. Fails with
     * `ConfigInvalid` when the attach id is in use with other options.
     */
    readonly get: (options: AttachOptions) => Effect.Effect<AttachBackend["Service"], AttachError>
    /** Closes one trainer's backend, if there is one; its attach id is free again after that. */
    readonly release: (attachId: string) => Effect.Effect<void>
  }
>()("fl-attach/service/AttachFleet") {
  /**
   * A fleet on the cell of its surroundings. Closing it closes all backends at the same time, each with its own bounds.
   *
   * @since 0.1.0
   */
  static readonly layer = (): Layer.Layer<AttachFleet, never, Cell | AttachRoute | SecureRandom.SecureRandom> =>
    Layer.effect(AttachFleet, makeFleet)
}

const makeFleet = Effect.gen(function* () {
  const services = yield* Effect.context<Cell | AttachRoute | SecureRandom.SecureRandom>()
  const fleet = yield* Effect.acquireRelease(Scope.make("parallel"), (scope, exit) => Scope.close(scope, exit))
  const members = new Map<string, Member>()

  const forget = (member: Member) => {
    if (members.get(member.options.attachId) === member) members.delete(member.options.attachId)
  }

  const build = Effect.fnUntraced(function* (member: Member) {
    const exit = yield* Effect.exit(make(member.options).pipe(Scope.provide(member.scope), Effect.provide(services)))
    if (Exit.isFailure(exit)) {
      forget(member)
      yield* Scope.close(member.scope, exit)
    }
    yield* Deferred.done(member.built, exit)
  })

  /** The build has a fiber of its own, so that it doesn't end with whoever asked first. */
  const start = Effect.fnUntraced(function* (options: AttachOptions) {
    const member: Member = { options, scope: Scope.forkUnsafe(fleet), built: Deferred.makeUnsafe() }
    members.set(options.attachId, member)
    yield* Effect.forkIn(build(member), member.scope)
    return member
  }, Effect.uninterruptible)

  const get = Effect.fn("AttachFleet.get")(function* (options: AttachOptions) {
    const known = members.get(options.attachId)
    if (known !== undefined && !Equal.equals(known.options, options)) {
      const message = `attachId: "${options.attachId}" is in use with other options; release it first`
      return yield* attachError(new ConfigInvalid({ setting: "attachId", message }))
    }
    const member = known ?? (yield* start(options))
    return yield* Deferred.await(member.built)
  })

  const release = Effect.fn("AttachFleet.release")(function* (attachId: string) {
    const member = members.get(attachId)
    if (member === undefined) return
    yield* Scope.close(member.scope, Exit.void)
    forget(member)
  }, Effect.uninterruptible)

  return AttachFleet.of({ get, release })
})
