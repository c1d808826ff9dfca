/** What happens in one simulation, all of it drawn from a seed. Times are milliseconds. */

export interface Task {
  /** Elements of the model's only array. */
  readonly size: number
  /** How long training takes. */
  readonly train: number
  readonly fails: boolean
  /** When the service gives the task up, counted from its call. */
  readonly interruptAfter: number | undefined
}

/** Something that goes wrong with one trainer, or its connection. */
interface Trouble {
  readonly at: number
  /** `kill`: the trainer's process is gone without a word; `crash`: its connection tells. */
  readonly kind: "lose" | "cut" | "freeze" | "kill" | "crash"
  readonly for: number
}

export interface TrainerPlan {
  readonly id: string
  readonly startsAt: number
  /** How long after its end a trainer is started again, and how often. */
  readonly restartAfter: number
  readonly restarts: number
  readonly tasks: ReadonlyArray<Task>
  readonly troubles: ReadonlyArray<Trouble>
}

export interface Scenario {
  readonly seed: number
  readonly latency: number
  readonly rates: { readonly drop: number; readonly duplicate: number; readonly cut: number; readonly delay: number }
  readonly maxDelay: number
  readonly allowReconnect: boolean
  readonly heartbeatInterval: number
  readonly heartbeatTimeout: number
  readonly resultWaitTimeout: number | undefined
  readonly trainers: ReadonlyArray<TrainerPlan>
  /** When the service is killed and started anew. */
  readonly serviceRestart: { readonly at: number; readonly isKill: boolean } | undefined
  /** When the service closes, tasks or not; without, it closes when they are over. */
  readonly closeAt: number | undefined
  /** Whether a client parent stands between the service and its trainers, instead of a listener of the service's own. */
  readonly isBehindParent: boolean
  /** Whether large arrays are fetched, instead of coming inside their message. */
  readonly isFetched: boolean
}

/** A small generator of its own: one seed, one scenario, on every machine. */
const generator = (seed: number) => {
  let state = Math.imul(seed + 1, 0x9e3779b9) >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let z = state
    z = Math.imul(z ^ (z >>> 15), z | 1)
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61)
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32
  }
  const int = (from: number, to: number) => from + Math.floor(next() * (to - from + 1))
  const chance = (probability: number) => next() < probability
  const pick = <A>(...options: readonly [A, ...ReadonlyArray<A>]): A =>
    options[int(0, options.length - 1)] ?? options[0]
  const times = <A>(from: number, to: number, make: (index: number) => A) =>
    Array.from({ length: int(from, to) }, (_, index) => make(index))
  return { next, int, chance, pick, times }
}

/** The longest time in which troubles begin. */
const horizon = 25_000

export const scenarioOf = (seed: number): Scenario => {
  const { chance, int, next, pick, times } = generator(seed)
  const heartbeatInterval = pick(500, 1000)
  const heartbeatTimeout = pick(3000, 6000)
  const isNoisy = chance(0.5)
  const rate = (highest: number) => (isNoisy && chance(0.6) ? next() * highest : 0)
  const trouble = (): Trouble => {
    const kind = pick<Trouble["kind"]>("lose", "cut", "freeze", "kill", "crash")
    // Shorter or longer than the lease.
    const length = chance(0.5) ? int(50, heartbeatTimeout - 100) : int(heartbeatTimeout + 100, 3 * heartbeatTimeout)
    return { at: int(0, horizon), kind, for: length }
  }
  const task = (): Task => ({
    size: pick(1, 10, 1000, 100_000),
    train: chance(0.3) ? 0 : int(0, 4000),
    fails: chance(0.1),
    interruptAfter: chance(0.08) ? int(0, 5000) : undefined
  })
  return {
    seed,
    latency: pick(0, 0, int(1, 80)),
    rates: { drop: rate(0.04), duplicate: rate(0.1), cut: rate(0.01), delay: rate(0.2) },
    maxDelay: int(10, 1500),
    allowReconnect: chance(0.7),
    heartbeatInterval,
    heartbeatTimeout,
    resultWaitTimeout: chance(0.2) ? int(500, 6000) : undefined,
    trainers: times(1, 3, (index) => ({
      id: `t${index}`,
      startsAt: chance(0.5) ? 0 : int(0, 3000),
      restartAfter: int(0, 3000),
      restarts: int(0, 4),
      tasks: times(1, 5, task),
      troubles: chance(0.75) ? times(1, 3, trouble).sort((a, b) => a.at - b.at) : []
    })),
    serviceRestart: chance(0.15) ? { at: int(500, horizon), isKill: chance(0.5) } : undefined,
    closeAt: chance(0.15) ? int(0, horizon) : undefined,
    isBehindParent: chance(0.35),
    isFetched: chance(0.5)
  }
}
