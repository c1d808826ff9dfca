/** Whether this is `npm run test:long`, which does more of the same. */
import { inject } from "vitest"

declare module "vitest" {
  export interface ProvidedContext {
    /** Set by the project "long" alone. */
    readonly isLong: boolean
  }
}

export const isLong: boolean = inject("isLong") === true

/** How often: `count`, or `factor` times as often in `npm run test:long`. */
export const times = (count: number, factor = 10): number => (isLong ? count * factor : count)

/** A test's time limit in milliseconds. */
export const within = (millis: number): number => (isLong ? 1_200_000 : millis)
